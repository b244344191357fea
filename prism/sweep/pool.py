"""Cells on this machine: so many at once, and those that time kernels alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Protocol

from prism.sweep.cell import Cell
from prism.sweep.job import Job, Processes, run_job


class Pool(Protocol):
    """Where cells run."""

    @property
    def width(self) -> int:
        """About how many run at once, to guess the remaining time."""
        ...

    def run(self, jobs: Sequence[Job]) -> Iterator[Cell]:
        """Run all; each cell as it ends. When the iterator is closed, all that runs is ended."""
        ...


class LocalPool:
    """Processes on this machine, `width` at once."""

    def __init__(self, width: int = 1) -> None:
        self._width = width

    @property
    def width(self) -> int:
        """How many cells run at once."""
        return self._width

    def run(self, jobs: Sequence[Job]) -> Iterator[Cell]:
        """See `Pool`: first what may run side by side, then, one by one, what times kernels."""
        together = [job for job in jobs if not job.is_timed]
        alone = [job for job in jobs if job.is_timed]
        yield from _run(together, self._width)
        yield from _run(alone, 1)


def _run(jobs: Sequence[Job], width: int) -> Iterator[Cell]:
    if not jobs:
        return
    processes = Processes()
    # a thread only waits for its process
    executor = ThreadPoolExecutor(width, thread_name_prefix="prism-sweep")
    try:
        futures: list[Future[Cell]] = [executor.submit(run_job, job, processes) for job in jobs]
        for future in as_completed(futures):
            yield future.result()
    finally:
        processes.stop()
        executor.shutdown(cancel_futures=True)
