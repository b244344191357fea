"""A user's elementwise operator on values of `z3_reals`: its meaning, written out."""

from __future__ import annotations

from collections.abc import Sequence

import z3

from prism.egraph.signature import Template, definition_of, template
from prism.ir import Call, Choice, Expression, Literal, Operand
from prism_constraints.z3_operators import OPERATORS
from prism_constraints.z3_reals import Value, known


def applied(head: str, operands: Sequence[Value]) -> Value:
    """The value at a place of an elementwise operator, ours or a user's, of its operands' there."""
    definition = definition_of(head)
    return (
        OPERATORS[head](*operands) if definition is None else _value(definition.meaning, operands)
    )


def _value(part: Expression, operands: Sequence[Value]) -> Value:
    match part:
        case Literal(value=number):
            return known(z3.RealVal(str(number)))
        case Operand(place=place):
            return operands[place]
        case Call(op=op, operands=inner):
            return _applied(template(op), [_value(p, operands) for p in inner])
        case Choice(left, right, yes, no):
            a, b = _value(left, operands), _value(right, operands)
            test = z3.And(a.finite, b.finite, a.real > b.real)
            one, other = _value(yes, operands), _value(no, operands)
            return Value(
                z3.If(test, one.real, other.real),
                z3.If(test, one.finite, other.finite),
                z3.If(test, one.infinite, other.infinite),
            )
        case _:
            raise AssertionError(part)  # what acts along a dim is not elementwise


def _applied(term: Template, operands: Sequence[Value]) -> Value:
    inner = (operands[p] if isinstance(p, int) else _applied(p, operands) for p in term.parts)
    return OPERATORS[term.head](*inner)
