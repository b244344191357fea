"""Reads ahead of need: part of a row brought into the L2 cache."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from llvmlite import ir  # type: ignore[import-untyped]  # it has no stubs
from numba import types
from numba.extending import intrinsic

from prism_kernels.cpu.formats import element_bytes
from prism_kernels.cpu.intrinsics import CACHE_LINE_BYTES, Context, Intrinsic, NumbaType, Typed
from prism_kernels.cpu.vector import Vectors, constant


@cache
def fetch_row() -> Intrinsic:
    """A function of a pointer and a count that fetches so many elements; they need not exist."""

    def build(
        context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        pointer, count = args
        line = CACHE_LINE_BYTES // element_bytes(pointer.type.pointee)
        v = Vectors(builder, ir.FloatType(), 1)

        def step(k: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            v.fetch_line(v.at(pointer, k))
            return carried

        v.counted_loop(builder.add(count, constant(line - 1)), line, [], step)
        return context.get_dummy_value()

    @intrinsic
    def kernel(_context: Context, pointer: NumbaType, count: NumbaType) -> Typed:
        del count
        return types.void(pointer, types.intp), build

    return kernel  # type: ignore[no-any-return]
