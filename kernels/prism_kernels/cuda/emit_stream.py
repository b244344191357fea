"""Writes a contraction that tensor cores compute while one operand streams (`stream`).

What lies beyond the end of an axis is read from its last elements, and its results are not written;
beyond the end of the depth both operands are zeros. The local arrays of contraction i are `p{i}`,
the totals; `w{i}`, streamed words; `a{i}` and `b{i}`, the fragments of a product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from prism_kernels.cuda.alignment import is_vector, widest
from prism_kernels.cuda.emit_result import write_result
from prism_kernels.cuda.emit_sum import FragmentEmitter
from prism_kernels.cuda.layout import Share
from prism_kernels.cuda.plan import Place
from prism_kernels.cuda.stream import ROWS, StreamTiling
from prism_kernels.cuda.terms import added, clamped, times
from prism_kernels.cuda.writer import Writer
from prism_kernels.tile import Axis, ValueId
from prism_kernels.writer import Extent

GROUP, MEMBER = Share(8, 2), Share(4, 0)
"""g and q of the fragments' layout."""


class StreamEmitter(FragmentEmitter):
    """A contraction whose weights pass through registers."""

    tiling: StreamTiling

    def __init__(self, w: Writer, i: ValueId, tiling: StreamTiling) -> None:
        super().__init__(w, i, tiling)
        operands, node = self.operands, self.node
        self.streamed, self.other = operands[tiling.streamed], operands[1 - tiling.streamed]
        self.weights = w.plan.places[self.streamed]
        axes = {a.dim: a for v in operands for a in w.program.axes[v]}
        self.depth, self.main = axes[node.dim], axes[tiling.main]
        self.rows = [axes[d] for d in tiling.rows]
        self.others = [axes[d] for d in tiling.others]
        self.group, self.member = w.coordinate(GROUP), w.coordinate(MEMBER)
        self.deep = w.coordinate(tiling.layout[node.dim])
        self.wide = w.coordinate(Share(tiling.wide_warps, 5))

    # -- which part

    @contextmanager
    def _rounds(self) -> Iterator[None]:
        """The loops over what a warp computes one after the other."""
        with ExitStack() as stack:
            for axis in self.others:
                self.position[axis.dim] = stack.enter_context(self.w.walk(axis, Share()))
            if self.tiling.passes > 1:
                stack.enter_context(self.w.block(f"for turn in range({self.tiling.passes}):"))
            yield

    def _start(self) -> list[str]:
        """Where this warp's blocks start along the width, as terms of a sum."""
        tiling = self.tiling
        width = tiling.width * tiling.blocks
        terms = [f"turn * {width * tiling.wide_warps}"] if tiling.passes > 1 else []
        return [*terms, *([f"{self.wide} * {width}"] if self.wide != "0" else [])]

    def _place_main(self, terms: Sequence[str], *, whole: int = 0) -> list[str]:
        """Note the position along the width: the condition that it is not beyond the end.

        With `whole`, the start of so many elements, which the last ones replace if it is beyond.
        """
        w, tiling, axis = self.w, self.tiling, self.main
        extent, name = w.extent(axis), f"i_{w.name(axis.dim)}"
        index = f"u32({' + '.join([*self._start(), *terms]) or '0'})"
        self.position[axis.dim] = name
        covered = tiling.width * tiling.blocks * tiling.wide_warps * tiling.passes
        if extent == covered:
            w.line(f"{name} = {index}")
            return []
        w.line(f"{name} = {clamped(index, extent, whole) if whole else index}")
        return [f"{name} < {extent}"]

    def _place_rows(self, index: str, *, is_clamped: bool) -> list[str]:
        """Note the position of a row: the conditions that it is not beyond the end."""
        w = self.w
        axes = [a for a in self.rows if w.program.chunk(a) > 1]
        total = w.program.elements(axes)
        is_full = total == ROWS * self.tiling.row_blocks
        if not axes:
            return [] if is_clamped else [f"u32({index}) < 1"]
        conditions = []
        for k, axis in reversed(list(enumerate(axes))):
            name, chunk, extent = f"i_{w.name(axis.dim)}", w.program.chunk(axis), w.extent(axis)
            digit = f"u32({index})"
            if k:
                w.line(f"rest = {digit}")
                digit, index = f"remainder(rest, {chunk})", f"quotient(rest, {chunk})"
            is_inside = extent == chunk and (k > 0 or is_full)
            if not is_inside and is_clamped:
                digit = clamped(digit, extent, 1)
            elif not is_inside:
                conditions.append(f"{name} < {extent}")
            w.line(f"{name} = {digit}")
            self.position[axis.dim] = name
        return conditions

    # -- registers

    def _total(self, block: str, row_block: str, element: str) -> str:
        """Where a result is among the totals."""
        rows = self.tiling.row_blocks
        return added([times(block, 4 * rows), times(row_block, 4), element])

    def _word(self, step: str, block: str, fetch: str, word: str) -> str:
        """Where a streamed word is."""
        tiling = self.tiling
        per_block = tiling.fetches * tiling.words
        return added(
            [
                times(step, tiling.blocks * per_block),
                times(block, per_block),
                times(fetch, tiling.words),
                word,
            ]
        )

    # -- the sum

    def _accumulate(self) -> None:
        w, tiling, i = self.w, self.tiling, self.i
        w.words[f"w{i}"] = tiling.unroll * tiling.blocks * tiling.fetches * tiling.words
        w.words[f"a{i}"] = 4
        w.words[f"b{i}"] = tiling.row_blocks * tiling.lane_depth // 2
        if tiling.is_split:
            del w.words[f"a{i}"], w.words[f"b{i}"]
            w.registers[f"a{i}"] = 4
            w.registers[f"b{i}"] = 2 * tiling.row_blocks * tiling.lane_depth
        if not tiling.is_along:
            self._place_main([times(self.group, tiling.vector)], whole=tiling.vector)
        extent, chunk = w.extent(self.depth), tiling.unroll * tiling.depth
        is_exact = isinstance(extent, int) and extent % chunk == 0
        start = "0" if self.deep == "0" else f"u32({self.deep} * {chunk})"
        stride = chunk * tiling.deep_warps
        with w.block(f"for k_{w.name(self.depth.dim)} in range({start}, {extent}, {stride}):"):
            with self._count("u", tiling.unroll) as step:
                self._fetch(step, None if is_exact else extent)
            with self._count("u", tiling.unroll) as step:
                self._multiply(step, None if is_exact else extent)

    def _deep(self, step: str, further: str = "0") -> str:
        """Note the position along the depth, `further` elements on; the name of its variable."""
        w, tiling = self.w, self.tiling
        name = f"i_{w.name(self.depth.dim)}"
        lane = times(self.member, tiling.lane_depth)
        terms = [f"k_{w.name(self.depth.dim)}", times(step, tiling.depth), lane, further]
        w.line(f"{name} = u32({added(terms)})")
        self.position[self.depth.dim] = name
        return name

    def _fetch(self, step: str, extent: Extent | None) -> None:
        """Read the streamed elements of a step; beyond `extent` they are zeros."""
        tiling = self.tiling
        with self._count("f", tiling.blocks) as block, self._count("j", tiling.fetches) as fetch:
            if tiling.is_along:
                terms = [times(block, tiling.width), self.group, times(fetch, 8)]
                self._place_main([t for t in terms if t != "0"], whole=1)
                depth = self._deep(step)
            else:
                depth = self._deep(step, fetch)
            axes = self.w.program.axes[self.streamed]
            first = self._word(step, block, fetch, "0")
            self._vector(f"w{self.i}", first, tiling.words, self.weights, axes, depth, extent)

    def _vector(  # noqa: PLR0913, PLR0917 - a guarded access has that many parts
        self,
        words: str,
        first: str,
        count: int,
        place: Place,
        axes: Sequence[Axis],
        depth: str,
        extent: Extent | None,
    ) -> None:
        """Read words of an argument, or zeros beyond the end of the depth."""
        w = self.w
        address = w.address(place, axes, self.position)
        line = f"fetch{count}_{place.dtype}({words}, u32({first}), {place.pointer}, {address})"
        if extent is None:
            w.line(line)
            return
        with w.block(f"if {depth} < {extent}:"):
            w.line(line)
        with w.block("else:"), self._count("z", count) as word:
            w.line(f"{words}[u32({added([first, word])})] = u32(0)")

    def _multiply(self, step: str, extent: Extent | None) -> None:
        """Multiply a step's elements by the rows'."""
        tiling = self.tiling
        with self._count("t", tiling.row_blocks) as row_block:
            self._place_rows(added([times(row_block, ROWS), self.group]), is_clamped=True)
            if tiling.is_split:
                self._read_split(step, row_block, extent)
            else:
                self._read_packed(step, row_block, extent)
        products = tiling.lane_depth // (2 if tiling.is_split else 4)
        with (
            self._count("f", tiling.blocks * tiling.products) as block,
            self._count("s", products) as deep,
        ):
            self._pair(step, block, deep)
            with self._count("t", tiling.row_blocks) as row_block:
                self._product(block, deep, row_block)

    def _product(self, block: str, deep: str, row_block: str) -> None:
        w, i, tiling = self.w, self.i, self.tiling
        totals = self._total(block, row_block, "0")
        near = times(deep, 2)
        if not tiling.is_split:
            right = added([times(row_block, tiling.lane_depth // 2), near])
            w.line(
                f"mma_{self.weights.dtype}(p{i}, u32({totals}), a{i}, u32(0), b{i}, u32({right}))"
            )
            return
        for part in (0, tiling.lane_depth):
            right = added([times(row_block, 2 * tiling.lane_depth), near, str(part)])
            w.line(f"mma_tf32(p{i}, u32({totals}), a{i}, u32(0), b{i}, u32({right}))")

    def _pair(self, step: str, block: str, deep: str) -> None:
        """Bring streamed words into the shape of a product's left fragment."""
        tiling = self.tiling
        if tiling.is_along:
            word, first = deep if tiling.is_split else times(deep, 2), block
            rows = [self._word(step, first, str(j), word) for j in (0, 1)]
            if tiling.is_split:
                self._fragment("low_{0}({1})", [(row,) for row in rows], 0)
                self._fragment("high_{0}({1})", [(row,) for row in rows], 2)
                return
            after = [added([row, "1"]) for row in rows]
            self._fragment("{1}", [(row,) for row in (*rows, *after)], 0)
            return
        if tiling.is_split:
            depths = [self._word(step, "0", added([times(deep, 2), str(j)]), block) for j in (0, 1)]
            for j, word in enumerate(depths):
                self._fragment("low_{0}({1})", [(word,)], 2 * j)
                self._fragment("high_{0}({1})", [(word,)], 2 * j + 1)
            return
        words = [self._word(step, "0", str(j), block) for j in range(4)]
        for j in (0, 2):
            pair = (words[j], words[j + 1])
            self._fragment("low_halves({1}, {2})", [pair], j)
            self._fragment("high_halves({1}, {2})", [pair], j + 1)

    def _fragment(self, form: str, words: Sequence[tuple[str, ...]], at: int) -> None:
        """Write elements of the left fragment, each from streamed words."""
        for k, chosen in enumerate(words, at):
            texts = [f"w{self.i}[u32({word})]" for word in chosen]
            self.w.line(f"a{self.i}[{k}] = {form.format(self.weights.dtype, *texts)}")

    # -- the rows

    def _read_packed(self, step: str, row_block: str, extent: Extent | None) -> None:
        """A row's elements as words: read as they are, or paired one by one."""
        w, tiling, i = self.w, self.tiling, self.i
        place, axes = w.plan.place(self.other), w.program.axes[self.other]
        count = tiling.lane_depth // 2
        first = times(row_block, count)
        if self._is_vector(place, axes):
            depth = self._deep(step)
            self._vector(f"b{i}", first, count, place, axes, depth, extent)
            return
        with self._count("j", count) as pair:
            for name, half in (("low", "0"), ("high", "1")):
                self._read_row(name, step, added([times(pair, 2), half]), extent)
            word = f"pair_{self.weights.dtype}(low, high)"
            w.line(f"b{i}[u32({added([first, pair])})] = {word}")

    def _is_vector(self, place: Place, axes: Sequence[Axis]) -> bool:
        """Whether a lane's neighbours along the depth can be read at once."""
        program, dim = self.w.program, self.depth.dim
        is_near = is_vector(program, place, axes, dim)
        return is_near and widest(program, place, axes) >= self.tiling.lane_depth

    def _read_split(self, step: str, row_block: str, extent: Extent | None) -> None:
        """A row's elements as pairs of tf32 numbers: first the large parts, then the rests."""
        w, i, depth = self.w, self.i, self.tiling.lane_depth
        first = times(row_block, 2 * depth)
        with self._count("j", depth) as element:
            self._read_row("low", step, element, extent)
            w.line(f"b{i}[u32({added([first, element])})] = as_tf32(low)")
            w.line(f"b{i}[u32({added([first, str(depth), element])})] = tf32_rest(low)")

    def _read_row(self, name: str, step: str, further: str, extent: Extent | None) -> None:
        """Read one element of a row; beyond the end of the depth it is zero."""
        depth = self._deep(step, further)
        value = self.w.read(self.other, self.position)
        guarded = value if extent is None else f"{value} if {depth} < {extent} else f32(0.0)"
        self.w.line(f"{name} = {guarded}")

    # -- results

    @contextmanager
    def _results(self) -> Iterator[tuple[str, list[str]]]:
        """The loops over all totals, with their positions; yields an index and conditions."""
        tiling, member = self.tiling, times(self.member, 2)
        with (
            self._count("f", tiling.blocks * tiling.products) as block,
            self._count("t", tiling.row_blocks) as row_block,
            self.w.block("for e in range(4):"),
        ):
            if tiling.is_along:
                terms = [times(block, tiling.width), self.group, "(e >> 1) * 8"]
            else:
                terms = [times(self.group, tiling.vector), times(block, 2), "(e >> 1)"]
            conditions = self._place_main([t for t in terms if t != "0"])
            rows = added([times(row_block, ROWS), member, "(e & 1)"])
            conditions += self._place_rows(rows, is_clamped=False)
            yield f"p{self.i}[u32({self._total(block, row_block, 'e')})]", conditions

    def _write(self) -> None:
        """Write the totals: the result, or the warp's part of it."""
        w, i, plan = self.w, self.i, self.w.plan
        with self._results() as (total, conditions):
            w.line(f"r{i} = {total}")
            with w.when(conditions):
                if i not in plan.scratch:
                    write_result(w, i, self.position, f"r{i}")
                    return
                part = plan.buffers[plan.scratch[i].name] // self.tiling.deep_warps
                axes = w.program.axes[i]
                further = f"{self.deep} * {part}"
                w.store(plan.scratch[i], axes, self.position, f"r{i}", further)
