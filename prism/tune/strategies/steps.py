"""From one config to others near it: the legal one nearest to given counts, and single changes.

Distances are on a logarithmic scale: 8 chunks are as far from 16 as 16 from 32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from prism.record import Counts
from prism.tune.space import Config, GraphSpace


class Steps:
    """The configs of one graph, by distance."""

    def __init__(self, graph: GraphSpace) -> None:
        self.graph = graph
        flat = [[n for kernel in counts for _, n in kernel] for counts in graph.counts]
        self._logs = np.log2(np.array(flat, np.float64))

    def nearest(self, par_sizes: Sequence[Counts], schedule: Mapping[str, int]) -> Config:
        """The config whose counts are nearest to these, which need not be legal.

        An option that the schedule lacks, or a choice that there is not, becomes the default.
        """
        distances = np.abs(self._logs - np.array(_logs(par_sizes))).sum(axis=1)
        chosen = tuple(
            (name, schedule[name] if schedule.get(name) in choices else choices[0])
            for name, choices in self.graph.schedules
        )
        return Config(self.graph.graph_id, self.graph.counts[int(distances.argmin())], chosen)

    def around(self, config: Config) -> Iterator[Config]:
        """The configs that differ in one count, up or down to the nearest, or in one option."""
        at = np.array(_logs(config.par_sizes))
        apart = self._logs - at
        distances = np.abs(apart).sum(axis=1)
        for column in apart.T:
            for beyond in (column > 0, column < 0):
                if beyond.any():
                    row = int(np.where(beyond, distances, math.inf).argmin())
                    yield Config(config.graph_id, self.graph.counts[row], config.schedule)
        for place, (name, choices) in enumerate(self.graph.schedules):
            for choice in choices:
                if (name, choice) != config.schedule[place]:
                    schedule = list(config.schedule)
                    schedule[place] = (name, choice)
                    yield Config(config.graph_id, config.par_sizes, tuple(schedule))


def _logs(par_sizes: Sequence[Counts]) -> NDArray[np.float64]:
    return np.log2([float(n) for kernel in par_sizes for _, n in kernel])
