"""Decides where every value lives, how each nest is dealt to the threads, and what is staged.

Rules, in order:

* an argument is read where it is, or staged in shared memory: where a contraction's tiling says so,
  and where several nests read the same small tile;
* a value that only its own nest reads stays in registers; what passes from nest to nest is a
  float32 *buffer*, whose rows are padded to an odd stride, so that no two lanes meet in a bank;
* what is added up over the loop stays in each thread's registers (*partials*) until the loop is
  over, where that is few enough numbers; otherwise it has a buffer;
* an output is written in place by what computes it if nothing else reads that value.

Buffers become shared memory in `memory`, or a slice of a global workspace where it is full.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import assert_never

from prism.ir import AccumulatorKind, DataDim
from prism_kernels.cuda.alignment import contiguous_dim, widest
from prism_kernels.cuda.contraction import CORES, Tiling, plan_contraction
from prism_kernels.cuda.dialect import DTYPES
from prism_kernels.cuda.layout import Layout, deal, deal_reduction
from prism_kernels.cuda.operands import Operand, Problem
from prism_kernels.cuda.pipeline import PipelineTiling
from prism_kernels.cuda.plan import (
    Place,
    Plan,
    input_places,
    output_places,
    reads,
    reduced_axis,
    ring_of,
    slice_of,
    tile_in,
)
from prism_kernels.nests import Nest, form_nests
from prism_kernels.tile import (
    Accumulate,
    Axis,
    Contract,
    Load,
    Map,
    Reduce,
    Running,
    Scalar,
    Store,
    TileNode,
    TileProgram,
    ValueId,
)

THREADS = (128, 256, 64, 512)
"""Schedule option `T`: threads of a block, the default first."""
STAGING = (0, 1)
"""Schedule option `S`, the default first: 0 stages the operands of contractions where that costs
less, 1 never; 2, wherever it is possible, is no choice of the tuner's but serves tests."""
MOST_PARTIALS = 16
"""Numbers per thread that a reduction may keep in registers over the loop."""
BUFFER_WIDTH = 2
"""Neighbours a thread takes at a time where they are in a buffer too: lanes meet in a bank."""
STAGE_BYTES = 48 << 10
"""A larger tile is not staged for a contraction ..."""
SHARED_READ_BYTES = 8 << 10
"""... nor is one larger than this because several nests read it."""


def plan(program: TileProgram, dtype: str, schedule: Mapping[str, int]) -> Plan:
    """Decide nests, places and layouts; `schedule` holds the options `T`, `S` and `C`."""
    threads, staging = schedule.get("T", THREADS[0]), schedule.get("S", STAGING[0])
    return _Planner(program, dtype, threads, staging, schedule.get("C", CORES[0])).run()


class _Planner:
    def __init__(
        self, program: TileProgram, dtype: str, threads: int, staging: int, cores: int
    ) -> None:
        self.program = program
        self.dtype = dtype
        self.threads = threads
        self.staging = staging
        self.cores = cores
        self.nests = form_nests(program, one_reduction=True)
        self.users = program.users()
        self.inputs = input_places(program, dtype)
        self.outputs = output_places(program, dtype)
        self.places: dict[ValueId, Place] = {}
        self.layouts: dict[ValueId, Layout] = {}
        self.tilings: dict[ValueId, Tiling] = {}
        self.staged: dict[ValueId, Place] = {}
        self.partials: set[ValueId] = set()
        self.drifts: dict[tuple[ValueId, float], Place] = {}
        self.in_place: set[ValueId] = set()
        self.scratch: dict[ValueId, Place] = {}
        self.buffers: dict[str, int] = {}

    def run(self) -> Plan:
        for i, node in enumerate(self.program.nodes):
            if isinstance(node, Load):
                whole = self.inputs[node.source]
                self.places[i] = tile_in(whole, self.program, self.program.axes[i])
        self._reserve_operands()
        for nest in self.nests.nests:
            if isinstance(self.program.nodes[nest.nodes[0]], Contract):
                self._plan_contraction(nest.nodes[0])
        self._stage_shared_reads()
        for nest in self.nests.nests:
            if nest.nodes[0] not in self.tilings:
                self._plan_nest(nest)
        for i, node in enumerate(self.program.nodes):
            self._place(i, node)
        return Plan(
            self.program, self.dtype, self.threads, self.nests.without(self.in_place),
            self.inputs, self.outputs, self.places, self.layouts, self.tilings, self.staged,
            frozenset(self.partials), self.drifts, frozenset(self.in_place), self.scratch,
            self.buffers,
        )  # fmt: skip

    # -- memory

    def _buffer(self, name: str, axes: Iterable[Axis]) -> Place:
        """A row-major buffer with rows of odd stride."""
        strides: dict[DataDim, int] = {}
        stride = 1
        for axis in reversed(list(axes)):
            strides[axis.dim] = stride
            stride *= self.program.chunk(axis)
            if len(strides) == 1 and stride > 1:
                stride |= 1
        self.buffers[name] = stride
        return Place(name, strides)

    # -- contractions

    def _reserve_operands(self) -> None:
        """Buffers for the computed operands of contractions, whose strides their tilings read."""
        for node in self.program.nodes:
            if isinstance(node, Contract):
                for v in (node.left, node.right):
                    self._ensure(v)

    def _ensure(self, v: ValueId) -> None:
        """A buffer for value v, or for the accumulator whose slice it is."""
        if v in self.places or isinstance(self.program.nodes[v], Scalar):
            return
        if v in self.nests.last_values:
            running = self.nests.last_values[v]
            self._ensure(running)
            self.places[v] = self.places[running]
        elif v in self.nests.slices:
            whole = self.nests.slices[v]
            self._ensure(whole)
            self.places[v] = slice_of(self.places[whole], self.program, whole)
        else:
            self.places[v] = self._buffer(f"v{v}", self.program.axes[v])

    def _plan_contraction(self, i: ValueId) -> None:
        node = self.program.nodes[i]
        assert isinstance(node, Contract)
        around = self.program.loop_at(self.program.stages[i])
        axes = dict.fromkeys((*self.program.axes[node.left], *self.program.axes[node.right]))
        problem = Problem(
            tuple((a.dim, self.program.chunk(a)) for a in axes),
            node.dim,
            self._operand(node.left),
            self._operand(node.right),
            iterations=1 if around is None else self.program.loops[around].count,
            is_sum=i in self.nests.sinks,
            threads=self.threads,
            staging=self.staging,
            cores=self.cores,
        )
        tiling = plan_contraction(problem)
        self.tilings[i] = tiling
        for v, is_staged in zip((node.left, node.right), tiling.staged, strict=True):
            if is_staged:
                self._stage(v)
        if isinstance(tiling, PipelineTiling):
            self.buffers[ring_of(i)] = tiling.ring_elements
        if tiling.is_persistent:
            self.partials.add(i)
        self._plan_scratch(i, tiling.layout, node.dim)

    def _operand(self, v: ValueId) -> Operand:
        place = self.staged.get(v) or self.places[v]
        axes = self.program.axes[v]
        strides = tuple((a.dim, place.strides[a.dim]) for a in axes)
        size = 4 * self.program.elements(axes)
        return Operand(
            strides, place.is_argument, DTYPES[place.dtype],
            is_stageable=place.is_argument and size <= STAGE_BYTES,
            dtype=place.dtype,
            is_exact=place.is_argument,
            near=contiguous_dim(place, axes, self.program),
            run=widest(self.program, place, axes),
        )  # fmt: skip

    def _plan_scratch(self, i: ValueId, layout: Layout, dim: DataDim) -> None:
        warps = layout[dim].warps
        if warps > 1:
            self.scratch[i] = self._buffer(f"scratch{i}", self.program.axes[i])
            self.buffers[f"scratch{i}"] *= warps

    # -- staging

    def _stage(self, v: ValueId) -> None:
        """Copy a load's tile to shared memory, read along its contiguous axis."""
        if v in self.staged:
            return
        axes, strides = self.program.axes[v], self.places[v].strides
        self.staged[v] = self._buffer(f"tile{v}", axes)
        order = sorted(axes, key=lambda a: strides[a.dim])
        width = min(widest(self.program, self.places[v], axes), BUFFER_WIDTH, self._spare(axes))
        groups = self._in_groups(self.program.extents(axes), order, width)
        layout = deal(order, groups, self.threads)
        self.layouts[v] = layout.widened(order[0].dim, width) if width > 1 else layout

    def _stage_shared_reads(self) -> None:
        """Small tiles that several nests of one stage read."""
        if self.staging == 1:
            return
        readers: dict[ValueId, set[ValueId]] = {}
        for nest in self.nests.nests:
            for i in nest.nodes:
                for v in reads(self.program.nodes[i]):
                    if isinstance(self.program.nodes[v], Load):
                        readers.setdefault(v, set()).add(nest.nodes[0])
        for v, nests in readers.items():
            size = 4 * self.program.elements(self.program.axes[v])
            if len(nests) > 1 and size <= SHARED_READ_BYTES and self.program.axes[v]:
                self._stage(v)

    # -- other nests

    def _plan_nest(self, nest: Nest) -> None:
        extents, reduced = self.program.extents(nest.space), reduced_axis(self.program, nest)
        order = self._lane_order(nest)
        width = self._width(nest, order[0]) if order and reduced in {None, order[0]} else 1
        groups = self._in_groups(extents, order, width)
        if reduced is None:
            layout = deal(order, groups, self.threads)
        else:
            layout = deal_reduction(order, reduced, groups, self.threads)
        if width > 1:
            layout = layout.widened(order[0].dim, width)
        self.layouts.update(dict.fromkeys(nest.nodes, layout))
        if reduced is None:
            return
        rest = [a for a in nest.space if a != reduced]
        kept = math.prod(layout.passes(a.dim, extents[a.dim]) for a in rest)
        for i in nest.nodes:
            if isinstance(self.program.nodes[i], Reduce):
                if i in self.nests.sinks and kept <= MOST_PARTIALS:
                    self.partials.add(i)
                self._plan_scratch(i, layout, reduced.dim)

    def _width(self, nest: Nest, lane: Axis) -> int:
        """How many neighbours along the lane axis a thread of a nest takes at a time."""
        program = self.program
        own = {
            i for i in nest.nodes if isinstance(program.nodes[i], Map) and not self._is_stored(i)
        }
        widths, is_buffered = [1], False
        for v in {v for i in nest.nodes for v in (i, *reads(program.nodes[i]))} - own:
            node = program.nodes[v]
            if lane not in program.axes[v]:
                continue
            if isinstance(node, Store) or (isinstance(node, Load) and v not in self.staged):
                place = self.outputs[node.target] if isinstance(node, Store) else self.places[v]
                if contiguous_dim(place, program.axes[v], program) == lane.dim:
                    widths.append(widest(program, place, program.axes[v]))
            else:
                is_buffered = True
        most = BUFFER_WIDTH if is_buffered else max(widths)
        return min(max(widths), most, self._spare(nest.space))

    def _spare(self, axes: Iterable[Axis]) -> int:
        """How many elements each thread has at least, if all have some: a power of two."""
        each = max(1, self.program.elements(axes) // self.threads)
        return 1 << (each.bit_length() - 1)

    def _in_groups(
        self, extents: Mapping[DataDim, int], order: Iterable[Axis], width: int
    ) -> dict[DataDim, int]:
        """The extents of a space in which `width` neighbours along the first axis are one."""
        first = next((axis.dim for axis in order), None)
        return {d: -(-n // width) if d == first else n for d, n in extents.items()}

    def _lane_order(self, nest: Nest) -> list[Axis]:
        """The axes of a nest, the one along which most of what it touches is contiguous first."""
        votes = dict.fromkeys(nest.space, 0)
        for i in nest.nodes:
            for v in (i, *reads(self.program.nodes[i])):
                for dim in self._contiguous(v):
                    for axis in votes:
                        votes[axis] += axis.dim == dim and self.program.chunk(axis) > 1
        index = {axis: k for k, axis in enumerate(nest.space)}
        return sorted(votes, key=lambda a: (-votes[a], -index[a]))

    def _contiguous(self, v: ValueId) -> list[DataDim]:
        """The dim along which a value is contiguous in global memory; none for a buffer."""
        node = self.program.nodes[v]
        if isinstance(node, Store):
            strides = dict(self.program.outputs[node.target].strides)
            return [d for d, stride in strides.items() if stride == 1]
        if isinstance(node, Load) and v not in self.staged:
            return [d for d, stride in self.places[v].strides.items() if stride == 1]
        return []

    # -- where computed values go

    def _place(self, i: ValueId, node: TileNode) -> None:
        match node:
            case Load() | Scalar() | Store():
                pass
            case Map():
                if self._is_stored(i):
                    self._place_result(i)
            case Reduce() | Contract():
                self._place_result(i)
            case Running():
                self._ensure(i)
            case Accumulate():
                self._place_result(i)
                for key in node.scales:
                    if key not in self.drifts:
                        axes = self.program.axes[key[0]]
                        self.drifts[key] = self._buffer(f"drift{len(self.drifts)}", axes)
            case _:
                assert_never(node)

    def _is_stored(self, i: ValueId) -> bool:
        """Whether a map's value must outlive its nest."""
        mine = self.nests.owner[i]
        return any(
            self.nests.owner.get(j) != mine or isinstance(self.program.nodes[j], Contract)
            for j in self.users[i]
        )

    def _place_result(self, i: ValueId) -> None:
        if i in self.places or i in self.nests.sinks:
            return  # reserved, or never there: it goes into its accumulator
        if i in self.nests.slices:
            whole = self.nests.slices[i]
            self._place_result(whole)
            self.places[i] = slice_of(self.places[whole], self.program, whole)
            return
        store = self._output_of(i)
        if store is None:
            self._ensure(i)
            return
        node = self.program.nodes[store]
        assert isinstance(node, Store)
        self.in_place.add(store)
        self.places[i] = self.outputs[node.target]

    def _output_of(self, i: ValueId) -> ValueId | None:
        """The store that value i can be written to directly, if that is all that it is for."""
        if len(self.users[i]) != 1 or isinstance(self.program.nodes[i], Map):
            return None  # a map's value is stored by its own nest
        (j,) = self.users[i]
        store = self.program.nodes[j]
        if not isinstance(store, Store) or store.single or i in self.nests.last_values:
            return None
        if set(self.program.axes[i]) != set(self.program.axes[j]):
            return None
        if isinstance(self.program.nodes[i], Accumulate) and not self._is_written_once(i):
            return None
        return j

    def _is_written_once(self, i: ValueId) -> bool:
        """Whether no element of accumulator i is read again to be changed."""
        node = self.program.nodes[i]
        assert isinstance(node, Accumulate)
        writers = [k for k, j in self.nests.sinks.items() if j == i]
        if writers:
            return writers[0] in self.partials
        slices = [k for k, j in self.nests.slices.items() if j == i]
        is_read = any(len(self.users[k]) > 1 for k in slices)
        sums = [k for k in slices if isinstance(self.program.nodes[k], Accumulate)]
        is_once = all(self._is_written_once(k) for k in sums)
        return node.kind is AccumulatorKind.CONCAT and not node.scales and is_once and not is_read
