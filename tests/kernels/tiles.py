"""What a tile program of one block and no loop computes, in NumPy and a dtype of choice."""

from __future__ import annotations

import numpy as np

from prism.ir import OPS
from prism_kernels.tile import Contract, Load, Map, Reduce, Scalar, Store


def run_tile(program, arrays, dtype="float32"):
    """The outputs by name, with the axes of the tile; `arrays` by input name."""
    axis = {dim: k for k, dim in enumerate(program.sizes)}
    values, outputs = [], {}
    for node, axes in zip(program.nodes, program.axes, strict=True):
        dims = [a.dim for a in axes]
        match node:
            case Load(source=source):
                order = sorted(range(len(dims)), key=lambda k: axis[dims[k]])
                shape = [program.sizes[d] if d in dims else 1 for d in axis]
                value = arrays[source].astype(dtype).transpose(order).reshape(shape)
            case Scalar(value=number):
                value = np.full([1] * len(axis), number, dtype)
            case Map(op="bound", operands=(i,)):
                value = np.clip(values[i], np.finfo(dtype).min, np.finfo(dtype).max)
            case Map(op=op, operands=ids):
                value = OPS[op].numpy(*(values[i] for i in ids))
            case Reduce(op=op, operand=i, dim=dim):
                value = getattr(np, op)(values[i], axis=axis[dim], keepdims=True)
            case Contract(left=left, right=right, dim=dim):
                value = np.sum(values[left] * values[right], axis=axis[dim], keepdims=True)
            case Store(operand=i, target=target):
                shape = [program.sizes[d] if d in dims else 1 for d in axis]
                whole = np.broadcast_to(values[i], shape)
                present = sorted(dims, key=axis.get)
                whole = whole.reshape([program.sizes[d] for d in present])
                outputs[target] = whole.transpose([present.index(d) for d in dims])
                value = values[i]
        assert value.dtype == dtype
        values.append(value)
    return outputs
