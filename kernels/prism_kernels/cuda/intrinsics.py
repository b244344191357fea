"""What emitted CUDA kernels import: raw memory, index arithmetic and float32 functions.

Everything is an `@intrinsic` that builds LLVM IR: intrinsics compile without a GPU, where device
functions and numba-cuda's overloads ask for the current device; and they cost Numba's front end
least. Indices are unsigned 32-bit numbers, extended with zeros: signed 64-bit ones need twice the
registers.

Importing this module imports numba-cuda (the `cuda` extra). Only emitted files, the compiler and
the launcher do; `prism_kernels.cuda.dialect` has the names for everyone else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # it has no stubs

from prism_kernels.cuda.frontend import intrinsic, types
from prism_kernels.cuda.functions import FUNCTIONS, LARGEST

f32 = types.float32
u32 = types.uint32
INF = np.float32(np.inf)
NAN = np.float32(np.nan)
LOWEST = np.float32(-LARGEST)

I16, I32, I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
F16, F32 = ir.HalfType(), ir.FloatType()

Values = Sequence[ir.Value]

STORAGE = {"float32": types.float32, "float16": types.uint16, "bfloat16": types.uint16}
"""Storage dtype -> the Numba type of an element in memory."""

NumbaType = Any
"""A Numba type or signature; Numba has no annotations for them."""
Context = Any
"""Numba's typing or target context."""
Build = Callable[[Context, ir.IRBuilder, NumbaType, Sequence[ir.Value]], ir.Value]
"""What writes the IR of an intrinsic."""
Typed = tuple[NumbaType, Build]
"""What an intrinsic returns: its signature and its IR."""
Intrinsic = Callable[..., Any]
Convert = Callable[[ir.IRBuilder, ir.Value], ir.Value]


def pointer_to(dtype: str) -> NumbaType:
    """The type of a kernel's parameter of a storage dtype."""
    return types.CPointer(STORAGE[dtype])


def element_address(builder: ir.IRBuilder, pointer: ir.Value, index: ir.Value) -> ir.Value:
    """The address of element `index` of what a parameter points to."""
    return builder.gep(pointer, [builder.zext(index, I64)], inbounds=True)


def local_addresses(
    context: Context, builder: ir.IRBuilder, kind: NumbaType, args: Values, count: int
) -> list[ir.Value]:
    """The addresses of neighbours in an array, whose value and first index are given."""
    array, at = args
    data = context.make_array(kind)(context, builder, array).data
    first = builder.gep(data, [builder.zext(at, I64)], inbounds=True)
    return [
        first,
        *(builder.gep(first, [ir.Constant(I64, k)], inbounds=True) for k in range(1, count)),
    ]


def _unchanged(_builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    return value


def _from_float16(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    return builder.fpext(builder.bitcast(bits, F16), F32)


def _to_float16(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    return builder.bitcast(builder.fptrunc(value, F16), I16)


def _from_bfloat16(builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """A bfloat16 is the upper half of a float32."""
    wide = builder.zext(bits, ir.IntType(32))
    return builder.bitcast(builder.shl(wide, ir.Constant(wide.type, 16)), F32)


def _to_bfloat16(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Round to nearest even; the LLVM of NVVM does not know bfloat16."""
    kind = ir.FunctionType(I16, [F32])
    return builder.call(ir.InlineAsm(kind, "cvt.rn.bf16.f32 $0, $1;", "=h,f"), [value])


FROM_STORED: dict[str, Convert] = {
    "float32": _unchanged,
    "float16": _from_float16,
    "bfloat16": _from_bfloat16,
}
TO_STORED: dict[str, Convert] = {
    "float32": _unchanged,
    "float16": _to_float16,
    "bfloat16": _to_bfloat16,
}
"""Storage dtype -> what turns an element in memory into a float32, and back."""


def _loader(dtype: str) -> Intrinsic:
    convert = FROM_STORED[dtype]

    def build(
        _context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        return convert(builder, builder.load(element_address(builder, *args)))

    @intrinsic
    def load(_context: Context, pointer: NumbaType, index: NumbaType) -> Typed:
        del pointer, index
        return types.float32(pointer_to(dtype), types.uint32), build

    return load  # type: ignore[no-any-return]


def _storer(dtype: str) -> Intrinsic:
    convert = TO_STORED[dtype]

    def build(
        context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        pointer, index, value = args
        builder.store(convert(builder, value), element_address(builder, pointer, index))
        return context.get_dummy_value()

    @intrinsic
    def store(_context: Context, pointer: NumbaType, index: NumbaType, value: NumbaType) -> Typed:
        del pointer, index, value
        return types.void(pointer_to(dtype), types.uint32, types.float32), build

    return store  # type: ignore[no-any-return]


load_float32 = _loader("float32")
load_float16 = _loader("float16")
load_bfloat16 = _loader("bfloat16")
store_float32 = _storer("float32")
store_float16 = _storer("float16")
store_bfloat16 = _storer("bfloat16")


@intrinsic
def atomic_add_float32(
    _context: Context, pointer: NumbaType, index: NumbaType, value: NumbaType
) -> Typed:
    """Add to `pointer[index]`, whatever other threads of the grid add; gives nothing back."""
    del pointer, index, value

    def build(
        context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        address, value = element_address(builder, args[0], args[1]), args[2]
        kind = ir.FunctionType(F32, [address.type, F32])
        name = "llvm.nvvm.atomic.load.add.f32.p0f32"
        add = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(add, [address, value])
        return context.get_dummy_value()

    return types.void(pointer_to("float32"), types.uint32, types.float32), build


def _index_function(write: Callable[[ir.IRBuilder, ir.Value, ir.Value], ir.Value]) -> Intrinsic:
    """A function of two unsigned indices."""

    def build(
        _context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        return write(builder, *args)

    @intrinsic
    def function(_context: Context, i: NumbaType, j: NumbaType) -> Typed:
        del i, j
        return types.uint32(types.uint32, types.uint32), build

    return function  # type: ignore[no-any-return]


def _smaller(builder: ir.IRBuilder, i: ir.Value, j: ir.Value) -> ir.Value:
    return builder.select(builder.icmp_unsigned("<", i, j), i, j)


# Python's // and % would check the divisor and the signs
quotient = _index_function(lambda builder, i, j: builder.udiv(i, j))
remainder = _index_function(lambda builder, i, j: builder.urem(i, j))
smaller = _index_function(_smaller)


def _scalar_function(name: str) -> Intrinsic:
    """The function `name` of `FUNCTIONS` as an intrinsic on float32."""
    spec = FUNCTIONS[name]
    kind = ir.FunctionType(F32, [F32] * spec.arity)
    # no side effects: LLVM may move, merge and drop it
    assembly = ir.InlineAsm(kind, spec.assembly, ",".join(["=f", *["f"] * spec.arity]))

    def build(
        _context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        return builder.call(assembly, args)

    @intrinsic
    def unary(_context: Context, x: NumbaType) -> Typed:
        del x
        return types.float32(types.float32), build

    @intrinsic
    def binary(_context: Context, x: NumbaType, y: NumbaType) -> Typed:
        del x, y
        return types.float32(types.float32, types.float32), build

    return unary if spec.arity == 1 else binary  # type: ignore[no-any-return]


maximum = _scalar_function("maximum")
minimum = _scalar_function("minimum")
bound = _scalar_function("bound")
absolute = _scalar_function("absolute")
divide = _scalar_function("divide")
sqrt = _scalar_function("sqrt")
exp = _scalar_function("exp")
log = _scalar_function("log")
tanh = _scalar_function("tanh")
sigmoid = _scalar_function("sigmoid")
silu = _scalar_function("silu")
gelu_tanh = _scalar_function("gelu_tanh")
gelu_erf = _scalar_function("gelu_erf")
