"""The constructors of terms, generated from the operator table.

Terms are functions of named axes. A *data* dimension and a *parallel* dimension are integers (bit
positions), so that the dimensions of a value are a bit mask (`prism.egraph.analyses`).

The operators' constructors come from `OPS`, so that a new row is a new constructor; the parallel
ones (paper, section 5) are listed here. `Scale` and `Unscale` multiply and divide by the size d_p,
a layer of their own so that no cancellation modulo associativity is ever needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType

from prism.egraph.sexpr import Form, read
from prism.ir import OPS, Definition, OpKind


class Sort(Enum):
    """What an argument of a constructor is."""

    TERM = "term"
    DATA = "data dimension"
    PAR = "parallel dimension"
    TEXT = "string"

    @property
    def egglog(self) -> str:
        """The egglog sort."""
        match self:
            case Sort.TERM:
                return "E"
            case Sort.DATA | Sort.PAR:
                return "i64"
            case Sort.TEXT:
                return "String"


class Effect(Enum):
    """What a constructor does to `dims` and `pars` of its arguments (which it unites first)."""

    NONE = "none"
    DROP_DATA = "drops the data dimension"
    ALONG_DATA = "has the data dimension, and needs all of it"
    ADD_PAR = "adds the parallel dimension"
    DROP_PAR = "drops the parallel dimension"
    STACK = "drops the parallel dimension, adds the data dimension"


@dataclass(frozen=True, slots=True)
class Constructor:
    """A constructor: its arguments (terms first) and its effect on the analyses."""

    name: str
    arguments: tuple[Sort, ...]
    effect: Effect = Effect.NONE

    @property
    def term_count(self) -> int:
        """How many arguments are terms."""
        return self.arguments.count(Sort.TERM)


_E, _D, _P = Sort.TERM, Sort.DATA, Sort.PAR

LEAVES = (
    Constructor("Input", (Sort.TEXT,)),
    Constructor("Const", (Sort.TEXT,)),
    Constructor("Size", (_D,)),
)

PARALLEL = (
    Constructor("Part", (_E, _D, _P), Effect.ADD_PAR),
    Constructor("Repl", (_E, _P), Effect.ADD_PAR),
    Constructor("Comb", (_E, _D, _P), Effect.DROP_PAR),
    Constructor("Red", (_E, _P), Effect.DROP_PAR),
    Constructor("RedMax", (_E, _P), Effect.DROP_PAR),
    Constructor("Pick", (_E, _P), Effect.DROP_PAR),
    Constructor("Stack", (_E, _D, _P), Effect.STACK),
    Constructor("Scale", (_E, _P)),
    Constructor("Unscale", (_E, _P)),
)
"""Part, Comb, Red (sum), RedMax (largest), Repl as in the paper; Pick is any one copy of a
replicated value; Stack is Comb along a new data dimension."""

ANALYSES, PAR_RULES, ALGEBRA, ALGEBRA_VERIFY = RULESETS = (
    "analyses",
    "parallel",
    "algebra",
    "algebra-verify",
)
"""Files may use all but `analyses`. `algebra` serves generation and verification, `algebra-verify`
(rules that would blow up the generation e-graph) verification alone. Rules of both are applied to
whole values only: the loader adds the condition `pars = 0`."""


@dataclass(frozen=True, slots=True)
class Template:
    """The term of an operator: a constructor over operands (integers) and further templates.

    `has_dim`: it takes the operator's dimension.
    """

    head: str
    parts: tuple[int | Template, ...]
    has_dim: bool

    def heads(self) -> frozenset[str]:
        """The constructors in it."""
        inner = (part.heads() for part in self.parts if isinstance(part, Template))
        return frozenset({self.head}).union(*inner)


@cache
def template(op: str) -> Template:
    """The term template of an operator, taken apart once."""
    (form,) = read(OPS[op].term, f"OPS[{op!r}].term")
    return _template(form)


def _template(form: Form) -> Template:
    parts: list[int | Template] = []
    for item in form.items[1:]:
        if isinstance(item, Form):
            parts.append(_template(item))
        elif item.text != "{dim}":
            parts.append(int(item.text.strip("{}")))
    return Template(form.head, tuple(parts), any(str(item) == "{dim}" for item in form.items))


def _collect(part: Template, dim_effect: Effect, found: dict[str, Constructor]) -> None:
    for inner in part.parts:
        if isinstance(inner, Template):
            _collect(inner, dim_effect, found)
    if part.head != "Size":
        sorts = (_E,) * len(part.parts) + (_D,) * part.has_dim
        effect = dim_effect if part.has_dim else Effect.NONE
        found[part.head] = Constructor(part.head, sorts, effect)


@dataclass(frozen=True, slots=True)
class _Tables:
    """What follows from the rows of `OPS`."""

    operators: Mapping[str, Constructor]
    constructors: Mapping[str, Constructor]
    simple: Mapping[str, str]


@cache
def _tables(_row_count: int) -> _Tables:
    """Worked out once for so many rows: they are only ever added."""
    found: dict[str, Constructor] = {}
    simple: dict[str, str] = {}
    for name, row in OPS.items():
        term = template(name)
        along = row.kind is OpKind.ALONG
        _collect(term, Effect.ALONG_DATA if along else Effect.DROP_DATA, found)
        if all(isinstance(part, int) for part in term.parts):
            simple[term.head] = name
    leaves = {c.name: c for c in (*LEAVES, *PARALLEL)}
    return _Tables(
        MappingProxyType(found),
        MappingProxyType({**leaves, **found}),
        MappingProxyType(simple),
    )


def operator_constructors() -> Mapping[str, Constructor]:
    """The constructors the templates of `OPS` mention."""
    return _tables(len(OPS)).operators


def constructors() -> Mapping[str, Constructor]:
    """Every constructor of the generated sort by name."""
    return _tables(len(OPS)).constructors


def simple_operators() -> Mapping[str, str]:
    """Constructor -> operator, for rows of `OPS` whose term is that single constructor."""
    return _tables(len(OPS)).simple


def definition_of(constructor: str) -> Definition | None:
    """What a user defined the operator of a constructor by; None for our own."""
    op = simple_operators().get(constructor)
    return None if op is None else OPS[op].definition
