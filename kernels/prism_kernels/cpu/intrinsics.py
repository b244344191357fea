"""Scalar building blocks of emitted CPU kernels: raw memory and branch-free functions.

Everything is an `@intrinsic` that builds LLVM IR, for two reasons. Loads and stores through raw
pointers have no wrap-around of negative indices, which would keep LLVM from vectorising. And
functions such as exp are written without branches or calls, as scalar IR that the loop vectoriser
widens; a Python-level `inline="always"` function doing the same costs twice the compile time.

Emitted kernels run under `FASTMATH`, which leaves NaN, infinities and masks of -inf what they are
in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]  # it has no stubs
from numba import types
from numba.extending import intrinsic

from prism_kernels.cpu.formats import I16, Narrow, is_narrow, narrowed, widened
from prism_kernels.cpu.functions import FUNCTIONS, Emit, NumberFormat

FASTMATH = frozenset({"contract", "nsz", "afn"})
"""Never nnan or ninf, which make masks with -inf undefined. Nor arcp: 1 / sqrt(x) would become an
estimate that is NaN at 0 and inf, and its gain is within noise (row softmax: 1-4 %). Nor reassoc,
by which an eps is swallowed: `plus` alone, the addition of sums, has it."""

LLVM_TYPES = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
NUMBA_TYPES = {"float32": types.float32, "float64": types.float64}
"""What kernels compute in."""
STORED_TYPES = {**NUMBA_TYPES, "float16": Narrow("float16"), "bfloat16": Narrow("bfloat16")}
"""What arguments and results are stored in."""

CACHE_LINE_BYTES = 64

NumbaType = Any
"""A Numba type or signature; Numba has no annotations for them."""
Context = Any
"""Numba's typing or target context."""
Build = Callable[[Context, ir.IRBuilder, NumbaType, Sequence[ir.Value]], ir.Value]
"""What writes the IR of an intrinsic."""
Typed = tuple[NumbaType, Build]
"""What an intrinsic returns: its signature and its IR."""
Intrinsic = Callable[..., Any]


def signature(dtype: str) -> NumbaType:
    """The type of a block function: block index, thread index, pointers to the arrays."""
    arrays = types.CPointer(types.CPointer(NUMBA_TYPES[dtype]))
    return types.void(types.int64, types.int64, arrays)


def computed(element: NumbaType) -> NumbaType:
    """The type that an element is computed with."""
    return types.float32 if isinstance(element, Narrow) else element


def load_element(builder: ir.IRBuilder, place: ir.Value) -> ir.Value:
    """What `place` points to, as it is computed with."""
    kind = place.type.pointee
    if not is_narrow(kind):
        return builder.load(place)
    # as integers: what LLVM can do with `half` itself depends on the processor
    bits = builder.load(builder.bitcast(place, I16.as_pointer()))
    return widened(builder, bits, kind)


def store_element(builder: ir.IRBuilder, value: ir.Value, place: ir.Value) -> None:
    """Write a computed value to `place`, in the format that it points to."""
    kind = place.type.pointee
    if is_narrow(kind):
        value = narrowed(builder, value, kind)
        place = builder.bitcast(place, I16.as_pointer())
    builder.store(value, place)


def _load_element(
    _context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
) -> ir.Value:
    return load_element(builder, builder.gep(args[0], [args[1]], inbounds=True))


@intrinsic
def argument(_context: Context, pointers: NumbaType, i: NumbaType) -> Typed:
    """The i-th array of the launch."""
    del i
    return pointers.dtype(pointers, types.intp), _load_element


@cache
def argument_of(dtype: str) -> Intrinsic:
    """As `argument`, for the arrays that are stored in `dtype`."""
    kind = types.CPointer(STORED_TYPES[dtype])

    def build(
        context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        pointer = builder.load(builder.gep(args[0], [args[1]], inbounds=True))
        return builder.bitcast(pointer, context.get_value_type(kind))

    @intrinsic
    def stored_argument(_context: Context, pointers: NumbaType, i: NumbaType) -> Typed:
        del i
        return kind(pointers, types.intp), build

    return stored_argument  # type: ignore[no-any-return]


@intrinsic
def load(_context: Context, pointer: NumbaType, i: NumbaType) -> Typed:
    """The element at `pointer[i]`, unchecked."""
    del i
    return computed(pointer.dtype)(pointer, types.intp), _load_element


@intrinsic
def offset(_context: Context, pointer: NumbaType, i: NumbaType) -> Typed:
    """The pointer `i` elements further."""
    del i

    def build(
        _context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.intp), build


@intrinsic
def store(_context: Context, pointer: NumbaType, i: NumbaType, value: NumbaType) -> Typed:
    """Write `pointer[i]`, unchecked."""
    del i, value

    def build(
        context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        store_element(builder, args[2], builder.gep(args[0], [args[1]], inbounds=True))
        return context.get_dummy_value()

    return types.void(pointer, types.intp, computed(pointer.dtype)), build


@intrinsic
def smaller(_context: Context, i: NumbaType, j: NumbaType) -> Typed:
    """The smaller of two integers; Python's `min` is typed and compiled anew in every kernel."""
    del i, j

    def build(
        _context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        return builder.select(builder.icmp_signed("<", args[0], args[1]), args[0], args[1])

    return types.int64(types.int64, types.int64), build


@cache
def stack(count: int, dtype: str) -> Intrinsic:
    """A maker of stack buffers of `count` elements, each from a cache line on.

    Each is an alloca of its own, so LLVM knows that no two of them overlap.
    """
    element = NUMBA_TYPES[dtype]

    def build(
        _context: Context, builder: ir.IRBuilder, _signature: NumbaType, _args: Sequence[ir.Value]
    ) -> ir.Value:
        kind = LLVM_TYPES[element]
        # not cgutils.alloca_once: that fills with zeros, at great cost to LLVM
        with builder.goto_entry_block():
            array = builder.alloca(ir.ArrayType(kind, count))
        array.align = CACHE_LINE_BYTES
        return builder.bitcast(array, kind.as_pointer())

    @intrinsic
    def make(_context: Context) -> Typed:
        return types.CPointer(element)(), build

    return make  # type: ignore[no-any-return]


def _scalar_function(name: str) -> Intrinsic:
    """The function `name` of `FUNCTIONS` as an intrinsic on one float type."""
    spec = FUNCTIONS[name]

    def build(
        _context: Context, builder: ir.IRBuilder, sig: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        return spec.build(Emit(builder, NumberFormat.of(sig.args[0].name)), *args)

    @intrinsic
    def unary(_context: Context, x: NumbaType) -> Typed:
        return x(x), build

    @intrinsic
    def binary(_context: Context, x: NumbaType, y: NumbaType) -> Typed:
        del y  # of the same type
        return x(x, x), build

    return unary if spec.arity == 1 else binary  # type: ignore[no-any-return]


exp = _scalar_function("exp")
log = _scalar_function("log")
sqrt = _scalar_function("sqrt")
absolute = _scalar_function("absolute")
sigmoid = _scalar_function("sigmoid")
silu = _scalar_function("silu")
tanh = _scalar_function("tanh")
gelu_tanh = _scalar_function("gelu_tanh")
gelu_erf = _scalar_function("gelu_erf")
maximum = _scalar_function("maximum")
minimum = _scalar_function("minimum")
bound = _scalar_function("bound")
plus = _scalar_function("plus")
