"""What an axiom is, and an axiom file, once read; `vetting.py` says what is allowed in one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prism.egraph.sexpr import Atom, Form, SExpr
from prism.egraph.signature import Sort, constructors

VARIABLE = re.compile(r"[a-z][a-z0-9]*")


@dataclass(frozen=True, slots=True)
class Axiom:
    """An equation. `conditions` are facts; `family` names the file it comes from."""

    name: str
    family: str
    ruleset: str
    left: Form
    right: SExpr
    conditions: tuple[Form, ...]
    is_bidirectional: bool
    sentence: str
    line: int

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{self.family}.egg:{self.line}"

    def variables(self) -> Mapping[str, Sort]:
        """The variables of both sides and what each stands for."""
        found: dict[str, Sort] = {}
        for side in (self.left, self.right):
            for name, sort in _variables(side, Sort.TERM):
                found.setdefault(name, sort)
        return found


@dataclass(frozen=True, slots=True)
class AxiomFile:
    """A file of axioms by name (`prism/elementwise.egg`) and its text."""

    name: str
    text: str

    @property
    def is_table(self) -> bool:
        """Whether it is a table of operators, which has no axioms."""
        return self.name.endswith(".toml")

    @property
    def family(self) -> str:
        """The name without its ending."""
        return self.name.removesuffix(".egg")


def _variables(expr: SExpr, sort: Sort) -> Iterator[tuple[str, Sort]]:
    if isinstance(expr, Atom):
        if VARIABLE.fullmatch(expr.text):
            yield expr.text, sort
        return
    known = constructors().get(expr.head)
    sorts = known.arguments if known else (Sort.TERM,) * (len(expr.items) - 1)
    for item, inner in zip(expr.items[1:], sorts, strict=True):
        yield from _variables(item, inner)
