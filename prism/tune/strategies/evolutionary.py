"""Evolution over configs: the fittest of a few are crossed and mutated.

The first generation are the best estimates of as many graphs as there are places in it: the cost
model's only part. Each later config is a child. Its parents win tournaments among the best so far;
where they share a graph the child takes each count and option from one of them, where they do not
it has the first one's graph. It may go to another graph, with counts as near as there are, and move
a few steps away. A child that was asked before moves until it is new.

It stops when `PATIENCE` trials brought nothing: more than a model needs, since children are blind.
"""

from __future__ import annotations

import math
import random

from prism.record import Counts
from prism.tune.space import Config, Space
from prism.tune.strategies.protocol import Estimate
from prism.tune.strategies.sampling import estimated
from prism.tune.strategies.steps import Steps
from prism.tune.strategies.uniform import RandomStrategy

POPULATION = 12
"""The best so far that may have children, and as many configs to begin with."""

TOURNAMENT = 3
CROSSOVER = 0.5
OTHER_GRAPH = 0.15

MUTATION = 0.5
"""Whether a child that is new moves one step further."""

MOST_STEPS = 6

ATTEMPTS = 30
"""Children in a row that are nothing new before a config is taken at random."""

PATIENCE = 40
WORTHWHILE = 0.01


class EvolutionaryStrategy:
    """Tournament, crossover, mutation."""

    def __init__(self, space: Space, estimate: Estimate, seed: int) -> None:
        self._rng = random.Random(seed)
        self._steps = {graph.graph_id: Steps(graph) for graph in space.graphs}
        self._first = _first(estimated(space, estimate, self._rng))
        self._random = RandomStrategy(space, estimate, self._rng.randrange(2**32))
        self._asked: set[Config] = set()
        self._fit: list[tuple[float, int, Config]] = []
        self._told = 0
        self._since_best = 0

    def ask(self) -> Config | None:
        """One of the first generation, then children."""
        if self._since_best >= PATIENCE:
            return None
        config = self._next()
        if config is not None:
            self._asked.add(config)
        return config

    def tell(self, config: Config, seconds: float | None) -> None:
        """The best so far are who may have children; failures have none."""
        self._asked.add(config)
        self._told += 1
        best = self._fit[0][0] if self._fit else math.inf
        if seconds is not None:
            self._fit = sorted([*self._fit, (seconds, self._told, config)])[:POPULATION]
        if seconds is not None and seconds < best * (1 - WORTHWHILE):
            self._since_best = 0
        elif math.isfinite(best):
            self._since_best += 1

    def _next(self) -> Config | None:
        while self._first:
            config = self._first.pop(0)
            if config not in self._asked:
                return config
        for _ in range(ATTEMPTS if self._fit else 0):
            child = self._child()
            if child not in self._asked:
                return child
        while (drawn := self._random.ask()) is not None:
            if drawn not in self._asked:
                return drawn
        return None

    def _child(self) -> Config:
        child = self._parent()
        if self._rng.random() < CROSSOVER:
            child = self._crossed(child, self._parent())
        if self._rng.random() < OTHER_GRAPH:
            child = self._moved(child)
        for _ in range(MOST_STEPS):
            if child not in self._asked and self._rng.random() >= MUTATION:
                break
            around = list(self._steps[child.graph_id].around(child))
            if not around:
                break
            child = self._rng.choice(around)
        return child

    def _parent(self) -> Config:
        """The best of a few, drawn at random from the fittest."""
        return min(self._rng.choices(self._fit, k=TOURNAMENT))[2]

    def _crossed(self, one: Config, other: Config) -> Config:
        if one.graph_id != other.graph_id:
            return one
        counts = tuple(
            tuple(self._rng.choice(pair) for pair in zip(*kernels, strict=True))
            for kernels in zip(one.par_sizes, other.par_sizes, strict=True)
        )
        pairs = zip(one.schedule, other.schedule, strict=True)
        schedule = dict(self._rng.choice(pair) for pair in pairs)
        return self._steps[one.graph_id].nearest(counts, schedule)

    def _moved(self, config: Config) -> Config:
        """Another graph with counts of the same names as near as there are."""
        steps = self._steps[self._rng.choice(list(self._steps))]
        return steps.nearest(_renamed(config.par_sizes, steps), dict(config.schedule))


def _renamed(par_sizes: tuple[Counts, ...], steps: Steps) -> tuple[Counts, ...]:
    """The counts that another graph needs; 1 where there are none of that name."""
    named = {name: n for kernel in reversed(par_sizes) for name, n in kernel}
    wanted = steps.graph.counts[0]
    return tuple(tuple((name, named.get(name, 1)) for name, _ in kernel) for kernel in wanted)


def _first(estimates: dict[Config, float]) -> list[Config]:
    """The best estimates, no graph twice before every graph was there once."""
    turns: dict[str, int] = {}
    order: list[tuple[int, float, Config]] = []
    for config, seconds in sorted(estimates.items(), key=lambda entry: entry[1]):
        turn = turns[config.graph_id] = turns.get(config.graph_id, -1) + 1
        order.append((turn, seconds, config))
    return [config for *_, config in sorted(order, key=lambda entry: entry[:2])][:POPULATION]
