"""Writes the block function: prologue, accumulators, loop, and the nests of each stage.

The loop's body is written twice when its dimension does not divide: for full tiles, whose extents
are literals, and once more for the tail.
"""

from __future__ import annotations

from collections.abc import Sequence

from prism.ir import AccumulatorKind, DataDim
from prism_kernels.cpu.ahead import fetched_ahead
from prism_kernels.cpu.contraction import Form
from prism_kernels.cpu.emit_contraction import emit_contraction
from prism_kernels.cpu.emit_nest import emit_nest, identity
from prism_kernels.cpu.places import Pack, input_pointer, output_pointer
from prism_kernels.cpu.registers import Registers
from prism_kernels.cpu.streamed import streamed_values
from prism_kernels.cpu.writer import Extent, Writer
from prism_kernels.describe import describe_node
from prism_kernels.nests import Nest
from prism_kernels.tile import (
    Accumulate,
    Axis,
    Contract,
    Load,
    Running,
    Stage,
    Store,
)


def emit_block(w: Writer, registers: Registers, workspace: int) -> None:
    """Write the body of the block function; `workspace` is the place of the last array."""
    _Block(w, registers, workspace).emit()


class _Block:
    def __init__(self, w: Writer, registers: Registers, workspace: int) -> None:
        self.w = w
        self.workspace = workspace
        self.registers = registers
        self.plan = w.plan
        self.program = w.program
        w.streamed = streamed_values(w.plan, registers)
        w.ahead = fetched_ahead(w.plan, registers)

    def emit(self) -> None:
        self._grid()
        self._arguments()
        self._buffers()
        self._stage(Stage.BEFORE)
        if any(nest.stage not in (Stage.BEFORE, Stage.AFTER) for nest in self.plan.nests.nests):
            self._loop(0)
        self._stage(Stage.AFTER)
        if self.w.streamed:
            self.w.line("fence()")

    # -- prologue

    def _grid(self) -> None:
        """Which chunk of each dimension is this block's."""
        w = self.w
        for g in reversed([g for g in self.program.grid if g.count > 1]):
            what = w.describe_chunks(g)
            w.line(f"{w.block_index(g.name)} = index % {g.count}  # {what}")
            w.line(f"index = index // {g.count}")
            if g.dim is not None:
                size = self.program.sizes[g.dim]
                w.line(f"{w.start(g)} = {w.block_index(g.name)} * {g.tile}")
                if size % g.tile:
                    w.line(f"{w.length(g)} = smaller({g.tile}, {size} - {w.start(g)})")

    def _arguments(self) -> None:
        """Pointers to this block's part of every array."""
        w = self.w
        seen: set[str] = set()
        stack: tuple[DataDim, str] | None
        for i, node in enumerate(self.program.nodes):
            match node:
                case Load(source=target):
                    name = input_pointer(self.program, target)
                    tensor, stack = self.program.inputs[target], None
                case Store(target=target, stack=stack):
                    name = output_pointer(self.program, target)
                    tensor = self.program.outputs[target]
                case _:
                    continue
            if name in seen:
                continue
            seen.add(name)
            at = self._block_start(self.program.axes[i], dict(tensor.strides), stack)
            base = w.argument(target, tensor.position)
            w.line(f"{name} = " + (f"offset({base}, {at})" if at else base))

    def _block_start(
        self,
        axes: Sequence[Axis],
        strides: dict[DataDim, int],
        stack: tuple[DataDim, str] | None,
    ) -> str:
        """Where this block's part of an array starts."""
        terms = []
        for a in axes:
            grid = self.w.grid_dim(a)
            if grid is not None and grid.count > 1:
                terms.append((self.w.start(grid), strides[a.dim]))
        for dim, par in [stack] if stack else []:
            if any(g.name == par and g.count > 1 for g in self.program.grid):
                terms.append((self.w.block_index(par), strides[dim]))
        return " + ".join(at if stride == 1 else f"{at} * {stride}" for at, stride in terms)

    def _buffers(self) -> None:
        w = self.w
        if any(b.offset is not None for b in self.plan.buffers):
            size = self.plan.workspace_elements
            w.line(f"workspace = offset(argument(arrays, {self.workspace}), thread * {size})")
        for b in self.plan.buffers:
            if b.offset is None:
                maker = w.kernel(f"stack_{b.elements}", f"stack({b.elements}, {w.dtype!r})")
                w.line(f"{b.pointer} = {maker}()")
            else:
                w.line(f"{b.pointer} = offset(workspace, {b.offset})")

    # -- stages

    def _stage(self, stage: Stage) -> None:
        """The nests of a stage, and each dense copy as soon as what it copies is there."""
        packs = [p for p in self.plan.packs.values() if p.stage is stage]
        for pack in packs:
            if pack.value not in self.plan.nests.owner:
                self._pack(pack)
        for nest in self.plan.nests.of_stage(stage):
            self._nest(nest)
            for pack in packs:
                if pack.value in nest.nodes:
                    self._pack(pack)

    def _nest(self, nest: Nest) -> None:
        w = self.w
        first = nest.nodes[0]
        node = self.program.nodes[first]
        made = self.plan.squares[first].nodes if first in self.plan.squares else ()
        nodes = (*nest.nodes, *made)
        described = (describe_node(self.program, self.plan.nests, i) for i in nodes)
        w.line(f"# {', '.join(described)}")
        if isinstance(node, Contract) and self.plan.contractions[first].form is not Form.LOOPS:
            emit_contraction(w, first, self.registers)
        elif isinstance(node, Store) and node.single:
            is_first = " and ".join(f"{w.block_index(p)} == 0" for p in node.single)
            with w.block(f"if {is_first}:"):
                emit_nest(w, nest)
        else:
            emit_nest(w, nest)

    def _pack(self, pack: Pack) -> None:
        """Copy a row operand densely."""
        w = self.w
        source, axes = self.plan.places[pack.value], self.program.axes[pack.value]
        w.line(f"# dense copy of {source.pointer}")
        with w.loops(pack.order):
            w.store(pack.place, axes, w.load(source, axes))

    # -- the loops

    def _loop(self, number: int) -> None:
        """A loop, and the one inside it."""
        w, loop = self.w, self.program.loops[number]
        start = w.loop_start(number)
        self._start_accumulators(number)
        axis = self.program.looped_axis(number)
        if loop.dim is None or axis is None:
            with w.block(f"for {start} in range({loop.count}):"):
                self._body(number, 1)
            return
        total, tile = w.block_extent(axis.whole()), loop.tile
        if isinstance(total, int):
            full = total // tile * tile
            if full:
                with w.block(f"for {start} in range(0, {full}, {tile}):"):
                    self._body(number, tile)
            if total % tile:
                w.line(f"{start} = {full}")
                self._body(number, total % tile)
            return
        whole, length = w.loop_name(number, "full"), w.loop_name(number, "length")
        w.line(f"{whole} = {total} // {tile} * {tile}")
        with w.block(f"for {start} in range(0, {whole}, {tile}):"):
            self._body(number, tile)
        w.line(f"{start} = {whole}")
        w.line(f"{length} = {total} - {whole}")
        with w.block(f"if {length} > 0:"):
            self._body(number, length)

    def _start_accumulators(self, number: int) -> None:
        w = self.w
        for i, node in enumerate(self.program.nodes):
            if isinstance(node, Running | Accumulate) and self.program.ended(i) != number:
                continue
            match node:
                case Running():
                    start, what = "LOWEST", "running reference"
                case Accumulate(kind=kind) if (
                    kind is not AccumulatorKind.CONCAT and i not in self.plan.nests.last_values
                ):
                    start, what = identity(kind), f"{kind.value} over the loop"
                case _:
                    continue
            w.line(f"# v{i}: {what}")
            w.fill(self.plan.places[i], self.program.axes[i], start)

    def _body(self, number: int, extent: Extent) -> None:
        """One iteration, `extent` elements of the loop's dim from its start on."""
        w, start = self.w, self.w.loop_start(number)
        places = self.plan.places.values()
        around = [p for p in places if p.loop_strides and p.loop_strides[number]]
        tiles = {w.pointer(p): p.loop_strides[number] for p in around}
        for pointer, stride in tiles.items():
            step = start if stride == 1 else f"{start} * {stride}"
            w.line(f"{w.tile_name(pointer, number)} = offset({pointer}, {step})")
        with w.iteration(extent):
            if number + 1 == len(self.program.loops):
                self._stage(Stage.BODY)
                return
            self._stage(Stage.OUTER)
            if self.plan.nests.of_stage(Stage.BODY):
                self._loop(number + 1)
            self._stage(Stage.BETWEEN)
