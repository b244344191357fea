"""The families of an op DAG: with each loop stage, under its maximal grids; offered to the fronts.

Fewer grid dims than may be is one of them at size 1, so of the mappings that the encoding gives and
placement allows only those are kept whose grid no other one contains. Families that need not be
compared are not built: the stages of a loop column along which the op DAG is ruled out already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from prism.search.fronts.costs import Cost, GraphCosts, Prices, looped_dims
from prism.search.fronts.front import Front
from prism.search.fronts.polynomials import Monomial, without
from prism.search.generate import Materials
from prism.search.grid import Column, leaf_state
from prism.search.mapper import Mapper
from prism.search.mappings import MappedDims
from prism.search.placement import REPLICATED, State
from prism.search.ranking import Ranked
from prism.search.stages import Stage, StageLimits, StageWalk
from prism.search.wiring import TermId, Wired

Loop = tuple[State, ...]
"""What the loop divides of each input."""

Grids = frozenset[frozenset[Column]]


@dataclass(frozen=True, slots=True)
class Family:
    """An op DAG with a loop stage (None: no loop) under mappings in which it costs the same."""

    wired: Wired
    stage: Stage | None
    mapped: tuple[MappedDims, ...]


class Families:
    """Offers op DAGs to the fronts."""

    def __init__(self, materials: Materials, mapper: Mapper, prices: Prices) -> None:
        self.fronts: dict[Loop, Front[Family]] = {}
        self.count = 0
        self.stage_steps = 0
        self._materials = materials
        self._mapper = mapper
        self._prices = prices
        self._costs = GraphCosts(materials.arena, prices, mapper.placement)
        self._none: Loop = (REPLICATED,) * len(materials.arena.input_names)
        self._by_loop: dict[int, dict[Loop, list[MappedDims]]] = {}

    def offer(self, wired: Wired, loops: Sequence[Loop], *, is_daring: bool) -> None:
        """Offer the families of an op DAG along these loop columns, and without a loop."""
        # with a loop first: a graph without is one of them where it iterates once
        wanted = dict.fromkeys([loop for loop in loops if loop != self._none])
        wanted[self._none] = None
        stages = cache(lambda loop: tuple(self._stages(wired, loop)) if loop in wanted else ())
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
                self._offer(wired, stage, by_loop[loop], factors, is_daring=is_daring)

    def ranked(self, family: Family) -> Iterator[Ranked]:
        """The candidates of a family, one for each mapping."""
        for dims in family.mapped:
            ranked = self._mapper.ranked(family.wired, family.stage, dims)
            if ranked is not None:
                yield ranked

    def _maximal(self, wired, loops, stages) -> Iterator[MappedDims]:
        """The legal mappings along the loops, those with the largest grids."""
        gate, arena = self._materials.gate, self._materials.arena
        mappings = self._mapper.mappings
        equal = gate.equalities(arena, wired)
        is_legal = cache(lambda column: self._mapper.is_legal(wired, column))
        legal = mappings.legality(wired, equal, is_legal, lambda loop: bool(stages(loop)))
        kept: dict[Loop, list[frozenset[Column]]] = {loop: [] for loop in loops}
        for count in range(self._materials.limits.grid_dims, -1, -1):
            answer = mappings.of(wired, equal, count, legal)
            if mappings.is_cut:
                self._materials.cuts.add("mappings", "mappings: an enumeration was cut short")
            grouped = self._grouped(answer)
            for loop, larger in kept.items():
                for dims in grouped.get(loop, ()):
                    columns = frozenset(dims.grid)
                    if not any(columns < other for other in larger) and all(
                        is_legal(column) for column in dims.grid
                    ):
                        larger.append(columns)
                        yield dims

    def _grouped(self, answer: tuple[MappedDims, ...]) -> dict[Loop, list[MappedDims]]:
        """The mappings by loop column; answers are kept by `Mappings`, so their id is theirs."""
        known = self._by_loop.get(id(answer))
        if known is None:
            known = self._by_loop[id(answer)] = {}
            for dims in answer:
                known.setdefault(dims.loop, []).append(dims)
        return known

    def _offer(
        self,
        wired: Wired,
        stage: Stage | None,
        mapped: Sequence[MappedDims],
        factors: Callable[[tuple[Column, ...]], frozenset[tuple[TermId, Monomial]]],
        *,
        is_daring: bool,
    ) -> None:
        """Offer one family; where its cost depends on the grid, one for each cost."""
        looped = looped_dims(mapped[0].loop)
        # nearly always the grid is no factor of any cost
        by_factors: dict[frozenset[tuple[TermId, Monomial]], list[MappedDims]] = {}
        for dims in mapped:
            by_factors.setdefault(factors(dims.grid), []).append(dims)
        for key, same in by_factors.items():
            work, footprint = self._costs.of(wired, stage, looped, dict(key))
            cost = Cost(work, footprint, is_daring)
            grids = frozenset(frozenset(dims.grid) for dims in same)
            front = self.fronts.get(same[0].loop)
            if front is None:
                continue
            is_new = front.offer(cost, grids, Family(wired, stage, tuple(same)))
            if is_new and stage is not None and self._none in self.fronts:
                self._offer_once(cost, grids)

    def _offer_once(self, cost: Cost, grids: Grids) -> None:
        """A graph with a loop is one without where it iterates once."""
        variable = self._prices.iterations
        once = Cost(
            without(cost.work, variable), without(cost.footprint, variable), cost.is_daring
        )
        self.fronts[self._none].offer(once, grids, None)

    def _stages(self, wired: Wired, loop: Loop) -> Iterator[Stage | None]:
        """The loop stages of an op DAG under one mapping of its inputs along the loop."""
        if loop == self._none:
            yield None
            return
        arena, cuts = self._materials.arena, self._materials.cuts
        leaves = {t: leaf_state(arena.terms[t].inputs, loop) for t in wired.leaves}
        limits = StageLimits(self._materials.limits.max_accumulators)
        walk = StageWalk(arena, wired, leaves, self._mapper.rules, limits)
        yield from walk.stages()
        self.stage_steps += walk.steps
        if walk.is_cut:
            cuts.add("stages", "loop stages: one op DAG has too many")
        if walk.is_over_accumulators:
            cuts.add("max_accumulators")
