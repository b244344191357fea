"""Dives: the op DAG that looks cheapest at one point, for many points, before the walk begins.

At a point (one loop column, one value for every variable, a weight for work and for tiles) costs
are numbers, so a best-first search with the bound of `bounds` finds the cheapest op DAG at once.
Dives from points spread over the sizes fill the fronts with what is good somewhere: the walk then
rules out the rest early, and a walk that is cut short has seen the graphs that matter most. Two
partial DAGs that need and share the same are one here, the cheaper; a dive that takes too many
steps is finished greedily. Neither loses anything, since dives only come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from prism.search.dags import OpDag
from prism.search.fronts.bounds import Bounds, Choice, Rows
from prism.search.fronts.chains import Part, bits, parts_of
from prism.search.fronts.front import Row, Scale

MAX_STEPS = 300
"""Steps of one dive before it is finished greedily."""

FEW = 1e-9
"""The weight of the lesser part of a cost, to break ties."""

_DEAD_END = 1


@dataclass(frozen=True, slots=True)
class Point:
    """Where to dive: a loop column, weights for a row of costs, whether daring is allowed.

    `is_first`: in the middle of the sizes, which comes first.
    """

    column: int
    weights: Row
    may_dare: bool
    is_first: bool


def points(column_count: int, scale: Scale) -> Iterator[Point]:
    """All points, those that differ most first: every column, then every probe."""
    probe_count = scale.count
    for probe in range(scale.spread):
        for weighted, may_dare in ((0, True), (0, False), (probe_count, True)):
            if probe > 1 and not may_dare:
                continue
            weights = np.zeros(2 * probe_count + 1)
            weights[probe] = weights[probe_count + probe] = FEW
            weights[weighted + probe] = 1.0
            for column in range(column_count):
                yield Point(column, weights, may_dare, probe == 0)


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
        self._rows: dict[int, _ColumnRows] = {}

    def dive(self, point: Point, roots: int, max_operators: int) -> OpDag | None:
        """The op DAG that looks cheapest there, or None where there is none."""
        if roots & _DEAD_END or roots.bit_count() > max_operators:
            return None
        if point.column not in self._rows:
            self._rows[point.column] = _ColumnRows(self._bounds, point.column)
        prices = _Prices(self._bounds, self._rows[point.column], point)
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

    def __init__(self, bounds: Bounds, rows: _ColumnRows, point: Point) -> None:
        priced = iter((rows.choices @ point.weights).tolist())
        self.choices: list[list[float | None]] = []
        for this in bounds.classes:
            prices = [(c, next(priced)) for c in this.choices]
            self.choices.append([p if _may_choose(c, point) else None for c, p in prices])
        self.tiles: list[float] = (rows.tiles @ point.weights).tolist()
        self.units = dict(zip(bounds.units, (rows.units @ point.weights).tolist(), strict=True))
        least = iter((rows.least @ point.weights).tolist())
        bare = iter((rows.bare @ point.weights).tolist())
        self.least = [
            {way: (next(least), next(bare)) for way in this.least} for this in bounds.classes
        ]


def _may_choose(choice: Choice, point: Point) -> bool:
    is_allowed = point.may_dare or not choice.rows[point.column, -1]
    return is_allowed and bool(choice.alive[point.column])


class _ColumnRows:
    """The rows of `bounds` along one column in matrices, to be priced at once."""

    def __init__(self, bounds: Bounds, column: int) -> None:
        def stacked(rows: Iterable[Rows]) -> Rows:
            return np.array([r[column] for r in rows]).reshape(-1, bounds.width)

        classes = bounds.classes
        self.choices = stacked(c.rows for this in classes for c in this.choices)
        self.tiles = stacked(this.tile_rows for this in classes)
        self.units = stacked(rows for _, rows in bounds.units.values())
        self.least = stacked(w.rows for this in classes for w in this.least.values())
        self.bare = stacked(w.bare_rows for this in classes for w in this.least.values())
