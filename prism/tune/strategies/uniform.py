"""The paper's strategy: uniform sampling over the whole space, without repetition."""

from __future__ import annotations

import random

from prism.tune.space import Config, Space
from prism.tune.strategies.protocol import Estimate
from prism.tune.strategies.sampling import shuffled


class RandomStrategy:
    """Every config once, in random order."""

    def __init__(self, space: Space, estimate: Estimate, seed: int) -> None:
        del estimate  # the paper's random search knows no model
        self._space = space
        self._order = shuffled(len(space), random.Random(seed))

    def ask(self) -> Config | None:
        """The next config of the seeded order."""
        index = next(self._order, None)
        return None if index is None else self._space.config(index)

    def tell(self, config: Config, seconds: float | None) -> None:
        """Nothing is learnt."""
