"""Named facts: what an axiom may ask of its variables beside comparing numbers (one table).

A fact is about the dimensions of a value (which follow from its type), about a size, or about the
entries of a value: then it holds wherever the value is defined, and the e-graph knows it by the
analysis `known` (`prism.egraph.analyses`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from prism.egraph.sexpr import Form
from prism.egraph.signature import Sort

NONNEG, NONZERO, DEFINED = 1, 2, 4
"""Bits of the analysis `known`: no entry is negative, none is zero, each is a number."""


class About(Enum):
    """What decides a fact."""

    DIMS = "the dimensions of values"
    SIZE = "a size"
    ENTRIES = "the entries of a value"


@dataclass(frozen=True, slots=True)
class NamedFact:
    """A fact: its arguments, and how egglog asks for it (`{0}`, `{1}` are the arguments).

    `holds` decides it from dimensions, `bits` are those of `known` that it needs.
    """

    name: str
    arguments: tuple[Sort, ...]
    about: About
    egglog: str
    holds: Callable[..., bool] | None = None
    bits: int = 0


def _entries(name: str, bits: int) -> NamedFact:
    text = f"(= {bits} (& (known {{0}}) {bits}))"
    return NamedFact(name, (Sort.TERM,), About.ENTRIES, text, bits=bits)


_ROWS = (
    NamedFact(
        "lacks",
        (Sort.TERM, Sort.DATA),
        About.DIMS,
        "(= 0 (& (dims {0}) (<< 1 {1})))",
        lambda dims, k: k not in dims,
    ),
    NamedFact(
        "has",
        (Sort.TERM, Sort.DATA),
        About.DIMS,
        "(!= 0 (& (dims {0}) (<< 1 {1})))",
        lambda dims, k: k in dims,
    ),
    NamedFact(
        "same-dims",
        (Sort.TERM, Sort.TERM),
        About.DIMS,
        "(= (dims {0}) (dims {1}))",
        lambda a, b: a == b,
    ),
    NamedFact(
        "covers",
        (Sort.TERM, Sort.TERM),
        About.DIMS,
        "(= (dims {0}) (| (dims {0}) (dims {1})))",
        lambda a, b: a >= b,
    ),
    NamedFact("single", (Sort.DATA,), About.SIZE, '(= (Size {0}) (Const "1.0"))'),
    _entries("nonneg", NONNEG),
    _entries("nonzero", NONZERO),
    _entries("positive", NONNEG | NONZERO),
    _entries("defined", DEFINED),
)

FACTS: Mapping[str, NamedFact] = MappingProxyType({row.name: row for row in _ROWS})
"""Name -> fact."""


def named(condition: Form) -> NamedFact | None:
    """The fact that a side condition names; None for a comparison of numbers."""
    return FACTS.get(condition.head)


def egglog_text(condition: Form) -> str:
    """A side condition as egglog reads it."""
    fact = named(condition)
    return str(condition) if fact is None else fact.egglog.format(*condition.items[1:])


def facts_about(about: About, conditions: Iterable[Form]) -> Iterator[tuple[NamedFact, str]]:
    """The facts of one kind among side conditions, each with the variable it is about."""
    for condition in conditions:
        fact = named(condition)
        if fact is not None and fact.about is about:
            yield fact, str(condition.items[1])


def needed_bits(conditions: Iterable[Form]) -> dict[str, int]:
    """For each variable what has to be known of its entries."""
    bits: dict[str, int] = {}
    for fact, variable in facts_about(About.ENTRIES, conditions):
        bits[variable] = bits.get(variable, 0) | fact.bits
    return bits


def single_dims(conditions: Iterable[Form]) -> frozenset[str]:
    """The variables of dimensions that have to be of size one."""
    return frozenset(variable for _, variable in facts_about(About.SIZE, conditions))
