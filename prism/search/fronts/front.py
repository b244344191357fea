"""Fronts: the graphs that no other one beats for all sizes, one front per loop column.

A member beats another graph when, for all values of the variables, it does no more work, its tiles
are not larger by more than a little, it dares no more, and it runs under every mapping the other
runs under (a grid dim it has beyond those is a grid dim of size 1). Tiles only decide what fits a
memory, and their sum says so roughly, so a difference of a quarter of all tiles, those of the
inputs included, is none: 4 tiles <= 5 tiles' + inputs. A member leaves the front only for one that
is at least as good without that allowance, so that small differences do not add up.

Costs are compared as numbers at a few probe points first, since few pairs pass that; those that do
are compared as polynomials. Where sizes are given the points are the corners of what they leave
open, and decide (`corners`). A few of the graphs that a member beat are remembered: those of equal
cost (ties), as a real machine may tell them apart, and others (spares), as a member may turn out
not to be provable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from prism.search.fronts.costs import Cost, Prices
from prism.search.fronts.polynomials import (
    ZERO,
    Monomial,
    Polynomial,
    add,
    exponents,
    is_below,
    scaled,
)
from prism.search.grid import Column

Row = NDArray[np.float64]

Grids = frozenset[frozenset[Column]]
"""Sets of grid columns."""

ROUNDING = 1.0 + 1e-9
SPREAD = 8
MOST_LOG2 = 8
"""Points spread over practical sizes: powers of two up to this one."""

LARGE_LOG2 = 12.0
"""The value of a variable at the corners."""

TILE_UNITS = 4
"""Tiles that differ by one part in so many count as equal."""

TIES, SPARES = 1, 3
"""Beaten graphs that are remembered per member."""

Payload = TypeVar("Payload")


class Scale(Protocol):
    """Costs as rows of numbers: work and footprint at some points, then the daring."""

    decides: bool
    """Whether a row that is nowhere larger than another says that the cost is not, where exact."""
    whole: int | None
    """The point at which one block does everything, and a row says how much; None where none is."""
    count: int
    spread: int
    """The first points, so many, lie within the range of sizes."""
    width: int

    def row(self, cost: Cost) -> Row:
        """The row of a cost."""

    def is_exact(self, cost: Cost) -> bool:
        """Whether its row says all about a cost."""


class Sampled:
    """Costs as rows at given points, those of a `Scale`.

    `logs` are the binary logarithms of the variables, a column per point; variables that come up
    later are drawn by `random`, up to `most_log2`.
    """

    def __init__(self, logs: Row, random: Random, most_log2: int) -> None:
        self._known: dict[Monomial, Row] = {}
        self._logs = logs
        self._random = random
        self._most_log2 = most_log2
        self.count = logs.shape[1]
        self.width = 2 * self.count + 1

    def row(self, cost: Cost) -> Row:
        """The row of a cost."""
        out = np.zeros(self.width)
        self._add(cost.work, out[: self.count])
        self._add(cost.footprint, out[self.count : -1])
        out[-1] = cost.is_daring
        return out

    def _add(self, polynomial: Polynomial, out: Row) -> None:
        for monomial, coefficient in polynomial.items():
            known = self._known.get(monomial)
            if known is None:
                known = self._known[monomial] = self._value(monomial)
            out += coefficient * known

    def _value(self, monomial: Monomial) -> Row:
        powers = exponents(monomial)
        while len(self._logs) < len(powers):
            # a grid dim that came up later
            drawn = [float(self._random.randint(0, self._most_log2)) for _ in range(self.count)]
            self._logs = np.vstack((self._logs, drawn))
        return np.exp2(np.array(powers, dtype=float) @ self._logs[: len(powers)])


class Probes(Sampled):
    """Costs at a few points, for all sizes: rows rule out much, polynomials decide."""

    decides = False
    whole: int | None = None
    spread = SPREAD

    def __init__(self, prices: Prices, seed: int) -> None:
        logs = _probe_logs(prices.variable_count, Random(seed))
        super().__init__(logs, Random(seed + 1), MOST_LOG2)

    def is_exact(self, cost: Cost) -> bool:
        """Never: sizes have no end."""
        del cost
        return False


def _probe_logs(variable_count: int, random: Random) -> Row:
    """The binary logarithms of the variables at the probe points, one row per variable.

    First `SPREAD` points where graphs of practical sizes differ, then the corners: all variables at
    1 but one that is large, and all large but one at 1. A cost that is larger for some values
    is larger at one of them, nearly always.
    """
    spread = np.array(
        [
            [4, 1, *(random.randint(0, MOST_LOG2) for _ in range(SPREAD - 2))]
            for _ in range(variable_count)
        ],
        dtype=float,
    )
    alone = LARGE_LOG2 * np.eye(variable_count)
    return np.hstack((spread, alone, LARGE_LOG2 - alone, np.zeros((variable_count, 1))))


@dataclass(slots=True)
class Member(Generic[Payload]):
    """A graph on a front, with the sets of grid columns it runs under."""

    cost: Cost
    grids: Grids
    payload: Payload
    is_exact: bool = False
    ties: list[Payload] = field(default_factory=list)
    spares: list[Payload] = field(default_factory=list)

    def remember(self, cost: Cost, payload: Payload) -> None:
        """Keep a graph that it beat, if there is room; not where another front lists it."""
        if self.payload is None:
            return
        kept, most = (self.ties, TIES) if cost == self.cost else (self.spares, SPARES)
        if len(kept) < most:
            kept.append(payload)


def is_no_more(left: Cost, right: Cost) -> bool:
    """Whether a cost vector is at most another one for all values of the variables."""
    return (
        left.is_daring <= right.is_daring
        and is_below(left.work, right.work)
        and is_below(left.footprint, right.footprint)
    )


def covers(grids: Grids, others: Grids) -> bool:
    """Whether every mapping of `others` is one of `grids`, some of its grid dims at size 1."""
    if others <= grids:
        return True
    return all(any(other <= grid for grid in grids) for other in others)


class Front(Generic[Payload]):
    """The undominated members along one loop column.

    `widest` are the mappings that any graph along this column may run under: only members that run
    under all of them can bound graphs whose mappings are not known yet. `inputs` is the sum of the
    tiles of all inputs. `scale` makes costs comparable.
    """

    def __init__(self, scale: Scale, widest: Grids, inputs: Polynomial) -> None:
        self.members: list[Member[Payload]] = []
        self._scale = scale
        self._widest = widest
        self._inputs = inputs
        self._input_row = scale.row(Cost(ZERO, inputs)) / TILE_UNITS
        self._stretch = scale.row(Cost(ZERO, ZERO)) + 1.0
        self._stretch[scale.count : -1] += 1.0 / TILE_UNITS
        self._rows = np.zeros((0, scale.width))
        self._is_wide = np.zeros(0, dtype=bool)

    def offer(self, cost: Cost, grids: Grids, payload: Payload) -> bool:
        """Add a graph unless it is beaten; drop what it makes needless. Whether it was added."""
        row, is_exact = self._scale.row(cost), self._scale.is_exact(cost)
        for index in self._lower(row):
            member = self.members[index]
            is_decided = is_exact and member.is_exact
            if covers(member.grids, grids) and (is_decided or self._allows(member.cost, cost)):
                member.remember(cost, payload)
                return False
        new = Member(cost, grids, payload, is_exact)
        keep = np.ones(len(self.members), dtype=bool)
        for index in _where((row <= self._rows * ROUNDING).all(axis=1)):
            old = self.members[index]
            is_decided = is_exact and old.is_exact
            if covers(grids, old.grids) and (is_decided or is_no_more(cost, old.cost)):
                keep[index] = False
                new.spares.extend((old.payload, *old.ties, *old.spares))
        del new.spares[SPARES:]
        self.members = [m for m, kept in zip(self.members, keep, strict=True) if kept]
        self.members.append(new)
        self._rows = np.vstack((self._rows[keep], row))
        self._is_wide = np.append(self._is_wide[keep], covers(grids, self._widest))
        return True

    def rules_out(self, row: Row, cost: Callable[[], Cost]) -> bool:
        """Whether a member beats every graph that costs at least this much."""
        found = [index for index in self._lower(row) if self._is_wide[index]]
        if not found or self._scale.decides:
            return any(self.members[index].is_exact for index in found)
        bound = cost()
        return any(self._allows(self.members[index].cost, bound) for index in found)

    def _lower(self, row: Row) -> list[int]:
        """The members that cost no more at any probe point, with the allowance on tiles."""
        limit = (row * self._stretch + self._input_row) * ROUNDING
        return _where((self._rows <= limit).all(axis=1))

    def _allows(self, left: Cost, right: Cost) -> bool:
        """Whether a cost is at most another one, with the allowance on tiles."""
        if left.is_daring > right.is_daring or not is_below(left.work, right.work):
            return False
        limit = add(scaled(right.footprint, TILE_UNITS + 1), self._inputs)
        return is_below(scaled(left.footprint, TILE_UNITS), limit)


def _where(mask: NDArray[np.bool_] | np.bool_) -> list[int]:
    return [int(i) for i in np.flatnonzero(mask)]
