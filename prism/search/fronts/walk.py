"""Branch and bound over op DAGs, all loop columns at once.

The walk chooses an operator for the highest class needed, as the enumeration of all op DAGs does
(`dags`), the cheapest first, depth first. Along each loop column a partial DAG lives on while its
operators are alive there and no member of that column's front costs at most the bound for all
sizes. It is dropped when no column is left. A complete DAG is handed to `visit` with the columns it
is alive along; that fills the fronts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from prism.search.dags import DagTable, OpDag
from prism.search.fronts.bounds import Bounds, Choice, Rows
from prism.search.fronts.chains import bits
from prism.search.fronts.costs import Cost
from prism.search.fronts.front import Front

_DEAD_END = 1


class _Chosen(NamedTuple):
    """A linked list of choices: class number, choice."""

    number: int
    choice: Choice
    rest: _Chosen | None


class _Partial(NamedTuple):
    """A partial DAG: classes needed, tiles counted, operators left, choices, live columns."""

    need: int
    tiles: int
    left: int
    units: int
    chosen: _Chosen | None
    live: NDArray[np.bool_]
    paid: Rows
    bound: Rows


@dataclass(slots=True)
class WalkCount:
    """What a walk did."""

    visited: int = 0
    bounded: int = 0
    dead: int = 0
    complete: int = 0
    left: int = 0
    """Partial DAGs that were left when time ran out."""


class Walk:
    """One walk over the op DAGs of a cone."""

    def __init__(  # noqa: PLR0913 - what it asks and tells
        self,
        table: DagTable,
        bounds: Bounds,
        fronts: Sequence[Front[Any]],
        visit: Callable[[OpDag, NDArray[np.bool_]], None],
        *,
        is_late: Callable[[], bool],
        keeps: Callable[[Rows], bool] = lambda _bound: True,
    ) -> None:
        self.count = WalkCount()
        self._table = table
        self._bounds = bounds
        self._fronts = fronts
        self._visit = visit
        self._is_late = is_late
        self._keeps = keeps

    def run(self, max_operators: int) -> None:
        """Visit every op DAG of at most so many operators that no front rules out."""
        roots = self._table.roots
        if roots & _DEAD_END or roots.bit_count() > max_operators:
            return
        classes = self._bounds.classes
        live = np.ones(self._bounds.count, dtype=bool)
        nothing = np.zeros_like(classes[0].tile_rows)
        stack = [_Partial(roots, 0, max_operators, 0, None, live, nothing, nothing)]
        while stack:
            partial = stack.pop()
            if not self._lives(partial):
                continue
            if not partial.need:
                self.count.complete += 1
                dag = tuple(
                    (self._table.classes[i], c.operator) for i, c in _listed(partial.chosen)
                )
                self._visit(dag, partial.live)
                continue
            if self._is_late():
                self.count.left = len(stack) + 1
                return
            stack.extend(self._extended(partial))

    def _lives(self, partial: _Partial) -> bool:
        """Take the columns out that the fronts rule out; whether one is left."""
        live = partial.live
        for column, front in enumerate(self._fronts):
            if live[column] and front.rules_out(
                partial.bound[column], _cost(self._bounds, partial, column)
            ):
                live[column] = False
                self.count.bounded += 1
        return bool(live.any()) and self._keeps(partial.bound[live])

    def _extended(self, partial: _Partial) -> list[_Partial]:
        """The partial DAG with each choice for the highest class needed, the cheapest last."""
        top = partial.need.bit_length() - 1
        this = self._bounds.classes[top]
        rest, left = partial.need ^ (1 << top), partial.left - 1
        found: list[tuple[float, int, _Partial]] = []
        for place, choice in enumerate(this.choices):
            need = rest | choice.needs
            if need.bit_count() > left or need & _DEAD_END:
                continue
            live = partial.live & choice.alive
            if not live.any():
                self.count.dead += 1
                continue
            self.count.visited += 1
            tiles = self._bounds.tiles(partial.tiles, top, rest, choice)
            paid = partial.paid + choice.rows
            for unit in bits(choice.units & ~partial.units):
                paid += self._bounds.units[unit][1]
            for i in bits(tiles & ~partial.tiles):
                paid += self._bounds.classes[i].tile_rows
            bound = paid + self._bounds.rows(need, tiles)
            chosen = _Chosen(top, choice, partial.chosen)
            units = partial.units | choice.units
            child = _Partial(need, tiles, left, units, chosen, live, paid, bound)
            found.append((float(bound[live, 0].min()), place, child))
        found.sort(key=lambda entry: entry[:2], reverse=True)
        return [child for _, _, child in found]


def _cost(bounds: Bounds, partial: _Partial, column: int) -> Callable[[], Cost]:
    """The bound of a partial DAG along a column as polynomials, worked out when asked for."""
    return lambda: bounds.cost(
        [c for _, c in _listed(partial.chosen)], partial.need, partial.tiles, column
    )


def _listed(chosen: _Chosen | None) -> list[tuple[int, Choice]]:
    """The linked list, last chosen (deepest class) first."""
    out: list[tuple[int, Choice]] = []
    while chosen is not None:
        out.append((chosen.number, chosen.choice))
        chosen = chosen.rest
    return out
