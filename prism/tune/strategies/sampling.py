"""Which configs are estimated at first: a few of every graph, then what lies around the best.

A large space is looked at coarsely and then where it looks good: successive halving samples every
graph and gives up the worse half of them again and again, then single steps lead from the best
config of the best few graphs to better ones. On spaces of 10,000 to 25,000 configs some 450
estimates find what 2,000 at random did. What was found is of use whenever the time for estimates
ends: every graph is seen before any is seen twice.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import islice

from prism.tune.space import Config, GraphSpace, Space
from prism.tune.strategies.protocol import Estimate
from prism.tune.strategies.steps import Steps

POOL = 400
"""Configs that are sampled; more where there are so many graphs."""

FIRST = 4
"""Configs of each graph that are estimated before any graph is given up."""

CLIMBED = 8
"""Graphs from whose best config steps are taken."""


def estimated(space: Space, estimate: Estimate, rng: random.Random) -> dict[Config, float]:
    """Configs that the target takes with their estimates, in the order of asking."""
    asked = _Asked(estimate)
    _sample_graphs(space, asked, rng)
    if len(space) > len(asked.seconds):
        _climb(space, asked)
    return {config: s for config, s in asked.seconds.items() if math.isfinite(s)}


class _Asked:
    """An estimate that remembers."""

    def __init__(self, estimate: Estimate) -> None:
        self._estimate = estimate
        self.seconds: dict[Config, float] = {}
        self.best: dict[str, tuple[float, Config]] = {}
        """Of each graph, where there is one that the target takes."""

    def __call__(self, config: Config) -> float:
        if config not in self.seconds:
            self.seconds[config] = seconds = self._estimate(config)
            if seconds < self.of_graph(config.graph_id):
                self.best[config.graph_id] = (seconds, config)
        return self.seconds[config]

    def of_graph(self, graph_id: str) -> float:
        """The best estimate of a graph so far."""
        return self.best[graph_id][0] if graph_id in self.best else math.inf


def _sample_graphs(space: Space, asked: _Asked, rng: random.Random) -> None:
    """A few configs of every graph, then more; as many again of the better half, and so on."""
    samples = {g.graph_id: _sample(g, rng) for g in space.graphs}
    alive, left = list(samples), max(POOL, FIRST * len(samples))
    share, is_first = FIRST, True
    while alive and left > 0:
        ended = set()
        for graph_id in alive:
            fresh = list(islice(samples[graph_id], share))
            left -= len(fresh)
            for config in fresh:
                asked(config)
            if len(fresh) < share:
                ended.add(graph_id)
        alive = sorted((g for g in alive if g not in ended), key=asked.of_graph)
        if not is_first or left < FIRST * len(alive):
            alive = alive[: max(1, len(alive) // 2)]
        share, is_first = max(FIRST, left // (2 * max(1, len(alive)))), False


def _climb(space: Space, asked: _Asked) -> None:
    """From the best config of the best graphs to the best one a step away, until none is better."""
    graphs = {graph.graph_id: graph for graph in space.graphs}
    for graph_id in sorted(asked.best, key=asked.of_graph)[:CLIMBED]:
        steps, at = Steps(graphs[graph_id]), None
        while asked.best[graph_id][1] != at:
            at = asked.best[graph_id][1]
            for config in steps.around(at):
                asked(config)


def _sample(graph: GraphSpace, rng: random.Random) -> Iterator[Config]:
    """All configs of a graph, the default one first, the rest in random order."""
    yield graph.config(0)
    yield from (graph.config(1 + i) for i in shuffled(len(graph) - 1, rng))


def shuffled(total: int, rng: random.Random) -> Iterator[int]:
    """0 ... total-1 in random order, without holding them all: Fisher-Yates on a sparse array."""
    moved: dict[int, int] = {}
    for last in range(total - 1, -1, -1):
        chosen = rng.randint(0, last)
        yield moved.get(chosen, chosen)
        moved[chosen] = moved.get(last, last)
        moved.pop(last, None)
