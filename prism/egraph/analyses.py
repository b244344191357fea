"""The egglog text of the sort of terms and of its analyses, generated from tables.

  dims    bit mask of the data dimensions a value may vary along
  pars    bit mask of the parallel dimensions it carries: one value per block or iteration
  known   what is known of its entries, wherever it is defined (`facts`): not negative, not zero;
          and whether it is defined everywhere
  value   the number that a term is, if it is made of constants: an exact fraction

The last two serve the rules that ask for them, and are declared only with them. Both are about
whole values alone: what combines or distributes blocks gets neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import and_
from types import MappingProxyType
from typing import NamedTuple, assert_never

from prism.egraph.facts import DEFINED, NONNEG, NONZERO
from prism.egraph.signature import (
    ANALYSES,
    PARALLEL,
    RULESETS,
    Constructor,
    Effect,
    Template,
    definition_of,
    template,
)
from prism.ir import (
    Call,
    Choice,
    Definition,
    Expression,
    Extent,
    Flip,
    Index,
    Literal,
    Operand,
    Roll,
)


@dataclass(frozen=True, slots=True)
class Extras:
    """Which analyses there are beside `dims` and `pars`."""

    known: bool = False
    value: bool = False


PLAIN = Extras()


class Known(NamedTuple):
    """What is known of a value, each 0 or 1: as numbers, or as egglog terms (`Bit`)."""

    nonneg: int
    nonzero: int
    defined: int

    @property
    def positive(self) -> int:
        """More than zero, wherever it is defined."""
        return self.nonneg & self.nonzero


_NOTHING = Known(0, 0, 0)


def _joint(a: Known, b: Known) -> Known:
    return Known(a.nonneg & b.nonneg, a.nonzero & b.nonzero, a.defined & b.defined)


def _like(a: Known) -> Known:
    return a


def _only_defined(a: Known) -> Known:
    return Known(0, 0, a.defined)


def _sum(a: Known) -> Known:
    return Known(a.nonneg, a.positive, a.defined)


# A reciprocal can be zero: that of 1/0. So it is not zero where the value is defined, and only so.
KNOWN: Mapping[str, Callable[..., Known]] = MappingProxyType(
    {
        "Input": lambda: Known(0, 0, 1),
        "Size": lambda: Known(1, 1, 1),
        "Add": lambda a, b: Known(
            a.nonneg & b.nonneg,
            a.nonneg & b.nonneg & (a.nonzero | b.nonzero),
            a.defined & b.defined,
        ),
        "Sub": lambda a, b: Known(0, 0, a.defined & b.defined),
        "Mul": _joint,
        "Matmul": lambda a, b: _sum(_joint(a, b)),
        "Div": lambda a, b: Known(
            a.nonneg & b.nonneg, a.nonzero & b.defined, a.defined & b.defined & b.nonzero
        ),
        "Recip": lambda a: Known(a.nonneg, a.defined, a.defined & a.nonzero),
        "Neg": lambda a: Known(0, a.nonzero, a.defined),
        "Exp": lambda a: Known(1, 1, a.defined),
        "Log": lambda a: Known(0, 0, a.defined & a.positive),
        "Sqrt": lambda a: Known(1, a.nonzero, a.defined & a.nonneg),
        "Square": lambda a: Known(1, a.nonzero, a.defined),
        "Abs": lambda a: Known(1, a.nonzero, a.defined),
        "Relu": lambda a: Known(1, a.positive, a.defined),
        "Silu": _only_defined,
        "GeluTanh": _only_defined,
        "GeluErf": _only_defined,
        "Sigmoid": lambda a: Known(1, 1, a.defined),
        "Tanh": _like,
        "Maximum": lambda a, b: Known(
            a.nonneg | b.nonneg,
            (a.nonzero & b.nonzero) | a.positive | b.positive,
            a.defined & b.defined,
        ),
        "Minimum": _joint,
        "Sum": _sum,
        "MaxOver": _like,
    }
)
"""What follows for the result of each constructor from what is known of its arguments."""

VALUES: Mapping[str, str] = MappingProxyType(
    {
        "Add": "(+ v0 v1)",
        "Sub": "(- v0 v1)",
        "Mul": "(* v0 v1)",
        "Div": "(/ v0 v1)",
        "Recip": "(/ one v0)",
        "Neg": "(- zero v0)",
        "Square": "(* v0 v0)",
        "Abs": "(abs v0)",
        "Maximum": "(max v0 v1)",
        "Minimum": "(min v0 v1)",
    }
)
"""The number that an operator makes of numbers. No number is divided by zero."""

_ZERO, _ONE = "(bigrat (bigint 0) (bigint 1))", "(bigrat (bigint 1) (bigint 1))"


class Bit(str):
    """An egglog term that is 0 or 1."""

    __slots__ = ()

    def __and__(self, other: object) -> Bit:
        return self._with("&", other)

    def __or__(self, other: object) -> Bit:
        return self._with("|", other)

    __rand__ = __and__
    __ror__ = __or__

    def _with(self, operator: str, other: object) -> Bit:
        return Bit(f"({operator} {self} {other})")


def declarations(declared: Iterable[Constructor], extras: Extras = PLAIN) -> str:
    """The egglog text of sort, rulesets, constructors and the rules of the analyses."""
    lines = ["(sort E)", *(f"(ruleset {name})" for name in RULESETS)]
    lines += [f"(function {f} (E) i64 :merge (& old new))" for f in ("dims", "pars")]
    if extras.known:
        lines.append("(function known (E) i64 :merge (| old new))")
    if extras.value:
        lines += ["(function value (E) BigRat :merge old)", _SAME_VALUE]
    for c in declared:
        lines.append(f"(constructor {c.name} ({' '.join(s.egglog for s in c.arguments)}) E)")
        # Of an array the insertion states both. What combines parallel values gets neither: its
        # class has them once a rule has found a term without it. So `pars = 0` says that a class
        # has a term in which nothing is distributed, and the algebra may treat it as whole.
        if c.name != "Input" and c.effect not in {Effect.DROP_PAR, Effect.STACK}:
            lines.append(_dims_and_pars(c))
        if c.name == "Const" or c in PARALLEL:
            continue
        if extras.known:
            lines += _knowing(c)
        if extras.value and c.name in VALUES:
            lines.append(_evaluating(c))
    return "\n".join(lines)


def constant_facts(term: str, text: str, extras: Extras) -> list[str]:
    """The actions that state what is known of the constant `term`, written `text`."""
    number = float(text)
    if not math.isfinite(number):
        return []
    out: list[str] = []
    if extras.known:
        bits = NONNEG * (number >= 0) | NONZERO * (number != 0) | DEFINED
        out.append(f"(set (known {term}) {bits})")
    if extras.value:
        # as written: 0.1 is a tenth, not the float nearest to it
        numerator, denominator = Fraction(text).as_integer_ratio()
        out.append(f"(set (value {term}) (bigrat {_integer(numerator)} {_integer(denominator)}))")
    return out


def literal_facts(texts: Collection[str], extras: Extras) -> str:
    """The same for the constants that rules speak of, which may occur without being inserted."""
    if extras == PLAIN:
        return ""
    lines = (constant_facts(f'(Const "{text}")', text, extras) for text in sorted(texts))
    return "\n".join(line for found in lines for line in found)


def _integer(number: int) -> str:
    return f'(from-string "{number}")'


def _names(c: Constructor) -> tuple[str, ...]:
    return tuple(f"a{i}" for i in range(len(c.arguments)))


def _rule(facts: Iterable[str], action: str, name: str) -> str:
    return f'(rule ({" ".join(facts)}) ({action}) :ruleset {ANALYSES} :name "{name}")'


def _united(masks: Sequence[str]) -> str:
    """The union of bit masks."""
    return reduce(lambda a, b: f"(| {a} {b})", masks) if masks else "0"


def _dims_and_pars(c: Constructor) -> str:
    """The rule that computes both masks of one constructor."""
    names = _names(c)
    terms = range(c.term_count)
    dims, pars = (_united([f"{mask}{i}" for i in terms]) for mask in "dp")
    if c.effect is Effect.DROP_DATA:
        dims = f"(- {dims} (& {dims} (<< 1 {names[-1]})))"
    if c.effect is Effect.ALONG_DATA:
        dims = f"(| {dims} (<< 1 {names[-1]}))"
    if c.effect is Effect.ADD_PAR:
        pars = f"(| {pars} (<< 1 {names[-1]}))"
    facts = [f"(= e ({c.name} {' '.join(names)}))"]
    facts += [f"(= d{i} (dims a{i})) (= p{i} (pars a{i}))" for i in terms]
    return _rule(facts, f"(set (dims e) {dims}) (set (pars e) {pars})", f"analysis {c.name}")


def _defined_by(definition: Definition, operands: Sequence[Known]) -> Known:
    """What is known of a user's operator, from its meaning.

    Signs where its operands are anything at all; whether it is defined where all of them are.
    """
    anything, is_defined = (
        _known_value(definition.meaning, [Known(0, 0, bit)] * len(operands)) for bit in (0, 1)
    )
    defined = reduce(and_, (operand.defined for operand in operands))
    return Known(
        int(anything.nonneg),
        int(anything.nonzero) | (int(is_defined.nonzero) & defined),
        int(is_defined.defined) & defined,
    )


def _known_value(  # noqa: PLR0911 - a case per form
    part: Expression, operands: Sequence[Known]
) -> Known:
    match part:
        case Literal(value=value):
            return Known(value >= 0, value != 0, 1)
        case Operand(place=place):
            return operands[place]
        case Call(op="mul", operands=(a, b)) if a == b:
            return KNOWN["Square"](_known_value(a, operands))
        case Call(op=op, operands=inner):
            return _known_term(template(op), [_known_value(p, operands) for p in inner])
        case Choice(yes=yes, no=no):
            return _joint(_known_value(yes, operands), _known_value(no, operands))
        case Roll(value=value) | Flip(value=value):
            return _known_value(value, operands)
        case Index():
            return Known(1, 0, 1)
        case Extent():
            return Known(1, 1, 1)
        case _:
            assert_never(part)


def _known_term(term: Template, operands: Sequence[Known]) -> Known:
    inner = (operands[p] if isinstance(p, int) else _known_term(p, operands) for p in term.parts)
    return KNOWN[term.head](*inner)


def _knowing(c: Constructor) -> list[str]:
    """The rules that compute `known` of one constructor; of a helper nothing is known."""
    names, terms = _names(c), range(c.term_count)
    operands = [
        Known(*(Bit(f"(& (>> k{i} {bit}) 1)") for bit in range(3)))  # type: ignore[arg-type]
        for i in terms
    ]
    definition = definition_of(c.name)
    if definition is not None:
        nonneg, nonzero, defined = _defined_by(definition, operands)
    else:
        nonneg, nonzero, defined = KNOWN[c.name](*operands) if c.name in KNOWN else _NOTHING
    mask = f"(| {nonneg} (| (<< {nonzero} 1) (<< {defined} 2)))"
    facts = [f"(= e ({c.name} {' '.join(names)}))", *(f"(= k{i} (known a{i}))" for i in terms)]
    rules = [_rule(facts, f"(set (known e) {mask})", f"known {c.name}")]
    if c.name == "Mul":
        square = ("(= e (Mul a a))", "(= k (known a))")
        rules.append(_rule(square, f"(set (known e) (| {NONNEG} k))", "known square"))
    return rules


def _evaluating(c: Constructor) -> str:
    """The rule that computes `value` of one constructor."""
    terms = range(c.term_count)
    facts = [f"(= e ({c.name} {' '.join(_names(c))}))", *(f"(= v{i} (value a{i}))" for i in terms)]
    text = VALUES[c.name].replace("one", _ONE).replace("zero", _ZERO)
    if text.startswith("(/"):
        facts.append(f"(!= v{c.term_count - 1} {_ZERO})")
    return _rule(facts, f"(set (value e) {text})", f"value {c.name}")


_SAME_VALUE = _rule(
    ("(= v (value a))", "(= v (value b))", "(!= a b)"), "(union a b)", "equal numbers"
)
