"""What an elementwise operator is in emitted source: one row each, the same for every emitter.

The functions named here are those of the emitter's own runtime (`prism_kernels.cpu.intrinsics`,
`prism_kernels.cuda.intrinsics`).
"""

from __future__ import annotations

from collections.abc import Sequence

EXPRESSIONS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "maximum": "maximum({0}, {1})",
    "minimum": "minimum({0}, {1})",
    "neg": "-{0}",
    "reciprocal": "{one} / {0}",
    "exp": "exp({0})",
    "log": "log({0})",
    "sqrt": "sqrt({0})",
    "rsqrt": "{one} / sqrt({0})",
    "square": "{0} * {0}",
    "abs": "absolute({0})",
    "relu": "maximum({0}, {zero})",
    "silu": "silu({0})",
    "gelu_tanh": "gelu_tanh({0})",
    "gelu_erf": "gelu_erf({0})",
    "sigmoid": "sigmoid({0})",
    "tanh": "tanh({0})",
    "bound": "bound({0})",
}
"""Elementwise operator -> expression of its operands."""

COMBINE = {"sum": "{0} + {1}", "max": "maximum({0}, {1})"}
"""Reduction -> how two partial results become one."""

IN_ANY_ORDER = {**COMBINE, "sum": "plus({0}, {1})"}
"""The same, where the emitter's runtime has an addition that may be moved about.

Of a sum's own additions alone: the program's are kept in order, `hi - lo + eps` is not
`hi + (eps - lo)` in floating point.
"""

DIVISIONS = {
    "div": "divide({0}, {1})",
    "reciprocal": "divide({one}, {0})",
    "rsqrt": "divide({one}, sqrt({0}))",
}
"""The operators that divide, where the emitter's runtime has a division of its own."""


def expression(op: str, operands: Sequence[str], cast: str, *, divides: bool = False) -> str:
    """The expression of an elementwise operator; `cast` makes a literal of the kernel's numbers.

    `divides`: whether the runtime has `divide`.
    """
    row = DIVISIONS.get(op) if divides else None
    return (row or EXPRESSIONS[op]).format(*operands, one=f"{cast}(1.0)", zero=f"{cast}(0.0)")
