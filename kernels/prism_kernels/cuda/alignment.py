"""Proves how many neighbouring elements of an array a thread may move in one access.

An access of w elements needs an address that is a multiple of its size, at most 16 bytes. Arrays
start at such addresses (the launcher sees to it), so that w must divide the index of every element
that an access starts at: the stride of every other dim, where blocks' and iterations' tiles start
and, since no access may reach beyond the end, how long they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from prism.ir import DataDim
from prism_kernels.cuda.dialect import DTYPES
from prism_kernels.cuda.plan import Place
from prism_kernels.tile import Axis, TileProgram

ACCESS_BYTES = 16
"""The most that one instruction moves for a thread."""


def contiguous_dim(place: Place, axes: Iterable[Axis], program: TileProgram) -> DataDim | None:
    """The dim along which a value in an array that the kernel takes is contiguous."""
    if not place.is_argument:
        return None
    near = (a.dim for a in axes if place.strides[a.dim] == 1 and program.sizes[a.dim] > 1)
    return next(near, None)


def widest(program: TileProgram, place: Place, axes: Iterable[Axis]) -> int:
    """How many neighbours along the contiguous dim can be moved at once: a power of two."""
    axes = tuple(axes)
    dim = contiguous_dim(place, axes, program)
    if dim is None:
        return 1
    steps = [ACCESS_BYTES // DTYPES[place.dtype]]
    for axis in axes:
        if axis.dim == dim:
            steps += [program.sizes[dim], program.chunk(axis)]
            steps += [g.tile for g in program.grid if g.name == axis.grid]
        elif program.sizes[axis.dim] > 1:
            steps.append(place.strides[axis.dim])
    if place.stack is not None:
        steps.append(place.stack[1])
    common = math.gcd(*steps)
    return common & -common


def is_vector(program: TileProgram, place: Place, axes: Iterable[Axis], dim: DataDim) -> bool:
    """Whether neighbours of a value along a dim are moved several at once."""
    axes = tuple(axes)
    return contiguous_dim(place, axes, program) == dim and widest(program, place, axes) > 1
