"""Costs at given sizes, as numbers that decide: when is one cost at most another within a box?

With sizes known every variable has a range: a block has all of a dim that no grid dim may divide,
of another one between two elements and all of them; a loop iterates between once and as often as
leaves tiles of two elements; how dear operations are relative to each other stays open within
bounds. On such a box a polynomial that is linear in each variable is least at a corner. So one cost
is at most another everywhere exactly if it is at the corners, where both are plain numbers; that
finds more than comparing polynomials for all sizes does, and takes no time.

What a cost is linear in depends on the loop. A tile t_d of a looped dim d and the iterations i vary
against each other. Where no grid dim divides d the block has all of it, t_d = D / i: work is then
linear in i, tiles are linear in 1 / i. Where one does, t_d and i are taken for independent. A cost
of another kind (a grid dim divides a dim of one tensor alone) is compared as a polynomial.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from random import Random

import numpy as np

from prism.search.fronts.costs import Cost, Prices
from prism.search.fronts.front import Row, Sampled
from prism.search.fronts.polynomials import Monomial, exponents

DEAREST_LOG2 = 5.0
"""At most so much dearer (as a power of two) is an elementwise operation than a multiply-add, and
a special function than twice an elementwise operation."""

SPREAD = 4
"""Points for dives: sizes are given, so fewer differ than where they are not."""

MOST_LOG2 = 4
"""Of a grid dim that comes up later."""

MOST_FREE = 6
"""Dims that grid dims may divide; with more there would be too many corners."""


@dataclass(frozen=True, slots=True)
class Box:
    """The ranges of all columns: the size of each dim by number, and which a grid may divide."""

    sizes: tuple[int, ...]
    free: frozenset[int]

    @property
    def is_small(self) -> bool:
        """Whether its corners are few enough."""
        return len(self.free) <= MOST_FREE


class Corners(Sampled):
    """Costs along one loop column as rows: work, then footprint, at points and corners of a box.

    The first `SPREAD` points lie within the box, for dives.
    """

    decides = True
    spread = SPREAD

    def __init__(self, prices: Prices, box: Box, looped: int, seed: int) -> None:
        self._prices = prices
        self._box = box
        self._looped = [d for d in range(len(box.sizes)) if looped >> d & 1]
        self._is_apart = all(d in box.free for d in self._looped)
        """Whether tiles of looped dims and iterations are taken for independent."""
        self._linear: dict[tuple[Monomial, bool], bool] = {}
        super().__init__(self._points(Random(seed)), Random(seed + 1), MOST_LOG2)
        # the corner where every free dim is whole and everything else is 1
        self.whole: int | None = SPREAD + ((1 << len(box.free)) - 1) * 8

    def is_exact(self, cost: Cost) -> bool:
        """Whether the cost is linear in every variable."""
        return all(self._is_linear(m, is_work=True) for m in cost.work) and all(
            self._is_linear(m, is_work=False) for m in cost.footprint
        )

    def _is_linear(self, monomial: Monomial, *, is_work: bool) -> bool:
        known = self._linear.get((monomial, is_work))
        if known is None:
            powers = [*exponents(monomial), 0, 0, 0]
            times = powers[self._prices.iterations] if len(powers) > self._prices.iterations else 0
            if not self._is_apart:
                times -= sum(powers[d] for d in self._looped if d < len(powers))
            wanted = (0, 1) if is_work or self._is_apart else (-1, 0)
            others = [e for v, e in enumerate(powers) if v != self._prices.iterations]
            has_grid = any(powers[self._prices.special + 1 :])
            known = times in wanted and max(others) <= 1 and not has_grid
            self._linear[monomial, is_work] = known
        return known

    # -- the points

    def _points(self, random: Random) -> Row:
        """The logarithms of the variables, one column per point."""
        free = sorted(self._box.free)
        names: list[object] = [*free, "iterations", "elementwise", "special"]
        middle = dict.fromkeys(names, 0.5)
        spread = [middle, dict.fromkeys(names, 0.0)]
        while len(spread) < SPREAD:
            spread.append({name: random.random() for name in names})
        corners = [
            dict(zip(names, where, strict=True)) for where in product((0.0, 1.0), repeat=len(names))
        ]
        return np.array([self._logs_at(where) for where in (*spread, *corners)]).T

    def _logs_at(self, where: Mapping[object, float]) -> list[float]:
        """The logarithms at a point; `where` says how far into its range each variable is."""
        most = min((self._whole(d) for d in self._looped), default=0.0)
        iterations = where["iterations"] * max(most, 0.0)
        out = []
        for d in range(len(self._box.sizes)):
            # prices count the elements of a tile in pairs
            log = self._whole(d)
            if d in self._box.free:
                log = min(log, where[d] * log)
            if d in self._looped and not self._is_apart:
                log -= iterations
            out.append(log)
        elementwise, special = (where[v] * DEAREST_LOG2 for v in ("elementwise", "special"))
        return [*out, iterations, elementwise, special]

    def _whole(self, d: int) -> float:
        return float(np.log2(self._box.sizes[d])) - 1.0
