"""Sweeps over grids: many runs of the commands, each in a process of its own, one line per run.

settings  what a cell may set, and the command lines it becomes;  checking: what it may not
grid      a grid file, checked and expanded to cells
job       one cell, run
pool      cells on this machine;  cluster: on a Ray cluster
sweep     which cells have no line yet; appends the lines
cell      one cell's line: the contract between a sweep and its reports
"""

from __future__ import annotations

from prism.sweep.cell import ANSWERED, OUTCOMES, SCHEMA, Cell, from_line, read_cells
from prism.sweep.grid import Grid, Planned, load_grid, shard_of
from prism.sweep.job import Job, make_job, run_job
from prism.sweep.pool import LocalPool, Pool
from prism.sweep.sweep import SweepResult, sweep

__all__ = [
    "ANSWERED",
    "OUTCOMES",
    "SCHEMA",
    "Cell",
    "Grid",
    "Job",
    "LocalPool",
    "Planned",
    "Pool",
    "SweepResult",
    "from_line",
    "load_grid",
    "make_job",
    "read_cells",
    "run_job",
    "shard_of",
    "sweep",
]
