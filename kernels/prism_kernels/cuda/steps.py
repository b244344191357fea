"""Orders the work of a block in steps.

A *step* is work that all threads do without waiting for each other. `accesses` says what each
touches, `memory` where the barriers between them stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from prism.ir import AccumulatorKind
from prism_kernels.cuda.plan import Plan
from prism_kernels.nests import Nest
from prism_kernels.tile import Accumulate, Running, Stage, ValueId


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


def steps_of(plan: Plan, stage: Stage) -> Iterator[Step]:
    """The steps of a stage, in order."""
    for i in sorted(plan.partials):
        if plan.program.stages[plan.nests.sinks[i]] is stage:
            yield Step(Action.FINISH, i)
            yield from _combine(plan, i)
    for i in sorted(plan.staged):
        if plan.program.stages[i] is stage:
            yield Step(Action.COPY, i)
    for nest in plan.nests.of_stage(stage):
        yield from _run(plan, nest)
    if stage in {Stage.BEFORE, Stage.OUTER}:
        yield from _starts(plan, 0 if stage is Stage.BEFORE else 1)


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


def _starts(plan: Plan, loop: int) -> Iterator[Step]:
    """What a loop adds up starts from."""
    sinks = {j: i for i, j in plan.nests.sinks.items()}
    for i, node in enumerate(plan.program.nodes):
        if isinstance(node, Running | Accumulate) and plan.program.ended(i) != loop:
            continue
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
