"""Small grids and stand-ins for commands, for the tests of sweeps."""

from __future__ import annotations

import textwrap
from dataclasses import replace

from prism.sweep import load_grid, make_job, sweep

SMALL = """
title = "small"
[settings]
do = "search"
max_ops = 6
[axes]
program = ["matmul", "softmax_matmul"]
encoding = ["boolean", "integer"]
seed = [0, 1]
"""

VERIFY = """
[settings]
do = "verify"
[axes]
candidate = ["matmul", "lora"]
program = ["matmul"]
"""


def write_grid(folder, text=SMALL, name="small.toml"):
    """A grid file."""
    path = folder / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def grid_of(folder, text=SMALL, *, smoke=False):
    """A grid, loaded."""
    return load_grid(write_grid(folder, text), smoke=smoke)


def cell_of(folder, **changes):
    """The line of the first cell of a small grid, as if it had been run."""
    grid = grid_of(folder)
    job = make_job(grid, grid.cells[changes.pop("place", 0)])
    return replace(job.cell, **{"outcome": "ok", "results": {"search": {"n": 1}}, **changes})


def swept(grid, output, pool, cells=None, **options):
    """The result of a sweep of all cells of a grid, or of these."""
    return sweep(grid, cells or grid.cells, output, pool, **options)


class InstantPool:
    """Runs nothing: every cell is answered at once; may be interrupted after some cells."""

    width = 1

    def __init__(self, stop_after=None, outcome="ok"):
        self.stop_after, self.outcome, self.asked = stop_after, outcome, []

    def run(self, jobs):
        """One answer after the other."""
        for count, job in enumerate(jobs):
            if self.stop_after is not None and count >= self.stop_after:
                raise KeyboardInterrupt
            self.asked.append(job.cell.index)
            yield replace(job.cell, outcome=self.outcome, results={"search": {"n": job.cell.index}})
