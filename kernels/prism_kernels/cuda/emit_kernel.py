"""Writes the body of a kernel: the block's part of every dim, then the steps of each stage.

Barriers stand where `steps` found them. A loop's body is written once: its last iteration may be
shorter, in a variable (`length`) that all threads of a block agree on.
"""

from __future__ import annotations

from typing import assert_never

from prism_kernels.cuda import emit_memory
from prism_kernels.cuda.contraction import ThreadTiling
from prism_kernels.cuda.emit_contraction import ContractionEmitter
from prism_kernels.cuda.emit_nest import NestEmitter
from prism_kernels.cuda.emit_pipeline import PipelineEmitter
from prism_kernels.cuda.emit_result import combine_warps
from prism_kernels.cuda.emit_stream import StreamEmitter
from prism_kernels.cuda.pipeline import PipelineTiling
from prism_kernels.cuda.steps import Action, Step
from prism_kernels.cuda.stream import StreamTiling
from prism_kernels.cuda.writer import Writer
from prism_kernels.describe import describe_node
from prism_kernels.nests import Nest
from prism_kernels.tile import Stage, Store, ValueId


def emit_kernel(w: Writer) -> None:
    """Write the body of the kernel function."""
    _Kernel(w).emit()


Emitter = ContractionEmitter | StreamEmitter | PipelineEmitter


def _emitter(w: Writer, i: ValueId) -> Emitter:
    """What writes contraction i."""
    tiling = w.plan.tilings[i]
    match tiling:
        case ThreadTiling():
            return ContractionEmitter(w, i, tiling)
        case StreamTiling():
            return StreamEmitter(w, i, tiling)
        case PipelineTiling():
            return PipelineEmitter(w, i, tiling)
    assert_never(tiling)


class _Kernel:
    def __init__(self, w: Writer) -> None:
        self.w = w
        self.plan = w.plan
        self.program = w.program

    def emit(self) -> None:
        w = self.w
        if w.schedule.shared_elements:
            w.line("shared = cuda.shared.array(0, f32, alignment=16)")
        w.line("tid = u32(cuda.threadIdx.x)")
        self._grid()
        head = w.mark()
        self._stage(Stage.BEFORE)
        if any(w.schedule.steps[stage] for stage in (Stage.OUTER, Stage.BODY, Stage.BETWEEN)):
            self._loop(0)
        self._stage(Stage.AFTER)
        arrays = {name: f"cuda.local.array({n}, f32)" for name, n in w.registers.items()}
        arrays |= {name: f"cuda.local.array({n}, u32)" for name, n in w.words.items()}
        w.insert(head, [f"{k} = {v}" for k, v in {**w.coordinates, **w.bases, **arrays}.items()])

    def _grid(self) -> None:
        """Which chunk of each dimension is this block's."""
        w = self.w
        grid = [g for g in self.program.grid if g.count > 1]
        if w.schedule.workspace_elements:
            w.line(f"mine = u32(cuda.blockIdx.x * {w.schedule.workspace_elements})")
        if grid:
            w.line("block = u32(cuda.blockIdx.x)")
        for g in reversed(grid):
            what = w.describe_chunks(g)
            index = w.block_index(g.name)
            if g is grid[0]:
                w.line(f"{index} = block  # {what}")
            else:
                w.line(f"{index} = remainder(block, {g.count})  # {what}")
                w.line(f"block = quotient(block, {g.count})")
            if g.dim is not None:
                size = self.program.sizes[g.dim]
                w.line(f"{w.start(g)} = u32({index} * {g.tile})")
                if size % g.tile:
                    w.line(f"{w.length(g)} = smaller({g.tile}, u32({size} - {w.start(g)}))")

    # -- steps

    def _stage(self, stage: Stage) -> None:
        w = self.w
        for k, step in enumerate(w.schedule.steps[stage]):
            if (stage, k) in w.schedule.barriers:
                w.line("cuda.syncthreads()")
            w.line(f"# {self._describe(step)}")
            self._step(step)

    def _step(self, step: Step) -> None:
        w, i = self.w, step.node
        match step.action:
            case Action.FILL:
                emit_memory.fill(w, i)
            case Action.COPY:
                emit_memory.copy(w, i)
            case Action.RESCALE:
                emit_memory.rescale(w, i)
            case Action.COMBINE:
                combine_warps(w, i)
            case Action.CLEAR | Action.FINISH | Action.RUN if i in self.plan.tilings:
                self._contraction(step.action, _emitter(w, i))
            case Action.CLEAR:
                NestEmitter(w, self.plan.nests.of_node(i)).clear(i)
            case Action.FINISH:
                NestEmitter(w, self.plan.nests.of_node(i)).finish(i)
            case Action.RUN:
                self._run(self.plan.nests.of_node(i))

    def _contraction(self, action: Action, emitter: Emitter) -> None:
        if action is Action.CLEAR:
            emitter.clear()
        elif action is Action.FINISH:
            emitter.finish()
        else:
            emitter.emit()

    def _run(self, nest: Nest) -> None:
        w = self.w
        first = self.program.nodes[nest.nodes[0]]
        single = first.single if isinstance(first, Store) else ()
        # blocks that compute the same tile: the first of them writes it
        with w.when(f"{w.block_index(p)} == 0" for p in single):
            NestEmitter(w, nest).emit()

    def _describe(self, step: Step) -> str:
        """A step in a comment."""
        nests, program = self.plan.nests, self.program
        if step.action is Action.RUN:
            nodes = nests.of_node(step.node).nodes
            return ", ".join(describe_node(program, nests, i) for i in nodes)
        return f"{step.action.value} {describe_node(program, nests, step.node)}"

    # -- the loops

    def _loop(self, number: int) -> None:
        """A loop, and the one inside it."""
        w, loop = self.w, self.program.loops[number]
        start, length = w.loop_start(number), w.loop_name(number, "length")
        axis = self.program.looped_axis(number)
        if loop.dim is None or axis is None:
            with w.block(f"for {start} in range({loop.count}):"):
                self._body(number, 1)
            return
        total, tile = w.block_extent(axis.whole()), loop.tile
        with w.block(f"for {start} in range(0, {total}, {tile}):"):
            if isinstance(total, int) and total % tile == 0:
                self._body(number, tile)
            else:
                w.line(f"{length} = smaller({tile}, u32({total} - {start}))")
                self._body(number, length)

    def _body(self, number: int, extent: int | str) -> None:
        """One iteration, `extent` elements of the loop's dim from its start on."""
        w = self.w
        head = w.mark()
        with w.iteration(extent):
            if number + 1 == len(self.program.loops):
                self._stage(Stage.BODY)
            else:
                self._stage(Stage.OUTER)
                if w.schedule.steps[Stage.BODY]:
                    self._loop(number + 1)
                self._stage(Stage.BETWEEN)
        w.insert(head, [f"{k} = {v}" for k, v in w.tile_bases[number].items()])
