"""Numbers without rounding: what a term means over the reals, to referee the test over floats.

`Number` holds a fraction, the one infinity that 1/0 is (its reciprocal is 0, as in floating point,
but it has no sign), or nothing where a value is undefined. Arrays of them go through the same NumPy
functions of `OPS` as floats do. Sums, products, quotients and comparisons are exact; roots,
exponentials and logarithms are right to `DIGITS` digits.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from prism.egraph.bank import TermNode
from prism.egraph.meaning import Meaning
from prism.egraph.signature import definition_of, template

DIGITS = 60
MOST_EXPONENT = 2_000
"""Of larger exponents no exponential is taken: numbers of a thousand digits are slow."""
MOST_BITS = 20_000
"""Of a numerator or denominator."""

RATIONAL = frozenset(
    {
        "Abs", "Add", "Comb", "Const", "Div", "Input", "Matmul", "MaxOver", "Maximum", "Minimum",
        "Mul", "Neg", "Part", "Pick", "Recip", "Red", "RedMax", "Relu", "Repl", "Scale", "Size",
        "Square", "Stack", "Sub", "Sum", "Unscale",
    }
)  # fmt: skip
"""Constructors that make rational numbers of rational numbers, without any rounding."""

PRECISE = RATIONAL | {"Exp", "Log", "Sqrt", "Sigmoid", "Silu", "Tanh", "GeluTanh"}
"""Constructors that have a meaning in `Number`."""


def is_rational(heads: Iterable[str]) -> bool:
    """Whether terms of these constructors are computed without any rounding."""
    return _written_out(heads) <= RATIONAL


def is_precise(heads: Iterable[str]) -> bool:
    """Whether terms of these constructors have a meaning in `Number`."""
    return _written_out(heads) <= PRECISE


def _written_out(heads: Iterable[str]) -> set[str]:
    """Constructors, a user's replaced by those of its meaning."""
    out: set[str] = set()
    for head in heads:
        definition = definition_of(head)
        if definition is None:
            out.add(head)
        else:
            out.update(*(template(op).heads() for op in definition.basic_ops))
    return out


class TooLargeError(ArithmeticError):
    """A value that is not worth its digits."""


class Infinite:
    """1/0. There is one, without a sign."""

    __slots__ = ()

    def __repr__(self) -> str:
        """As people read it."""
        return "infinite"


INFINITE = Infinite()
_Value = Fraction | Infinite | None
_Numbers = np.ndarray[Any, Any]


def _operand(other: object) -> _Value:
    match other:
        case Number(value=value):
            return value
        case Fraction():
            return other
        case int() | float() | np.number():
            number = float(other)
            return Fraction(repr(number)) if np.isfinite(number) else None
        case _:
            raise TypeError(f"{other!r} is no number")


def _affordable(value: Fraction) -> Fraction:
    """The value, if it is worth its digits: those of a square of a square grow without end.

    Raises:
        TooLargeError: it is not.
    """
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        raise TooLargeError("a number of too many digits")
    return value


def _add(a: _Value, b: _Value) -> _Value:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return _affordable(a + b)
    if a is None or b is None or (a is INFINITE and b is INFINITE):
        return None
    return INFINITE


def _multiply(a: _Value, b: _Value) -> _Value:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return _affordable(a * b)
    if a is None or b is None or a == 0 or b == 0:
        return None
    return INFINITE


def _reciprocal(a: _Value) -> _Value:
    if isinstance(a, Fraction):
        return 1 / a if a else INFINITE
    return None if a is None else Fraction(0)


def _smooth(function: Callable[[Decimal], Decimal], a: Fraction) -> Fraction:
    with decimal.localcontext() as context:
        context.prec = DIGITS
        context.Emax, context.Emin = decimal.MAX_EMAX, decimal.MIN_EMIN
        return Fraction(function(Decimal(a.numerator) / Decimal(a.denominator)))


def _exp(a: Fraction) -> Fraction:
    if abs(a) > MOST_EXPONENT:
        raise TooLargeError(f"the exponential of {float(a):g}")
    return _smooth(Decimal.exp, a)


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """A fraction, infinite, or undefined (None)."""

    value: _Value

    # NumPy's object loops call these
    def __add__(self, other: object) -> Number:
        return Number(_add(self.value, _operand(other)))

    def __sub__(self, other: object) -> Number:
        return self + -Number(_operand(other))

    def __rsub__(self, other: object) -> Number:
        return Number(_operand(other)) + -self

    def __mul__(self, other: object) -> Number:
        return Number(_multiply(self.value, _operand(other)))

    def __truediv__(self, other: object) -> Number:
        return Number(_multiply(self.value, _reciprocal(_operand(other))))

    def __rtruediv__(self, other: object) -> Number:
        return Number(_operand(other)) / self

    def __pow__(self, exponent: int) -> Number:
        return self if exponent == 1 else self * self ** (exponent - 1)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Number:
        return Number(-self.value) if isinstance(self.value, Fraction) else self

    def __abs__(self) -> Number:
        return Number(abs(self.value)) if isinstance(self.value, Fraction) else self

    def __ge__(self, other: object) -> bool:
        """Of two values NumPy keeps the first if this holds: the undefined one wins."""
        return self._beats(other, lambda a, b: a >= b)

    def __le__(self, other: object) -> bool:
        """See `__ge__`."""
        return self._beats(other, lambda a, b: a <= b)

    def __gt__(self, other: object) -> bool:
        """Larger, where both are defined."""
        a, b = self.value, _operand(other)
        return isinstance(a, Fraction) and isinstance(b, Fraction) and a > b

    def __lt__(self, other: object) -> bool:
        """Smaller, where both are defined."""
        return Number(_operand(other)) > self

    def _beats(self, other: object, wins: Callable[[Fraction, Fraction], bool]) -> bool:
        a, b = self.value, _operand(other)
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return wins(a, b)
        return not isinstance(a, Fraction)

    def exp(self) -> Number:
        """Undefined where the value is not finite."""
        return Number(_exp(self.value) if isinstance(self.value, Fraction) else None)

    def log(self) -> Number:
        """Of zero it is infinite; undefined below."""
        if not isinstance(self.value, Fraction) or self.value < 0:
            return Number(None)
        return Number(_smooth(Decimal.ln, self.value) if self.value else INFINITE)

    def sqrt(self) -> Number:
        """Undefined below zero."""
        if not isinstance(self.value, Fraction):
            return self
        return Number(None if self.value < 0 else _smooth(Decimal.sqrt, self.value))

    def tanh(self) -> Number:
        """By the exponential; beyond the digits it is one."""
        if not isinstance(self.value, Fraction):
            return Number(None)
        exponent = max(min(2 * self.value, Fraction(800)), Fraction(-800))
        growth = _exp(exponent)
        return Number((growth - 1) / (growth + 1))


def exact(array: _Numbers) -> _Numbers:
    """An array of floats (or a mix with numbers) as numbers."""
    return np.asarray(_NUMBERS(array), dtype=object)


_NUMBERS = np.frompyfunc(lambda x: Number(_operand(x)), 1, 1)
_FINITE = np.frompyfunc(lambda x: isinstance(x.value, Fraction), 1, 1)


def finite(array: _Numbers) -> _Numbers:
    """Where an array of numbers holds fractions."""
    return np.asarray(_FINITE(array), dtype=bool)


class ExactMeaning(Meaning):
    """Evaluates terms over `Number`.

    Its values raise TypeError for constructors outside `PRECISE`, and TooLargeError.
    """

    def _operator(self, node: TermNode, operands: list[_Numbers]) -> _Numbers:
        """Without the floats that NumPy's functions bring in (the 0.0 of a ReLU)."""
        return exact(super()._operator(node, operands))

    def _scalar(self, value: float | Fraction) -> _Numbers:
        return exact(np.full_like(super()._scalar(value), value, dtype=object))
