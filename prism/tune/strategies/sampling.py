"""Samples of a space: all of it in random order, or the configs that the cost model likes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import islice

from prism.tune.space import Config, GraphSpace, Space
from prism.tune.strategies.protocol import Estimate

POOL = 2000
"""Configs that are estimated at first: a Python cost model takes 0.1-0.3 ms for each."""

FIRST = 4
"""Configs of each graph that are estimated before any graph is given up."""


def estimated(space: Space, estimate: Estimate, rng: random.Random) -> dict[Config, float]:
    """Configs of all graphs that the target takes with their estimates, in order of sampling.

    Where the space is larger than the pool, it is sampled by successive halving: a few configs of
    every graph, then as many again for the better half of the graphs, and so on.
    """
    sampled = {g.graph_id: _sample(g, rng) for g in space.graphs}
    best = dict.fromkeys(sampled, math.inf)
    found: dict[Config, float] = {}
    alive, left = list(best), max(POOL, FIRST * len(best))
    while alive and left > 0:
        share = max(FIRST, left // (2 * len(alive)))
        for graph_id in alive:
            fresh = list(islice(sampled[graph_id], share))
            left -= len(fresh)
            for config in fresh:
                seconds = estimate(config)
                if math.isfinite(seconds):
                    found[config] = seconds
                    best[graph_id] = min(best[graph_id], seconds)
            if len(fresh) < share:
                alive = [other for other in alive if other != graph_id]
        alive.sort(key=best.__getitem__)
        alive = alive[: max(1, len(alive) // 2)]
    return found


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
