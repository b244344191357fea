"""How users' operators pass through tiles, copies and partial sums: rules that follow from a table.

An elementwise operator of tiles is the tile of the operator, and so for copies; one that acts
along a dim k lets tiles along other dims through, never along k. Where the meaning is linear in an
operand (`prism.ir.operators` derives it), a sum over blocks of that operand comes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from prism.ir import OPS, Definition

_VARIABLES = "xyzw"


def passage_text(definition: Definition) -> str:
    """The rules, as an axiom file has them."""
    return "\n".join(f"{rule}\n" for rule in (*_distributed(definition), *_linear(definition)))


def _name(definition: Definition) -> str:
    return definition.name.replace("_", "-").strip("-").replace("--", "-")


def _applied(definition: Definition, operands: list[str]) -> str:
    dim = () if definition.dim is None else ("k",)
    return f"({' '.join((definition.constructor, *operands, *dim))})"


def _distributed(definition: Definition) -> Iterator[str]:
    """Part and Repl move outwards."""
    names = list(_VARIABLES[: len(definition.operands)])
    plain = _applied(definition, names)
    for ways in product(("part", "repl"), repeat=len(names)):
        operands = [
            f"(Part {name} d p)" if way == "part" else f"(Repl {name} p)"
            for name, way in zip(names, ways, strict=True)
        ]
        result = f"(Part {plain} d p)" if "part" in ways else f"(Repl {plain} p)"
        conditions: list[str] = []
        if "part" in ways:
            whole = (n for n, way in zip(names, ways, strict=True) if way == "repl")
            conditions = [f"(lacks {name} d)" for name in whole]
            conditions += ["(!= d k)"] if definition.dim is not None else []
        yield _rule(_applied(definition, operands), result, conditions, definition, ways)


def _linear(definition: Definition) -> Iterator[str]:
    """The sum over blocks comes out of an operand in which the operator is linear."""
    names = list(_VARIABLES[: len(definition.operands)])
    for place in OPS[definition.name].linear_in:
        inner = [n if i == place else f"(Repl {n} p)" for i, n in enumerate(names)]
        outer = [f"(Red {n} p)" if i == place else n for i, n in enumerate(names)]
        left = f"(Red {_applied(definition, inner)} p)"
        yield _rule(left, _applied(definition, outer), [], definition, ("red", names[place]))


def _rule(
    left: str, right: str, conditions: list[str], definition: Definition, words: tuple[str, ...]
) -> str:
    when = f" :when ({' '.join(conditions)})" if conditions else ""
    name = "-".join((_name(definition), *words))
    return f'(rewrite {left} {right}{when} :ruleset parallel :name "{name}")'
