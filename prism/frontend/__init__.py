"""The front end: a user's NumPy-style function becomes a `Program`."""

from __future__ import annotations

from prism.frontend.composites import (
    layer_norm,
    log_softmax,
    logsumexp,
    rms_norm,
    softmax,
    var,
)
from prism.frontend.einsum import einsum
from prism.frontend.functions import (
    abs,  # noqa: A004 - NumPy's name
    add,
    divide,
    exp,
    expand_dims,
    gelu,
    log,
    matmul,
    max,  # noqa: A004 - NumPy's name
    maximum,
    mean,
    min,  # noqa: A004 - NumPy's name
    minimum,
    multiply,
    negative,
    permute_dims,
    power,
    reciprocal,
    relu,
    rsqrt,
    sigmoid,
    silu,
    sqrt,
    square,
    subtract,
    sum,  # noqa: A004 - NumPy's name
    swapaxes,
    tanh,
    transpose,
)
from prism.frontend.load import load_program
from prism.frontend.tensor import Tensor
from prism.frontend.trace import trace

__all__ = [
    "Tensor",
    "abs",
    "add",
    "divide",
    "einsum",
    "exp",
    "expand_dims",
    "gelu",
    "layer_norm",
    "load_program",
    "log",
    "log_softmax",
    "logsumexp",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "multiply",
    "negative",
    "permute_dims",
    "power",
    "reciprocal",
    "relu",
    "rms_norm",
    "rsqrt",
    "sigmoid",
    "silu",
    "softmax",
    "sqrt",
    "square",
    "subtract",
    "sum",
    "swapaxes",
    "tanh",
    "trace",
    "transpose",
    "var",
]
