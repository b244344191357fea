"""Tuning: from verified sGraphs and sizes to the fastest kernel that is right."""

from __future__ import annotations

from prism.tune.estimates import Estimates
from prism.tune.instantiate import instantiate
from prism.tune.runner import Attempt, Ended, LocalRunner, Runner
from prism.tune.space import Config, GraphSpace, Space, build_space
from prism.tune.spending import ESTIMATE_SHARE, Spending
from prism.tune.strategies import DeferredStrategy, Learner, SeededStrategy, Strategy
from prism.tune.task import Best, Budget, Progress, Task, TuneResult
from prism.tune.transfer import (
    Known,
    carried,
    distance,
    estimated_there,
    first_configs,
    hints,
    taught,
)
from prism.tune.tuner import Tuner

__all__ = [
    "ESTIMATE_SHARE",
    "Attempt",
    "Best",
    "Budget",
    "Config",
    "DeferredStrategy",
    "Ended",
    "Estimates",
    "GraphSpace",
    "Known",
    "Learner",
    "LocalRunner",
    "Progress",
    "Runner",
    "SeededStrategy",
    "Space",
    "Spending",
    "Strategy",
    "Task",
    "TuneResult",
    "Tuner",
    "build_space",
    "carried",
    "distance",
    "estimated_there",
    "first_configs",
    "hints",
    "instantiate",
    "taught",
]
