"""The two contraction micro-kernels, as explicit LLVM vector code.

Plain loops of loads, multiplications and stores vectorise well by themselves; contractions do
not, because their speed lies in keeping a block of accumulators in vector registers. Two forms
cover every contraction of a small row operand x with a streamed operand w:

* `axpy`: acc[m, n] += sum_k x[m, k] w[k, n], n contiguous in w. A block of `rows` x `vectors`
  accumulators stays in registers over k; each element of x is broadcast.
* `dot`: s[m, u] = sum_k x[m, k] w[u, k], k contiguous in both. One accumulator per (m, u); at the
  end a tree of shuffles turns `lanes` accumulators into one vector of sums.

The makers are cached, so that a file that asks twice gets one intrinsic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from llvmlite import ir  # type: ignore[import-untyped]  # it has no stubs
from numba import types
from numba.extending import intrinsic

from prism_kernels.cpu.formats import I16, element_bytes, is_narrow, narrowed, widened
from prism_kernels.cpu.intrinsics import (
    CACHE_LINE_BYTES,
    LLVM_TYPES,
    NUMBA_TYPES,
    Context,
    Intrinsic,
    NumbaType,
    Typed,
    load_element,
)

I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)

Step = Callable[[ir.Value, Sequence[ir.Value]], Sequence[ir.Value]]
"""The body of a counted loop: index and carried values to carried values."""


def constant(value: int) -> ir.Constant:
    """A 64-bit integer."""
    return ir.Constant(I64, value)


@dataclass(frozen=True, slots=True)
class Vectors:
    """Writes operations on vectors of `lanes` elements into an LLVM builder.

    Memory may be stored in a narrower format than `element`: its pointer says so.
    """

    builder: ir.IRBuilder
    element: ir.Type
    lanes: int

    @property
    def kind(self) -> ir.VectorType:
        """The vector type."""
        return ir.VectorType(self.element, self.lanes)

    @property
    def zero(self) -> ir.Constant:
        """All lanes 0."""
        return ir.Constant(self.kind, [0.0] * self.lanes)

    @property
    def suffix(self) -> str:
        """How LLVM spells the type in the names of overloaded intrinsics."""
        return f"v{self.lanes}f{8 * element_bytes(self.element)}"

    def declare(self, name: str, result: ir.Type, args: Sequence[ir.Type]) -> ir.Function:
        """An LLVM function by name (llvmlite cannot mangle vector overloads itself)."""
        known = self.builder.module.globals.get(name)
        return known or ir.Function(self.builder.module, ir.FunctionType(result, args), name)

    def at(self, pointer: ir.Value, *offsets: ir.Value) -> ir.Value:
        """The pointer advanced by the offsets, in elements."""
        for i in offsets:
            pointer = self.builder.gep(pointer, [i])
        return pointer

    def load(self, pointer: ir.Value, lanes: int = 0) -> ir.Value:
        """A vector (of another length, if given) from memory."""
        stored, count = pointer.type.pointee, lanes or self.lanes
        kind = ir.VectorType(I16 if is_narrow(stored) else self.element, count)
        value = self.builder.load(self.builder.bitcast(pointer, kind.as_pointer()))
        value.align = element_bytes(stored)  # no more is promised of NumPy's arrays
        return widened(self.builder, value, stored) if is_narrow(stored) else value

    def store(self, value: ir.Value, pointer: ir.Value) -> None:
        """A vector (of any length) to memory."""
        stored = pointer.type.pointee
        if is_narrow(stored):
            value = narrowed(self.builder, value, stored)
        target = self.builder.bitcast(pointer, value.type.as_pointer())
        self.builder.store(value, target).align = element_bytes(stored)

    def fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """The sum x * y + z."""
        function = self.declare(f"llvm.fma.{self.suffix}", self.kind, [self.kind] * 3)
        return self.builder.call(function, [x, y, z])

    def splat(self, scalar: ir.Value) -> ir.Value:
        """All lanes equal to `scalar`."""
        undefined = ir.Constant(ir.VectorType(scalar.type, self.lanes), ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(first, undefined, self.pick([0] * self.lanes))

    @staticmethod
    def pick(indices: Sequence[int]) -> ir.Constant:
        """A shuffle mask."""
        return ir.Constant(ir.VectorType(I32, len(indices)), list(indices))

    def mask(self, count: ir.Value) -> ir.Value:
        """True in the first `count` lanes."""
        lanes = ir.Constant(ir.VectorType(I64, self.lanes), list(range(self.lanes)))
        return self.builder.icmp_signed("<", lanes, self.splat(count))

    def fetch(self, pointer: ir.Value, vectors: int) -> None:
        """Have some vectors brought into the L2 cache; they need not exist."""
        width = element_bytes(pointer.type.pointee)
        for start in range(0, vectors * self.lanes * width, CACHE_LINE_BYTES):
            self.fetch_line(self.at(pointer, constant(start // width)))

    def fetch_line(self, pointer: ir.Value) -> None:
        """Have the cache line at `pointer` brought into the L2 cache."""
        byte = ir.IntType(8).as_pointer()
        function = self.declare("llvm.prefetch.p0", ir.VoidType(), [byte, I32, I32, I32])
        read, second_level, data = (ir.Constant(I32, i) for i in (0, 2, 1))
        place = self.builder.bitcast(pointer, byte)
        self.builder.call(function, [place, read, second_level, data])

    def masked_load(self, pointer: ir.Value, mask: ir.Value) -> ir.Value:
        """A vector from memory, 0 where masked off; those lanes are not read."""
        stored = pointer.type.pointee
        kind, suffix, align = self._in_memory(stored)
        source = self.builder.bitcast(pointer, kind.as_pointer())
        function = self.declare(
            f"llvm.masked.load.{suffix}.p0", kind, [source.type, I32, mask.type, kind]
        )
        value = self.builder.call(function, [source, align, mask, ir.Constant(kind, None)])
        return widened(self.builder, value, stored) if is_narrow(stored) else value

    def masked_store(self, value: ir.Value, pointer: ir.Value, mask: ir.Value) -> None:
        """Write the lanes that are not masked off."""
        stored = pointer.type.pointee
        kind, suffix, align = self._in_memory(stored)
        if is_narrow(stored):
            value = narrowed(self.builder, value, stored)
        target = self.builder.bitcast(pointer, kind.as_pointer())
        function = self.declare(
            f"llvm.masked.store.{suffix}.p0", ir.VoidType(), [kind, target.type, I32, mask.type]
        )
        self.builder.call(function, [value, target, align, mask])

    def _in_memory(self, stored: ir.Type) -> tuple[ir.Type, str, ir.Constant]:
        """The type, its spelling and the alignment of a vector in memory."""
        align = ir.Constant(I32, element_bytes(stored))
        if is_narrow(stored):
            return ir.VectorType(I16, self.lanes), f"v{self.lanes}i16", align
        return self.kind, self.suffix, align

    def counted_loop(
        self, stop: ir.Value, step: int, carried: Sequence[ir.Value], body: Step
    ) -> tuple[ir.Value, Sequence[ir.Value]]:
        """A loop `for k in range(0, stop - step + 1, step)` that carries vectors in registers.

        Returns k after the loop and the carried values.
        """
        builder = self.builder
        entry = builder.block
        head, inside, after = (builder.append_basic_block(f"k.{n}") for n in ("head", "in", "end"))
        builder.branch(head)
        builder.position_at_end(head)
        k = builder.phi(I64)
        k.add_incoming(constant(0), entry)
        values = [builder.phi(v.type) for v in carried]
        for phi, value in zip(values, carried, strict=True):
            phi.add_incoming(value, entry)
        following = builder.add(k, constant(step))
        builder.cbranch(builder.icmp_signed("<=", following, stop), inside, after)
        builder.position_at_end(inside)
        updated = body(k, values)
        k.add_incoming(following, builder.block)
        for phi, value in zip(values, updated, strict=True):
            phi.add_incoming(value, builder.block)
        builder.branch(head)
        builder.position_at_end(after)
        return k, values


@cache
def axpy(  # noqa: PLR0913 - the options of one family of kernels
    rows: int,
    vectors: int,
    *,
    lanes: int,
    dtype: str,
    masked: bool = False,
    fresh: bool = False,
    fetch: bool = False,
) -> Intrinsic:
    """The micro-kernel acc[m * acc_row + n] (+)= sum_k x[m * x_row + k * x_k] w[k * w_k + n].

    `rows` values of m, `vectors` x `lanes` values of n; `fresh` starts from zero instead of acc;
    `masked` touches only the first `columns` of n; `fetch` brings as much of what is needed later,
    at later[k * later_k + n], into the L2 cache.
    """
    element = NUMBA_TYPES[dtype]

    def build(
        context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        acc, acc_row, x, x_row, x_k, w, w_k, depth, columns, later, later_k = args
        v = Vectors(builder, LLVM_TYPES[element], lanes)
        starts = [constant(j * lanes) for j in range(vectors)]
        masks = [v.mask(builder.sub(columns, s)) for s in starts] if masked else []

        def read(pointer: ir.Value, j: int) -> ir.Value:
            place = v.at(pointer, starts[j])
            return v.masked_load(place, masks[j]) if masked else v.load(place)

        acc_rows = [v.at(acc, builder.mul(acc_row, constant(m))) for m in range(rows)]
        first = [v.zero if fresh else read(p, j) for p in acc_rows for j in range(vectors)]

        def step(k: ir.Value, sums: Sequence[ir.Value]) -> Sequence[ir.Value]:
            w_row = v.at(w, builder.mul(k, w_k))
            if fetch:
                v.fetch(v.at(later, builder.mul(k, later_k)), vectors)
            ws = [read(w_row, j) for j in range(vectors)]
            column = v.at(x, builder.mul(k, x_k))
            out = []
            for m in range(rows):
                factor = v.splat(
                    load_element(builder, v.at(column, builder.mul(x_row, constant(m))))
                )
                out += [v.fma(factor, ws[j], sums[m * vectors + j]) for j in range(vectors)]
            return out

        _, sums = v.counted_loop(depth, 1, first, step)
        for m, pointer in enumerate(acc_rows):
            for j, start in enumerate(starts):
                if masked:
                    v.masked_store(sums[m * vectors + j], v.at(pointer, start), masks[j])
                else:
                    v.store(sums[m * vectors + j], v.at(pointer, start))
        return context.get_dummy_value()

    @intrinsic
    def kernel(  # noqa: PLR0913, PLR0917 - pointers and strides of the matrices
        _context: Context,
        acc: NumbaType,
        acc_row: NumbaType,
        x: NumbaType,
        x_row: NumbaType,
        x_k: NumbaType,
        w: NumbaType,
        w_k: NumbaType,
        depth: NumbaType,
        columns: NumbaType,
        later: NumbaType,
        later_k: NumbaType,
    ) -> Typed:
        del acc_row, x_row, x_k, w_k, depth, columns, later, later_k
        i = types.intp
        return types.void(acc, i, x, i, i, w, i, i, i, w, i), build

    return kernel  # type: ignore[no-any-return]


@cache
def dot(  # noqa: PLR0913 - the options of one family of kernels
    rows: int,
    count: int,
    *,
    lanes: int,
    dtype: str,
    add: bool = False,
    tail: bool = True,
    squares: bool = False,
    fetch: int = 0,
) -> Intrinsic:
    """The micro-kernel s[m * s_row + u] (+)= sum_k x[m * x_row + k] w[u * w_row + k].

    `rows` values of m, `count` (a power of two) of u; `add` adds to s; `tail` allows a depth that
    is no multiple of the vector length; `squares` also makes
    square_sums[u] (+)= sum_k w[u * w_row + k]^2.
    With every vector of a row, `fetch` vectors are brought into the L2 cache, those at
    later[k * later_k + i * later_row].
    """
    element = NUMBA_TYPES[dtype]

    def build(
        context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        s, s_row, x, x_row, w, w_row, depth, square_sums, later, later_k, later_row = args
        v = Vectors(builder, LLVM_TYPES[element], lanes)

        def step(
            k: ir.Value, sums: Sequence[ir.Value], read: Callable[[ir.Value], ir.Value]
        ) -> Sequence[ir.Value]:
            w_places = [v.at(w, builder.mul(w_row, constant(u)), k) for u in range(count)]
            later_place = v.at(later, builder.mul(k, later_k))
            for i in range(fetch):
                v.fetch(v.at(later_place, builder.mul(later_row, constant(i))), 1)
            ws = [read(place) for place in w_places]
            out = []
            for m in range(rows):
                xs = read(v.at(x, builder.mul(x_row, constant(m)), k))
                out += [v.fma(xs, ws[u], sums[m * count + u]) for u in range(count)]
            if squares:
                out += [v.fma(w_u, w_u, sums[rows * count + u]) for u, w_u in enumerate(ws)]
            return out

        start = [v.zero] * ((rows + squares) * count)
        k, sums = v.counted_loop(depth, lanes, start, lambda k, t: step(k, t, v.load))
        if tail:
            mask = v.mask(builder.sub(depth, k))
            sums = step(k, sums, lambda p: v.masked_load(p, mask))
        for group in range(0, len(start), lanes):
            part = list(sums[group : group + lanes])
            totals = _transposed_sums(v, part)
            for i in range(0, len(part), count):
                width = min(count, lanes)
                sums_of_row = builder.shuffle_vector(totals, totals, v.pick(range(i, i + width)))
                m = (group + i) // count
                place = v.at(s, builder.mul(s_row, constant(m))) if m < rows else square_sums
                _store_sums(v, sums_of_row, place, add=add)
        return context.get_dummy_value()

    @intrinsic
    def kernel(  # noqa: PLR0913, PLR0917 - pointers and strides of three matrices
        _context: Context,
        s: NumbaType,
        s_row: NumbaType,
        x: NumbaType,
        x_row: NumbaType,
        w: NumbaType,
        w_row: NumbaType,
        depth: NumbaType,
        square_sums: NumbaType,
        later: NumbaType,
        later_k: NumbaType,
        later_row: NumbaType,
    ) -> Typed:
        del s_row, x_row, w_row, depth, later_k, later_row
        i = types.intp
        return types.void(s, i, x, i, w, i, i, square_sums, later, i, i), build

    return kernel  # type: ignore[no-any-return]


def _transposed_sums(v: Vectors, sums: list[ir.Value]) -> ir.Value:
    """One vector whose lane i is the sum over all lanes of sums[i] (at most `lanes` vectors)."""
    even, odd = v.pick(range(0, 2 * v.lanes, 2)), v.pick(range(1, 2 * v.lanes, 2))
    shuffle = v.builder.shuffle_vector
    width = v.lanes
    while width > 1:
        if len(sums) > 1 and len(sums) % 2:
            sums = [*sums, sums[-1]]
        pairs = [(sums[0], sums[0])]
        if len(sums) > 1:
            pairs = list(zip(sums[::2], sums[1::2], strict=True))
        sums = [v.builder.fadd(shuffle(a, b, even), shuffle(a, b, odd)) for a, b in pairs]
        width //= 2
    return sums[0]


def _store_sums(v: Vectors, sums: ir.Value, place: ir.Value, *, add: bool) -> None:
    """Write the sums to memory, or add them to what is there."""
    if add:
        sums = v.builder.fadd(v.load(place, sums.type.count), sums)
    v.store(sums, place)
