"""Compiles many kernels at once, in a few warm processes; one that hangs or dies costs its job.

Each worker is a fresh interpreter (`prism.child`). Use the pool as a context manager to keep its
workers warm from batch to batch:

    with CompilePool() as pool:
        first = pool.compile_all(jobs)
        second = pool.compile_all(more_jobs)
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import Self

from prism.child import START_TIMEOUT_S, Child
from prism.errors import KernelError
from prism_kernels.cuda import compile_cache
from prism_kernels.cuda.compile import Compiled
from prism_kernels.cuda.compile_worker import Failure, Job
from prism_kernels.cuda.toolchain import require_cuda

__all__ = ["CompilePool", "Failure", "Job", "compile_all"]

TIMEOUT_S = 60.0
"""A kernel compiles in well under a second; one that takes this long is broken."""
Result = Compiled | Failure


class _Worker:
    """One process, and the job it is busy with."""

    def __init__(self) -> None:
        self.child = Child("prism_kernels.cuda.compile_worker")
        self.job: int | None = None
        self.deadline = time.monotonic() + START_TIMEOUT_S
        self.is_ready = False

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a job."""
        return self.is_ready and self.job is None

    def is_alive(self) -> bool:
        """Whether its process runs; one that does not is tidied up."""
        if self.child.is_running:
            return True
        if self.is_ready:  # one that is not says why when it is asked
            self.child.stop()
            return False
        return True

    def start(self, index: int, job: Job, timeout_s: float) -> None:
        """Give it a job; if the process is gone, receiving the answer tells."""
        self.job, self.deadline = index, time.monotonic() + timeout_s
        with contextlib.suppress(OSError):
            self.child.connection.send(job)


class CompilePool:
    """A few processes that compile; they start when there is something to do."""

    def __init__(
        self, workers: int | None = None, *, timeout_s: float = TIMEOUT_S, cache: bool = True
    ) -> None:
        """`workers` is by default the number of cores, `timeout_s` the limit of one job."""
        self._count = workers or len(os.sched_getaffinity(0))
        self._timeout_s = timeout_s
        self._cache = cache
        self._workers: list[_Worker] = []

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
        self.close()

    def close(self) -> None:
        """End the workers; the pool may still be used, and starts new ones."""
        while self._workers:
            self._workers.pop().child.stop()

    def compile_all(self, jobs: Sequence[Job]) -> list[Result]:
        """The machine code of each job, in their order, or why there is none.

        Raises:
            KernelError: the `cuda` extra is missing, or no worker can be started.
        """
        require_cuda()
        results: dict[int, Result] = {}
        paths: list[Path] = []
        if self._cache:
            paths = [compile_cache.cache_path(job.text, job.launch, job.arch) for job in jobs]
            hits = {index: compile_cache.read(path) for index, path in enumerate(paths)}
            results = {index: hit for index, hit in hits.items() if hit is not None}
        try:
            for index, result in self._run(jobs, [i for i in range(len(jobs)) if i not in results]):
                results[index] = result
                if self._cache and isinstance(result, Compiled):
                    compile_cache.write(paths[index], result)
        except BaseException:
            self.close()  # the workers are busy with jobs that nobody waits for
            raise
        return [results[index] for index in range(len(jobs))]

    def _run(self, jobs: Sequence[Job], todo: Sequence[int]) -> Iterator[tuple[int, Result]]:
        """The jobs `todo` with their results, as they come."""
        queue = list(reversed(todo))
        left = len(queue)
        while left:
            self._hand_out(jobs, queue)
            for ended in self._wait():
                left -= 1
                yield ended

    def _hand_out(self, jobs: Sequence[Job], queue: list[int]) -> None:
        """Give idle workers a job each, and start the workers that are needed and missing."""
        self._workers = [w for w in self._workers if w.job is not None or w.is_alive()]
        for worker in self._workers:
            if queue and worker.is_idle:
                index = queue.pop()
                worker.start(index, jobs[index], self._timeout_s)
        starting = sum(not worker.is_ready for worker in self._workers)
        missing = min(len(queue) - starting, self._count - len(self._workers))
        self._workers += [_Worker() for _ in range(missing)]

    def _wait(self) -> list[tuple[int, Result]]:
        """Wait until a worker is ready, done, dead or out of time; the jobs that have ended."""
        active = [worker for worker in self._workers if not worker.is_idle]
        left = min(worker.deadline for worker in active) - time.monotonic()
        ready = wait([worker.child.connection for worker in active], max(0.0, left))
        ended = []
        for worker in active:
            if worker.child.connection in ready:
                answer: Result | None = self._receive(worker)
            elif worker.deadline <= time.monotonic():
                answer = Failure("timeout", f"not done within {self._timeout_s:g} s")
                self._end(worker)
            else:
                continue
            if worker.job is not None and answer is not None:
                ended.append((worker.job, answer))
                worker.job = None
            elif isinstance(answer, Failure):
                raise KernelError(f"a worker that compiles cannot start: {answer.message}")
        return ended

    def _receive(self, worker: _Worker) -> Result | None:
        """What a worker sent, None for `ready`; or the failure of its job, if it died."""
        try:
            answer: Result | None = worker.child.connection.recv()
        except (EOFError, OSError):
            return Failure("crash", self._end(worker))
        worker.is_ready = True
        return answer

    def _end(self, worker: _Worker) -> str:
        self._workers.remove(worker)
        return worker.child.stop()


def compile_all(
    jobs: Sequence[Job],
    workers: int | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    cache: bool = True,
) -> list[Result]:
    """One batch in a pool of its own; see `CompilePool`."""
    with CompilePool(workers, timeout_s=timeout_s, cache=cache) as pool:
        return pool.compile_all(jobs)
