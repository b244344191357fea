"""The default strategy: the target's cost model, corrected by what trials say of it.

The cost model is right about what dominates and wrong by a factor that depends on the graph and on
the sizes of tiles. A regression (`regression`) learns that factor from the trials so far, and the
next config is the one of which most improvement over the best is expected: one that should be fast,
or one of which too little is known. Before the first trial that is the best estimate.

In a large space only a sample is estimated (`sampling`); what lies around the best trials (`steps`)
joins it as the run goes on. A small share of the questions is answered at random all the same, so
that a wrong cost model cannot hide a good config. Configs asked and not told yet (several are
compiled at once) count as if they were as fast as expected.

It stops when the last few trials brought nothing, no other config is expected to bring much, and
the best config's other options were tried: what one pair of trials says of an option counts for all
configs, and one trial may have been unlucky. In any case it stops after three times as many.
"""

from __future__ import annotations

import math
import random

import numpy as np

from prism.tune.space import Config, Space
from prism.tune.strategies.features import Features, all_options
from prism.tune.strategies.protocol import Estimate
from prism.tune.strategies.regression import Floats, Integers, Points, Regression
from prism.tune.strategies.sampling import estimated
from prism.tune.strategies.steps import Steps
from prism.tune.strategies.uniform import RandomStrategy

RANDOM_SHARE = 0.05

PATIENCE = 12
"""Trials in a row without an improvement of `WORTHWHILE` after which the strategy may stop."""

MOST_PATIENCE = 3 * PATIENCE
"""The same, whatever is expected: a cost model that is far off always expects more."""

WORTHWHILE = 0.01

SLOW = 1.0
"""A config that failed, or takes more than e times what was expected, counts as one that takes e
times that: how slow the slow ones are says nothing of the fast ones."""

MOST_FITTED = 250
"""The latest trials that the regression sees: its cost grows with their third power."""

HINT_DOUBT = 16.0
"""The noise of what was learnt at other sizes, over that of a trial."""

LEADERS = 3
"""What lies around the best few trials joins the pool."""


class Pool:
    """The configs that may be asked: their estimates, features and graphs as arrays."""

    def __init__(self, space: Space) -> None:
        options = all_options(space.graphs)
        self._option_count = len(options)
        self.steps = {g.graph_id: Steps(g) for g in space.graphs}
        self._features = {g.graph_id: Features(g, space.threads, options) for g in space.graphs}
        self._numbers = {g.graph_id: n for n, g in enumerate(space.graphs)}
        self.configs: list[Config] = []
        self.place: dict[Config, int] = {}
        self._rows: list[list[float]] = []
        self._points: Points | None = None
        self._logs = np.empty(0)

    def add(self, config: Config, seconds: float) -> None:
        """A config with its estimate; again does nothing."""
        if config not in self.place:
            self.place[config] = len(self.configs)
            self.configs.append(config)
            described = self._features[config.graph_id](config)
            self._rows.append([math.log(seconds), *described])
            self._points = None

    @property
    def logs(self) -> Floats:
        """The logarithms of the estimates."""
        self._update()
        return self._logs

    @property
    def points(self) -> Points:
        """All configs, their features standardised; the estimate's logarithm is one of them."""
        return self._update()

    def _update(self) -> Points:
        if self._points is None:
            rows = np.array(self._rows)
            self._logs = rows[:, 0]
            options = rows[:, rows.shape[1] - self._option_count :]
            spread = rows.std(axis=0)
            rows = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
            graphs = np.array([self._numbers[c.graph_id] for c in self.configs])
            self._points = Points(rows, graphs, options)
        return self._points


class ModelStrategy:
    """The most expected improvement first, some at random, until nothing improves."""

    def __init__(self, space: Space, estimate: Estimate, seed: int) -> None:
        self._estimate = estimate
        self._rng = random.Random(seed)
        self._pool = Pool(space)
        for config, seconds in estimated(space, estimate, self._rng).items():
            self._pool.add(config, seconds)
        self._random = RandomStrategy(space, estimate, self._rng.randrange(2**32))
        self._asked: set[Config] = set()
        self._told: dict[Config, float | None] = {}
        self._hints: dict[Config, float] = {}
        self._explored: set[Config] = set()
        self._best = math.inf
        self._since_best = 0
        self._gain = math.inf
        """The logarithm's expected improvement by the last promising config."""

    def ask(self) -> Config | None:
        """The config of which most is expected, or one at random."""
        if self._since_best >= MOST_PATIENCE:
            return None
        sources = [self._promising, self._at_random]
        if self._asked and self._rng.random() < RANDOM_SHARE:
            sources.reverse()
        for source in sources:
            if (config := source()) is not None:
                if self._since_best >= PATIENCE and self._gain < WORTHWHILE:
                    config = self._otherwise()
                if config is not None:
                    self._asked.add(config)
                return config
        return None

    def tell(self, config: Config, seconds: float | None) -> None:
        """Learns; counts trials since the last improvement, failures only after a success."""
        self._asked.add(config)
        self._told[config] = seconds
        self._add(config)
        if seconds is not None and seconds < self._best * (1 - WORTHWHILE):
            self._best = seconds
            self._since_best = 0
        elif math.isfinite(self._best):
            self._since_best += 1

    def hint(self, config: Config, ratio: float) -> None:
        """A config like this took `ratio` times its estimate at other sizes."""
        self._add(config)
        if config in self._pool.place:
            self._hints[config] = math.log(ratio)

    def _add(self, config: Config) -> None:
        """Let a config join the pool, unless the target refuses it."""
        if config not in self._pool.place:
            seconds = self._estimate(config)
            if math.isfinite(seconds):
                self._pool.add(config, seconds)

    def _otherwise(self) -> Config | None:
        """The best config with another option, if one was not tried."""
        times = [(seconds, c) for c, seconds in self._told.items() if seconds is not None]
        _, best = min(times, key=lambda entry: entry[0])
        around = self._pool.steps[best.graph_id].around(best)
        options = (c for c in around if c.par_sizes == best.par_sizes)
        return next((c for c in options if c not in self._asked and c in self._pool.place), None)

    def _at_random(self) -> Config | None:
        while (config := self._random.ask()) is not None:
            if config not in self._asked:
                return config
        return None

    def _promising(self) -> Config | None:
        """The config with the largest expected improvement."""
        self._look_around()
        pool = self._pool
        left = np.array([i for i, c in enumerate(pool.configs) if c not in self._asked], np.int64)
        if not len(left):
            return None
        mean, deviation = self._expected(left)
        best = math.log(self._best) if math.isfinite(self._best) else float(mean.min())
        gain = expected_improvement(mean, deviation, best)
        self._gain = float(gain.max())
        return pool.configs[int(left[int(gain.argmax())])]

    def _look_around(self) -> None:
        """Let what lies around the leaders join the pool, once for each."""
        times = [(seconds, c) for c, seconds in self._told.items() if seconds is not None]
        for _, config in sorted(times, key=lambda entry: entry[0])[:LEADERS]:
            if config not in self._explored:
                self._explored.add(config)
                for other in self._pool.steps[config.graph_id].around(config):
                    self._add(other)

    def _expected(self, rows: Integers) -> tuple[Floats, Floats]:
        """Mean and deviation of the logarithm of the times of configs in the pool."""
        pool = self._pool
        places, residuals, doubts, offset = self._evidence()
        fit = Regression.fit(pool.points.at(places), residuals, doubts)
        waiting = sorted(pool.place[c] for c in self._asked - self._told.keys() if c in pool.place)
        if waiting:
            fit = fit.extended(pool.points.at(np.array(waiting)), residuals)
        mean, deviation = fit.predict(pool.points.at(rows))
        return pool.logs[rows] + offset + mean, deviation

    def _evidence(self) -> tuple[Integers, Floats, Floats, float]:
        """Places in the pool, residuals and doubts of trials and hints, and the trials' offset.

        How far the cost model is off on the whole, the offset, says nothing of any config; at other
        sizes it may be another.
        """
        place = self._pool.place
        told = [(c, s) for c, s in self._told.items() if c in place][-MOST_FITTED:]
        logs = self._pool.logs
        apart = [None if s is None else math.log(s) - logs[place[c]] for c, s in told]
        timed = [residual for residual in apart if residual is not None]
        offset = float(np.median(timed)) if timed else 0.0
        here = [SLOW if residual is None else min(SLOW, residual - offset) for residual in apart]
        hinted = [c for c in self._hints if c not in self._told]
        there = np.array([self._hints[c] for c in hinted])
        there = np.minimum(there - np.median(there), SLOW) if hinted else there
        places = np.array([place[c] for c in (*(c for c, _ in told), *hinted)], np.int64)
        doubts = np.repeat([1.0, HINT_DOUBT], [len(told), len(hinted)])
        return places, np.concatenate((here, there)), doubts, offset


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """How far below `best` a normal variable is expected to be, counted as zero above it."""
    z = (best - mean) / deviation
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    share = 0.5 * (1 + _erf(z / math.sqrt(2)))
    gain: Floats = deviation * (z * share + density)
    # far in the tail both are zero: there the mean decides
    return np.where(gain > 0, gain, -1.0 - z**2)


def _erf(x: Floats) -> Floats:
    """Abramowitz and Stegun 7.1.26: within 1.5e-7."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    series = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )
    return np.sign(x) * (1 - series * np.exp(-(x**2)))
