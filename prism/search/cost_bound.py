"""The pruner `cost-bound`: a graph that cannot come near the program's own time is dropped.

With sizes and a device known, an op DAG takes at least as long as its traffic at the machine's full
bandwidth, and as its operators when every lane multiplies and adds in every clock. The program
itself is right, and always there; a kernel of it should take no longer than predicted with the
small shares of bandwidth and peak that any kernel reaches. What needs at least `SAFETY` times as
long as that is dropped: products in a bad order, which no tiling makes good. The two are more than
an order of magnitude apart on purpose, so what is dropped is never what a tuner would choose.

Without sizes, or without a device, nothing is judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prism.ir import OPS, Apply, DataDim, OpKind, Program
from prism.protocols import Device
from prism.search.pruning import Bounded, Matched, Partial
from prism.search.situation import Situation
from prism.search.wiring import dims_in

SAFETY = 2.0
"""How many times the predicted time of the program a graph must need at least."""

PEAK_CLOCK_GPU, PEAK_CLOCK_CPU = 3e9, 6e9
"""No machine is faster, in Hz."""

LANES_SM = 128
"""float32 multiply-adds per clock of a multiprocessor, of all that are known the most. Kernels use
no tensor cores; a target that does needs a larger number here."""

PIPES = 2
"""Vector multiply-adds per clock of a CPU's core."""

REACHED = 0.125
"""The share of the peak that a kernel reaches at least, by our measurements of the worst."""

STREAMED = 0.4
"""The same of the bandwidth."""

ELEMENT_BYTES_LEAST, ELEMENT_BYTES_MOST = 2, 8
"""A search does not know the dtype."""

LAUNCH_S_LEAST, LAUNCH_S_MOST = 1e-6, 20e-6

SPECIAL_WORK = 32.0
"""Multiply-adds that a special function costs at most; at least it costs one."""


@dataclass(frozen=True, slots=True)
class TimeModel:
    """What work and traffic take on a device, at least and by a careful prediction."""

    device: Device

    def least(self, work: float, elements: float, launches: int) -> float:
        """Seconds that so many multiply-adds, elements moved and launches take at least."""
        moved = elements * ELEMENT_BYTES_LEAST / self._bandwidth
        return launches * LAUNCH_S_LEAST + max(work / self._peak, moved)

    def predicted(self, work: float, elements: float, launches: int, blocks: int) -> float:
        """Seconds that they take by prediction, where a launch may have so many blocks."""
        share = min(1.0, blocks / self.device.blocks)
        moved = elements * ELEMENT_BYTES_MOST / (self._bandwidth * STREAMED)
        computed = work / (self._peak * REACHED)
        return launches * LAUNCH_S_MOST + (moved + computed) / share

    @property
    def _bandwidth(self) -> float:
        return self.device.stream_gbps * 1e9

    @property
    def _peak(self) -> float:
        """Multiply-adds per second."""
        device = self.device
        if device.multiprocessors:
            return device.multiprocessors * LANES_SM * PEAK_CLOCK_GPU
        return device.threads * device.vector_bits / 32 * PIPES * PEAK_CLOCK_CPU


class CostBoundPruner:
    """Drops what takes several times as long as the program itself, whatever the tiles."""

    name = "cost-bound"

    def __init__(self) -> None:
        self.nearest: tuple[float, str] | None = None
        """The least time that was dropped, and why."""
        self._sizes: Mapping[DataDim, int] = {}
        self._program: Program | None = None
        self._model: TimeModel | None = None
        self._elements = 0.0
        self._most = math.inf

    @property
    def is_situated(self) -> bool:
        """Whether there is something to judge by."""
        return self._model is not None

    def situate(self, situation: Situation) -> None:
        """Predict the program's own time, where sizes and a device are known."""
        if not situation.has_sizes or situation.device is None:
            return
        if situation.device.stream_gbps <= 0 or situation.device.blocks <= 0:
            return
        self._sizes, self._program = situation.sizes, situation.program
        self._model = TimeModel(situation.device)
        self._elements = _traffic(situation.program, situation.sizes)
        work = _program_work(situation.program, situation.sizes)
        blocks = _rows(situation.program, situation.sizes)
        self._most = SAFETY * self._model.predicted(work, self._elements, 1, blocks)

    def judge(self, partial: Partial) -> str | None:
        """Why the partial graph takes too long, or None."""
        if self._model is None:
            return None
        match partial:
            case Matched(arena=arena) if self._sizes.keys() >= set(arena.dim_names):
                # one kernel of several reads and writes other tensors than the program
                elements = self._elements if arena.program is self._program else 0.0
                return self._judged(self._work(partial), elements, 1)
            case Bounded(work=work, moved=moved, launches=launches):
                return self._judged(work, self._elements + moved, launches)
            case _:
                return None

    def _judged(self, work: float, elements: float, launches: int) -> str | None:
        assert self._model is not None
        seconds = self._model.least(work, elements, launches)
        if seconds <= self._most:
            return None
        reason = (
            f"at least {seconds:.3g} s ({work:.3g} multiply-adds), more than {SAFETY:g} times "
            f"what the program itself takes by prediction, {self._most / SAFETY:.3g} s"
        )
        if self.nearest is None or seconds < self.nearest[0]:
            self.nearest = (seconds, reason)
        return reason

    def _work(self, matched: Matched) -> float:
        """Multiply-adds of an op DAG at least: every operator once, each element one."""
        arena = matched.arena
        out = 0.0
        for term in matched.wired.nodes:
            space = 0
            for operand in arena.terms[term].operands:
                space |= arena.terms[operand].dims
            out += self._extent(arena.dim_names[d] for d in dims_in(space))
        return out

    def _extent(self, dims: Iterable[DataDim]) -> float:
        return float(math.prod(self._sizes[d] for d in dims))


def _traffic(program: Program, sizes: Mapping[DataDim, int]) -> float:
    """Elements of all arguments read and of all outputs."""
    # one that is read under two names is one array
    read = {node.argument: node.dims for node in program.inputs}
    written = [tuple(d for d in o.axes if d is not None) for o in program.outputs]
    return float(sum(math.prod(sizes[d] for d in dims) for dims in (*read.values(), *written)))


def _program_work(program: Program, sizes: Mapping[DataDim, int]) -> float:
    """Multiply-adds of the program's own operators at most."""
    dims = program.tensor_dims()
    out = 0.0
    for i, node in enumerate(program.nodes):
        if isinstance(node, Apply):
            space = dims[i].union(*(dims[j] for j in node.operands))
            weight = SPECIAL_WORK if OPS[node.op].kind is OpKind.ELEMENTWISE else 1.0
            out += weight * math.prod(sizes[d] for d in space)
    return out


def _rows(program: Program, sizes: Mapping[DataDim, int]) -> int:
    """Blocks that a kernel of the program may have whatever its operators are.

    A dim that every output has and nothing reduces can always be divided among blocks.
    """
    reduced = {node.dim for node in program.nodes if isinstance(node, Apply)}
    outputs = [frozenset(d for d in o.axes if d is not None) for o in program.outputs]
    shared = frozenset.intersection(*outputs) - reduced
    return math.prod(sizes[d] for d in shared)
