"""Stores past the caches: a row copied without reading the lines that it overwrites.

These stores need aligned vectors, so the row's ends are masked. Whoever reads the memory next may
run on another core: a `fence` comes after the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from llvmlite import ir  # type: ignore[import-untyped]  # it has no stubs
from numba import types
from numba.extending import intrinsic

from prism_kernels.cpu.formats import element_bytes
from prism_kernels.cpu.intrinsics import (
    LLVM_TYPES,
    NUMBA_TYPES,
    Context,
    Intrinsic,
    NumbaType,
    Typed,
)
from prism_kernels.cpu.vector import I32, I64, Vectors, constant


@cache
def stream_out(*, lanes: int, dtype: str) -> Intrinsic:
    """The copy target[k] = source[k] for k < count, past the caches (x86 only)."""
    element = NUMBA_TYPES[dtype]

    def build(
        context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        target, source, count = args
        v = Vectors(builder, LLVM_TYPES[element], lanes)
        size = element_bytes(LLVM_TYPES[element])
        vector = lanes * size
        # up to where the target is aligned, which these stores require
        behind = builder.and_(builder.ptrtoint(target, I64), constant(vector - 1))
        to_line = builder.udiv(
            builder.and_(builder.sub(constant(vector), behind), constant(vector - 1)),
            constant(size),
        )
        head = builder.select(builder.icmp_signed("<", to_line, count), to_line, count)
        _copy_part(v, target, source, head)
        to, start = v.at(target, head), v.at(source, head)
        once = builder.module.add_metadata([ir.Constant(I32, 1)])

        def step(k: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            place = builder.bitcast(v.at(to, k), v.kind.as_pointer())
            store = builder.store(v.load(v.at(start, k)), place)
            store.align = vector
            store.set_metadata("nontemporal", once)
            return carried

        rest = builder.sub(count, head)
        k, _ = v.counted_loop(rest, lanes, [], step)
        _copy_part(v, v.at(to, k), v.at(start, k), builder.sub(rest, k))
        return context.get_dummy_value()

    @intrinsic
    def kernel(_context: Context, target: NumbaType, source: NumbaType, count: NumbaType) -> Typed:
        del count
        return types.void(target, source, types.intp), build

    return kernel  # type: ignore[no-any-return]


def _copy_part(v: Vectors, target: ir.Value, source: ir.Value, count: ir.Value) -> None:
    """Copy less than a vector as usual; mostly there is nothing."""
    with v.builder.if_then(v.builder.icmp_signed(">", count, constant(0)), likely=False):
        mask = v.mask(count)
        v.masked_store(v.masked_load(source, mask), target, mask)


@intrinsic
def fence(_context: Context) -> Typed:
    """Wait until what was streamed out is in memory (x86 only)."""

    def build(
        context: Context, builder: ir.IRBuilder, _signature: NumbaType, _args: Sequence[ir.Value]
    ) -> ir.Value:
        name, kind = "llvm.x86.sse.sfence", ir.FunctionType(ir.VoidType(), [])
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), build
