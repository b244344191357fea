"""The parent's side of the workers: start, ask with a time limit, kill, start again.

Each worker is a fresh interpreter (`prism.child`). Every request has its own deadline, since
compiling and running have separate limits, and a compiled kernel stays in its process from one
request to the next.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Self

from prism.child import START_TIMEOUT_S, Child
from prism.errors import KernelError
from prism.ir import as_lines
from prism.tune.worker import Done, Failed, Reply, Request, Setup


class TimedOut:
    """The worker did not answer in time and was killed."""


class Died:
    """The worker's process ended; `last_words` is the end of what it printed."""

    def __init__(self, last_words: str) -> None:
        self.last_words = last_words


Answer = Reply | TimedOut | Died


class Worker:
    """One child process, from the first request on; a new one when it dies or is killed."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._deadline = 0.0
        self._ready = False
        self._started: Child | None = None

    def start(self) -> None:
        """Start the process, if it was not started yet; does not wait for it."""
        if self._started is None:
            self._started = self._start()

    @property
    def _child(self) -> Child:
        self.start()
        assert self._started is not None
        return self._started

    def _start(self) -> Child:
        child = Child("prism.tune.worker")
        with contextlib.suppress(OSError):
            child.connection.send(Setup(self._target, as_lines()))
        self._ready = False
        return child

    @property
    def connection(self) -> Connection:
        """What `wait` watches."""
        return self._child.connection

    @property
    def deadline(self) -> float:
        """When the request under way times out (monotonic clock)."""
        return self._deadline

    def send(self, request: Request, timeout_s: float) -> None:
        """Send a request; the clock starts when the worker is ready for it.

        Raises:
            KernelError: the worker cannot start at all.
        """
        self._await_ready()
        self._deadline = time.monotonic() + timeout_s
        # a worker that is gone shows as an answer, `Died`
        with contextlib.suppress(OSError):
            self.connection.send(request)

    def receive(self) -> Answer:
        """The answer to the request sent: blocks until it is there, or the deadline."""
        try:
            if not self.connection.poll(max(0.0, self._deadline - time.monotonic())):
                self._restart()
                return TimedOut()
            reply: Reply = self.connection.recv()
        except (EOFError, OSError):
            return Died(self._restart())
        return reply

    def _await_ready(self) -> None:
        if self._ready:
            return
        try:
            answered = self.connection.poll(START_TIMEOUT_S)
            reply = self.connection.recv() if answered else None
        except (EOFError, OSError):
            reply = None
        if not isinstance(reply, Done):
            words = self._child.stop() or f"no answer in {START_TIMEOUT_S:.0f} s"
            raise KernelError(f"a worker for target {self._target!r} cannot start: {words}")
        self._ready = True

    def _restart(self) -> str:
        words = self._child.stop()
        self._started = self._start()
        return words

    def close(self) -> None:
        """End the process, if there is one; again does nothing."""
        if self._started is not None:
            self._started.stop()


class Pool:
    """A few workers; use as a context manager, which ends them all."""

    def __init__(self, target: str, count: int) -> None:
        self._workers = [Worker(target) for _ in range(count)]

    def __enter__(self) -> Self:
        """The pool itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the workers, whatever happened."""
        for worker in self._workers:
            worker.close()

    def __len__(self) -> int:
        """The number of workers."""
        return len(self._workers)

    def start(self) -> None:
        """Start the workers, which otherwise start when they are first asked."""
        for worker in self._workers:
            worker.start()

    def ask(self, worker: int, request: Request, timeout_s: float) -> Answer:
        """One request to one worker, the others idle."""
        self._workers[worker].send(request, timeout_s)
        return self._workers[worker].receive()

    def ask_chains(
        self, chains: Sequence[Sequence[tuple[Request, float]]]
    ) -> tuple[tuple[Answer, ...], ...]:
        """Chain i of (request, time limit) to worker i, all workers at once.

        A chain ends early at its first answer that is not a success.
        """
        answers: list[list[Answer]] = [[] for _ in chains]
        busy: dict[int, Worker] = {}
        for index, (worker, chain) in enumerate(zip(self._workers, chains, strict=False)):
            if chain:
                worker.send(*chain[0])
                busy[index] = worker
        while busy:
            left = min(worker.deadline for worker in busy.values()) - time.monotonic()
            ready = wait([worker.connection for worker in busy.values()], max(0.0, left))
            for index, worker in list(busy.items()):
                if worker.connection not in ready and worker.deadline > time.monotonic():
                    continue
                answer = worker.receive()
                answers[index].append(answer)
                step = len(answers[index])
                if step == len(chains[index]) or isinstance(answer, Failed | TimedOut | Died):
                    del busy[index]
                else:
                    worker.send(*chains[index][step])
        return tuple(tuple(given) for given in answers)
