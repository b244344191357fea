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

from prism_kernels.cuda.devices import Gpu, occupancy
from prism_kernels.cuda.dialect import DTYPES, WARP
from prism_kernels.cuda.layout import Layout, deal
from prism_kernels.cuda.memory import Schedule
from prism_kernels.cuda.plan import Place, Plan, reads, reduced_axis
from prism_kernels.cuda.steps import Action, Step
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

LAUNCH_S = 2.5e-6
BLOCK_CYCLES = 700.0
"""Starting a block, reading its first line, leaving."""
LOAD_LATENCY = 600.0
"""Cycles to memory and back; half of it to the L2 cache."""
SHARED_LATENCY = 25.0
BARRIER_CYCLES = 40.0
IN_FLIGHT = 8.0
"""Loads that a thread has under way at most: its own micro-tile times an unrolling of 4."""
L2_BYTES_PER_CLOCK = 48.0
"""Of one SM."""
SCHEDULERS = 4
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
    l2_bytes: float

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def work_of(plan: Plan, schedule: Schedule) -> Work:
    """Sum up a plan."""
    return _Summing(plan, schedule).work()


def seconds(work: Work, gpu: Gpu, registers: int | None = None) -> float:
    """Predicted seconds of one launch from a cold L2 cache; `registers` once they are known."""
    used = registers or min(255, 40 + int(1.35 * work.results))
    resident = max(1, occupancy(gpu, work.threads, used, work.shared_bytes))
    busiest = -(-work.blocks // gpu.sms)
    waves = -(-work.blocks // (gpu.sms * resident))
    clock = gpu.clock_ghz * 1e9
    rate = SCHEDULERS * min(1.0, gpu.fma_sm / 128 + 0.25)
    issue = busiest * work.instructions * -(-work.threads // WARP) / rate / clock
    latency = waves * (work.latency_cycles + BLOCK_CYCLES) / clock
    dram = work.dram_bytes_total / (gpu.dram_gbps * 1e9 * 0.92)
    l2 = busiest * work.l2_bytes / L2_BYTES_PER_CLOCK / clock
    times = sorted((issue, latency, dram, l2))
    return LAUNCH_S + times[-1] + OVERLAP * sum(times[:-1])


class _Summing:
    def __init__(self, plan: Plan, schedule: Schedule) -> None:
        self.plan = plan
        self.program = plan.program
        self.schedule = schedule
        self.instructions = 0.0
        self.latency = 0.0
        self.traffic = 0.0

    def work(self) -> Work:
        for stage, steps in self.schedule.steps.items():
            trips = self.program.trips(stage)
            before = self.instructions, self.latency, self.traffic
            for k, step in enumerate(steps):
                if (stage, k) in self.schedule.barriers:
                    self.latency += BARRIER_CYCLES
                    self.instructions += 2
                self._step(step)
            now = self.instructions, self.latency, self.traffic
            self.instructions, self.latency, self.traffic = (
                b + trips * (n - b) for b, n in zip(before, now, strict=True)
            )
        tilings = self.plan.tilings
        return Work(
            blocks=math.prod(g.count for g in self.program.grid),
            threads=self.plan.threads,
            shared_bytes=4 * self.schedule.shared_elements,
            results=sum(tilings[i].results for i in tilings if tilings[i].is_persistent)
            + max((t.results for t in tilings.values() if not t.is_persistent), default=0),
            instructions=self.instructions,
            latency_cycles=self.latency,
            dram_bytes_total=self._dram_bytes(),
            l2_bytes=self.traffic,
        )

    def _dram_bytes(self) -> float:
        """Every array that is read or written once; what the last kernel left is still in L2."""
        sizes: dict[int, int] = {}
        for i, node in enumerate(self.program.nodes):
            match node:
                case Load(source=source) if not self.program.is_between(source):
                    tensor, place = self.program.inputs[source], self.plan.places[i]
                case Store(target=target):
                    tensor, place = self.program.outputs[target], self.plan.outputs[target]
                case _:
                    continue
            elements = math.prod(self.program.sizes[d] for d, _ in tensor.strides)
            sizes[tensor.position] = elements * DTYPES[place.dtype]
        return float(sum(sizes.values()))

    def _step(self, step: Step) -> None:
        i = step.node
        axes = self.program.axes[i]
        match step.action:
            case Action.CLEAR | Action.FILL:
                self._elementwise(axes, 1)
            case Action.COPY:
                passes = self._passes(axes, self.plan.layout(i))
                self._loads(passes, axes, self.plan.places[i])
                self.instructions += passes * 6
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

    def _tile_bytes(self, axes: Iterable[Axis], place: Place) -> int:
        """Bytes of a tile in global memory."""
        return self.program.elements(axes) * DTYPES[place.dtype]

    def _contraction(self, i: ValueId) -> None:
        node, tiling = self.program.nodes[i], self.plan.tilings[i]
        assert isinstance(node, Contract)
        self.instructions += 1.3 * tiling.cost + 20
        self.latency += 4 * SHARED_LATENCY
        axes = self.program.axes
        chunks = self.program.extents((*axes[node.left], *axes[node.right]))
        depth = tiling.layout.passes(node.dim, chunks[node.dim])
        for v in (node.left, node.right):
            place = self.plan.place(v)
            if place.is_argument:
                own = [a for a in self.program.axes[v] if a.dim != node.dim]
                tile = math.prod(tiling.tile[a.dim] for a in own)
                passes = math.prod(tiling.layout.passes(a.dim, chunks[a.dim]) for a in own)
                self._loads(depth * passes, self.program.axes[v], place, at_once=4 * tile)

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
                place = self.plan.outputs[node.target]
                self.traffic += self._tile_bytes(self.program.axes[i], place)
        for v in read - set(nest.nodes):
            node = self.program.nodes[v]
            if isinstance(node, Load) and v not in self.plan.staged:
                own = self._passes(self.program.axes[v], layout)
                self._loads(own, self.program.axes[v], self.plan.places[v])
                weight += 3
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
