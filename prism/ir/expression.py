"""The language in which a user's operator says what it computes, as data from a stranger.

It is the arithmetic of Python over the operands and the elementwise operators of `OPS`:

  x * sigmoid(1.702 * x)              x ** 3                 where(x > y, x, 0.1 * y)
  along a dim k also: roll(x, k, n) and flip(x, k) (as NumPy's), index(k) and size(k)

`expression_reader.py` reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any, assert_never

import numpy as np

from prism.ir.ops import BUILT_IN, OpKind

BY_NAME: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {row.name: row.numpy for row in BUILT_IN if row.kind is OpKind.ELEMENTWISE}
)
"""The operators that an expression may call, and what they mean."""

CONSTANTS: Mapping[str, Fraction] = MappingProxyType({"pi": Fraction(repr(math.pi))})

WORDS = frozenset({*BY_NAME, *CONSTANTS, "where", "roll", "flip", "index", "size"})
"""Names that mean something in an expression, and can be no operand's."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A number."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand, by its place."""

    place: int


@dataclass(frozen=True, slots=True)
class Call:
    """An elementwise operator of `OPS`."""

    op: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of two values: `yes` where `left > right`, else `no`."""

    left: Expression
    right: Expression
    yes: Expression
    no: Expression


@dataclass(frozen=True, slots=True)
class Roll:
    """A value moved along the dim by whole places (rounded down); what leaves it comes in again."""

    value: Expression
    by: Expression


@dataclass(frozen=True, slots=True)
class Flip:
    """A value in reverse order along the dim."""

    value: Expression


@dataclass(frozen=True, slots=True)
class Index:
    """0, 1, 2, ... along the dim."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of the dim."""


Expression = Literal | Operand | Call | Choice | Roll | Flip | Index | Extent

Values = Any
"""An array, of floats or of other numbers, or one number."""


def parts(expression: Expression) -> tuple[Expression, ...]:
    """The expressions that one is directly made of."""
    match expression:
        case Call(operands=operands):
            return operands
        case Choice(left, right, yes, no):
            return left, right, yes, no
        case Roll(value, by):
            return value, by
        case Flip(value):
            return (value,)
        case Literal() | Operand() | Index() | Extent():
            return ()
        case _:
            assert_never(expression)


def walk(expression: Expression) -> Iterator[Expression]:
    """An expression and everything in it."""
    yield expression
    for part in parts(expression):
        yield from walk(part)


@dataclass(frozen=True, slots=True)
class Along:
    """Where the dim is: its axis, and its size."""

    axis: int
    size: int


def evaluate_expression(
    expression: Expression,
    operands: Sequence[Values],
    along: Along | None = None,
    scalar: Callable[[Fraction], Values] = float,
) -> Values:
    """The value over operands that are aligned for broadcasting.

    `scalar` makes numbers like those of the operands.
    """
    return _Evaluation(tuple(operands), along, scalar).value(expression)


@dataclass(slots=True)
class _Evaluation:
    """Values by expression: what occurs twice is computed once."""

    operands: tuple[Values, ...]
    along: Along | None
    scalar: Callable[[Fraction], Values]
    known: dict[Expression, Values] = field(default_factory=dict)

    def value(self, expression: Expression) -> Values:
        if expression not in self.known:
            self.known[expression] = self.computed(expression)
        return self.known[expression]

    def computed(  # noqa: PLR0911 - a case per form
        self, expression: Expression
    ) -> Values:
        match expression:
            case Literal(value=value):
                return self.scalar(value)
            case Operand(place=place):
                return self.operands[place]
            case Call(op=op, operands=operands):
                return BY_NAME[op](*map(self.value, operands))
            case Choice(left, right, yes, no):
                test = np.asarray(np.greater(self.value(left), self.value(right)), dtype=bool)
                return np.where(test, self.value(yes), self.value(no))
            case Roll(value, by):
                return np.roll(self.value(value), self.shift(by), self.place.axis)
            case Flip(value):
                return np.flip(self.value(value), self.place.axis)
            case Index():
                return self.index()
            case Extent():
                return self.scalar(Fraction(self.place.size))
            case _:
                assert_never(expression)

    @property
    def place(self) -> Along:
        assert self.along is not None
        return self.along

    def shift(self, by: Expression) -> int:
        """Places in whole numbers; none where the number of them is undefined."""
        number = float(_Evaluation((), self.along, float).value(by))
        return math.floor(number) % self.place.size if math.isfinite(number) else 0

    def index(self) -> Values:
        rank = max(np.ndim(operand) for operand in self.operands)
        shape = [1] * rank
        shape[self.place.axis] = self.place.size
        return np.arange(float(self.place.size)).reshape(shape)
