"""The sort of terms and its analyses, generated from the operator table.

Terms are functions of named axes. A *data* dimension and a *parallel* dimension are integers (bit
positions), so that two analyses can be bit masks:

  dims   the data dimensions the value may vary along
  pars   the parallel dimensions the value carries: one value per block or iteration

The operators' constructors come from `OPS`, so that a new row is a new constructor; the parallel
ones (paper, section 5) are listed here. `Scale` and `Unscale` multiply and divide by the size d_p,
a layer of their own so that no cancellation modulo associativity is ever needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType

from prism.egraph.sexpr import Form, read
from prism.ir import OPS


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


def _collect(part: Template, found: dict[str, Constructor]) -> None:
    for inner in part.parts:
        if isinstance(inner, Template):
            _collect(inner, found)
    if part.head != "Size":
        sorts = (_E,) * len(part.parts) + (_D,) * part.has_dim
        effect = Effect.DROP_DATA if part.has_dim else Effect.NONE
        found[part.head] = Constructor(part.head, sorts, effect)


@cache
def operator_constructors() -> Mapping[str, Constructor]:
    """The constructors the templates of `OPS` mention."""
    found: dict[str, Constructor] = {}
    for name in OPS:
        _collect(template(name), found)
    return MappingProxyType(found)


@cache
def constructors() -> Mapping[str, Constructor]:
    """Every constructor of the generated sort by name."""
    return MappingProxyType(
        {**{c.name: c for c in (*LEAVES, *PARALLEL)}, **operator_constructors()}
    )


@cache
def simple_operators() -> Mapping[str, str]:
    """Constructor -> operator, for rows of `OPS` whose term is that single constructor."""
    out: dict[str, str] = {}
    for name in OPS:
        term = template(name)
        if all(isinstance(part, int) for part in term.parts):
            out[term.head] = name
    return MappingProxyType(out)


def declarations(declared: Iterable[Constructor]) -> str:
    """The egglog text of sort, rulesets, constructors and the rules of the analyses."""
    lines = ["(sort E)", *(f"(ruleset {name})" for name in RULESETS)]
    lines += [f"(function {f} (E) i64 :merge (& old new))" for f in ("dims", "pars")]
    for c in declared:
        lines.append(f"(constructor {c.name} ({' '.join(s.egglog for s in c.arguments)}) E)")
        # Of an array the insertion states both. What combines parallel values gets neither: its
        # class has them once a rule has found a term without it. So `pars = 0` says that a class
        # has a term in which nothing is distributed, and the algebra may treat it as whole.
        if c.name != "Input" and c.effect not in {Effect.DROP_PAR, Effect.STACK}:
            lines.append(_analysis(c))
    return "\n".join(lines)


def _analysis(c: Constructor) -> str:
    """The rule that computes both analyses of one constructor."""
    names = tuple(f"a{i}" for i in range(len(c.arguments)))
    terms = range(c.term_count)
    dims = " ".join(f"d{i}" for i in terms)
    pars = " ".join(f"p{i}" for i in terms)
    match c.term_count:
        case 0:
            dims, pars = "0", "0"
        case 1:
            pass
        case _:
            dims, pars = f"(| {dims})", f"(| {pars})"
    if c.effect is Effect.DROP_DATA:
        dims = f"(- {dims} (& {dims} (<< 1 {names[-1]})))"
    if c.effect is Effect.ADD_PAR:
        pars = f"(| {pars} (<< 1 {names[-1]}))"
    facts = [f"(= e ({c.name} {' '.join(names)}))"]
    facts += [f"(= d{i} (dims a{i})) (= p{i} (pars a{i}))" for i in terms]
    return (
        f"(rule ({' '.join(facts)}) ((set (dims e) {dims}) (set (pars e) {pars}))"
        f' :ruleset {ANALYSES} :name "analysis {c.name}")'
    )
