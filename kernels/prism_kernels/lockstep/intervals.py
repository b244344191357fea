"""Integer operators: how they are written, and the range of their result.

Ranges only grow, so a sum of three numbers below 1000 is below 3000 and needs no mask; what could
leave 64 bits is wrapped where it is assigned.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Range:
    """The integers from `low` to `high`."""

    low: int
    high: int


Rule = Callable[[Range, Range], Range | None]
"""The range of a result; None: not allowed."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An integer operator.

    `is_modular`: its low bits depend on the operands' low bits only, so that wrapping its operands
    first or its result last is the same.
    """

    symbol: str
    range: Rule
    is_modular: bool = True


def _hull(values: list[int]) -> Range:
    return Range(min(values), max(values))


def _add(a: Range, b: Range) -> Range:
    return Range(a.low + b.low, a.high + b.high)


def _subtract(a: Range, b: Range) -> Range:
    return Range(a.low - b.high, a.high - b.low)


def _multiply(a: Range, b: Range) -> Range:
    return _hull([i * j for i in (a.low, a.high) for j in (b.low, b.high)])


def _divide(a: Range, b: Range) -> Range:
    if b.low <= 0:  # by -1 at most, or it is a fault
        return _hull([a.low, -a.low, a.high, -a.high])
    return _hull([i // j for i in (a.low, a.high) for j in (b.low, b.high)])


def _remainder(a: Range, b: Range) -> Range:
    del a
    return Range(min(0, b.low + 1), max(0, b.high - 1))


def _shift_left(a: Range, b: Range) -> Range | None:
    if b.low != b.high or not 0 <= b.low < 64:
        return None
    return Range(a.low << b.low, a.high << b.low)


def _shift_right(a: Range, b: Range) -> Range | None:
    if b.low != b.high or not 0 <= b.low < 64:
        return None
    return Range(a.low >> b.low, a.high >> b.low)


def _and(a: Range, b: Range) -> Range:
    ends = [r.high for r in (a, b) if r.low >= 0]
    return Range(0, min(ends)) if ends else _any_bits(a, b)


def _any_bits(a: Range, b: Range) -> Range:
    bits = max(abs(n).bit_length() for n in (a.low, a.high, b.low, b.high))
    return Range(0 if min(a.low, b.low) >= 0 else -(1 << bits), (1 << bits) - 1)


OPERATORS: Mapping[type[ast.operator], Operator] = MappingProxyType(
    {
        ast.Add: Operator("+", _add),
        ast.Sub: Operator("-", _subtract),
        ast.Mult: Operator("*", _multiply),
        ast.FloorDiv: Operator("//", _divide, is_modular=False),
        ast.Mod: Operator("%", _remainder, is_modular=False),
        ast.LShift: Operator("<<", _shift_left),
        ast.RShift: Operator(">>", _shift_right, is_modular=False),
        ast.BitAnd: Operator("&", _and),
        ast.BitOr: Operator("|", _any_bits),
        ast.BitXor: Operator("^", _any_bits),
    }
)
