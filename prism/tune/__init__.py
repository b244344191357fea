"""Tuning: from verified sGraphs and sizes to the fastest kernel that is right."""

from __future__ import annotations

from prism.tune.instantiate import instantiate
from prism.tune.space import Config, GraphSpace, Space, build_space
from prism.tune.strategies import Strategy
from prism.tune.task import Best, Budget, Progress, Task, TuneResult
from prism.tune.tuner import Tuner

__all__ = [
    "Best",
    "Budget",
    "Config",
    "GraphSpace",
    "Progress",
    "Space",
    "Strategy",
    "Task",
    "TuneResult",
    "Tuner",
    "build_space",
    "instantiate",
]
