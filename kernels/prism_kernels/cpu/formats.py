"""Storage formats: float16 and bfloat16 in memory, float32 everywhere else, as LLVM IR.

Numba's CPU target has neither type. Emitted kernels hold pointers to such elements, widen what they
load and narrow what they store, single elements and vectors alike; nothing is computed in 16 bits.
A pointer says which format it points to: to `half`, or to 16-bit integers that are bfloat16.

Narrowing rounds to nearest, ties to even; what is too large becomes infinite, what is too small
subnormal or zero, and NaN stays NaN, as in NumPy and ml_dtypes. float16 is converted by the
processor where it can: else LLVM would call functions that are not there, so integer arithmetic
does it. bfloat16 is the upper half of a float32; its instructions are not used, because they
flush subnormal numbers to zero.
"""

from __future__ import annotations

import platform
from functools import cache

import llvmlite.binding as llvm  # type: ignore[import-untyped]  # it has no stubs
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # it has no stubs
from numba import types
from numba.extending import models, register_model

I16, I32 = ir.IntType(16), ir.IntType(32)
HALF, SINGLE, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()

MEMORY_TYPES = {"float64": DOUBLE, "float32": SINGLE, "float16": HALF, "bfloat16": I16}
"""Dtype -> the LLVM type that stands for it behind a pointer."""

_ROUNDS_ALONE = ("contract",)
"""Fast-math flags of steps whose rounding is the conversion: with `reassoc` they would melt away.
An empty set would be filled with the function's."""


class Narrow(types.Type):  # type: ignore[misc]  # Numba has no annotations
    """The Numba type of an element that is stored in 16 bits."""

    def __init__(self, dtype: str) -> None:
        super().__init__(name=f"narrow({dtype})")
        self.dtype = dtype


@register_model(Narrow)
class _NarrowModel(models.PrimitiveModel):  # type: ignore[misc]  # Numba has no annotations
    def __init__(self, manager: object, kind: Narrow) -> None:
        super().__init__(manager, kind, MEMORY_TYPES[kind.dtype])


@cache
def converts_float16() -> bool:
    """Whether this processor converts float16 itself."""
    if platform.machine().lower() in {"arm64", "aarch64"}:
        return True
    features = llvm.get_host_cpu_features()
    return bool(features.get("f16c") or features.get("avx512f"))


def element_bytes(kind: ir.Type) -> int:
    """Bytes of an element of a memory type."""
    return {HALF: 2, I16: 2, SINGLE: 4, DOUBLE: 8}[kind]


def is_narrow(kind: ir.Type) -> bool:
    """Whether a memory type is stored only, not computed with."""
    return kind in {HALF, I16}


def widened(
    builder: ir.IRBuilder, bits: ir.Value, kind: ir.Type, *, by_processor: bool | None = None
) -> ir.Value:
    """The float32 numbers with these 16 bits, one or a vector, of memory type `kind`."""
    w = _Widths(builder, bits.type)
    if kind == I16:
        wide = builder.shl(builder.zext(bits, w.like(I32)), w.const(I32, 16))
        return builder.bitcast(wide, w.like(SINGLE))
    if converts_float16() if by_processor is None else by_processor:
        return builder.fpext(builder.bitcast(bits, w.like(HALF)), w.like(SINGLE))
    return _float16_widened(w, bits)


def narrowed(
    builder: ir.IRBuilder, value: ir.Value, kind: ir.Type, *, by_processor: bool | None = None
) -> ir.Value:
    """The 16 bits that store float32 numbers, one or a vector, as memory type `kind`."""
    w = _Widths(builder, value.type)
    if kind == I16:
        return _bfloat16_narrowed(w, value)
    if converts_float16() if by_processor is None else by_processor:
        return builder.bitcast(builder.fptrunc(value, w.like(HALF)), w.like(I16))
    return _float16_narrowed(w, value)


class _Widths:
    """Types and constants of as many lanes as a value has."""

    def __init__(self, builder: ir.IRBuilder, kind: ir.Type) -> None:
        self.builder = builder
        self.lanes = kind.count if isinstance(kind, ir.VectorType) else 0

    def like(self, kind: ir.Type) -> ir.Type:
        return ir.VectorType(kind, self.lanes) if self.lanes else kind

    def const(self, kind: ir.Type, value: float) -> ir.Constant:
        every = [value] * self.lanes if self.lanes else value
        return ir.Constant(self.like(kind), every)


def _bfloat16_narrowed(w: _Widths, value: ir.Value) -> ir.Value:
    """The upper half, rounded by an addition that carries into it; a NaN is only made quiet."""
    b = w.builder
    bits = b.bitcast(value, w.like(I32))
    upper = b.lshr(bits, w.const(I32, 16))
    is_odd = b.and_(upper, w.const(I32, 1))
    rounded = b.add(b.add(bits, w.const(I32, 0x7FFF)), is_odd)
    quiet = b.or_(upper, w.const(I32, 0x40))
    is_nan = b.icmp_unsigned(">", b.and_(bits, w.const(I32, 0x7FFFFFFF)), w.const(I32, 0x7F800000))
    upper = b.select(is_nan, quiet, b.lshr(rounded, w.const(I32, 16)))
    return b.trunc(upper, w.like(I16))


def _float16_widened(w: _Widths, bits: ir.Value) -> ir.Value:
    """Exponent and mantissa moved to their places in float32, and the exponent's bias corrected.

    The product by a power of two does that for normal and subnormal numbers alike.
    """
    b = w.builder
    wide = b.zext(bits, w.like(I32))
    size = b.shl(b.and_(wide, w.const(I32, 0x7FFF)), w.const(I32, 13))
    sign = b.shl(b.and_(wide, w.const(I32, 0x8000)), w.const(I32, 16))
    bias = w.const(SINGLE, 2.0**112)
    number = b.fmul(b.bitcast(size, w.like(SINGLE)), bias, flags=_ROUNDS_ALONE)
    special = b.or_(size, w.const(I32, 0x7F800000))
    is_special = b.icmp_unsigned(">=", size, w.const(I32, 0x7C00 << 13))
    out = b.select(is_special, special, b.bitcast(number, w.like(I32)))
    return b.bitcast(b.or_(out, sign), w.like(SINGLE))


def _float16_narrowed(w: _Widths, value: ir.Value) -> ir.Value:
    """Three cases: normal numbers round by a carry, subnormal ones by adding 0.5, others are inf.

    To 0.5 a float32 can only add whole multiples of the smallest float16.
    """
    b = w.builder
    bits = b.bitcast(value, w.like(I32))
    size = b.and_(bits, w.const(I32, 0x7FFFFFFF))
    sign = b.lshr(b.and_(bits, w.const(I32, 0x80000000)), w.const(I32, 16))
    is_odd = b.and_(b.lshr(size, w.const(I32, 13)), w.const(I32, 1))
    rebias = w.const(I32, ((15 - 127) << 23) + 0xFFF & 0xFFFFFFFF)
    normal = b.lshr(b.add(b.add(size, rebias), is_odd), w.const(I32, 13))
    half = w.const(SINGLE, 0.5)
    moved = b.fadd(b.bitcast(size, w.like(SINGLE)), half, flags=_ROUNDS_ALONE)
    small = b.sub(b.bitcast(moved, w.like(I32)), w.const(I32, _bits_of(0.5)))
    is_nan = b.icmp_unsigned(">", size, w.const(I32, 0x7F800000))
    large = b.select(is_nan, w.const(I32, 0x7E00), w.const(I32, 0x7C00))
    is_small = b.icmp_unsigned("<", size, w.const(I32, _bits_of(2.0**-14)))
    is_large = b.icmp_unsigned(">=", size, w.const(I32, _bits_of(65536.0)))
    out = b.select(is_large, large, b.select(is_small, small, normal))
    return b.trunc(b.or_(out, sign), w.like(I16))


def _bits_of(value: float) -> int:
    return int(np.float32(value).view(np.uint32))
