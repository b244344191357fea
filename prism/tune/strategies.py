"""In which order configs are tried: strategies are asked for a config and told how it went.

`random` is the paper's: uniform over the whole space, without repetition. `model`, the default,
orders a sample of the space by the target's cost model and walks down that order with two
corrections: a config loses rank with every better one of its own graph, so that several graphs are
tried before any is explored in depth, and a fixed share of the questions is answered at random, so
that a wrong model cannot hide a good config. It stops when the last few trials brought nothing.

A strategy sees configs and seconds only; both are deterministic for a seed and a sequence of
answers, so a recorded run can be replayed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Protocol

from prism.tune.space import Config, GraphSpace, Space

Estimate = Callable[[Config], float]
"""Predicted seconds of a config; infinite for one the target refuses."""

POOL = 2000
"""Configs estimated by the `model` strategy: a Python cost model takes 0.1-0.3 ms for each."""

FIRST = 4
"""Configs of each graph that are estimated before any graph is given up."""

SAME_GRAPH_PENALTY = 0.1
"""The k-th best config of one graph competes as if it took 1 + 0.1 k times its estimate."""

RANDOM_SHARE = 0.2
PATIENCE = 12
"""Trials in a row without an improvement of `WORTHWHILE` after which `model` stops."""

WORTHWHILE = 0.01


class Strategy(Protocol):
    """Chooses the next config. Constructed with (space, estimate, seed)."""

    def ask(self) -> Config | None:
        """A config not asked before, or None when there is nothing more worth trying."""

    def tell(self, config: Config, seconds: float | None) -> None:
        """The median time of a config that was asked; None when it failed."""


class RandomStrategy:
    """Uniform sampling without repetition."""

    def __init__(self, space: Space, estimate: Estimate, seed: int) -> None:
        del estimate  # the paper's random search knows no model
        self._space = space
        self._order = _shuffled(len(space), random.Random(seed))

    def ask(self) -> Config | None:
        """The next config of the seeded order."""
        index = next(self._order, None)
        return None if index is None else self._space.config(index)

    def tell(self, config: Config, seconds: float | None) -> None:
        """Nothing is learnt."""


class ModelStrategy:
    """Best estimates first, several graphs early, some at random, until nothing improves."""

    def __init__(self, space: Space, estimate: Estimate, seed: int) -> None:
        self._rng = random.Random(seed)
        self._ranked = iter(_ranked(space, estimate, self._rng))
        self._random = RandomStrategy(space, estimate, self._rng.randrange(2**32))
        self._asked: set[Config] = set()
        self._best = math.inf
        self._since_best = 0

    def ask(self) -> Config | None:
        """The best-ranked config left, or one at random."""
        if self._since_best >= PATIENCE:
            return None
        sources: list[Callable[[], Config | None]] = [
            lambda: next(self._ranked, None),
            self._random.ask,
        ]
        if self._asked and self._rng.random() < RANDOM_SHARE:
            sources.reverse()
        for source in sources:
            while (config := source()) is not None:
                if config not in self._asked:
                    self._asked.add(config)
                    return config
        return None

    def tell(self, config: Config, seconds: float | None) -> None:
        """Counts the trials since the last improvement; failures count only after a success."""
        del config
        if seconds is not None and seconds < self._best * (1 - WORTHWHILE):
            self._best = seconds
            self._since_best = 0
        elif math.isfinite(self._best):
            self._since_best += 1


def _ranked(space: Space, estimate: Estimate, rng: random.Random) -> list[Config]:
    """Configs of the whole space by estimate, best first, each graph's later ones penalised.

    Where the space is larger than the pool, it is sampled by successive halving: a few configs of
    every graph, then as many again for the better half of the graphs, and so on.
    """
    sampled = {g.graph_id: _sample(g, rng) for g in space.graphs}
    found: dict[str, list[tuple[float, int, Config]]] = {g.graph_id: [] for g in space.graphs}
    numbers = count()  # ties in the estimate keep the order of sampling
    alive, left = list(found), max(POOL, FIRST * len(found))
    while alive and left > 0:
        share = max(FIRST, left // (2 * len(alive)))
        for graph_id in alive:
            fresh = list(islice(sampled[graph_id], share))
            left -= len(fresh)
            scored = ((estimate(c), next(numbers), c) for c in fresh)
            found[graph_id] += [entry for entry in scored if math.isfinite(entry[0])]
            if len(fresh) < share:
                alive = [other for other in alive if other != graph_id]
        alive.sort(key=lambda graph_id: min(found[graph_id], default=(math.inf,))[0])
        alive = alive[: max(1, len(alive) // 2)]
    penalised = [
        (seconds * (1 + SAME_GRAPH_PENALTY * rank), graph_id, rank, config)
        for graph_id, entries in found.items()
        for rank, (seconds, _, config) in enumerate(sorted(entries, key=lambda e: e[:2]))
    ]
    return [config for *_, config in sorted(penalised, key=lambda entry: entry[:3])]


def _sample(graph: GraphSpace, rng: random.Random) -> Iterator[Config]:
    """All configs of a graph, the default one first, the rest in random order."""
    yield graph.config(0)
    yield from (graph.config(1 + i) for i in _shuffled(len(graph) - 1, rng))


def _shuffled(total: int, rng: random.Random) -> Iterator[int]:
    """0 ... total-1 in random order, without holding them all: Fisher-Yates on a sparse array."""
    moved: dict[int, int] = {}
    for last in range(total - 1, -1, -1):
        chosen = rng.randint(0, last)
        yield moved.get(chosen, chosen)
        moved[chosen] = moved.get(last, last)
        moved.pop(last, None)
