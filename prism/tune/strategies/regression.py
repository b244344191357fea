"""A Gaussian process over few trials: what to expect of a config, and how sure that is.

What is learnt is a residual: by how much the logarithm of a time differs from the cost model's.
Its covariance is a sum of parts (`PARTS`): a common offset, an offset of each graph, a linear
trend in the features and, stronger, in the emitter's options, of which cost models know least, and
smooth functions of the features, common to all graphs and of each graph its own. Scale, length and
noise follow from the trials: the scale in closed form, shrunk towards `PRIOR_SCALE` while there are
few, the others as the most likely of a small grid. Everything is a few small matrix products, some
milliseconds for what a tuning run asks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PARTS = {"offset": 0.2, "graph": 0.1, "linear": 0.2, "options": 0.6, "smooth": 0.7, "own": 0.2}
"""Variances, as shares of the scale.

Most is shared by all graphs: with more of their own, a space of many graphs is tried graph by graph
before anything is learnt (`make bench-tuning`, the rows `blind`).
"""

LENGTHS = (0.4, 0.8, 1.6)
"""Over which smooth functions vary, in standard deviations of all features together."""

NOISES = (0.003, 0.03)
"""Variance of the noise, as a share of the scale: times repeat within some percent."""

PRIOR_SCALE = 0.3
"""Residuals of a usable cost model, in natural logarithms."""

PRIOR_WEIGHT = 4.0
"""How many trials the prior of the scale is worth."""


@dataclass(frozen=True, slots=True)
class Points:
    """Configs as a regression sees them: standardised features and the number of their graph."""

    features: Floats
    graphs: Integers
    options: Floats
    """The emitter's options alone, once more, as they are."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self.graphs)

    def at(self, rows: Integers) -> Points:
        """Some of them."""
        return Points(self.features[rows], self.graphs[rows], self.options[rows])


def _root(matrix: Floats) -> Floats:
    """The lower triangle L with L L^T the matrix."""
    return np.asarray(np.linalg.cholesky(matrix), np.float64)


def covariance(one: Points, other: Points, length: float) -> Floats:
    """The prior covariance of residuals, in units of the scale."""
    size = max(1, one.features.shape[1])
    dots = one.features @ other.features.T
    squares = (one.features**2).sum(1)[:, None] + (other.features**2).sum(1)[None, :]
    smooth = np.exp(-np.maximum(squares - 2 * dots, 0.0) / (2 * length**2 * size))
    same = one.graphs[:, None] == other.graphs[None, :]
    out: Floats = PARTS["offset"] + PARTS["linear"] * dots / size + PARTS["smooth"] * smooth
    out += PARTS["options"] * (one.options @ other.options.T)
    out += same * (PARTS["graph"] + PARTS["own"] * smooth)
    return out


@dataclass(frozen=True, slots=True)
class Regression:
    """A fit to trials."""

    points: Points
    length: float
    noise: float
    scale: float
    """Variance."""
    doubts: Floats
    """By how much the noise of each trial is larger."""
    root: Floats
    """Lower Cholesky factor of the trials' covariance."""
    weights: Floats

    @classmethod
    def fit(cls, points: Points, residuals: Floats, doubts: Floats | None = None) -> Regression:
        """The most likely of the grid; `doubts` are factors of the noise, 1 by default."""
        doubts = np.ones(len(points)) if doubts is None else doubts
        fits = (
            cls._fit(points, residuals, doubts, length, noise)
            for length, noise in product(LENGTHS, NOISES)
        )
        return max(fits, key=lambda fit: fit[0])[1]

    @classmethod
    def _fit(
        cls, points: Points, residuals: Floats, doubts: Floats, length: float, noise: float
    ) -> tuple[float, Regression]:
        """A fit and its log-likelihood."""
        number = len(points)
        root = _root(covariance(points, points, length) + noise * np.diag(doubts))
        white = np.linalg.solve(root, residuals)
        degrees = PRIOR_WEIGHT + number
        scale = (PRIOR_WEIGHT * PRIOR_SCALE**2 + float(white @ white)) / degrees
        weights = np.linalg.solve(root.T, white)
        likelihood = -0.5 * degrees * math.log(scale) - float(np.log(np.diag(root)).sum())
        return likelihood, cls(points, length, noise, scale, doubts, root, weights)

    def extended(self, points: Points, residuals: Floats) -> Regression:
        """The fit as if other configs had turned out just as expected.

        `residuals` are those that it was fitted to.
        """
        every = Points(
            np.vstack((self.points.features, points.features)),
            np.concatenate((self.points.graphs, points.graphs)),
            np.vstack((self.points.options, points.options)),
        )
        values = np.concatenate((residuals, self.predict(points)[0]))
        doubts = np.concatenate((self.doubts, np.ones(len(points))))
        noise = self.noise * np.diag(doubts)
        root = _root(covariance(every, every, self.length) + noise)
        weights = np.linalg.solve(root.T, np.linalg.solve(root, values))
        return Regression(every, self.length, self.noise, self.scale, doubts, root, weights)

    def predict(self, points: Points) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the residuals of other configs.

        What is called noise is mostly a config's own and comes again: it is part of the deviation.
        """
        between = covariance(points, self.points, self.length)
        mean = between @ self.weights
        explained = np.linalg.solve(self.root, between.T)
        squares = (points.features**2).sum(1) / max(1, points.features.shape[1])
        options = (points.options**2).sum(1)
        own = sum(PARTS.values()) + PARTS["linear"] * (squares - 1)
        own += PARTS["options"] * (options - 1)
        left = np.maximum(own - (explained**2).sum(0), 1e-9)
        return mean, np.sqrt(self.scale * (left + self.noise))
