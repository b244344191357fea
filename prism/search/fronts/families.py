"""The families of an op DAG: with each loop stage, under its maximal grids; offered to the fronts.

Fewer grid dims than may be is one of them at size 1, so of the mappings that the encoding gives and
placement allows only those are kept whose grid no other one contains. A graph without a loop is one
with a loop that iterates once, so every graph with a loop is offered to the front without, too: not
to be listed there, but to beat.

A graph that cannot be right must beat none. Placement sees to that; where its pruner is switched
off, every finished graph is read once more (`explain`) before it is offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from prism.search.assemble import Candidate, build_graph
from prism.search.explain import explain
from prism.search.fronts.costs import Cost, GraphCosts, Prices, looped_dims
from prism.search.fronts.front import Front
from prism.search.fronts.polynomials import Monomial, without
from prism.search.generate import Materials
from prism.search.grid import Column
from prism.search.mapper import Mapper
from prism.search.mappings import MappedDims
from prism.search.placement import REPLICATED, PlacementPruner, State
from prism.search.ranking import Ranked
from prism.search.stages import Stage
from prism.search.wiring import TermId, Wired

Loop = tuple[State, ...]
"""What the loop divides of each input."""


@dataclass(frozen=True, slots=True)
class Family:
    """An op DAG with a loop stage (None: no loop) under mappings in which it costs the same."""

    wired: Wired
    stage: Stage | None
    mapped: tuple[MappedDims, ...]


FamilyFront = Front[Family | None]
"""A front of families; None stands for a graph that another front lists."""

_Factors = frozenset[tuple[TermId, Monomial]]


class Families:
    """Offers op DAGs to the fronts, one front per loop column."""

    def __init__(self, materials: Materials, mapper: Mapper, prices: Prices) -> None:
        self.fronts: dict[Loop, FamilyFront] = {}
        self.count = 0
        self._materials = materials
        self._mapper = mapper
        self._prices = prices
        self._costs = GraphCosts(materials.arena, prices, mapper.placement)
        self._is_placed = any(isinstance(p, PlacementPruner) for p in materials.gate.pruners)
        self._none: Loop = (REPLICATED,) * len(materials.arena.input_names)
        self._by_loop: dict[int, dict[Loop, list[MappedDims]]] = {}

    def offer(self, wired: Wired, loops: Iterable[Loop], *, is_daring: bool) -> None:
        """Offer the families of an op DAG along these loop columns, and without a loop."""
        mapper = self._mapper
        # with a loop first, so that the front without knows them
        wanted = [*(loop for loop in loops if loop != self._none), self._none]
        stages = cache(lambda loop: tuple(mapper.stages(wired, loop)) if loop in wanted else ())
        factors = cache(lambda grid: frozenset(self._costs.factors(wired, grid).items()))
        by_loop: dict[Loop, list[MappedDims]] = {}
        for dims in self._maximal(wired, wanted, stages):
            by_loop.setdefault(dims.loop, []).append(dims)
        for loop in wanted:
            for stage in stages(loop) if loop in by_loop else ():
                if self._mapper.op_count(wired, stage) > self._materials.limits.max_ops:
                    self._materials.cuts.add("max_ops")
                    continue
                self.count += 1
                mapped = [d for d in by_loop[loop] if mapper.fits(wired, stage, d.grid)]
                if not self._is_placed:
                    mapped = [dims for dims in mapped if self._is_right(wired, stage, dims)]
                for same in _grouped(mapped, lambda dims: factors(dims.grid)):
                    self._offer(Family(wired, stage, same), factors(same[0].grid), is_daring)

    def ranked(self, family: Family) -> Iterator[Ranked]:
        """The candidates of a family, one for each mapping."""
        for dims in family.mapped:
            ranked = self._mapper.ranked(family.wired, family.stage, dims)
            if ranked is not None:
                yield ranked

    def _maximal(
        self,
        wired: Wired,
        loops: Sequence[Loop],
        stages: Callable[[Loop], tuple[Stage | None, ...]],
    ) -> Iterator[MappedDims]:
        """The legal mappings along the loops, those with the largest grids."""
        gate, arena = self._materials.gate, self._materials.arena
        mappings = self._mapper.mappings
        equal = gate.equalities(arena, wired)
        is_legal = cache(lambda column: self._mapper.is_legal(wired, column))
        legal = mappings.legality(wired, equal, is_legal, lambda loop: bool(stages(loop)))
        kept: dict[Loop, list[frozenset[Column]]] = {loop: [] for loop in loops}
        for count in range(self._materials.limits.grid_dims, -1, -1):
            by_loop = self._answer_by_loop(mappings.of(wired, equal, count, legal))
            if mappings.is_cut:
                self._materials.cuts.add("mappings", "mappings: an enumeration was cut short")
            for loop, larger in kept.items():
                for dims in by_loop.get(loop, ()):
                    grid = frozenset(dims.grid)
                    is_new = not (self._is_placed and any(grid < other for other in larger))
                    if is_new and all(is_legal(column) for column in grid):
                        larger.append(grid)
                        yield dims

    def _is_right(self, wired: Wired, stage: Stage | None, dims: MappedDims) -> bool:
        candidate = Candidate(wired, stage, dims.assignment, dims.grid)
        return explain(build_graph(self._materials.arena, candidate)) is None

    def _answer_by_loop(self, answer: tuple[MappedDims, ...]) -> dict[Loop, list[MappedDims]]:
        """The mappings by loop column; `Mappings` keeps answers, so an id is one answer's."""
        known = self._by_loop.get(id(answer))
        if known is None:
            known = self._by_loop[id(answer)] = {}
            for dims in answer:
                known.setdefault(dims.loop, []).append(dims)
        return known

    def _offer(self, family: Family, factors: _Factors, is_daring: bool) -> None:  # noqa: FBT001 - of the cost
        """Offer one family, and where it has a loop, what it is when that iterates once."""
        loop = family.mapped[0].loop
        work, tiles = self._costs.of(family.wired, family.stage, looped_dims(loop), dict(factors))
        grids = frozenset(frozenset(dims.grid) for dims in family.mapped)
        front, unlooped = self.fronts.get(loop), self.fronts.get(self._none)
        if front is None or not front.offer(Cost(work, tiles, is_daring), grids, family):
            return
        if family.stage is not None and unlooped is not None:
            once = self._prices.iterations
            cost = Cost(without(work, once), without(tiles, once), is_daring)
            unlooped.offer(cost, grids, None)


def _grouped(
    mapped: Iterable[MappedDims], key: Callable[[MappedDims], _Factors]
) -> Iterator[tuple[MappedDims, ...]]:
    """The mappings under which a graph costs the same: nearly always all of them."""
    groups: dict[_Factors, list[MappedDims]] = {}
    for dims in mapped:
        groups.setdefault(key(dims), []).append(dims)
    return (tuple(group) for group in groups.values())
