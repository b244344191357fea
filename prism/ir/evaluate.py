"""The meaning of a program: its value in float64 NumPy, the oracle every other stage is held to.

A value is an array whose axes carry data dimensions; operators pair axes by name, never by
position, and two axes of one name must have the same extent (size-one axes do not broadcast: a
value that does not vary along a dimension simply lacks it). `apply_op` is the meaning of one
operator on such values; the block-by-block meaning of an sGraph (`blocks.py`) uses the same one on
tiles, which is why `sizes` are always those of whole dimensions.

A large argument that one contraction alone reads is never held whole in float64: it is read piece
by piece, converted and multiplied while it lies in a cache (`_contract_pieces`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prism.errors import GraphError, SizeError, UsageError
from prism.ir.ops import OPS, OpKind
from prism.ir.program import (
    Apply,
    Argument,
    Const,
    DataDim,
    Input,
    Node,
    Output,
    Program,
    SizeOf,
    TensorId,
    bind_sizes,
    live_nodes,
)

Array = NDArray[Any]
"""Of float64 but where a coarser precision is asked for."""

Precision = type[np.float32 | np.float64]

Read = Callable[[str, Array], Array]
"""From an argument's name and (a piece of) its array to the values an evaluation takes for it."""

PIECE = 1 << 19
"""Elements of a piece of a large argument: as float64 they fit a cache, and are many rows."""


@dataclass(frozen=True, slots=True)
class Value:
    """An array and the dimension each of its axes carries."""

    dims: tuple[DataDim, ...]
    array: Array

    def along(self, dims: Sequence[DataDim]) -> Array:
        """The array with its axes in the order of `dims`, size one where it lacks a dimension."""
        order = [self.dims.index(d) for d in dims if d in self.dims]
        index = tuple(slice(None) if d in self.dims else None for d in dims)
        return self.array.transpose(order)[index]


@dataclass(frozen=True, slots=True)
class _Unread:
    """A large argument as it is given, to be read piece by piece."""

    dims: tuple[DataDim, ...]
    array: Array
    argument: str
    precision: Precision
    read: Read | None

    def whole(self) -> Value:
        """All of it; never the caller's own array."""
        array = self._read(self.array)
        return Value(self.dims, array.astype(self.precision, copy=array is self.array))

    def pieces(self) -> Iterator[tuple[slice, Value]]:
        """The parts along the first dimension, one after the other."""
        extent = len(self.array)
        step = max(1, PIECE * extent // self.array.size)
        for start in range(0, extent, step):
            part = slice(start, start + step)
            array = self._read(self.array[part])
            yield part, Value(self.dims, array.astype(self.precision, copy=False))

    def _read(self, array: Array) -> Array:
        return array if self.read is None else self.read(self.argument, array)


def evaluate(
    program: Program,
    arrays: Mapping[str, ArrayLike],
    precision: Precision = np.float64,
    read: Read | None = None,
) -> tuple[Array, ...]:
    """The program's outputs, computed in float64 from an array per argument.

    A coarser `precision` shows what the program as it stands loses by rounding its steps. `read`
    changes arguments element by element on their way in; a large one it may get in pieces, one
    after the other.

    Raises:
        SizeError: the arrays do not fit the program or each other.
        UsageError: an array is missing, unknown or not of real numbers.
    """
    sizes = sizes_of(program, arrays)
    inputs = _given(program, arrays, precision, read)
    live = list(live_nodes(program))
    in_pieces = _read_once(program, live)
    last_reader = {j: i for i in live for j in _operands(program.nodes[i])}
    kept = {o.tensor for o in program.outputs}
    values: dict[TensorId, Value | _Unread] = {}
    with np.errstate(all="ignore"):
        for i in live:
            node = program.nodes[i]
            if isinstance(node, Input):
                given = inputs[node.name]
                values[i] = given if i in in_pieces else given.whole()
            else:
                values[i] = _value_of(node, values, sizes, precision)
            for j in set(_operands(node)) - kept:
                if last_reader[j] == i:
                    del values[j]  # a large intermediate lives no longer than it is read
    return tuple(output_array(o, _whole(values[o.tensor]), sizes) for o in program.outputs)


def sizes_of(program: Program, arrays: Mapping[str, ArrayLike]) -> dict[DataDim, int]:
    """The size of every dimension, from the shapes of the arrays, each checked against the rest.

    Raises:
        SizeError: a shape does not fit the program, or two shapes contradict each other.
        UsageError: an argument has no array, or an array no argument.
    """
    names = [a.name for a in program.arguments]
    for name in arrays:
        if name not in names:
            raise UsageError(
                f"{program.name} has no argument {name!r}; its arguments are {', '.join(names)}"
            )
    root = {d.name: d.size for d in program.dims}
    fixed = {d.name: d.fixed for d in program.dims}
    found: dict[DataDim, int] = {}
    origin: dict[DataDim, str] = {}
    for argument in program.arguments:
        if argument.name not in arrays:
            raise UsageError(f"no array given for argument {argument.name!r} of {program.name}")
        shape = np.shape(arrays[argument.name])
        _check_rank(program, argument, shape)
        for axis, (dim, size) in enumerate(zip(argument.axes, shape, strict=True)):
            place = f"argument {argument.name!r} of {program.name}, axis {axis}"
            if dim is None:
                if size != 1:
                    raise SizeError(f"{place} must have size 1, not {size}")
                continue
            name = root[dim]
            wanted, why = found.get(name), origin.get(name, "")
            if wanted is None and fixed[name] is not None:
                wanted, why = fixed[name], "the program"
            if size < 1 or wanted not in {None, size}:
                expected = "positive" if wanted is None else f"{wanted} (by {why})"
                raise SizeError(f"{place}: dimension {dim} has size {size}, must be {expected}")
            found[name] = size
            origin.setdefault(name, f"axis {axis} of {argument.name!r}")
    return bind_sizes(program, found)


def input_values(program: Program, arrays: Mapping[str, ArrayLike]) -> dict[str, Value]:
    """The value of each of the program's inputs, by input name (unit axes dropped)."""
    given = _given(program, arrays, np.float64, None)
    return {name: unread.whole() for name, unread in given.items()}


def _given(
    program: Program,
    arrays: Mapping[str, ArrayLike],
    precision: Precision,
    read: Read | None,
) -> dict[str, _Unread]:
    arguments = {a.name: a for a in program.arguments}
    out: dict[str, _Unread] = {}
    for node in program.inputs:
        array = _real(program, node.argument, arrays[node.argument])
        unit = tuple(i for i, d in enumerate(arguments[node.argument].axes) if d is None)
        out[node.name] = _Unread(node.dims, array.squeeze(unit), node.argument, precision, read)
    return out


def _read_once(program: Program, live: Sequence[TensorId]) -> set[TensorId]:
    """The inputs that a contraction reads, and nothing else reads their arguments."""
    used = Counter(n.argument for n in program.inputs)
    readers = Counter(j for i in live for j in _operands(program.nodes[i]))
    readers.update(o.tensor for o in program.outputs)
    found: set[TensorId] = set()
    for i in live:
        node = program.nodes[i]
        if isinstance(node, Apply) and OPS[node.op].kind is OpKind.CONTRACT:
            found.update(j for j in node.operands if readers[j] == 1)
    inputs = {j: program.nodes[j] for j in found}
    return {j for j, n in inputs.items() if isinstance(n, Input) and used[n.argument] == 1}


def _whole(value: Value | _Unread) -> Value:
    return value.whole() if isinstance(value, _Unread) else value


def output_array(output: Output, value: Value, sizes: Mapping[DataDim, int]) -> Array:
    """A value in the axes in which the caller gets it, repeated along dimensions it lacks."""
    named = [d for d in output.axes if d is not None]
    shape = tuple(1 if d is None else sizes[d] for d in output.axes)
    whole = np.broadcast_to(value.along(named), [sizes[d] for d in named])
    return np.ascontiguousarray(whole).reshape(shape)


def apply_op(
    op: str, dim: DataDim | None, operands: Sequence[Value], sizes: Mapping[DataDim, int]
) -> Value:
    """One operator on values; `sizes` are those of the whole dimensions, for the n of a mean.

    Raises:
        GraphError: operands differ in the extent of a dimension they share.
    """
    spec = OPS[op]
    _check_extents(op, operands)
    match spec.kind:
        case OpKind.ELEMENTWISE:
            dims = tuple(dict.fromkeys(d for v in operands for d in v.dims))
            return Value(dims, spec.numpy(*(v.along(dims) for v in operands)))
        case OpKind.REDUCE:
            assert dim is not None
            return _reduce(op, operands[0], dim, sizes)
        case OpKind.CONTRACT:
            assert dim is not None
            return _contract(operands[0], operands[1], dim)
        case OpKind.ALONG:
            assert dim is not None
            return _along(op, operands, dim, sizes)


def _value_of(
    node: Const | SizeOf | Apply,
    values: Mapping[TensorId, Value | _Unread],
    sizes: Mapping[DataDim, int],
    precision: Precision,
) -> Value:
    match node:
        case Const(value=value):
            return Value((), np.asarray(value, precision))
        case SizeOf(dim=dim):
            return Value((), np.asarray(sizes[dim], precision))
        case Apply(op=op, operands=operands, dim=dim):
            result = _applied(op, dim, [values[j] for j in operands], sizes)
            # some functions know float64 alone
            return Value(result.dims, result.array.astype(precision, copy=False))


def _applied(
    op: str,
    dim: DataDim | None,
    operands: Sequence[Value | _Unread],
    sizes: Mapping[DataDim, int],
) -> Value:
    """The operator's value; of a contraction's large arguments one is read piece by piece."""
    unread = [k for k, v in enumerate(operands) if isinstance(v, _Unread)]
    if not unread:
        return apply_op(op, dim, [_whole(v) for v in operands], sizes)
    assert dim is not None
    at = max(unread, key=lambda k: operands[k].array.size)
    large = operands[at]
    assert isinstance(large, _Unread)
    other = _whole(operands[1 - at])
    if not _is_worth_pieces(large, other, dim):
        pair = [large.whole(), other] if at == 0 else [other, large.whole()]
        return apply_op(op, dim, pair, sizes)
    _check_extents(op, (Value(large.dims, large.array), other))
    return _contract_pieces(large, other, dim, is_left=at == 0)


def _is_worth_pieces(large: _Unread, other: Value, dim: DataDim) -> bool:
    """Whether the argument is large, and parts of a sum over it are not."""
    if large.array.size <= PIECE:
        return False
    extents = dict(zip(large.dims, large.array.shape, strict=True))
    extents |= zip(other.dims, other.array.shape, strict=True)
    del extents[dim]
    return large.dims[0] != dim or math.prod(extents.values()) <= PIECE


def _contract_pieces(large: _Unread, other: Value, dim: DataDim, *, is_left: bool) -> Value:
    """`_contract` with one operand in pieces along its first dimension."""
    cut = large.dims[0]
    parts: list[Value] = []
    for where, piece in large.pieces():
        index = tuple(where if d == cut else slice(None) for d in other.dims)
        rest = Value(other.dims, other.array[index])
        part = _contract(piece, rest, dim) if is_left else _contract(rest, piece, dim)
        if cut == dim and parts:
            np.add(parts[0].array, part.array, out=parts[0].array)
        else:
            parts.append(part)
    if cut == dim:
        return parts[0]
    dims = parts[0].dims
    return Value(dims, np.concatenate([p.array for p in parts], axis=dims.index(cut)))


def _operands(node: Node) -> tuple[TensorId, ...]:
    return node.operands if isinstance(node, Apply) else ()


def _along(op: str, operands: Sequence[Value], dim: DataDim, sizes: Mapping[DataDim, int]) -> Value:
    dims = tuple(dict.fromkeys(d for v in operands for d in v.dims))
    extent = operands[0].array.shape[operands[0].dims.index(dim)]
    if extent != sizes[dim]:
        raise GraphError(
            f"{op} acts along {dim} and needs the whole of it, {sizes[dim]} elements; a block "
            f"holds {extent}: leave {dim} in one piece"
        )
    arrays = [v.along(dims) for v in operands]
    return Value(dims, OPS[op].numpy(*arrays, axis=dims.index(dim), size=extent))


def _reduce(op: str, value: Value, dim: DataDim, sizes: Mapping[DataDim, int]) -> Value:
    axis = value.dims.index(dim)
    rest = value.dims[:axis] + value.dims[axis + 1 :]
    if op == "mean":
        # a tile holds part of the dimension: its own mean would be the wrong divisor
        return Value(rest, OPS["sum"].numpy(value.array, axis=axis) / sizes[dim])
    if op == "max" and value.array.shape[axis] == 0:
        # the last block's share may run out before its loop does; NumPy has no max of nothing
        shape = value.array.shape[:axis] + value.array.shape[axis + 1 :]
        return Value(rest, np.full(shape, -np.inf))
    return Value(rest, np.asarray(OPS[op].numpy(value.array, axis=axis)))


def _contract(left: Value, right: Value, dim: DataDim) -> Value:
    """Sum over `dim` of the product, as one batched matrix product (no outer product is formed)."""
    batch = [d for d in left.dims if d in right.dims and d != dim]
    rows = [d for d in left.dims if d not in right.dims]
    columns = [d for d in right.dims if d not in left.dims]
    a, b = left.along([*batch, *rows, dim]), right.along([*batch, dim, *columns])
    batch_shape = a.shape[: len(batch)]
    row_shape, column_shape = a.shape[len(batch) : -1], b.shape[len(batch) + 1 :]
    depth = a.shape[-1]
    product = np.matmul(
        a.reshape(*batch_shape, math.prod(row_shape), depth),
        b.reshape(*batch_shape, depth, math.prod(column_shape)),
    )
    return Value(
        (*batch, *rows, *columns), product.reshape((*batch_shape, *row_shape, *column_shape))
    )


def _check_extents(op: str, operands: Sequence[Value]) -> None:
    seen: dict[DataDim, int] = {}
    for value in operands:
        for dim, extent in zip(value.dims, value.array.shape, strict=True):
            if seen.setdefault(dim, extent) != extent:
                raise GraphError(
                    f"{op}: its operands hold {seen[dim]} and {extent} elements of dimension "
                    f"{dim}; operands must be partitioned alike"
                )


def _check_rank(program: Program, argument: Argument, shape: tuple[int, ...]) -> None:
    if len(shape) != len(argument.axes):
        axes = ", ".join("1" if d is None else d for d in argument.axes)
        raise SizeError(
            f"argument {argument.name!r} of {program.name} has axes [{axes}], but the array has "
            f"{len(shape)} axes: shape {shape}"
        )


def _real(program: Program, name: str, given: ArrayLike) -> Array:
    array = np.asarray(given)
    if array.dtype.kind in "bcOSUMm":
        raise UsageError(
            f"argument {name!r} of {program.name} has dtype {array.dtype}; real numbers are needed"
        )
    return array
