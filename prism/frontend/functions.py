"""The functions a program is written with: `prism.exp`, `prism.softmax`, ...

Given traced tensors they add operators to the program; given NumPy arrays they compute at once, in
the arrays' own dtype. So the function a user traces is also plain NumPy code, and that is the
baseline it is measured against.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from prism.frontend import operations as do
from prism.frontend.operations import Axis, Traced
from prism.frontend.site import trace_error
from prism.frontend.tensor import Tensor
from prism.ir import OPS

Operand = Any
"""A tensor, an array or a number; what comes back is of the same sort."""


def exp(x: Operand) -> Operand:
    """The exponential function."""
    return _elementwise("exp", x)


def log(x: Operand) -> Operand:
    """The natural logarithm."""
    return _elementwise("log", x)


def sqrt(x: Operand) -> Operand:
    """The square root."""
    return _elementwise("sqrt", x)


def rsqrt(x: Operand) -> Operand:
    """1 / sqrt(x)."""
    return _elementwise("rsqrt", x)


def square(x: Operand) -> Operand:
    """X times x."""
    return _elementwise("square", x)


def abs(x: Operand) -> Operand:  # noqa: A001 - NumPy's name
    """The absolute value."""
    return _elementwise("abs", x)


def negative(x: Operand) -> Operand:
    """-x."""
    return _elementwise("neg", x)


def reciprocal(x: Operand) -> Operand:
    """1 / x."""
    return _elementwise("reciprocal", x)


def relu(x: Operand) -> Operand:
    """max(x, 0)."""
    return _elementwise("relu", x)


def silu(x: Operand) -> Operand:
    """X times sigmoid(x)."""
    return _elementwise("silu", x)


def sigmoid(x: Operand) -> Operand:
    """1 / (1 + exp(-x))."""
    return _elementwise("sigmoid", x)


def tanh(x: Operand) -> Operand:
    """The hyperbolic tangent."""
    return _elementwise("tanh", x)


def gelu(x: Operand, approximate: str = "none") -> Operand:
    """X times the normal distribution's probability below x; `approximate="tanh"` as PyTorch's."""
    rows = {"none": "gelu_erf", "tanh": "gelu_tanh"}
    if approximate not in rows:
        raise trace_error(f'gelu: approximate must be "none" or "tanh", not {approximate!r}')
    return _elementwise(rows[approximate], x)


def add(x: Operand, y: Operand) -> Operand:
    """X + y."""
    return _elementwise("add", x, y)


def subtract(x: Operand, y: Operand) -> Operand:
    """X - y."""
    return _elementwise("sub", x, y)


def multiply(x: Operand, y: Operand) -> Operand:
    """X * y."""
    return _elementwise("mul", x, y)


def divide(x: Operand, y: Operand) -> Operand:
    """X / y."""
    return _elementwise("div", x, y)


def maximum(x: Operand, y: Operand) -> Operand:
    """The larger of each pair."""
    return _elementwise("maximum", x, y)


def minimum(x: Operand, y: Operand) -> Operand:
    """The smaller of each pair."""
    return _elementwise("minimum", x, y)


def power(x: Operand, exponent: Operand) -> Operand:
    """X ** exponent, for the exponents a tensor takes."""
    return x**exponent


def sum(x: Operand, axis: Axis = None, *, keepdims: bool = False) -> Operand:  # noqa: A001
    """The sum over `axis` (None: all axes)."""
    return _reduction("sum", x, axis, keepdims=keepdims)


def mean(x: Operand, axis: Axis = None, *, keepdims: bool = False) -> Operand:
    """The mean over `axis` (None: all axes)."""
    return _reduction("mean", x, axis, keepdims=keepdims)


def max(x: Operand, axis: Axis = None, *, keepdims: bool = False) -> Operand:  # noqa: A001
    """The largest along `axis` (None: all axes)."""
    return _reduction("max", x, axis, keepdims=keepdims)


def min(x: Operand, axis: Axis = None, *, keepdims: bool = False) -> Operand:  # noqa: A001
    """The smallest along `axis` (None: all axes)."""
    if isinstance(x, Tensor):
        return x.min(axis, keepdims=keepdims)
    # NumPy's stubs differ by version in what they take
    return cast("Any", np.min)(x, axis=axis, keepdims=keepdims)


def matmul(x: Operand, y: Operand) -> Operand:
    """NumPy's `x @ y`."""
    tensor = traced_among(x, y)
    return np.matmul(x, y) if tensor is None else do.matmul(tensor, x, y)


def expand_dims(x: Operand, axis: int | tuple[int, ...]) -> Operand:
    """New axes of size one at these places of the result."""
    return do.expanded(x, axis) if isinstance(x, Traced) else np.expand_dims(x, axis)


def swapaxes(x: Operand, axis1: int, axis2: int) -> Operand:
    """Two axes interchanged."""
    return do.swapped(x, axis1, axis2) if isinstance(x, Traced) else np.swapaxes(x, axis1, axis2)


def permute_dims(x: Operand, axes: tuple[int, ...]) -> Operand:
    """The axes in another order."""
    return do.permuted(x, axes) if isinstance(x, Traced) else np.transpose(x, axes)


def transpose(x: Operand, axes: tuple[int, ...] | None = None) -> Operand:
    """The axes in another order; reversed when none is given."""
    return x.T if axes is None else permute_dims(x, axes)


def traced_among(*operands: object) -> Tensor | None:
    """The first traced tensor among the operands; without one, NumPy computes at once."""
    return next((x for x in operands if isinstance(x, Tensor)), None)


def _elementwise(op: str, *operands: Operand) -> Operand:
    tensor = traced_among(*operands)
    if tensor is not None:
        return do.elementwise(op, tensor, *operands)
    result = OPS[op].numpy(*operands)
    if all(isinstance(x, (int, float)) for x in operands):
        return float(result)  # a NumPy scalar would widen the float32 array it meets next
    dtype = np.result_type(*operands)
    return np.asarray(result, dtype) if dtype.kind == "f" else result


def _reduction(op: str, x: Operand, axis: Axis, *, keepdims: bool) -> Operand:
    if isinstance(x, Traced):
        return do.reduction(op, x, axis, keepdims=keepdims)
    return OPS[op].numpy(x, axis=axis, keepdims=keepdims)
