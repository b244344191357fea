"""Side-by-side timing: how long a program takes as Prism's kernel and as its rivals run it.

Every contestant lives in its own process, pinned to the same CPUs and given the same number of
threads; they take turns in rounds, so that a slow minute of the machine hits all of them; the last
level cache is emptied by all threads before every call. What a contestant computes is held against
the float64 reference before it is timed. `run_bench` returns medians, minima and
ratios paired by round, beside the stream bandwidth that the same run measured.
"""

from __future__ import annotations

from prism.bench.contestants import (
    ALL,
    OURS,
    Contestant,
    NotAvailableError,
    Outputs,
    Prepared,
    Way,
    contestant,
)
from prism.bench.results import BenchResult, ContestantResult
from prism.bench.runner import BenchOptions, run_bench
from prism.bench.task import Task, border_bytes

__all__ = [
    "ALL",
    "OURS",
    "BenchOptions",
    "BenchResult",
    "Contestant",
    "ContestantResult",
    "NotAvailableError",
    "Outputs",
    "Prepared",
    "Task",
    "Way",
    "border_bytes",
    "contestant",
    "run_bench",
]
