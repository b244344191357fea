"""One launch: blocks run one after the other in a random order, their threads in lockstep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from prism_kernels.lockstep.code import Action
from prism_kernels.lockstep.faults import Fault, FaultKind, LockstepFault
from prism_kernels.lockstep.memory import Log, Memory, Values
from prism_kernels.lockstep.metadata import LaunchShape
from prism_kernels.lockstep.races import Access, Race, accesses_to, find_race
from prism_kernels.lockstep.report import Reporter
from prism_kernels.lockstep.schedule import BlockRun
from prism_kernels.lockstep.translate import Translated


@dataclass(frozen=True, slots=True)
class Statistics:
    """What launches did, all blocks and threads together."""

    barriers: int
    """How often a block passed one."""
    collectives: int
    """How often a warp carried one out."""
    steps: int
    """Iterations of loops."""
    shared_loads: int
    shared_stores: int
    global_loads: Mapping[str, int] = field(hash=False)
    """By parameter."""
    global_stores: Mapping[str, int] = field(hash=False)
    """By parameter; atomic additions are stores."""

    def __add__(self, other: Statistics) -> Statistics:
        """Both together."""
        return Statistics(
            self.barriers + other.barriers,
            self.collectives + other.collectives,
            self.steps + other.steps,
            self.shared_loads + other.shared_loads,
            self.shared_stores + other.shared_stores,
            Counter(self.global_loads) + Counter(other.global_loads),
            Counter(self.global_stores) + Counter(other.global_stores),
        )


class Launch:
    """One launch: the memory of all blocks, and what was counted.

    `arrays` are those that the kernel takes, each with its size; what it writes stays in them.
    """

    def __init__(
        self,
        kernel: Translated,
        shape: LaunchShape,
        arrays: Sequence[tuple[Values, int]],
        order: np.random.Generator,
        step_limit: int,
    ) -> None:
        self.kernel = kernel
        self.shape = shape
        self.order = order
        self.step_limit = step_limit
        self.inputs: dict[str, Values] = {}
        self.globals: list[Memory] = []
        """What outlives a block and may be written."""
        for parameter, (values, size) in zip(kernel.parameters, arrays, strict=True):
            if parameter.is_input:
                self.inputs[parameter.name] = values
            else:
                self.globals.append(self._memory(parameter.name, size, values))
        self.shared: list[Memory] = []
        if kernel.shared is not None:
            self.shared.append(self._memory(kernel.shared, shape.shared_elements, {}))
        self.blocks_run: list[int] = []
        self.barriers = self.collectives = 0
        self.counters = [0] * len(kernel.pieces)

    def _memory(self, name: str, size: int, values: Values) -> Memory:
        return Memory(name, size, values, [Log(t) for t in range(self.shape.threads)])

    def run(self) -> None:
        """Run all blocks, in a random order."""
        order = self.order.permutation(self.shape.blocks).tolist()
        for k, block in enumerate(order):
            try:
                self._run_block(block)
            except LockstepFault as error:
                raise LockstepFault(self._explained(error.fault, order[k + 1 :])) from None
        for memory in self.globals:
            race = find_race(memory.history)
            if race is not None:
                raise LockstepFault(self._block_race(memory, race))

    def _run_block(self, block: int) -> None:
        memories = [*self.globals, *self.shared]
        for memory in memories:
            for log in memory.logs:
                log.clear()
        for memory in self.globals:
            memory.history.append([])
        for memory in self.shared:
            memory.values.clear()
        self.blocks_run.append(block)
        threads = [
            self.kernel.function(t, block, self.step_limit, *self._arguments(t)).send
            for t in range(self.shape.threads)
        ]
        run = BlockRun(self.kernel, memories, self._reporter(block), self.order, threads)
        run.run()
        self.barriers += run.barriers
        self.collectives += run.collectives
        for counters in run.counters:
            self.counters = [total + n for total, n in zip(self.counters, counters, strict=True)]

    def _arguments(self, thread: int) -> list[Any]:
        """What the rewritten kernel takes after the thread, the block and the limit."""
        arguments: list[Any] = list(self.inputs.values())
        for memory in (*self.globals, *self.shared):
            log = memory.logs[thread]
            arguments += (memory.values, memory.size, log.reads, log.writes, log.adds)
        return arguments

    def _reporter(self, block: int) -> Reporter:
        sizes = {name: len(values) for name, values in self.inputs.items()}
        sizes |= {m.name: m.size for m in (*self.globals, *self.shared)}
        return Reporter(self.kernel, sizes, self.step_limit, block)

    # -- races between blocks

    def _explained(self, fault: Fault, rest: Sequence[int]) -> Fault:
        """A read of what nobody wrote: a race, if a block that comes later writes it."""
        memory = next((m for m in self.globals if m.name == fault.memory), None)
        if fault.kind is not FaultKind.UNWRITTEN_READ or memory is None or fault.element is None:
            return fault
        me = len(self.blocks_run) - 1
        mine = next(accesses_to([memory.logs[fault.threads[0]]], fault.element, me), None)
        for block in rest:
            with suppress(LockstepFault):
                self._run_block(block)
        writes = (
            access
            for g, group in enumerate(memory.history)
            for access in accesses_to(group, fault.element, g)
            if g != me and access.action == "writes"
        )
        write = next(writes, None)
        if mine is None or write is None:
            return fault
        return self._block_race(memory, Race(fault.element, write, mine))

    def _block_race(self, memory: Memory, race: Race) -> Fault:
        def named(access: Access) -> Access:
            return replace(access, group=self.blocks_run[access.group])

        race = Race(race.element, named(race.first), named(race.second))
        return self._reporter(race.first.group).block_race(memory.name, race)

    # -- what was counted

    def statistics(self) -> Statistics:
        """What was counted."""
        total: Counter[tuple[Action, str]] = Counter()
        runs = [*zip(self.kernel.pieces, self.counters, strict=True)]
        for piece, times in [(self.kernel.top, self.shape.blocks * self.shape.threads), *runs]:
            for access, count in piece.accesses.items():
                total[access] += count * times
        steps = sum(times for piece, times in runs if piece.is_loop)
        stores = partial(_stores, total)
        shared = self.kernel.shared or ""
        parameters = [p.name for p in self.kernel.parameters]
        return Statistics(
            self.barriers,
            self.collectives,
            steps,
            total[Action.READ, shared],
            stores(shared),
            {name: total[Action.READ, name] for name in parameters},
            {name: stores(name) for name in parameters},
        )


def _stores(total: Counter[tuple[Action, str]], name: str) -> int:
    return total[Action.WRITE, name] + total[Action.ADD, name]
