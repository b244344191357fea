"""Accesses of several neighbouring elements at once, which emitted kernels import.

A GPU moves up to 16 bytes per thread in one instruction. The elements go between global memory and
a thread's own array, where they are float32; LLVM keeps such an array in registers. Memory is
moved as whole 32-bit words, which is what the old LLVM of NVVM makes one instruction of.

Importing this module imports numba-cuda. `prism_kernels.cuda.dialect` has the names for everyone.
"""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]  # it has no stubs

from prism_kernels.cuda.dialect import DTYPES
from prism_kernels.cuda.frontend import intrinsic, types
from prism_kernels.cuda.intrinsics import (
    FROM_STORED,
    I16,
    I32,
    TO_STORED,
    Context,
    Intrinsic,
    NumbaType,
    Typed,
    Values,
    element_address,
    local_addresses,
    pointer_to,
)

WORD_BYTES = 4


def _words(
    builder: ir.IRBuilder, dtype: str, count: int, pointer: ir.Value, index: ir.Value
) -> ir.Value:
    """The address of the elements as words; the alignment of an access is its size."""
    words = count * DTYPES[dtype] // WORD_BYTES
    kind = I32 if words == 1 else ir.VectorType(I32, words)
    return builder.bitcast(element_address(builder, pointer, index), kind.as_pointer())


def _stored_of(builder: ir.IRBuilder, word: ir.Value, size: int) -> list[ir.Value]:
    """The elements in a word, the first in its low bits."""
    if size == WORD_BYTES:
        return [builder.bitcast(word, ir.FloatType())]
    high = builder.lshr(word, ir.Constant(I32, 16))
    return [builder.trunc(half, I16) for half in (word, high)]


def _word_of(builder: ir.IRBuilder, stored: Values) -> ir.Value:
    """A word of elements."""
    if len(stored) == 1:
        return builder.bitcast(stored[0], I32)
    low, high = (builder.zext(half, I32) for half in stored)
    return builder.or_(low, builder.shl(high, ir.Constant(I32, 16)))


def _loader(dtype: str, count: int) -> Intrinsic:
    convert, size = FROM_STORED[dtype], DTYPES[dtype]

    @intrinsic
    def load(
        _context: Context, registers: NumbaType, at: NumbaType, pointer: NumbaType, index: NumbaType
    ) -> Typed:
        del at, pointer, index

        def build(
            context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Values
        ) -> ir.Value:
            address = _words(builder, dtype, count, *args[2:])
            loaded = builder.load(address, align=count * size)
            words = [loaded]
            if isinstance(loaded.type, ir.VectorType):
                words = [
                    builder.extract_element(loaded, ir.Constant(I32, k))
                    for k in range(loaded.type.count)
                ]
            stored = [element for word in words for element in _stored_of(builder, word, size)]
            places = local_addresses(context, builder, registers, args[:2], count)
            for element, place in zip(stored, places, strict=True):
                builder.store(convert(builder, element), place)
            return context.get_dummy_value()

        kind = types.void(registers, types.uint32, pointer_to(dtype), types.uint32)
        return kind, build

    return load  # type: ignore[no-any-return]


def _storer(dtype: str, count: int) -> Intrinsic:
    convert, size = TO_STORED[dtype], DTYPES[dtype]

    @intrinsic
    def store(
        _context: Context, pointer: NumbaType, index: NumbaType, registers: NumbaType, at: NumbaType
    ) -> Typed:
        del at, pointer, index

        def build(
            context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Values
        ) -> ir.Value:
            places = local_addresses(context, builder, registers, args[2:], count)
            stored = [convert(builder, builder.load(place)) for place in places]
            each = WORD_BYTES // size
            words = [_word_of(builder, stored[k : k + each]) for k in range(0, count, each)]
            address = _words(builder, dtype, count, *args[:2])
            value = words[0]
            if len(words) > 1:
                value = ir.Constant(address.type.pointee, ir.Undefined)
                for k, word in enumerate(words):
                    value = builder.insert_element(value, word, ir.Constant(I32, k))
            builder.store(value, address, align=count * size)
            return context.get_dummy_value()

        kind = types.void(pointer_to(dtype), types.uint32, registers, types.uint32)
        return kind, build

    return store  # type: ignore[no-any-return]


load2_float32 = _loader("float32", 2)
load4_float32 = _loader("float32", 4)
load2_float16 = _loader("float16", 2)
load4_float16 = _loader("float16", 4)
load8_float16 = _loader("float16", 8)
load2_bfloat16 = _loader("bfloat16", 2)
load4_bfloat16 = _loader("bfloat16", 4)
load8_bfloat16 = _loader("bfloat16", 8)
store2_float32 = _storer("float32", 2)
store4_float32 = _storer("float32", 4)
store2_float16 = _storer("float16", 2)
store4_float16 = _storer("float16", 4)
store8_float16 = _storer("float16", 8)
store2_bfloat16 = _storer("bfloat16", 2)
store4_bfloat16 = _storer("bfloat16", 4)
store8_bfloat16 = _storer("bfloat16", 8)
