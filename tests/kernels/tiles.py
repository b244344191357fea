"""What tile programs without loops compute, in NumPy and a dtype of choice."""

from __future__ import annotations

from itertools import product

import numpy as np

from prism.ir import OPS
from prism_kernels.tile import Contract, Load, Map, Reduce, Scalar, Store


def run_tile(program, arrays, dtype="float32"):
    """The outputs of a program of one block by name; `arrays` by input name."""
    outputs = {}
    for node, axes in zip(program.nodes, program.axes, strict=True):
        if isinstance(node, Store):
            outputs[node.target] = np.zeros([program.sizes[a.dim] for a in axes], dtype)
    _run_block(program, {}, arrays, outputs, dtype)
    return outputs


def run_kernels(lowered, arrays, dtype="float32"):
    """The outputs of a graph's kernels by name, block by block; `arrays` by input name."""
    tensors = dict(arrays)
    for program in lowered.programs:
        written = {n.target for n in program.nodes if isinstance(n, Store)}
        outputs = {}
        for name in written:
            dims = [d for d, _ in program.outputs[name].strides]
            outputs[name] = np.full([program.sizes[d] for d in dims], np.nan, dtype)
        for index in product(*(range(g.count) for g in program.grid)):
            block = dict(zip((g.name for g in program.grid), index, strict=True))
            _run_block(program, block, tensors, outputs, dtype)
        tensors |= outputs
    return {n: array for n, array in tensors.items() if n not in arrays}


def _run_block(program, block, arrays, outputs, dtype):
    """One block: `block` is its index by grid dim."""
    axis = {dim: k for k, dim in enumerate(program.sizes)}
    values = []
    for node, axes in zip(program.nodes, program.axes, strict=True):
        parts = {a.dim: _part(program, block, a) for a in axes}
        match node:
            case Load(source=source):
                tile = arrays[source].astype(dtype)[tuple(parts.values())]
                value = _spread(tile, list(parts), list(axis))
            case Store(operand=i):
                value = values[i]
                if not any(block[par] for par in node.single):
                    _store(program, node, block, (parts, value, outputs[node.target]))
            case _:
                value = _computed(node, values, axis, dtype)
        assert value.dtype == dtype
        values.append(value)


def _part(program, block, axis):
    """What a block has of an axis."""
    tile = size = program.sizes[axis.dim]
    start = 0
    for g in program.grid:
        if g.name == axis.grid:
            tile, start = g.tile, block[g.name] * g.tile
    return slice(start, min(start + tile, size))


def _spread(tile, dims, all_dims):
    """A tile with an axis for every dim of the program."""
    order = sorted(dims, key=all_dims.index)
    shape = [tile.shape[dims.index(d)] if d in dims else 1 for d in all_dims]
    return tile.transpose([dims.index(d) for d in order]).reshape(shape)


def _computed(node, values, axis, dtype):
    match node:
        case Scalar(value=number):
            return np.full([1] * len(axis), number, dtype)
        case Map(op="bound", operands=(i,)):
            return np.clip(values[i], np.finfo(dtype).min, np.finfo(dtype).max)
        case Map(op=op, operands=ids):
            return OPS[op].numpy(*(values[i] for i in ids))
        case Reduce(op=op, operand=i, dim=dim):
            return getattr(np, op)(values[i], axis=axis[dim], keepdims=True)
        case Contract(left=left, right=right, dim=dim):
            return np.sum(values[left] * values[right], axis=axis[dim], keepdims=True)


def _store(program, node, block, written):
    """Write a block's tile; a stacked one at the block's index."""
    parts, value, output = written
    lengths = {d: part.stop - part.start for d, part in parts.items()}
    order = [d for d in program.sizes if d in parts]
    whole = np.broadcast_to(value, [lengths.get(d, 1) for d in program.sizes])
    tile = whole.reshape([lengths[d] for d in order]).transpose([order.index(d) for d in parts])
    index = [parts.get(d) for d, _ in program.outputs[node.target].strides]
    if node.stack:
        index = [block[node.stack[1]] if part is None else part for part in index]
    output[tuple(index)] = tile
