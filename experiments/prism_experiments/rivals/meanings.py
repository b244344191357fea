"""A user's operator written out: what it means, in the calls of a library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from prism.ir import (
    Along,
    Call,
    Choice,
    Expression,
    Extent,
    Flip,
    Index,
    Literal,
    Operand,
    Roll,
    evaluate_expression,
)
from prism.ir.expression import walk
from prism_experiments.rivals.writer import Name, Writer


@dataclass(frozen=True, slots=True)
class Axis:
    """The axis that an operator acts along, from the end; its size; the operands that have it."""

    axis: int
    size: int
    having: frozenset[int]

    def varies(self, expression: Expression) -> bool:
        """Whether a part of a meaning differs along the axis: else its extent there is one."""
        return any(
            isinstance(part, Index) or (isinstance(part, Operand) and part.place in self.having)
            for part in walk(expression)
        )

    def number(self, expression: Expression) -> float:
        """The value of a part that reads no operand."""
        return float(evaluate_expression(expression, (), Along(0, self.size)))


NOWHERE = Axis(-1, 1, frozenset())
"""For operators that are elementwise."""


def write_meaning(  # noqa: PLR0911 - a case per form
    expression: Expression, operands: Sequence[Name], axis: Axis, writer: Writer
) -> Name:
    """The value of a meaning, or of a part of one."""

    def value(part: Expression) -> Name:
        return write_meaning(part, operands, axis, writer)

    match expression:
        case Literal(value=number):
            return float(number)
        case Operand(place=place):
            return operands[place]
        case Extent():
            return float(axis.size)
        case Index():
            return writer.index(axis.size, -1 - axis.axis)
        case Call(op=op, operands=inner):
            names = [value(part) for part in inner]
            known = all(isinstance(name, float) for name in names)
            return axis.number(expression) if known else writer.elementwise(op, names)
        case Choice(left, right, yes, no):
            return writer.choice(value(left), value(right), value(yes), value(no))
        case Roll(moved, by):
            return _moved(moved, value(moved), axis, writer, by)
        case Flip(flipped):
            return _moved(flipped, value(flipped), axis, writer, None)
        case _:
            assert_never(expression)


def _moved(part: Expression, name: Name, axis: Axis, writer: Writer, by: Expression | None) -> Name:
    """A part rolled by so many places, or flipped; what does not vary there stays."""
    if not isinstance(name, str) or not axis.varies(part):
        return name
    if by is None:
        return writer.flip(name, axis.axis)
    places = axis.number(by)
    count = math.floor(places) % axis.size if math.isfinite(places) else 0
    return writer.roll(name, count, axis.axis, axis.size)
