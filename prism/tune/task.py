"""What a tuning run is given and what it answers, as values."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from prism.ir import MuGraph, Program, format_program, format_sgraph
from prism.protocols import Target
from prism.record import TrialKey, digest, versions
from prism.tune.space import Config, Space

Progress = Callable[[float, float, str], None]
"""Called with (done, total, what is going on)."""


def default_workers() -> int:
    """A worker per CPU, but no more than a few: each holds a copy of the inputs."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(4, available or 1))


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may spend. The time limit covers everything, a last round may run over it."""

    seconds: float = 60.0
    trials: int | None = None
    compile_timeout_s: float = 60.0
    run_timeout_s: float = 30.0
    workers: int = field(default_factory=default_workers)
    repeats: int = 10
    finalists: int = 4


@dataclass(frozen=True, slots=True)
class Task:
    """What is tuned: a program at sizes, in a dtype, on a target named `target_name`."""

    program: Program
    sizes: Mapping[str, int]
    target_name: str
    target: Target
    dtype: str
    seed: int
    space: Space
    budget: Budget


@dataclass(frozen=True, slots=True)
class Best:
    """The winner: its config, its muGraph, its kernel."""

    config: Config
    mu: MuGraph
    source: str
    meta: dict[str, Any] = field(hash=False)
    median_s: float | None
    """Measured; None where the target cannot run its kernels."""
    min_s: float | None
    max_error: float | None
    predicted_s: float | None = None
    facts: dict[str, int | float | str] = field(default_factory=dict, hash=False)
    """What the kernel says about itself: registers, shared memory, spills on a GPU."""
    path: Path | None = None
    """Where the driver put the source."""


@dataclass(frozen=True, slots=True)
class TuneResult:
    """What a run found. `best` is None when no kernel passed."""

    best: Best | None
    outcomes: dict[str, int] = field(hash=False)
    """Trials by outcome, resumed ones included."""
    resumed: int
    """Trials taken from the record instead of being run."""
    space_size: int
    elapsed_s: float
    stopped: str
    """Why the run ended: budget, trials, strategy (nothing more to try), interrupted, or cluster
    lost."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """What all trials of a run have in common, and the digest of each graph."""

    template: TrialKey
    graphs: dict[str, str] = field(hash=False)

    @classmethod
    def of(cls, task: Task) -> Self:
        """The identity of a run's trials."""
        template = TrialKey(
            program=digest(format_program(task.program)),
            graph="",
            sizes=tuple(sorted(task.sizes.items())),
            par_sizes=(),
            schedule=(),
            dtype=task.dtype,
            target=task.target_name,
            device=task.target.device().text,
            versions=versions(),
        )
        graphs = {s.graph_id: digest(format_sgraph(s.graph)) for s in task.space.graphs}
        return cls(template, graphs)

    def key(self, config: Config) -> TrialKey:
        """The key of one config's trial."""
        return replace(
            self.template,
            graph=self.graphs[config.graph_id],
            par_sizes=config.par_sizes,
            schedule=config.schedule,
        )
