"""What emitted kernels that use tensor cores import: packed words, matrix products, copies.

`prism_kernels.cuda.tensor_dialect` says what each means, in `prism_kernels.cuda.intrinsics` is how
intrinsics are made. Numba has names for none of this, so each is a line of inline PTX; what only
reads arguments or computes has no side effects, so that LLVM may move, merge and drop it.

Importing this module imports numba-cuda.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir  # type: ignore[import-untyped]  # it has no stubs

from prism_kernels.cuda.frontend import intrinsic, types
from prism_kernels.cuda.intrinsics import (
    F32,
    I32,
    I64,
    Context,
    Intrinsic,
    NumbaType,
    Typed,
    Values,
    element_address,
    local_addresses,
    pointer_to,
)
from prism_kernels.cuda.tensor_dialect import FETCHES, WAITS


def _get(
    context: Context, builder: ir.IRBuilder, kind: NumbaType, args: Values, count: int
) -> Values:
    """Consecutive elements of an array."""
    return [builder.load(at) for at in local_addresses(context, builder, kind, args, count)]


def _put(
    context: Context, builder: ir.IRBuilder, kind: NumbaType, args: Values, values: ir.Value
) -> None:
    """Write the members of a structure to consecutive elements of an array, or its only one."""
    if not isinstance(values.type, ir.LiteralStructType):
        (place,) = local_addresses(context, builder, kind, args, 1)
        builder.store(values, place)
        return
    places = local_addresses(context, builder, kind, args, len(values.type.elements))
    for k, place in enumerate(places):
        builder.store(builder.extract_value(values, k), place)


def _assemble(  # noqa: PLR0913 - an instruction has that many parts
    builder: ir.IRBuilder,
    result: ir.Type,
    args: Sequence[ir.Value],
    text: str,
    *,
    operands: str,
    has_effect: bool = False,
    is_collective: bool = False,
) -> ir.Value:
    """An instruction; one that a warp carries out together never moves into a branch."""
    kind = ir.FunctionType(result, [arg.type for arg in args])
    assembly = ir.InlineAsm(kind, text, operands, side_effect=has_effect)
    return builder.call(assembly, list(args), attrs=("convergent",) if is_collective else ())


def _results(kind: ir.Type, count: int) -> ir.Type:
    return kind if count == 1 else ir.LiteralStructType([kind] * count)


def _numbered(first: int, count: int) -> str:
    """Operands of inline PTX, as a vector where there are several."""
    names = ", ".join(f"${first + k}" for k in range(count))
    return names if count == 1 else f"{{{names}}}"


# -- memory


def _fetch(dtype: str, count: int) -> Intrinsic:
    """`count` words from global memory, past the first-level cache: they are read once."""
    vector = "" if count == 1 else f".v{count}"
    text = f"ld.global.nc{vector}.b32 {_numbered(0, count)}, [${count}];"
    if count == 4:
        text = text.replace(".nc", ".nc.L1::no_allocate")
    operands = ",".join([*["=r"] * count, "l"])

    @intrinsic
    def fetch(
        _context: Context, words: NumbaType, at: NumbaType, pointer: NumbaType, index: NumbaType
    ) -> Typed:
        del at, pointer, index

        def build(
            context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Values
        ) -> ir.Value:
            address = builder.ptrtoint(element_address(builder, args[2], args[3]), I64)
            found = _assemble(builder, _results(I32, count), [address], text, operands=operands)
            _put(context, builder, words, args[:2], found)
            return context.get_dummy_value()

        return types.void(words, types.uint32, pointer_to(dtype), types.uint32), build

    return fetch  # type: ignore[no-any-return]


fetch1_float16 = _fetch(*FETCHES["fetch1_float16"])
fetch2_float16 = _fetch(*FETCHES["fetch2_float16"])
fetch4_float16 = _fetch(*FETCHES["fetch4_float16"])
fetch1_bfloat16 = _fetch(*FETCHES["fetch1_bfloat16"])
fetch2_bfloat16 = _fetch(*FETCHES["fetch2_bfloat16"])
fetch4_bfloat16 = _fetch(*FETCHES["fetch4_bfloat16"])


def _shared_address(
    context: Context, builder: ir.IRBuilder, kind: NumbaType, args: Values
) -> ir.Value:
    """The 32-bit address of an element of shared memory."""
    (place,) = local_addresses(context, builder, kind, args, 1)
    generic = builder.ptrtoint(place, I64)
    text = "{ .reg .u64 t; cvta.to.shared.u64 t, $1; cvt.u32.u64 $0, t; }"
    return _assemble(builder, I32, [generic], text, operands="=r,l")


def _copy(dtype: str) -> Intrinsic:
    @intrinsic
    def copy(
        _context: Context,
        shared: NumbaType,
        at: NumbaType,
        pointer: NumbaType,
        index: NumbaType,
        count: NumbaType,
    ) -> Typed:
        del at, pointer, index, count

        def build(
            context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Values
        ) -> ir.Value:
            target = _shared_address(context, builder, shared, args[:2])
            source = builder.ptrtoint(element_address(builder, args[2], args[3]), I64)
            size = builder.shl(args[4], ir.Constant(I32, 1))
            _assemble(
                builder,
                ir.VoidType(),
                [target, source, size],
                "cp.async.cg.shared.global [$0], [$1], 16, $2;",
                operands="r,l,r,~{memory}",
                has_effect=True,
            )
            return context.get_dummy_value()

        kinds = (shared, types.uint32, pointer_to(dtype), types.uint32, types.uint32)
        return types.void(*kinds), build

    return copy  # type: ignore[no-any-return]


cp_async_float16 = _copy("float16")
cp_async_bfloat16 = _copy("bfloat16")


def _order(text: str) -> Intrinsic:
    """An instruction without operands, which memory accesses stay before or after."""

    @intrinsic
    def order(_context: Context) -> Typed:
        def build(
            context: Context, builder: ir.IRBuilder, _signature: NumbaType, _args: Values
        ) -> ir.Value:
            _assemble(builder, ir.VoidType(), [], text, operands="~{memory}", has_effect=True)
            return context.get_dummy_value()

        return types.void(), build

    return order  # type: ignore[no-any-return]


cp_commit = _order("cp.async.commit_group;")
cp_wait0 = _order(f"cp.async.wait_group {WAITS['cp_wait0']};")
cp_wait1 = _order(f"cp.async.wait_group {WAITS['cp_wait1']};")
cp_wait2 = _order(f"cp.async.wait_group {WAITS['cp_wait2']};")
cp_wait3 = _order(f"cp.async.wait_group {WAITS['cp_wait3']};")


def _matrices(mode: str) -> Intrinsic:
    text = f"ldmatrix.sync.aligned.m8n8.x4{mode}.shared.b16 {_numbered(0, 4)}, [$4];"

    @intrinsic
    def load(
        _context: Context, words: NumbaType, at: NumbaType, shared: NumbaType, index: NumbaType
    ) -> Typed:
        del at, index

        def build(
            context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Values
        ) -> ir.Value:
            row = _shared_address(context, builder, shared, args[2:])
            found = _assemble(
                builder, _results(I32, 4), [row], text,
                operands="=r,=r,=r,=r,r,~{memory}", has_effect=True, is_collective=True,
            )  # fmt: skip
            _put(context, builder, words, args[:2], found)
            return context.get_dummy_value()

        return types.void(words, types.uint32, shared, types.uint32), build

    return load  # type: ignore[no-any-return]


ldmatrix = _matrices("")
ldmatrix_transposed = _matrices(".trans")

# -- products


def _multiply(shape: str, dtype: str, constraint: str) -> Intrinsic:
    text = (
        f"mma.sync.aligned.{shape}.row.col.f32.{dtype}.{dtype}.f32 "
        f"{_numbered(0, 4)}, {_numbered(4, 4)}, {_numbered(8, 2)}, {_numbered(10, 4)};"
    )
    operands = ",".join([*["=f"] * 4, *[constraint] * 6, *["f"] * 4])

    @intrinsic
    def multiply(  # noqa: PLR0913, PLR0917 - as many as the dialect says
        _context: Context,
        totals: NumbaType,
        at: NumbaType,
        left: NumbaType,
        i: NumbaType,
        right: NumbaType,
        j: NumbaType,
    ) -> Typed:
        del at, i, j

        def build(
            context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Values
        ) -> ir.Value:
            factors = [
                *_get(context, builder, left, args[2:4], 4),
                *_get(context, builder, right, args[4:6], 2),
            ]
            if constraint == "r":
                factors = [builder.bitcast(value, I32) for value in factors]
            old = _get(context, builder, totals, args[:2], 4)
            new = _assemble(
                builder, _results(F32, 4), [*factors, *old], text,
                operands=operands, is_collective=True,
            )  # fmt: skip
            _put(context, builder, totals, args[:2], new)
            return context.get_dummy_value()

        pairs = [kind for array in (totals, left, right) for kind in (array, types.uint32)]
        return types.void(*pairs), build

    return multiply  # type: ignore[no-any-return]


mma_float16 = _multiply("m16n8k16", "f16", "r")
mma_bfloat16 = _multiply("m16n8k16", "bf16", "r")
mma_tf32 = _multiply("m16n8k8", "tf32", "r")

# -- conversions


def _function(
    result: NumbaType, kinds: Sequence[NumbaType], write: Callable[..., ir.Value]
) -> Intrinsic:
    """A function of one or two values."""

    def build(
        _context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Values
    ) -> ir.Value:
        return write(builder, *args)

    @intrinsic
    def unary(_context: Context, x: NumbaType) -> Typed:
        del x
        return result(*kinds), build

    @intrinsic
    def binary(_context: Context, x: NumbaType, y: NumbaType) -> Typed:
        del x, y
        return result(*kinds), build

    return unary if len(kinds) == 1 else binary  # type: ignore[no-any-return]


def _ptx(result: ir.Type, text: str, operands: str) -> Callable[..., ir.Value]:
    def write(builder: ir.IRBuilder, *args: ir.Value) -> ir.Value:
        return _assemble(builder, result, args, text, operands=operands)

    return write


def _unpacked(text: str) -> Intrinsic:
    """A float32 number from a word."""
    return _function(types.float32, [types.uint32], _ptx(F32, text, "=f,r"))


def _packed(dtype: str) -> Intrinsic:
    """A word from two numbers; PTX names the high half first."""
    text = f"cvt.rn.{dtype}x2.f32 $0, $2, $1;"
    return _function(types.uint32, [types.float32] * 2, _ptx(I32, text, "=r,f,f"))


def _permuted(selector: str) -> Intrinsic:
    """A word from the halves of two."""
    text = f"prmt.b32 $0, $1, $2, {selector};"
    return _function(types.uint32, [types.uint32] * 2, _ptx(I32, text, "=r,r,r"))


low_float16 = _unpacked("{ .reg .b16 l, h; mov.b32 {l, h}, $1; cvt.f32.f16 $0, l; }")
high_float16 = _unpacked("{ .reg .b16 l, h; mov.b32 {l, h}, $1; cvt.f32.f16 $0, h; }")
low_bfloat16 = _unpacked("shl.b32 $0, $1, 16;")
high_bfloat16 = _unpacked("and.b32 $0, $1, 0xffff0000;")
pair_float16 = _packed("f16")
pair_bfloat16 = _packed("bf16")
low_halves = _permuted("0x5410")
high_halves = _permuted("0x7632")
_REST = (
    "{ .reg .b32 r; .reg .f32 d; .reg .pred p; cvt.rna.tf32.f32 r, $1; sub.rn.f32 d, $1, r; "
    "testp.finite.f32 p, $1; selp.f32 d, d, 0f00000000, p; cvt.rna.tf32.f32 r, d; mov.b32 $0, r; }"
)
tf32_rest = _function(types.float32, [types.float32], _ptx(F32, _REST, "=f,f"))
as_tf32 = _function(
    types.float32,
    [types.float32],
    _ptx(F32, "{ .reg .b32 t; cvt.rna.tf32.f32 t, $1; mov.b32 $0, t; }", "=f,f"),
)
