"""Writes a contraction whose operands pass through a ring in shared memory (`pipeline`).

What a copy finds beyond the end of an axis is zeros: such results are not written, and depths add
nothing. The local arrays of contraction i are `p{i}`, the totals; `a{i}` and `b{i}`, fragments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from prism_kernels.cuda.emit_result import write_result
from prism_kernels.cuda.emit_sum import FragmentEmitter
from prism_kernels.cuda.layout import Share
from prism_kernels.cuda.pipeline import CHUNK, WIDTH, PipelineTiling
from prism_kernels.cuda.terms import added, times
from prism_kernels.cuda.writer import Writer
from prism_kernels.tile import ValueId

GROUP, MEMBER, LANE = Share(8, 2), Share(4, 0), Share(32, 0)


class PipelineEmitter(FragmentEmitter):
    """A contraction whose operands pass through shared memory."""

    tiling: PipelineTiling

    def __init__(self, w: Writer, i: ValueId, tiling: PipelineTiling) -> None:
        super().__init__(w, i, tiling)
        axes = {a.dim: a for v in self.operands for a in w.program.axes[v]}
        self.depth = axes[self.node.dim]
        self.mains = tuple(axes[d] for d in tiling.mains)
        self.others = [axes[d] for d in tiling.others]
        self.group, self.member, self.lane = (w.coordinate(s) for s in (GROUP, MEMBER, LANE))
        rows, columns = tiling.warps
        shift = 5 + rows.bit_length() - 1
        self.warps = w.coordinate(Share(rows, 5)), w.coordinate(Share(columns, shift))
        self.ring = w.schedule.addresses[w.plan.rings[i]].offset
        self.dtype = w.plan.places[self.node.left].dtype

    # -- which part

    @contextmanager
    def _rounds(self) -> Iterator[None]:
        """The loops over what a block computes one after the other."""
        with ExitStack() as stack:
            for axis in self.others:
                self.position[axis.dim] = stack.enter_context(self.w.walk(axis, Share()))
            for axis, turns in zip(self.mains, self.tiling.turns, strict=True):
                if turns > 1:
                    head = f"for turn_{self.w.name(axis.dim)} in range({turns}):"
                    stack.enter_context(self.w.block(head))
            yield

    def _release(self) -> None:
        """The next round fills the ring anew, if there is one."""
        if self.w.program.elements(self.others) > 1 or self.tiling.turns != (1, 1):
            self.w.line("cuda.syncthreads()")

    def _turn(self, side: int) -> str:
        """Where the tile starts along one of the mains, as a term of a sum."""
        if self.tiling.turns[side] == 1:
            return "0"
        return times(f"turn_{self.w.name(self.mains[side].dim)}", self.tiling.tile[side])

    # -- copies

    def _accumulate(self) -> None:
        w, tiling = self.w, self.tiling
        size, ahead = sum(tiling.sizes), tiling.stages - 1
        extent, deep = w.extent(self.depth), w.name(self.depth.dim)
        for stage in range(ahead):
            self._copy(str(stage * tiling.depth), str(stage * size))
        w.line("used = u32(0)")
        w.line(f"next = u32({ahead * size})")
        with w.block(f"for k_{deep} in range(0, {extent}, {tiling.depth}):"):
            w.line(f"cp_wait{ahead - 1}()")
            w.line("cuda.syncthreads()")
            self._copy(f"k_{deep} + {ahead * tiling.depth}", "next")
            self._multiply()
            for name in ("used", "next"):
                w.line(f"{name} = u32({name} + {size})")
                with w.block(f"if {name} == {tiling.stages * size}:"):
                    w.line(f"{name} = u32(0)")
        w.line("cp_wait0()")

    def _copy(self, start: str, stage: str) -> None:
        """Start to copy what a step needs into a stage; nothing beyond the end of the depth."""
        w, extent = self.w, self.w.extent(self.depth)
        w.line(f"ahead = u32({start})")
        with w.when([] if start == "0" else [f"ahead < {extent}"]):
            for side in (0, 1):
                self._copy_operand(side, stage)
        w.line("cp_commit()")

    def _copy_operand(self, side: int, stage: str) -> None:
        w, tiling, plan = self.w, self.tiling, self.w.plan
        rows, row = tiling.shapes[side]
        chunks = row // CHUNK
        total, threads = rows * chunks, plan.threads
        with ExitStack() as stack:
            if total > threads:
                stack.enter_context(w.block(f"for j in range({total // threads}):"))
                w.line(f"e = u32(tid + j * {threads})")
            else:
                if total < threads:
                    stack.enter_context(w.block(f"if tid < {total}:"))
                w.line("e = tid")
            w.line(f"row = u32(e >> {chunks.bit_length() - 1})")
            w.line(f"part = u32((e & {chunks - 1}) * {CHUNK})")
            main, deep = ("row", "part") if tiling.is_along[side] else ("part", "row")
            axes = (self.mains[side], self.depth)
            starts = (self._turn(side), "ahead")
            conditions = []
            for axis, terms in zip(axes, zip(starts, (main, deep), strict=True), strict=True):
                name = f"i_{w.name(axis.dim)}"
                w.line(f"{name} = u32({added(terms)})")
                self.position[axis.dim] = name
                conditions.append(f"{name} < {w.extent(axis)}")
            v = self.operands[side]
            place = plan.places[v]
            address = w.address(place, w.program.axes[v], self.position)
            first = self.ring + (tiling.sizes[0] if side else 0)
            target = added([stage, f"row * {tiling.strides[side]}", "(part >> 1)", str(first)])
            count = f"u32({CHUNK}) if {' and '.join(conditions)} else u32(0)"
            w.line(f"count = {count}")
            call = (
                f"cp_async_{place.dtype}(shared, u32({target}), {place.pointer}, {address}, count)"
            )
            w.line(call)

    # -- products

    def _multiply(self) -> None:
        w, i, tiling = self.w, self.i, self.tiling
        high, wide = tiling.products
        w.words[f"a{i}"], w.words[f"b{i}"] = 4, 2 * wide
        with w.block(f"for s in range({tiling.depth // WIDTH}):"):
            with self._count("c", wide // 2) as column:
                self._load(1, f"b{i}", times(column, 4), column)
            with self._count("r", high) as row:
                self._load(0, f"a{i}", "0", row)
                with self._count("c", wide) as column:
                    totals = added([times(row, 4 * wide), times(column, 4)])
                    w.line(
                        f"mma_{self.dtype}(p{i}, u32({totals}), a{i}, u32(0), "
                        f"b{i}, u32({times(column, 2)}))"
                    )

    def _load(self, side: int, words: str, at: str, block: str) -> None:
        """Load the fragment of 16 rows, or those of 16 columns, at the current depth."""
        w, tiling, lane = self.w, self.tiling, self.lane
        mine = tiling.tile[side] // tiling.warps[side]
        start = added([times(self.warps[side], mine), times(block, WIDTH)])
        # the four matrices: rows then depth for the left operand, depth then columns for the right
        first, second = f"(({lane} >> 3) & 1) * 8", f"({lane} >> 4) * 8"
        across, deep = (first, second) if side == 0 else (second, first)
        eight = f"({lane} & 7)"
        if tiling.is_along[side]:
            row = added([start, eight, across])
            column = added([times("s", WIDTH), deep])
        else:
            row = added([times("s", WIDTH), eight, deep])
            column = added([start, across])
        base = self.ring + (tiling.sizes[0] if side else 0)
        index = added(
            ["used", f"({row}) * {tiling.strides[side]}", f"(({column}) >> 1)", str(base)]
        )
        load = "ldmatrix" if tiling.is_along[side] else "ldmatrix_transposed"
        w.line(f"{load}({words}, u32({at}), shared, u32({index}))")

    # -- results

    @contextmanager
    def _results(self) -> Iterator[tuple[str, list[str]]]:
        """The loops over all totals, with their positions; yields an index and conditions."""
        w, tiling = self.w, self.tiling
        high, wide = tiling.products
        with (
            self._count("r", high) as row,
            self._count("c", wide) as column,
            w.block("for e in range(4):"),
        ):
            inner = (
                [times(row, WIDTH), self.group, "(e >> 1) * 8"],
                [times(column, 8), times(self.member, 2), "(e & 1)"],
            )
            conditions = []
            for side, (axis, terms) in enumerate(zip(self.mains, inner, strict=True)):
                name = f"i_{w.name(axis.dim)}"
                mine = tiling.tile[side] // tiling.warps[side]
                start = [self._turn(side), times(self.warps[side], mine)]
                w.line(f"{name} = u32({added([*start, *terms])})")
                self.position[axis.dim] = name
                if w.extent(axis) != tiling.tile[side] * tiling.turns[side]:
                    conditions.append(f"{name} < {w.extent(axis)}")
            at = added([times(row, 4 * wide), times(column, 4), "e"])
            yield f"p{self.i}[u32({at})]", conditions

    def _write(self) -> None:
        """Write the totals."""
        w, i = self.w, self.i
        with self._results() as (total, conditions), w.when(conditions):
            w.line(f"r{i} = {total}")
            write_result(w, i, self.position, f"r{i}")
