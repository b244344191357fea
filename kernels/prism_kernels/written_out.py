"""A user's operator in operators of the table: emitters know no others."""

from __future__ import annotations

from prism.errors import KernelError
from prism.ir import Call, Definition, Expression, Literal, Operand
from prism_kernels.builder import Builder
from prism_kernels.tile import Map, Scalar, ValueId


def written_out(builder: Builder, definition: Definition, operands: tuple[ValueId, ...]) -> ValueId:
    """The meaning of a user's operator, in operators of the table.

    Raises:
        KernelError: there is more in it than operators of the table.
    """
    if not definition.can_be_written_out:
        raise KernelError(
            f"{definition.name} chooses between values (where), which no emitter can do; write it "
            "with maximum, minimum, relu or abs"
        )

    def value(part: Expression) -> ValueId:
        match part:
            case Operand(place=place):
                return operands[place]
            case Literal(value=number):
                return builder.add(Scalar(float(number)))
            case Call(op=op, operands=inner):
                return builder.add(Map(op, tuple(value(p) for p in inner)))
            case _:
                raise AssertionError(f"{part} is no operator")

    return value(definition.meaning)
