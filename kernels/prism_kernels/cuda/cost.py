"""Predicts how long a CUDA kernel takes, to order candidates; its figures are not measurements.

A plan is first summed up as `Work`: what one block issues, waits for and moves. `seconds` then sets
that against a GPU: the instructions of the busiest SM, the latency of as many waves of blocks as
occupancy leaves, and the traffic to DRAM and L2. They overlap, so the longest counts, and a share
of the rest. `Work` goes with an emitted kernel, so that what compiling tells (the registers, hence
the occupancy) improves the prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from prism_kernels.cuda.alignment import contiguous_dim, widest
from prism_kernels.cuda.contraction import ThreadTiling
from prism_kernels.cuda.devices import Gpu, occupancy
from prism_kernels.cuda.dialect import DTYPES, WARP
from prism_kernels.cuda.layout import Layout, deal
from prism_kernels.cuda.memory import Schedule
from prism_kernels.cuda.pipeline import PipelineTiling
from prism_kernels.cuda.plan import Place, Plan, reads, reduced_axis
from prism_kernels.cuda.steps import Action, Step
from prism_kernels.cuda.stream import MULTIPLY, ROWS, StreamTiling
from prism_kernels.cuda.traffic import (
    SECTOR,
    array_bytes,
    tile_sectors,
    warp_sectors,
    workspace_bytes,
)
from prism_kernels.nests import Nest
from prism_kernels.tile import (
    Axis,
    Contract,
    Load,
    Map,
    Reduce,
    Scalar,
    Store,
    ValueId,
)

BLOCK_CYCLES = 700.0
"""Starting a block, reading its first line, leaving."""
LOAD_LATENCY = 600.0
"""Cycles to memory and back; half of it to the L2 cache."""
SHARED_LATENCY = 25.0
BARRIER_CYCLES = 40.0
IN_FLIGHT = 8.0
"""Loads that a thread has under way at most: its own micro-tile times an unrolling of 4."""
L2_BYTES_PER_CLOCK = 28.0
L1_SECTORS_PER_CLOCK = 4.0
"""Of one SM."""
L2_ROOM = 0.5
"""The share of the L2 cache that what streams through it leaves to what is kept there."""
DRAM_SHARE = 0.92
"""Of the bandwidth on the data sheet, what a kernel that only reads gets."""
SCHEDULERS = 4
PRODUCT = 16 * 8 * 16
"""Multiply-adds of a product by tensor cores."""
CONVERT_WEIGHT = 1.0
OVERLAP = 0.25
"""What of the shorter times is not hidden behind the longest."""

OP_WEIGHTS: Mapping[str, float] = {
    "div": 10.0, "reciprocal": 8.0, "sqrt": 8.0, "rsqrt": 16.0, "exp": 10.0, "log": 14.0,
    "tanh": 24.0, "sigmoid": 22.0, "silu": 24.0, "gelu_tanh": 30.0, "gelu_erf": 30.0,
    "maximum": 2.0, "minimum": 2.0, "bound": 3.0,
}  # fmt: skip
"""Instructions of an elementwise operator, where it is more than one."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a launch does; per block unless it says `total`."""

    blocks: int
    threads: int
    shared_bytes: int
    results: int
    """Registers that a thread's micro-tiles take."""
    instructions: float
    """Issued per thread."""
    latency_cycles: float
    dram_bytes_total: float
    """Arguments and outputs, each once."""
    l2_bytes: float
    """In whole sectors."""
    l1_sectors: float = 0.0
    """Those that the accesses of warps touch."""
    kept_bytes_total: float = 0.0
    """What stays in the L2 cache where that has room: tensors between kernels, the workspace."""
    kept_footprint: float = 0.0
    """The memory that it takes there."""
    products: float = 0.0
    """By tensor cores: of 16 x 8 elements, as deep as takes the time of 16 in float16."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def work_of(plan: Plan, schedule: Schedule) -> Work:
    """Sum up a plan."""
    return _Summing(plan, schedule).work()


def seconds(work: Work, gpu: Gpu, registers: int | None = None) -> float:
    """Predicted seconds of one launch from a cold L2 cache; `registers` once they are known.

    Kernels in a row take the sum, for each waits for the end of the one before.
    """
    used = registers or min(255, 40 + int(1.35 * work.results))
    resident = max(1, occupancy(gpu, work.threads, used, work.shared_bytes))
    busiest = -(-work.blocks // gpu.sms)
    waves = -(-work.blocks // (gpu.sms * resident))
    clock = gpu.clock_ghz * 1e9
    rate = SCHEDULERS * min(1.0, gpu.fma_sm / 128 + 0.25)
    issue = busiest * work.instructions * -(-work.threads // WARP) / rate / clock
    latency = waves * (work.latency_cycles + BLOCK_CYCLES) / clock
    room = L2_ROOM * gpu.l2_bytes
    lost = max(0.0, 1.0 - room / work.kept_footprint) if work.kept_footprint else 0.0
    moved = work.dram_bytes_total + lost * work.kept_bytes_total
    dram = moved / (gpu.dram_gbps * 1e9 * DRAM_SHARE)
    l2 = busiest * work.l2_bytes / L2_BYTES_PER_CLOCK / clock
    l1 = busiest * work.l1_sectors / L1_SECTORS_PER_CLOCK / clock
    tensor = busiest * work.products * PRODUCT / gpu.mma_sm / clock
    times = sorted((issue, latency, dram, l2, l1, tensor))
    return gpu.launch_s + times[-1] + OVERLAP * sum(times[:-1])


class _Summing:
    def __init__(self, plan: Plan, schedule: Schedule) -> None:
        self.plan = plan
        self.program = plan.program
        self.schedule = schedule
        self.instructions = 0.0
        self.latency = 0.0
        self.traffic = 0.0
        self.sectors = 0.0
        self.products = 0.0

    def work(self) -> Work:
        for stage, steps in self.schedule.steps.items():
            trips = self.program.trips(stage)
            before = self._sums()
            for k, step in enumerate(steps):
                if (stage, k) in self.schedule.barriers:
                    self.latency += BARRIER_CYCLES
                    self.instructions += 2
                self._step(step)
            self.instructions, self.latency, self.traffic, self.sectors, self.products = (
                b + trips * (n - b) for b, n in zip(before, self._sums(), strict=True)
            )
        tilings = self.plan.tilings
        blocks = math.prod(g.count for g in self.program.grid)
        workspace = workspace_bytes(self.plan, self.schedule)
        between = array_bytes(self.program, self.plan, between=True)
        return Work(
            blocks=blocks,
            threads=self.plan.threads,
            shared_bytes=4 * self.schedule.shared_elements,
            results=sum(tilings[i].results for i in tilings if tilings[i].is_persistent)
            + max((t.results for t in tilings.values() if not t.is_persistent), default=0),
            instructions=self.instructions,
            latency_cycles=self.latency,
            dram_bytes_total=array_bytes(self.program, self.plan, between=False),
            l2_bytes=self.traffic + workspace,
            l1_sectors=self.sectors + workspace / SECTOR,
            kept_bytes_total=between + blocks * workspace,
            products=self.products,
            kept_footprint=between + 4.0 * blocks * self.schedule.workspace_elements,
        )

    def _sums(self) -> tuple[float, float, float, float, float]:
        return self.instructions, self.latency, self.traffic, self.sectors, self.products

    def _step(self, step: Step) -> None:
        i = step.node
        axes = self.program.axes[i]
        match step.action:
            case Action.CLEAR | Action.FILL:
                self._elementwise(axes, 1)
            case Action.COPY:
                layout, place = self.plan.layout(i), self.plan.places[i]
                passes, each = self._passes(axes, layout), self._at_once(i, place, layout)
                self._loads(passes / each, axes, place)
                self._touch(passes / each, axes, place, layout)
                self.instructions += passes * (3 + 3 / each)
            case Action.RESCALE:
                self._elementwise(axes, 6)
            case Action.COMBINE | Action.FINISH:
                self._elementwise(axes, 16)
            case Action.RUN if i in self.plan.tilings:
                self._contraction(i)
            case Action.RUN:
                self._nest(self.plan.nests.of_node(i))

    def _elementwise(self, axes: Iterable[Axis], weight: float) -> None:
        axes = tuple(axes)
        layout = deal(axes, self.program.extents(axes), self.plan.threads)
        self.instructions += self._passes(axes, layout) * (weight + 4)
        self.latency += 2 * SHARED_LATENCY

    def _passes(self, axes: Iterable[Axis], layout: Layout) -> int:
        return math.prod(layout.passes(a.dim, self.program.chunk(a)) for a in axes)

    def _loads(
        self, count: float, axes: Iterable[Axis], place: Place, at_once: float = IN_FLIGHT
    ) -> None:
        """Loads per thread from global memory of a tile with these axes."""
        self.traffic += self._tile_bytes(axes, place)
        self.latency += LOAD_LATENCY * max(1.0, count / min(IN_FLIGHT, at_once))

    def _tile_bytes(self, axes: Iterable[Axis], place: Place) -> float:
        """Bytes of the sectors of a tile in global memory."""
        return SECTOR * tile_sectors(self.program, axes, place)

    def _touch(self, count: float, axes: Iterable[Axis], place: Place, layout: Layout) -> None:
        """Accesses per thread to a tile in global memory."""
        axes = tuple(axes)
        warps = -(-self.plan.threads // WARP)
        each = warp_sectors(place, axes, layout, self.program.extents(axes))
        self.sectors += warps * count * each

    def _at_once(self, v: ValueId, place: Place, layout: Layout) -> int:
        """How many neighbours an access to a value in an array moves."""
        dim = contiguous_dim(place, self.program.axes[v], self.program)
        if dim is None:
            return 1
        return min(layout[dim].width, widest(self.program, place, self.program.axes[v]))

    def _contraction(self, i: ValueId) -> None:
        node, tiling = self.program.nodes[i], self.plan.tilings[i]
        assert isinstance(node, Contract)
        self.instructions += 1.3 * tiling.cost + 20
        self.latency += 4 * SHARED_LATENCY
        if not isinstance(tiling, ThreadTiling):
            # a product is one instruction, and keeps the tensor cores busy apart from that
            self.instructions -= 1.3 * (MULTIPLY - 1) * tiling.multiplications
            self.products += tiling.multiplications * self.plan.threads // WARP
            if isinstance(tiling, StreamTiling):
                self._stream(node, tiling)
            else:
                self._pipeline(node, tiling)
            return
        axes = self.program.axes
        chunks = self.program.extents((*axes[node.left], *axes[node.right]))
        depth = tiling.layout.passes(node.dim, chunks[node.dim])
        for v in (node.left, node.right):
            place = self.plan.place(v)
            if place.is_argument:
                own = [a for a in axes[v] if a.dim != node.dim]
                each = self._at_once(v, place, tiling.layout)
                tile = max(1.0, math.prod(tiling.tile[a.dim] for a in own) / each)
                passes = math.prod(tiling.layout.passes(a.dim, chunks[a.dim]) for a in own)
                self._loads(depth * passes / each, axes[v], place, at_once=4 * tile)
                self._touch(depth * passes / each, axes[v], place, tiling.layout)

    def _stream(self, node: Contract, tiling: StreamTiling) -> None:
        """What a contraction by tensor cores reads; `unroll` steps are under way at a time."""
        extents = self.program.extents(
            (*self.program.axes[node.left], *self.program.axes[node.right])
        )
        rounds = tiling.passes * math.prod(extents[d] for d in tiling.others)
        steps = -(-extents[node.dim] // (tiling.depth * tiling.deep_warps))
        fetches = tiling.blocks * tiling.fetches
        operands = (node.left, node.right)
        streamed, other = operands[tiling.streamed], operands[1 - tiling.streamed]
        place, fetched = self.plan.places[streamed], rounds * steps * fetches
        under_way = tiling.unroll * fetches
        self._loads(fetched, self.program.axes[streamed], place, at_once=under_way)
        self.sectors += self._tile_bytes(self.program.axes[streamed], place) / SECTOR
        place = self.plan.place(other)
        if place.is_argument:
            self.traffic += self._tile_bytes(self.program.axes[other], place)
            rows = ROWS * tiling.row_blocks * tiling.depth * DTYPES[place.dtype] / SECTOR
            self.sectors += rounds * steps * rows * self.plan.threads // WARP

    def _pipeline(self, node: Contract, tiling: PipelineTiling) -> None:
        """What passes through a ring: a tile of one operand for each tile of the other."""
        extents = self.program.extents(
            (*self.program.axes[node.left], *self.program.axes[node.right])
        )
        steps = -(-extents[node.dim] // tiling.depth)
        others = math.prod(extents[d] for d in tiling.others)
        rounds = math.prod(tiling.turns) * others
        waits = 1 + steps / tiling.stages
        self.latency += rounds * (waits * LOAD_LATENCY / 2 + steps * BARRIER_CYCLES)
        for v, again in zip((node.left, node.right), reversed(tiling.turns), strict=True):
            moved = again * self._tile_bytes(self.program.axes[v], self.plan.places[v])
            self.traffic += moved
            self.sectors += moved / SECTOR

    def _nest(self, nest: Nest) -> None:
        layout = self.plan.layout(nest.nodes[0])
        passes = self._passes(nest.space, layout)
        weight = 0.0
        read: set[ValueId] = set()
        for i in nest.nodes:
            node = self.program.nodes[i]
            weight += self._weight(i)
            read.update(reads(node))
            if isinstance(node, Store):
                place, axes = self.plan.outputs[node.target], self.program.axes[i]
                self.traffic += self._tile_bytes(axes, place)
                accesses = self._passes(axes, layout) / self._at_once(i, place, layout)
                self._touch(accesses, axes, place, layout)
        for v in read - set(nest.nodes):
            node = self.program.nodes[v]
            if isinstance(node, Load) and v not in self.plan.staged:
                axes, place = self.program.axes[v], self.plan.places[v]
                each = self._at_once(v, place, layout)
                own = self._passes(axes, layout) / each
                self._loads(own, axes, place)
                self._touch(own, axes, place, layout)
                weight += CONVERT_WEIGHT + 2 / each
            elif not isinstance(node, Scalar):
                weight += 2
        self.instructions += passes * (weight + 2) + 10
        self.latency += 2 * SHARED_LATENCY
        if reduced_axis(self.program, nest) is not None:
            self.latency += 5 * SHARED_LATENCY

    def _weight(self, i: ValueId) -> float:
        """Instructions per element of a node's space."""
        node = self.program.nodes[i]
        match node:
            case Map(op=op):
                stored = 3.0 if i in self.plan.places else 0.0
                return OP_WEIGHTS.get(op, 1.0) + stored
            case Store():
                return 4.0
            case Reduce():
                return 2.0
            case _:
                return 6.0
