"""A sweep: the cells of a grid that have no line yet, run, each appended as it ends.

The run file is all there is to resume from. A cell whose line is there is not run again; one that
was cut off has none, and is. One sweep at a time writes a file (a lock says so), hence a last line
without its end can only be what a kill left, and is taken away.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prism.errors import ClusterLostError, UsageError
from prism.files import check_writable
from prism.record import append_line
from prism.sweep.cell import Cell, read_cells
from prism.sweep.grid import Grid, Planned
from prism.sweep.job import Job, make_job
from prism.sweep.pool import Pool

Progress = Callable[[float, float, str], None]


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep did. `cells` are all of its cells that have a line now, in the grid's order."""

    planned: int
    before: int
    """Cells that had their line already."""
    cells: tuple[Cell, ...]

    @property
    def run(self) -> int:
        """How many cells were run."""
        return len(self.cells) - self.before


def sweep(  # noqa: PLR0913 - what a sweep is asked
    grid: Grid,
    planned: Sequence[Planned],
    output: Path,
    pool: Pool,
    progress: Progress = lambda *_: None,
    *,
    retry: bool = False,
) -> SweepResult:
    """Run the planned cells that have no line in `output`; with `retry` those that failed, too.

    Raises:
        UsageError: the file cannot be written, or another sweep writes it.
        ClusterLostError: the machines are gone; it says what is done.
        KeyboardInterrupt: with a note that says what is done.
    """
    jobs = [make_job(grid, cell) for cell in planned]
    check_writable(output)
    with locked(output):
        repair(output)
        known = {cell.key: cell for cell in read_cells([output])}
        done = {
            job.cell.key: known[job.cell.key]
            for job in jobs
            if job.cell.key in known and (not retry or known[job.cell.key].is_answered)
        }
        before = len(done)
        todo = [job for job in jobs if job.cell.key not in done]
        try:
            for cell in _watched(pool, todo, progress):
                append_line(output, cell.to_line())
                done[cell.key] = cell
        except (KeyboardInterrupt, ClusterLostError) as error:
            said = f"{len(done)} of {len(jobs)} cells are in {output}; run again to go on"
            if isinstance(error, ClusterLostError):
                raise ClusterLostError(f"{error}; {said}") from error
            error.add_note(said)
            raise
    found = sorted(done.values(), key=lambda cell: cell.index)
    return SweepResult(len(jobs), before, tuple(found))


def _watched(pool: Pool, todo: Sequence[Job], progress: Progress) -> Iterator[Cell]:
    """The cells as they end, with how many failed and how long the rest may take."""
    begin, failed = time.monotonic(), 0
    progress(0, len(todo), "cells")
    running = pool.run(todo)
    try:
        for number, cell in enumerate(running, start=1):
            yield cell
            failed += not cell.is_answered
            left_s = (time.monotonic() - begin) / number * (len(todo) - number)
            said = f", {failed} failed" if failed else ""
            progress(number, len(todo), f"cells{said}, about {_span(left_s)} left")
    finally:
        if hasattr(running, "close"):
            running.close()


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """The file for this process alone; it is made if need be.

    Raises:
        UsageError: another sweep has it, or it cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0), 0o644)
    except OSError as error:
        raise UsageError(f"cannot write the run file {path}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(
                f"another sweep is writing {path}; give each shard a file of its own (-o) and read "
                "them together"
            ) from error
        yield
    finally:
        os.close(descriptor)


def repair(path: Path) -> None:
    """Take away a last line that has no end: a kill cut it off while it was written."""
    with path.open("r+b") as file:
        content = file.read()
        if content and not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
