"""The target's cost model as strategies see it, within the time there is for asking it."""

from __future__ import annotations

import math
from collections.abc import Callable

from prism.errors import KernelError
from prism.protocols import Target
from prism.tune.instantiate import instantiate
from prism.tune.space import Config, Space


class Estimates:
    """Predicted seconds of configs; infinite where the target refuses.

    Once the time for estimates is used up, what was not estimated counts as refused: a strategy
    that ranks thousands of configs must leave time to try some. The few it asks later, beside good
    configs, are always answered (`ranked`).
    """

    def __init__(
        self, space: Space, target: Target, dtype: str, goes_on: Callable[[], bool]
    ) -> None:
        """`goes_on`: whether there is time for one more."""
        self._graphs = {graph.graph_id: graph for graph in space.graphs}
        self._target = target
        self._dtype = dtype
        self._goes_on = goes_on
        self.made = self.left = 0

    def __call__(self, config: Config) -> float:
        """Predicted seconds of a config."""
        if self.made and not self._goes_on():
            self.left += 1
            return math.inf
        self.made += 1
        try:
            mu = instantiate(self._graphs[config.graph_id], config)
            return self._target.estimate(mu, self._dtype)
        except KernelError:
            return math.inf

    def ranked(self) -> None:
        """The strategy is made: what it asks from now on is little."""
        self._goes_on = lambda: True

    @property
    def notes(self) -> tuple[str, ...]:
        """What the result should say of it."""
        if not self.left:
            return ()
        return (f"the budget allowed {self.made} estimates, {self.left} more were wanted",)
