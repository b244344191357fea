"""Dives: the op DAG that looks cheapest at one point, for many points, before the walk begins.

At a point (one loop column, one value for every variable, a weight for work and for tiles) costs
are numbers, so a best-first search with the bound of `bounds` finds the cheapest op DAG at once.
Dives from points spread over the sizes fill the fronts with what is good somewhere: the walk then
rules out the rest early, and a walk that is cut short has seen the graphs that matter most. Two
partial DAGs that need and share the same are one here, the cheaper; a dive that takes too many
steps is finished greedily. Neither loses anything, since dives only come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from prism.search.dags import OpDag
from prism.search.fronts.bounds import Bounds
from prism.search.fronts.chains import Part, bits, parts_of
from prism.search.fronts.front import SPREAD, Row

MAX_STEPS = 300
"""Steps of one dive before it is finished greedily."""

FEW = 1e-9
"""The weight of the lesser part of a cost, to break ties."""

_DEAD_END = 1


@dataclass(frozen=True, slots=True)
class Point:
    """Where to dive: a loop column, weights for a row of costs, whether daring is allowed."""

    column: int
    weights: Row
    may_dare: bool


def points(column_count: int, probe_count: int) -> Iterator[Point]:
    """All points, those that differ most first: every column, then every probe."""
    for probe in range(SPREAD):
        for weighted, may_dare in ((0, True), (0, False), (probe_count, True)):
            if probe > 1 and not may_dare:
                continue
            weights = np.zeros(2 * probe_count + 1)
            weights[probe] = weights[probe_count + probe] = FEW
            weights[weighted + probe] = 1.0
            for column in range(column_count):
                yield Point(column, weights, may_dare)


class _Step(NamedTuple):
    """A partial DAG: its bound, a number to break ties, and what a walk keeps."""

    bound: float
    number: int
    need: int
    tiles: int
    units: int
    left: int
    paid: float
    chosen: _Chosen | None


class _Chosen(NamedTuple):
    """A linked list of choices: class number, place of the choice."""

    cls: int
    place: int
    rest: _Chosen | None


class Dives:
    """Dives into one cone."""

    def __init__(self, bounds: Bounds) -> None:
        self.step_count = 0
        self._bounds = bounds
        self._parts: dict[int, list[Part]] = {}

    def dive(self, point: Point, roots: int, max_operators: int) -> OpDag | None:
        """The op DAG that looks cheapest there, or None where there is none."""
        if roots & _DEAD_END or roots.bit_count() > max_operators:
            return None
        prices = _Prices(self._bounds, point)
        heap = [_Step(0.0, 0, roots, 0, 0, max_operators, 0.0, None)]
        seen: dict[tuple[int, int, int], float] = {}
        number = 0
        while heap:
            step = heappop(heap)
            if not step.need:
                return self._dag(step.chosen)
            number += 1
            if number > MAX_STEPS:
                heap.clear()
            for child in self._children(step, prices, number):
                key = (child.need, child.tiles, child.units)
                if seen.get(key, np.inf) > child.paid or number > MAX_STEPS:
                    seen[key] = child.paid
                    heappush(heap, child)
        return None

    def _children(self, step: _Step, prices: _Prices, number: int) -> Iterator[_Step]:
        top = step.need.bit_length() - 1
        rest, left = step.need ^ (1 << top), step.left - 1
        for place, choice in enumerate(self._bounds.classes[top].choices):
            price = prices.choices[top][place]
            if price is None:
                continue
            need = rest | choice.needs
            if need.bit_count() > left or need & _DEAD_END:
                continue
            self.step_count += 1
            tiles = self._bounds.tiles(step.tiles, top, rest, choice)
            paid = step.paid + price
            for unit in bits(choice.units & ~step.units):
                paid += prices.units[unit]
            for i in bits(tiles & ~step.tiles):
                paid += prices.tiles[i]
            bound = paid + self._rest(need, tiles, prices)
            yield _Step(
                bound, -number, need, tiles, step.units | choice.units, left, paid,
                _Chosen(top, place, step.chosen),
            )  # fmt: skip

    def _rest(self, need: int, tiles: int, prices: _Prices) -> float:
        """The least that the classes needed cost."""
        parts = self._parts.get(need)
        if parts is None:
            parts = self._parts[need] = parts_of(need, self._bounds.dependence)
        out = 0.0
        for part in parts:
            is_output = self._bounds.classes[part.index].is_output
            is_counted = is_output or tiles >> part.index & 1
            out += prices.least[part.index][part.way][is_counted]
        return out

    def _dag(self, chosen: _Chosen | None) -> OpDag:
        out = []
        while chosen is not None:
            this = self._bounds.classes[chosen.cls]
            out.append((this.cls, this.choices[chosen.place].operator))
            chosen = chosen.rest
        return tuple(out)


class _Prices:
    """The tables of `bounds` as numbers at one point; None for a choice that is not allowed."""

    def __init__(self, bounds: Bounds, point: Point) -> None:
        k, w = point.column, point.weights
        self.choices: list[list[float | None]] = [
            [
                float(c.rows[k] @ w)
                if c.alive[k] and (point.may_dare or not c.rows[k, -1])
                else None
                for c in this.choices
            ]
            for this in bounds.classes
        ]
        self.tiles = [float(this.tile_rows[k] @ w) for this in bounds.classes]
        self.units = {u: float(rows[k] @ w) for u, (_, rows) in bounds.units.items()}
        self.least = [
            {
                way: (float(least.rows[k] @ w), float(least.bare_rows[k] @ w))
                for way, least in this.least.items()
            }
            for this in bounds.classes
        ]
