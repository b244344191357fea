"""Fronts: the graphs that no other one beats for all sizes, one front per loop column.

A member beats another graph when its cost is at most the other's for all values of the variables,
it dares no more, and it runs under every mapping the other runs under (a grid dim it has beyond
those is a grid dim of size 1). Costs are compared as numbers at a few probe points first, since
few pairs pass that; those that do are compared as polynomials.

What a member beat is remembered, a few per member: graphs of equal cost may differ on a real
machine, and a member may turn out not to be provable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from prism.search.fronts.costs import Cost, Prices
from prism.search.fronts.polynomials import Monomial, Polynomial, exponents, is_below
from prism.search.grid import Column

Row = NDArray[np.float64]

ROUNDING = 1.0 + 1e-9
SPREAD = 8
MOST_LOG2 = 8
"""Points spread over practical sizes: powers of two up to this one."""

LARGE_LOG2 = 12.0
"""The value of a variable at the corners."""

SPARES = 2
"""Beaten graphs that are remembered per member."""

Payload = TypeVar("Payload")


class Probes:
    """Costs as rows of numbers: work and footprint at the probe points, then the daring."""

    def __init__(self, prices: Prices, seed: int) -> None:
        self._known: dict[Monomial, Row] = {}
        self._logs = _probe_logs(prices.variable_count, Random(seed))
        self._random = Random(seed + 1)
        self.count = self._logs.shape[1]
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
            drawn = [float(self._random.randint(0, MOST_LOG2)) for _ in range(self.count)]
            self._logs = np.vstack((self._logs, drawn))
        return np.exp2(np.array(powers, dtype=float) @ self._logs[: len(powers)])


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
    grids: frozenset[frozenset[Column]]
    payload: Payload
    spares: list[Payload] = field(default_factory=list)

    def beats(self, cost: Cost, grids: frozenset[frozenset[Column]]) -> bool:
        """Whether it is at least as good for all sizes and under every one of the mappings."""
        return is_no_more(self.cost, cost) and covers(self.grids, grids)


def is_no_more(left: Cost, right: Cost) -> bool:
    """Whether a cost vector is at most another one for all values of the variables."""
    return (
        left.is_daring <= right.is_daring
        and is_below(left.work, right.work)
        and is_below(left.footprint, right.footprint)
    )


def covers(grids: frozenset[frozenset[Column]], others: frozenset[frozenset[Column]]) -> bool:
    """Whether every mapping of `others` is one of `grids`, some of its grid dims at size 1."""
    if others <= grids:
        return True
    return all(any(other <= grid for grid in grids) for other in others)


class Front(Generic[Payload]):
    """The undominated members along one loop column.

    `widest` are the mappings that any graph along this column may run under: only members that run
    under all of them can bound graphs whose mappings are not known yet.
    """

    def __init__(self, probes: Probes, widest: frozenset[frozenset[Column]]) -> None:
        self.members: list[Member[Payload]] = []
        self._probes = probes
        self._widest = widest
        self._rows = np.zeros((0, probes.width))
        self._bounding: list[Cost] = []
        self._bound_rows = np.zeros((0, probes.width))

    def offer(self, cost: Cost, grids: frozenset[frozenset[Column]], payload: Payload) -> bool:
        """Add a graph unless it is beaten; drop what it beats. Whether it was added."""
        row = self._probes.row(cost)
        for index in np.flatnonzero((self._rows <= row * ROUNDING).all(axis=1)):
            member = self.members[index]
            if member.beats(cost, grids):
                if len(member.spares) < SPARES:
                    member.spares.append(payload)
                return False
        new = Member(cost, grids, payload)
        keep = np.ones(len(self.members), dtype=bool)
        for index in np.flatnonzero((row <= self._rows * ROUNDING).all(axis=1)):
            old = self.members[index]
            if new.beats(old.cost, old.grids):
                keep[index] = False
                new.spares.extend((old.payload, *old.spares))
        del new.spares[SPARES:]
        self.members = [m for m, kept in zip(self.members, keep, strict=True) if kept]
        self.members.append(new)
        self._rows = np.vstack((self._rows[keep], row))
        if covers(grids, self._widest):
            self.bound(cost)
        return True

    def bound(self, cost: Cost) -> None:
        """Let a graph that runs under every mapping bound what is still to come."""
        row = self._probes.row(cost)
        keep = np.ones(len(self._bounding), dtype=bool)
        for index in np.flatnonzero((row <= self._bound_rows * ROUNDING).all(axis=1)):
            keep[index] = not is_no_more(cost, self._bounding[index])
        self._bounding = [c for c, kept in zip(self._bounding, keep, strict=True) if kept]
        self._bounding.append(cost)
        self._bound_rows = np.vstack((self._bound_rows[keep], row))

    def hits(self, row: Row) -> list[Cost]:
        """The bounding costs that are at most `row` at every probe point."""
        found = np.flatnonzero((self._bound_rows <= row * ROUNDING).all(axis=1))
        return [self._bounding[i] for i in found]
