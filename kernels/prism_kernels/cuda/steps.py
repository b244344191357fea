"""Orders the work of a block in steps, places buffers in memory, and finds where barriers must be.

A *step* is work that all threads do without waiting for each other. Each knows which buffers it
reads and writes; a barrier stands before a step that touches what another thread may have touched
since the last barrier, one of them writing. In the loop the last steps of an iteration meet the
first of the next, so the body is walked until nothing changes.

Buffers share memory when they are never alive together. What shared memory cannot hold lies in a
global workspace, of which every block has its slice; barriers order that just as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from prism.ir import AccumulatorKind
from prism_kernels.cuda.places import Plan, reads
from prism_kernels.nests import Nest
from prism_kernels.tile import (
    Accumulate,
    Contract,
    Load,
    Map,
    Reduce,
    Running,
    Scalar,
    Stage,
    Store,
    ValueId,
)

ALIGN = 4
"""Buffers start at a multiple of 16 bytes."""


class Action(Enum):
    """What a step does with its node."""

    CLEAR = "clear the partial results of"
    FILL = "start"
    COPY = "copy"
    RESCALE = "rescale"
    RUN = "run"
    COMBINE = "combine the warps' parts of"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Step:
    """An action on a node: for RUN the first node of a nest."""

    action: Action
    node: ValueId


@dataclass(frozen=True, slots=True)
class Address:
    """Where a buffer starts, in float32 elements of shared memory or of the block's workspace."""

    offset: int
    is_shared: bool = True


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps by stage, those that a barrier comes before, and the memory of every buffer."""

    steps: Mapping[Stage, tuple[Step, ...]] = field(hash=False)
    barriers: frozenset[tuple[Stage, int]]
    """(stage, index of the step)."""
    addresses: Mapping[str, Address] = field(hash=False)
    shared_elements: int
    workspace_elements: int
    """Of one block."""


def schedule(plan: Plan, shared_limit: int) -> Schedule:
    """Order, place and synchronise; `shared_limit` is in bytes."""
    steps = {stage: tuple(_steps(plan, stage)) for stage in Stage}
    addresses, shared, workspace = _allocate(plan, steps, shared_limit)
    barriers = _Barriers(plan, steps, addresses).find()
    return Schedule(steps, barriers, addresses, shared, workspace)


# -- order


def _steps(plan: Plan, stage: Stage) -> Iterator[Step]:
    if stage is Stage.AFTER:
        for i in sorted(plan.partials):
            yield Step(Action.FINISH, i)
            yield from _combine(plan, i)
    for i in sorted(plan.staged):
        if plan.program.stages[i] is stage:
            yield Step(Action.COPY, i)
    for nest in plan.nests.of_stage(stage):
        yield from _run(plan, nest)
    if stage is Stage.BEFORE:
        yield from _starts(plan)


def _run(plan: Plan, nest: Nest) -> Iterator[Step]:
    for j in _accumulators(plan, nest.nodes):
        if _is_rescaled_in_memory(plan, j):
            yield Step(Action.RESCALE, j)
    yield Step(Action.RUN, nest.nodes[0])
    for i in nest.nodes:
        if i not in plan.partials:
            yield from _combine(plan, i)


def _combine(plan: Plan, i: ValueId) -> Iterator[Step]:
    if i in plan.scratch:
        yield Step(Action.COMBINE, i)


def _starts(plan: Plan) -> Iterator[Step]:
    """What the loop adds up starts from."""
    sinks = {j: i for i, j in plan.nests.sinks.items()}
    for i, node in enumerate(plan.program.nodes):
        match node:
            case Running():
                yield Step(Action.FILL, i)
            case Accumulate(kind=kind):
                if i in plan.nests.last_values or kind is AccumulatorKind.CONCAT:
                    continue
                if sinks.get(i) in plan.partials:
                    yield Step(Action.CLEAR, sinks[i])
                else:
                    yield Step(Action.FILL, i)
            case _:
                continue


def _accumulators(plan: Plan, nodes: Iterable[ValueId]) -> Iterator[ValueId]:
    """The accumulators that some nodes work on."""
    nests = plan.nests
    for i in nodes:
        j = nests.sinks.get(i, nests.slices.get(i, i))
        if isinstance(plan.program.nodes[j], Accumulate):
            yield j


def _is_rescaled_in_memory(plan: Plan, j: ValueId) -> bool:
    node = plan.program.nodes[j]
    assert isinstance(node, Accumulate)
    in_registers = any(k == j and i in plan.partials for i, k in plan.nests.sinks.items())
    return bool(node.scales) and not in_registers


# -- what a step touches


@dataclass(slots=True)
class Touched:
    """Buffers read and written."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)


def touched(plan: Plan, step: Step) -> Touched:
    """The buffers that a step reads and writes."""
    out, i = Touched(), step.node
    match step.action:
        case Action.CLEAR:
            pass
        case Action.FILL:
            _write(plan, out, i)
        case Action.COPY:
            out.writes.add(plan.staged[i].name)
        case Action.RESCALE:
            _read_drifts(plan, out, i)
            _read(plan, out, i)
            _write(plan, out, i)
        case Action.RUN:
            nest = next(n for n in plan.nests.nests if n.nodes[0] == i)
            for node in nest.nodes:
                _touch_node(plan, out, node, set(nest.nodes))
        case Action.COMBINE:
            out.reads.add(plan.scratch[i].name)
            _write_result(plan, out, i)
        case Action.FINISH:
            if i in plan.scratch:
                out.writes.add(plan.scratch[i].name)
            else:
                _write_result(plan, out, i)
        case _:
            assert_never(step.action)
    return out


def _touch_node(plan: Plan, out: Touched, i: ValueId, nest: set[ValueId]) -> None:
    node = plan.program.nodes[i]
    for v in reads(node):
        if not (v in nest and isinstance(plan.program.nodes[v], Map)):
            _read(plan, out, v)
    match node:
        case Map():
            if i in plan.places:
                _write(plan, out, i)
        case Reduce() | Contract():
            _touch_reduction(plan, out, i)
        case Running():
            _read(plan, out, i)
            _write(plan, out, i)
            out.writes.update(p.name for (m, _), p in plan.drifts.items() if m == i)
        case Accumulate():
            _read(plan, out, i)
            _write(plan, out, i)
        case Load() | Scalar() | Store():
            pass
        case _:
            assert_never(node)


def _touch_reduction(plan: Plan, out: Touched, i: ValueId) -> None:
    if i in plan.partials:
        _read_drifts(plan, out, plan.nests.sinks[i])
    elif i in plan.scratch:
        out.writes.add(plan.scratch[i].name)
    else:
        _write_result(plan, out, i)


def _write_result(plan: Plan, out: Touched, i: ValueId) -> None:
    """A reduction or contraction goes into its own place or its accumulator's."""
    target = plan.nests.sinks.get(i, i)
    if i in plan.nests.sinks and i not in plan.partials:
        _read(plan, out, target)
    _write(plan, out, target)


def _read(plan: Plan, out: Touched, v: ValueId) -> None:
    if v in plan.places and not plan.place(v).is_argument:
        out.reads.add(plan.place(v).name)


def _write(plan: Plan, out: Touched, v: ValueId) -> None:
    if not plan.places[v].is_argument:
        out.writes.add(plan.places[v].name)


def _read_drifts(plan: Plan, out: Touched, j: ValueId) -> None:
    node = plan.program.nodes[j]
    assert isinstance(node, Accumulate)
    out.reads.update(plan.drifts[key].name for key in node.scales)


# -- memory


def _allocate(
    plan: Plan, steps: Mapping[Stage, Sequence[Step]], limit: int
) -> tuple[dict[str, Address], int, int]:
    """First fit, largest buffers first; what does not fit goes to the workspace."""
    lives = _lives(plan, steps)
    addresses: dict[str, Address] = {}
    shared = workspace = 0
    for name in sorted(lives, key=lambda n: (-plan.buffers[n], n)):
        size = -(-plan.buffers[name] // ALIGN) * ALIGN
        taken = sorted(
            (addresses[n].offset, addresses[n].offset + plan.buffers[n])
            for n in addresses
            if addresses[n].is_shared and _meet(lives[n], lives[name])
        )
        offset = 0
        for start, end in taken:
            if start - offset >= size:
                break
            offset = max(offset, -(-end // ALIGN) * ALIGN)
        if 4 * (offset + size) <= limit:
            addresses[name] = Address(offset)
            shared = max(shared, offset + size)
        else:
            addresses[name] = Address(workspace, is_shared=False)
            workspace += size
    return addresses, shared, workspace


def _lives(plan: Plan, steps: Mapping[Stage, Sequence[Step]]) -> dict[str, tuple[int, int]]:
    """Buffer -> first and last step that touches it; through the whole loop if it enters it."""
    out: dict[str, tuple[int, int]] = {}
    flat = [step for stage in Stage for step in steps[stage]]
    for k, step in enumerate(flat):
        found = touched(plan, step)
        for name in found.reads | found.writes:
            out[name] = (out.get(name, (k, k))[0], k)
    body = len(steps[Stage.BEFORE]), len(steps[Stage.BEFORE]) + len(steps[Stage.BODY]) - 1
    if body[0] > body[1]:
        return out
    return {
        name: (min(life[0], body[0]), max(life[1], body[1]))
        if _meet(life, body) and not (body[0] <= life[0] and life[1] <= body[1])
        else life
        for name, life in out.items()
    }


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


# -- barriers


class _Barriers:
    def __init__(
        self,
        plan: Plan,
        steps: Mapping[Stage, Sequence[Step]],
        addresses: Mapping[str, Address],
    ) -> None:
        self.plan = plan
        self.steps = steps
        self.addresses = addresses
        self.found: set[tuple[Stage, int]] = set()
        self.since = Touched()
        """What was touched since the last barrier."""

    def find(self) -> frozenset[tuple[Stage, int]]:
        """The steps that a barrier comes before."""
        self._walk(Stage.BEFORE)
        known = -1
        while len(self.found) > known:  # the body follows itself
            known = len(self.found)
            self._walk(Stage.BODY)
        self._walk(Stage.AFTER)
        return frozenset(self.found)

    def _walk(self, stage: Stage) -> None:
        for k, step in enumerate(self.steps[stage]):
            now = touched(self.plan, step)
            if (stage, k) in self.found or self._clashes(now):
                self.found.add((stage, k))
                self.since = Touched()
            self.since.reads |= now.reads
            self.since.writes |= now.writes

    def _clashes(self, now: Touched) -> bool:
        return any(
            self._overlap(a, b)
            for ours, theirs in (
                (now.writes, self.since.writes | self.since.reads),
                (now.reads, self.since.writes),
            )
            for a in ours
            for b in theirs
        )

    def _overlap(self, a: str, b: str) -> bool:
        one, other = self.addresses[a], self.addresses[b]
        if one.is_shared != other.is_shared:
            return False
        sizes = self.plan.buffers[a], self.plan.buffers[b]
        return one.offset < other.offset + sizes[1] and other.offset < one.offset + sizes[0]
