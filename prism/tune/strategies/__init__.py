"""In which order configs are tried: strategies are asked for a config and told how it went.

  random        the paper's: uniform over the whole space, without repetition
  evolutionary  the fittest of a few are varied: tournaments, crossover, mutation
  model         the target's cost model, corrected by a regression over the trials so far

A strategy sees configs and seconds only; each is deterministic for a seed and a sequence of
answers. So a run resumes from its record (the same questions are asked, and answered from it), and
strategies can be judged on records of exhaustive searches, without a compiler.
"""

from __future__ import annotations

from prism.tune.strategies.deferred import DeferredStrategy
from prism.tune.strategies.evolutionary import EvolutionaryStrategy
from prism.tune.strategies.model import PATIENCE, ModelStrategy
from prism.tune.strategies.protocol import Estimate, Learner, Strategy
from prism.tune.strategies.seeded import SeededStrategy
from prism.tune.strategies.uniform import RandomStrategy

__all__ = [
    "PATIENCE",
    "DeferredStrategy",
    "Estimate",
    "EvolutionaryStrategy",
    "Learner",
    "ModelStrategy",
    "RandomStrategy",
    "SeededStrategy",
    "Strategy",
]
