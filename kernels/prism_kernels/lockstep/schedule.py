"""Runs the threads of one block in lockstep.

Between two barriers threads run one after the other, in a random order, each as far as it gets.
When the lanes of a warp wait at a collective, it is carried out and they go on; when all threads
wait at the barrier, what they did to memory since the last one is compared, and the next phase
begins. Whoever does not come is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from prism_kernels.cuda.dialect import WARP
from prism_kernels.lockstep.faults import Fault, FaultKind, LockstepFault
from prism_kernels.lockstep.matrices import WARP_STATEMENTS
from prism_kernels.lockstep.memory import Log, Memory
from prism_kernels.lockstep.races import Race, accesses_to, find_race
from prism_kernels.lockstep.report import Reporter
from prism_kernels.lockstep.translate import Translated
from prism_kernels.lockstep.warp import COLLECTIVES

DONE = -1
"""Where a thread is that has returned. Any other number is the site of a barrier; a tuple starts
with the site of a collective, the lane's operands follow."""

Position = Any
Thread = Callable[[Any], Position]
"""Sends a thread on, with the result of its collective; where it is next."""


@dataclass(slots=True)
class BlockRun:
    """One block as it runs."""

    kernel: Translated
    memories: Sequence[Memory]
    """Those that are written: outputs, workspace, shared memory."""
    report: Reporter
    order: np.random.Generator
    threads: Sequence[Thread]
    barriers: int = 0
    collectives: int = 0
    counters: list[tuple[int, ...]] = field(default_factory=list)
    """What each thread returned."""
    at: list[Position] = field(init=False)
    inbox: list[Any] = field(init=False)
    epochs: list[list[list[Log]]] = field(init=False)
    """Memory -> warp -> what it did in this phase before its last `syncwarp`."""

    def __post_init__(self) -> None:
        self.at = [DONE] * len(self.threads)
        self.inbox = [None] * len(self.threads)
        self.epochs = [[[] for _ in self._warps()] for _ in self.memories]

    def run(self) -> None:
        """Run the block to its end.

        Raises:
            LockstepFault: something is wrong with the kernel.
        """
        everyone = range(len(self.threads))
        ready: Sequence[int] = everyone
        while True:
            self._advance(ready)
            ready = self._run_collectives()
            if ready:
                continue
            for memory, epochs in zip(self.memories, self.epochs, strict=True):
                self._compare(memory, epochs)
            where = set(self.at)
            if where == {DONE}:
                return
            if len(where) > 1:
                raise LockstepFault(self.report.divergent_barrier(self.at))
            self.barriers += 1
            ready = everyone

    def _warps(self) -> range:
        return range(-(-len(self.threads) // WARP))

    def _advance(self, ready: Sequence[int]) -> None:
        """Let threads run, in a random order, until each waits or returns."""
        threads, at, inbox = self.threads, self.at, self.inbox
        shuffled = self.order.permutation(len(ready)).tolist()
        for k, i in enumerate(shuffled):
            t = ready[i]
            try:
                at[t] = threads[t](inbox[t])
            except StopIteration as end:
                at[t] = DONE
                self.counters.append(end.value)
            except Exception as error:
                fault = self.report.of_exception(error, t)
                if fault is None:
                    raise
                if fault.kind is FaultKind.UNWRITTEN_READ:
                    fault = self._explained(fault, t, [ready[j] for j in shuffled[k + 1 :]])
                raise LockstepFault(fault) from None

    # -- collectives

    def _run_collectives(self) -> list[int]:
        """Carry out what whole warps wait for; the threads that can go on."""
        ready: list[int] = []
        for w in self._warps():
            first = w * WARP
            at = self.at[first : first + WARP]
            if all(type(p) is int for p in at):
                continue
            if any(type(p) is int or p[0] != at[0][0] for p in at):
                raise LockstepFault(self.report.divergent_collective(w, at))
            self._run_collective(w, at)
            ready += range(first, first + len(at))
        return ready

    def _run_collective(self, warp: int, at: Sequence[tuple[Any, ...]]) -> None:
        name = self.kernel.places[at[0][0]].subject
        first = warp * WARP
        self.collectives += 1
        if name == "syncwarp":
            for memory, epochs in zip(self.memories, self.epochs, strict=True):
                lanes = memory.logs[first : first + WARP]
                self._require_order(memory, [[log] for log in lanes])
                epochs[warp] += [log.take() for log in lanes if not log.is_empty()]
            self.inbox[first : first + len(at)] = [None] * len(at)
            return
        if len(at) != WARP:
            raise LockstepFault(self.report.divergent_collective(warp, at))
        operands = [p[1:] for p in at]
        run = WARP_STATEMENTS[name] if name in WARP_STATEMENTS else COLLECTIVES[name].run
        self.inbox[first : first + WARP] = run(operands)

    # -- memory

    def _compare(self, memory: Memory, epochs: list[list[Log]]) -> None:
        """Find races of the phase that ends, then forget it."""
        groups: Sequence[Sequence[Log]] = [[log] for log in memory.logs if not log.is_empty()]
        if any(epochs):  # the threads of a warp were compared when `syncwarp` put them in order
            warps = [memory.logs[w * WARP : (w + 1) * WARP] for w in self._warps()]
            for lanes in warps:
                self._require_order(memory, [[log] for log in lanes])
            groups = [[*epochs[w], *lanes] for w, lanes in enumerate(warps)]
        self._require_order(memory, groups)
        for log in chain(*groups):
            if memory.history and not log.is_empty():
                memory.history[-1].append(log.copy())
            log.clear()
        for epoch in epochs:
            epoch.clear()

    def _require_order(self, memory: Memory, groups: Sequence[Sequence[Log]]) -> None:
        race = find_race(groups)
        if race is not None:
            raise LockstepFault(self.report.race(memory.name, race))

    def _explained(self, fault: Fault, thread: int, rest: Sequence[int]) -> Fault:
        """A read of what nobody wrote: a race, if another thread is about to write it."""
        at = next((i for i, m in enumerate(self.memories) if m.name == fault.memory), None)
        if at is None or fault.element is None:
            return fault
        for t in rest:
            with suppress(Exception):  # StopIteration among them
                self.threads[t](self.inbox[t])
        memory = self.memories[at]
        logs = [log for log in chain(memory.logs, *self.epochs[at]) if log.thread != thread]
        writes = (a for a in accesses_to(logs, fault.element) if a.action == "writes")
        mine = next(accesses_to([memory.logs[thread]], fault.element), None)
        write = next(writes, None)
        if write is None or mine is None:
            return fault
        return self.report.race(memory.name, Race(fault.element, write, mine))
