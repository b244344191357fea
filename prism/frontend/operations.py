"""What can be done to traced tensors: NumPy's rules for axes, on named dimensions.

`Traced` is the data of a symbolic tensor; `tensor.py` gives it its NumPy spelling. Every function
here checks what it is given, at the user's line, before it adds a node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import EllipsisType
from typing import Any, TypeVar

import numpy as np

from prism.frontend.builder import Axes, Builder, Operand
from prism.frontend.site import trace_error
from prism.ir import Const, SizeOf, TensorId

Axis = int | tuple[int, ...] | None
"""One axis, several, or None for all of them."""

MAX_ROUNDS = 8
"""Of renaming operands until all fit beside each other; two operands need one or two."""

MAX_POWER = 16
"""The largest integer exponent; it becomes a chain of products."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Traced:
    """A node of the program being traced, and the dimension on each axis (None: size one)."""

    builder: Builder
    tensor: TensorId
    axes_as_made: Axes

    @property
    def axes(self) -> Axes:
        """The axes under the names they go by now (unification renames)."""
        return self.builder.dims.resolve(self.axes_as_made)


T = TypeVar("T", bound=Traced)


def elementwise(op: str, like: T, *values: object) -> T:
    """An elementwise operator, its operands broadcast as NumPy does: axes pair from the right."""
    operands = [_operand(op, like, v) for v in values]
    rank = max(len(o.axes) for o in operands)
    operands = [_padded(o, rank) for o in operands]
    operands, axes = _aligned(op, like.builder, operands)
    return _made(like, like.builder.apply(op, [o.tensor for o in operands]), axes)


def along(op: str, like: T, axis: int, *values: object) -> T:
    """An operator along an axis, counted from the right, of the first operand."""
    operands = [_operand(op, like, v) for v in values]
    if operands[0].axes[axis] is None:
        raise trace_error(f"{op}: axis {axis} of its first operand has size one; it needs a dim")
    rank = max(len(o.axes) for o in operands)
    operands = [_padded(o, rank) for o in operands]
    operands, axes = _aligned(op, like.builder, operands)
    tensor = like.builder.apply(op, [o.tensor for o in operands], operands[0].axes[axis])
    return _made(like, tensor, axes)


def _aligned(op: str, builder: Builder, operands: list[Operand]) -> tuple[list[Operand], Axes]:
    """Operands of one rank, axes at one place under one name; and the axes of the result."""
    for _ in range(MAX_ROUNDS):
        before = list(operands)
        for i, j in combinations(range(len(operands)), 2):
            operands[i], operands[j] = builder.align(operands[i], operands[j], op)
        operands = [replace(o, axes=builder.dims.resolve(o.axes)) for o in operands]
        if operands == before:
            break
    else:
        raise trace_error(f"{op}: its operands use one dim on several axes; give them other names")
    axes = operands[0].axes
    for operand in operands[1:]:
        axes = builder.joined(axes, operand.axes)
    return operands, axes


def reduction(op: str, x: T, axis: Axis, *, keepdims: bool) -> T:
    """A reduction over one axis, several or all; an axis of size one reduces to itself."""
    reduced = normalized_axes(op, x, axis)
    tensor = x.tensor
    for i in reduced:
        dim = x.axes[i]
        if dim is not None:
            tensor = x.builder.apply(op, [tensor], dim)
    axes = [None if i in reduced else d for i, d in enumerate(x.axes)]
    kept = axes if keepdims else [d for i, d in enumerate(axes) if i not in reduced]
    return _made(x, tensor, tuple(kept))


def matmul(like: T, left: object, right: object) -> T:
    """NumPy's `@`: the last axis of left with the last but one of right, the rest broadcast."""
    a, b = _operand("matmul", like, left), _operand("matmul", like, right)
    if not a.axes or not b.axes:
        raise trace_error("matmul (@) needs an axis on either side; multiply by * instead")
    # a vector has no row (column) axis: give it one and take it away again
    rows = a.axes[-2:-1] or (None,)
    columns = b.axes[-1:] if len(b.axes) > 1 else (None,)
    depth_a, depth_b = a.axes[-1], b.axes[-2] if len(b.axes) > 1 else b.axes[-1]
    if (depth_a is None) != (depth_b is None):
        axes = f"{describe_axes(a.axes)} @ {describe_axes(b.axes)}"
        raise trace_error(f"matmul: an axis of size 1 meets a dimension in {axes}; use * instead")
    rank = max(len(a.axes), len(b.axes), 2) - 2
    batch_a, batch_b = _padded_axes(a.axes[:-2], rank), _padded_axes(b.axes[:-2], rank)
    left_op = Operand(a.tensor, (*batch_a, *rows, None, depth_a))
    right_op = Operand(b.tensor, (*batch_b, None, *columns, depth_b))
    left_op, right_op = like.builder.align(left_op, right_op, "matmul")
    joined = list(like.builder.joined(left_op.axes, right_op.axes))
    depth = joined.pop()
    if len(b.axes) == 1:
        joined.pop(rank + 1)
    if len(a.axes) == 1:
        joined.pop(rank)
    op = "mul" if depth is None else "matmul"
    tensor = like.builder.apply(op, [left_op.tensor, right_op.tensor], depth)
    return _made(like, tensor, tuple(joined))


def product_sum(left: T, right: T, kept: int) -> T:
    """The product of two tensors of one rank, summed over all but the first `kept` axes."""
    a, b = _operand("einsum", left, left), _operand("einsum", left, right)
    a, b = left.builder.align(a, b, "einsum")
    axes = left.builder.joined(a.axes, b.axes)
    shared = [p for p, q in zip(a.axes[kept:], b.axes[kept:], strict=True) if p and q]
    op, depth = ("matmul", shared[0]) if shared else ("mul", None)
    tensor = left.builder.apply(op, [a.tensor, b.tensor], depth)
    for dim in axes[kept:]:
        if dim is not None and dim != depth:
            tensor = left.builder.apply("sum", [tensor], dim)
    return _made(left, tensor, axes[:kept])


def permuted(x: T, order: Sequence[int]) -> T:
    """The axes in another order."""
    places = tuple(_place("permute_dims", x, i) for i in order)
    if sorted(places) != list(range(len(x.axes))):
        raise trace_error(
            f"permute_dims: {tuple(order)} does not name each axis of {describe_axes(x.axes)} once"
        )
    return _made(x, x.tensor, tuple(x.axes[i] for i in places))


def swapped(x: T, axis1: int, axis2: int) -> T:
    """Two axes interchanged."""
    order = list(range(len(x.axes)))
    i, j = _place("swapaxes", x, axis1), _place("swapaxes", x, axis2)
    order[i], order[j] = j, i
    return permuted(x, order)


def expanded(x: T, axis: int | tuple[int, ...]) -> T:
    """New axes of size one at these places of the result."""
    places = (axis,) if isinstance(axis, int) else tuple(axis)
    rank = len(x.axes) + len(places)
    at = {i + rank if i < 0 else i for i in places}
    if len(at) != len(places) or not all(0 <= i < rank for i in at):
        raise trace_error(f"expand_dims: axis {axis} is not possible in a result of {rank} axes")
    rest = iter(x.axes)
    return _made(x, x.tensor, tuple(None if i in at else next(rest) for i in range(rank)))


def indexed(x: T, key: object) -> T:
    """`x[:, None]`, `x[...]`: only whole axes and new axes of size one."""
    items = key if isinstance(key, tuple) else (key,)
    for item in items:
        if item is None or item is Ellipsis or (isinstance(item, slice) and item == slice(None)):
            continue
        raise trace_error(
            f"x[{_shown(item)}]: an index can only be a whole axis `:`, a new axis `None` or "
            "`...`; a program takes whole arrays, so slice before you pass them"
        )
    if sum(item is Ellipsis for item in items) > 1:
        raise trace_error("an index can have one `...` only")
    whole = len(x.axes) - sum(isinstance(item, slice) for item in items)
    if whole < 0:
        raise trace_error(f"too many indices for the axes {describe_axes(x.axes)}")
    if Ellipsis not in items:
        items = (*items, Ellipsis)
    rest = iter(x.axes)
    axes: list[str | None] = []
    for item in items:
        count = whole if isinstance(item, EllipsisType) else 1
        axes.extend([None] if item is None else [next(rest) for _ in range(count)])
    return _made(x, x.tensor, tuple(axes))


def power(x: T, exponent: object) -> T:
    """`x ** e` for the exponents that are operators: 0.5, -0.5, -1 and small positive integers."""
    value = scalar("**", exponent) if not isinstance(exponent, Traced) else math.nan
    match value:
        case 0.5:
            return elementwise("sqrt", x, x)
        case -0.5:
            return elementwise("rsqrt", x, x)
        case -1.0:
            return elementwise("reciprocal", x, x)
        case _ if value.is_integer() and 1 <= value <= MAX_POWER:
            return _integer_power(x, int(value))
    raise trace_error(
        f"x ** {exponent!r} is not supported; exponents are 0.5, -0.5, -1 and the integers 1 to "
        f"{MAX_POWER} (write exp(e * log(x)) where x is positive)"
    )


def sizes(x: T) -> tuple[int | T, ...]:
    """The size of each axis: an integer where the program fixes it, else a symbolic scalar."""
    out: list[int | T] = []
    for dim in x.axes:
        fixed = 1 if dim is None else x.builder.dims.fixed_size(dim)
        if fixed is None and dim is not None:
            out.append(_made(x, x.builder.add(SizeOf(dim)), ()))
        elif fixed is not None:
            out.append(fixed)
    return tuple(out)


def scalar(what: str, value: object) -> float:
    """A constant of the program from a Python or NumPy number."""
    if isinstance(value, (bool, np.bool_)):
        raise trace_error(f"{what}: {value} is a truth value; constants must be real numbers")
    if isinstance(value, np.ndarray) and value.ndim > 0:
        raise trace_error(
            f"{what}: an array of shape {value.shape} cannot be a constant; make it an argument "
            "of the function, with its dims as annotation"
        )
    if isinstance(value, (int, float, np.integer, np.floating)) or (
        isinstance(value, np.ndarray) and value.dtype.kind in "iuf"
    ):
        number = float(value)
        if math.isfinite(number):
            return number
        raise trace_error(f"{what}: the constant {number} is not finite")
    kind = f"dtype {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise trace_error(f"{what}: {kind} {_shown(value)} cannot be a constant; use a real number")


def normalized_axes(what: str, x: Traced, axis: Axis) -> tuple[int, ...]:
    """Axes as places from the left, each once."""
    if axis is None:
        return tuple(range(len(x.axes)))
    places = tuple(_place(what, x, i) for i in (axis if isinstance(axis, tuple) else (axis,)))
    if len(set(places)) != len(places):
        raise trace_error(f"{what}: axis {axis} names one axis twice")
    return places


def describe_axes(axes: Axes) -> str:
    """Axes for a message: `[n, 1, d]`."""
    return f"[{', '.join('1' if d is None else d for d in axes)}]"


def _integer_power(x: T, exponent: int) -> T:
    result: T | None = None
    factor = x
    while exponent:
        if exponent % 2:
            result = factor if result is None else elementwise("mul", x, result, factor)
        exponent //= 2
        if exponent:
            factor = elementwise("square", x, factor)
    assert result is not None
    return result


def _made(like: T, tensor: TensorId, axes: Axes) -> T:
    return type(like)(like.builder, tensor, axes)


def _operand(what: str, like: Traced, value: object) -> Operand:
    if isinstance(value, Traced):
        if value.builder is not like.builder:
            raise trace_error(f"{what}: a tensor of another trace; pass it as an argument instead")
        return Operand(value.tensor, value.axes)
    return Operand(like.builder.add(Const(scalar(what, value))), ())


def _padded(operand: Operand, rank: int) -> Operand:
    return Operand(operand.tensor, _padded_axes(operand.axes, rank))


def _padded_axes(axes: Axes, rank: int) -> Axes:
    return (None,) * (rank - len(axes)) + axes


def _place(what: str, x: Traced, axis: Any) -> int:  # noqa: ANN401 - what a user may pass
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise trace_error(f"{what}: axis must be an integer, not {_shown(axis)}")
    rank = len(x.axes)
    if not -rank <= axis < rank:
        raise trace_error(f"{what}: there is no axis {axis} in {describe_axes(x.axes)}")
    return int(axis) % rank


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
