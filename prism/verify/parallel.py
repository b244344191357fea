"""Verifies blocks of graphs in several processes, with the verdicts that one process gives.

A block's verdicts depend on nothing but its graphs (`equivalence`), so it does not matter where it
is judged; they are handed back in the order of the graphs. Workers are fresh interpreters that
never import the user's `__main__` (`prism.child`): a script needs no guard. They ignore interrupts,
end when this process does, and are killed by `close`, whatever they are doing.

They start when they pay: the first block is judged here, and shows how long the rest would take.
A worker that dies costs the piece it was at one more try, graph by graph; the graph that kills a
second worker gave up. So does one at which a worker is silent for too long: an iteration of the
e-graph cannot be interrupted, so the process is killed (`hard_stops` counts these apart). Where no
worker can be started, all is judged here.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait

from prism.child import START_TIMEOUT_S, Child
from prism.egraph.session import OutOfTimeError, seconds_left
from prism.errors import PrismError
from prism.ir import SGraph, as_lines
from prism.verdict import Verdict
from prism.verify.equivalence import Block, Verifier, in_blocks
from prism.verify.worker import Judged, Request, Setup

WORKER = "prism.verify.worker"

WORTH_S = 4.0
"""Workers start when what is to come would take longer here: each needs half a second of a core to
start, and its own tables, and graphs have to be sent. Measured on two busy cores: 2 s of proofs
took 3 s with two workers, 18 s took 14 to 17."""

AHEAD = 2
"""Blocks built before a worker asks for them."""

MAX_DEATHS = 20
"""So many workers are replaced; then what is left is judged by those that live, or here."""

PATIENCE = 2.0
"""A worker that says nothing for so many times the seconds that one candidate may take is killed.
Between iterations a candidate stops by itself; this is for an iteration that does not end."""

SLICE_S = 0.05
"""How long to wait before looking at the deadline again: an interrupt moves it."""


@dataclass(slots=True, eq=False)
class _Job:
    """A block under way: the verdicts so far, in order.

    Before graph `alone_to` each graph is judged alone, because a worker died at one of them.
    """

    graphs: Sequence[SGraph]
    verdicts: list[Verdict] = field(default_factory=list)
    alone_to: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether the next graphs are judged one by one."""
        return len(self.verdicts) < self.alone_to

    @property
    def is_done(self) -> bool:
        """Whether every graph has its verdict."""
        return len(self.verdicts) == len(self.graphs)

    def request(self) -> Request:
        """What a worker is asked next."""
        end = self.alone_to if self.is_alone else len(self.graphs)
        graphs = self.graphs[len(self.verdicts) : end]
        return Request(tuple(graph.kernels for graph in graphs), self.is_alone)

    def end(self) -> int:
        """How many verdicts there are when the request is answered."""
        return self.alone_to if self.is_alone else len(self.graphs)

    def lose(self, batch: int) -> None:
        """A worker died at the next graph or, where they are not alone, the next few."""
        if self.is_alone:
            self.verdicts.append(Verdict.GAVE_UP)
        else:
            self.alone_to = min(len(self.verdicts) + batch, len(self.graphs))


class _Worker:
    """One process, the job it is busy with, and how many verdicts this has when it is not."""

    def __init__(self, setup: Setup) -> None:
        self.child = Child(WORKER)
        self._setup = setup
        self.job: _Job | None = None
        self.end = 0
        self.is_ready = False
        self.give_up_at = time.monotonic() + START_TIMEOUT_S

    def set_up(self) -> None:
        """Now that it listens, so that sending waits for nothing, say what its work is about."""
        self.is_ready = True
        self._send(self._setup)

    def start(self, job: _Job) -> None:
        """Give it a job."""
        self.job, self.end = job, job.end()
        self.heard()
        self._send(job.request())

    def heard(self) -> None:
        """It has just got work or sent something: how long it may be silent from now."""
        self.give_up_at = time.monotonic() + PATIENCE * self._setup.limits.seconds

    def _send(self, message: Setup | Request) -> None:
        with contextlib.suppress(OSError):  # if it is gone, receiving tells
            self.child.connection.send(message)


class ParallelVerifier:
    """Judges blocks in up to `count` processes. Use `close`, whatever happened."""

    def __init__(self, verifier: Verifier, count: int) -> None:
        self._verifier = verifier
        self._count = count
        self._workers: list[_Worker] = []
        self._jobs: deque[_Job] = deque()
        """Those that wait for a worker."""
        self._can_start = True
        self._error: PrismError | None = None
        self._seconds = 0.0
        self._judged = 0
        self.deaths = 0
        self.hard_stops = 0
        """Workers killed because they were silent for too long, `deaths` all the same."""
        self._late = 0

    @property
    def late(self) -> int:
        """How many gave up because of the clock, here and in workers."""
        return self._verifier.late + self._late

    def verify(self, graphs: Sequence[SGraph]) -> tuple[Verdict, ...]:
        """The verdict on each graph; many are judged in blocks."""
        size = self._verifier.limits.renew
        if len(graphs) <= size:
            return self._verifier.verify(graphs)
        out: list[Verdict] = []
        waiting = deque(in_blocks(graphs, size))
        under_way: deque[tuple[int, Block]] = deque()
        coming = len(graphs)
        try:
            while waiting or under_way:
                while waiting and len(under_way) < self.room(coming):
                    block = waiting.popleft()
                    coming -= len(block)
                    under_way.append((len(block), self.begin(block)))
                left, first = under_way.popleft()
                verdicts = first.next(min(left, self._verifier.limits.batch))
                out += verdicts
                if left > len(verdicts):
                    under_way.appendleft((left - len(verdicts), first))
        except BaseException:
            self.close()  # the workers are busy with what nobody waits for
            raise
        return tuple(out)

    def expect(self, graphs: Sequence[SGraph]) -> None:
        """Say what is to come."""
        self._verifier.expect(graphs)

    def thread_fault(self, graph: SGraph) -> str | None:
        """Why a graph's thread graphs are not proved."""
        return self._verifier.thread_fault(graph)

    def begin(self, graphs: Sequence[SGraph]) -> Block:
        """Begin to judge a block, in a worker where there are any."""
        if not self._workers:
            return _TimedBlock(self, self._verifier.begin(graphs))
        job = _Job(graphs)
        self._jobs.append(job)
        self._pump(0.0)
        return _SentBlock(self, job)

    def room(self, coming: int) -> int:
        """Blocks that should be under way when `coming` graphs have not begun.

        Workers start here, once there is enough to do for them, and get what they wait for.
        """
        if not self._workers and self._can_start and self._judged:
            expected_s = coming * self._seconds / self._judged
            blocks = math.ceil(coming / self._verifier.limits.renew)
            if expected_s > WORTH_S and blocks > 1:
                self._start(min(self._count, blocks))
        if self._workers:
            self._pump(0.0)
        return len(self._workers) + AHEAD if self._workers else 1

    def close(self) -> None:
        """Kill the workers."""
        self._jobs.clear()
        while self._workers:
            self._workers.pop().child.stop()

    def took(self, seconds: float, count: int) -> None:
        """Note how long it took to judge some graphs here."""
        self._seconds += seconds
        self._judged += count

    def await_one(self, job: _Job, taken: int) -> None:
        """Wait until a job has more verdicts than were taken.

        Raises:
            OutOfTimeError: it has none before the deadline.
            PrismError: the e-graph failed in a worker as it would have done here.
        """
        while len(job.verdicts) <= taken:
            if self._error is not None:
                raise self._error
            left = seconds_left()
            if left <= 0:
                raise OutOfTimeError("no worker was done in time")
            if not self._workers:
                self._judge_here(job)
            else:
                self._pump(min(left, SLICE_S))

    def _start(self, count: int) -> None:
        verifier = self._verifier
        setup = Setup(verifier.program, verifier.axioms.files, verifier.limits, as_lines())
        try:
            while len(self._workers) < count:
                self._workers.append(_Worker(setup))
        except OSError:  # too many processes, or too little memory
            self._can_start = False

    def _pump(self, timeout: float) -> None:
        """Receive what workers have sent, waiting for it if need be, and hand out jobs."""
        self._hand_out()
        busy = [w for w in self._workers if w.job is not None or not w.is_ready]
        ready = wait([w.child.connection for w in busy], timeout)
        for worker in busy:
            if worker.child.connection in ready:
                self._receive(worker)
            elif time.monotonic() > worker.give_up_at:
                self.hard_stops += worker.is_ready
                self._lose(worker)
        self._hand_out()

    def _hand_out(self) -> None:
        for worker in self._workers:
            if self._jobs and worker.is_ready and worker.job is None:
                worker.start(self._jobs.popleft())

    def _receive(self, worker: _Worker) -> None:
        """Take one answer: ready, some verdicts, an error; or its end."""
        try:
            answer: Judged | PrismError | None = worker.child.connection.recv()
        except (EOFError, OSError):
            self._lose(worker)
            return
        if answer is None:
            worker.set_up()
            return
        assert worker.job is not None
        if isinstance(answer, PrismError):
            self._error = answer
            return
        worker.heard()
        worker.job.verdicts += answer.verdicts
        self._late += answer.late
        if len(worker.job.verdicts) == worker.end:
            self._put_back(worker)

    def _put_back(self, worker: _Worker) -> None:
        """Take the job from a worker; what is left of it comes first, others may wait for it."""
        job, worker.job = worker.job, None
        if job is not None and not job.is_done:
            self._jobs.appendleft(job)

    def _lose(self, worker: _Worker) -> None:
        """A worker died: another takes its place, unless starting one seems of no use."""
        self._workers.remove(worker)
        worker.child.stop()
        self.deaths += 1
        if worker.job is not None:
            worker.job.lose(self._verifier.limits.batch)
        self._put_back(worker)
        if worker.is_ready and self.deaths <= MAX_DEATHS:
            self._start(len(self._workers) + 1)
        else:
            self._can_start = False

    def _judge_here(self, job: _Job) -> None:
        """The rest of a job, when there are no workers left."""
        rest = job.graphs[len(job.verdicts) :]
        if job in self._jobs:
            self._jobs.remove(job)
        begun = self._verifier.begin(rest)
        job.verdicts += begun.next(len(rest))


class _TimedBlock:
    """A block that is judged here, so that it is known how long that takes."""

    def __init__(self, pool: ParallelVerifier, inner: Block) -> None:
        self._pool = pool
        self._inner = inner

    def next(self, most: int) -> tuple[Verdict, ...]:
        """Judge the next graphs."""
        begin = time.perf_counter()
        verdicts = self._inner.next(most)
        self._pool.took(time.perf_counter() - begin, len(verdicts))
        return verdicts

    def ready(self) -> tuple[Verdict, ...]:
        """None."""
        return ()


class _SentBlock:
    """A block that workers judge."""

    def __init__(self, pool: ParallelVerifier, job: _Job) -> None:
        self._pool = pool
        self._job = job
        self._taken = 0

    def next(self, most: int) -> tuple[Verdict, ...]:  # noqa: ARG002 - they come as they come
        """The next verdicts, all that have come."""
        self._pool.await_one(self._job, self._taken)
        return self.ready()

    def ready(self) -> tuple[Verdict, ...]:
        """Those that have come."""
        verdicts = tuple(self._job.verdicts[self._taken :])
        self._taken += len(verdicts)
        return verdicts


def core_count() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
