"""Turns an op DAG with its loop stages into candidates: mappings, legal grids, budgets.

What both generators share. The mappings of an op DAG come from the encoding, each grid dim is
placed, each loop mapping has the stages that the generator gives. What a limit cut is noted in
`Cuts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from prism.ir import LOOP_DIMS
from prism.search.assemble import Candidate
from prism.search.grid import Column, GridPlacement, Stacking, divided, leaf_state
from prism.search.mappings import Answers, MappedDims, Mappings
from prism.search.nests import accumulator_count, divides_other_dims, fits_nest, nest_operators
from prism.search.placement import REPLICATED, State
from prism.search.pruning import Gate, Staged
from prism.search.ranking import Ranked, rank
from prism.search.stages import (
    PlacementRules,
    Stage,
    StageLimits,
    StageWalk,
)
from prism.search.wiring import Arena, TermId, Wired

MAX_CANDIDATES_PER_DAG = 4_000

StagesOf = Callable[[tuple[State, ...]], Iterable[Stage | None]]
"""The loop stages of an op DAG under a mapping of its inputs along the loop; None: no loop."""

Stages = tuple[Stage | None, Stage | None]
"""Those along the loop, and along one inside it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The budgets of generation in numbers; `candidates` bounds how many are listed."""

    max_ops: int
    max_accumulators: int
    grid_dims: int
    candidates: int
    loop_dims: int = 1


@dataclass(slots=True)
class Cuts:
    """What was left out.

    `counts`: how often each budget cut. `sentences`: what makes the search incomplete; the budgets
    that the caller set (operators, accumulators) do not. `nearest`: for each reason the candidate
    left out that was nearest to being one, as a distance and a sentence. `is_interrupted`: time is
    over because of an interrupt, and not of the budget.
    """

    sentences: dict[str, None] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    nearest: dict[str, tuple[int, str]] = field(default_factory=dict)
    is_interrupted: Callable[[], bool] = lambda: False

    def out_of_time(self, what: str, count: int = 1, *, budget: str = "budget_s") -> None:
        """Note what was left out because time is over."""
        if self.is_interrupted():
            self.add("interrupt", f"interrupted: {what}", count)
        else:
            self.add(budget, f"time: {what}", count)

    def add(self, budget: str, sentence: str | None = None, count: int = 1) -> None:
        """Note a cut."""
        self.counts[budget] = self.counts.get(budget, 0) + count
        if sentence is not None:
            self.sentences[sentence] = None

    def miss(self, reason: str, distance: int, sentence: str) -> None:
        """Note a candidate left out, if none was nearer for this reason."""
        if reason not in self.nearest or distance < self.nearest[reason][0]:
            self.nearest[reason] = (distance, sentence)


Late = Callable[[float], bool]
"""Whether this share of the time for generating candidates is used up."""


class Mapper:
    """Maps op DAGs; the tables are shared by all DAGs of one search.

    `own` are the program's own terms, for the ranking.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what it is made from
        self,
        arena: Arena,
        gate: Gate,
        answers: Answers,
        limits: Limits,
        cuts: Cuts,
        stacking: Stacking | None = None,
        *,
        apart: bool = False,
    ) -> None:
        loops = LOOP_DIMS[: limits.loop_dims]
        self.mappings = Mappings(answers, arena, stacking, loops, apart=apart)
        self.rules = PlacementRules(arena, gate)
        self.own: frozenset[TermId] = frozenset()
        self._arena = arena
        self._gate = gate
        self._limits = limits
        self._cuts = cuts
        self.placement = GridPlacement(arena, gate, self.rules, stacking)
        self._is_stacking = stacking is not None
        self.stage_steps = 0
        """How far the walks over loop stages went."""

    def candidates(
        self,
        wired: Wired,
        stages_of: StagesOf,
        keeps: Callable[[MappedDims, Stage | None], bool] = lambda _dims, _stage: True,
        *,
        widest: bool = False,
    ) -> Iterator[Ranked]:
        """The candidates of one op DAG; `keeps` may leave some out.

        A graph with fewer grid dims is one with more of them at size one, but both are counted,
        as the paper does; without any grid only where no grid dim is legal. `widest`: only those
        with as many grid dims as there may be.
        """
        equal = self._gate.equalities(self._arena, wired)
        is_legal = cache(lambda column: self.is_legal(wired, column))
        fits = cache(lambda grid: self.is_complete(grid) and all(map(is_legal, grid)))
        stages = cache(lambda loop: tuple(stages_of(loop)))
        legal = self.mappings.legality(wired, equal, is_legal, lambda loop: bool(stages(loop)))
        found = 0
        for count in range(self._limits.grid_dims, -1, -1):
            if found and (widest or count == 0):
                return
            for dims in self.mappings.fitting(wired, equal, count, legal, fits):
                for stage, inner in self._nests(wired, dims, stages):
                    is_kept = keeps(dims, stage) and self.fits(wired, stage, dims.grid, inner)
                    ranked = self.ranked(wired, stage, dims, inner) if is_kept else None
                    if ranked is not None:
                        found += 1
                        yield ranked
                if found >= MAX_CANDIDATES_PER_DAG:
                    self._cuts.add("candidates", "candidates: one op DAG has too many")
                    return
            if self.mappings.is_cut:
                self._cuts.add("mappings", "mappings: an enumeration was cut short")

    def _nests(self, wired: Wired, dims: MappedDims, stages_of: StagesOf) -> Iterator[Stages]:
        """The stages along the loop, or along the two of a nest."""
        if not dims.has_inner:
            yield from ((stage, None) for stage in stages_of(dims.loop))
            return
        assert dims.inner is not None
        if not divides_other_dims(dims.loop, dims.inner):
            return  # the inner loop alone is the one loop
        for outer in stages_of(dims.loop):
            for inner in stages_of(dims.inner):
                if outer and inner and fits_nest(self._arena, wired, outer, inner):
                    yield outer, inner

    def stages(self, wired: Wired, loop: tuple[State, ...]) -> Iterator[Stage | None]:
        """The loop stages of an op DAG under one mapping of its inputs along the loop."""
        if all(state == REPLICATED for state in loop):
            yield None
            return
        leaves = {t: leaf_state(self._arena.terms[t].inputs, loop) for t in wired.leaves}
        limits = StageLimits(self._limits.max_accumulators)
        walk = StageWalk(self._arena, wired, leaves, self.rules, limits)
        yield from walk.stages()
        self.stage_steps += walk.steps
        if walk.is_cut:
            self._cuts.add("stages", "loop stages: one op DAG has too many")
        if walk.is_over_accumulators:
            most = self._limits.max_accumulators
            self._cuts.add("max_accumulators")
            self._cuts.miss("max_accumulators", 0, f"loop stages of more than {most} accumulators")

    def is_legal(self, wired: Wired, column: Column) -> bool:
        """Whether a grid dim is used by some output and leaves all of them as mapped."""
        is_used = any(dim >= 0 for dim in column.outputs)
        return is_used and self.placement.is_legal(wired, column)

    def is_complete(self, grid: Iterable[Column]) -> bool:
        """Whether partial outputs, where there are any, are stacked along one of the grid dims."""
        return not self._is_stacking or any(self.placement.stacks(column) for column in grid)

    def fits(
        self,
        wired: Wired,
        stage: Stage | None,
        grid: tuple[Column, ...],
        inner: Stage | None = None,
    ) -> bool:
        """Whether pruners that know where graphs shall run keep this one; for legal grids.

        They judge tiles of one loop: what has two is kept.
        """
        if not self._gate.is_situated or inner is not None:
            return True
        spans = tuple(divided(column) for column in grid)
        placement = self.placement
        staged = Staged(
            self._arena, wired, stage, spans, lambda term, p: placement.state(term, grid[p])
        )
        return self._gate.keeps(staged)

    def op_count(self, wired: Wired, stage: Stage | None, inner: Stage | None = None) -> int:
        """How many block operators a graph of an op DAG has."""
        inputs = sum(self._arena.terms[t].inputs > 0 for t in wired.leaves)
        return inputs + wired.operator_count + nest_operators(self._arena, stage, inner)

    def ranked(
        self, wired: Wired, stage: Stage | None, dims: MappedDims, inner: Stage | None = None
    ) -> Ranked | None:
        """The candidate with its counts, or None beyond the budgets of operators, accumulators."""
        held, most = accumulator_count(stage, inner), self._limits.max_accumulators
        if inner is not None and held > most:
            self._cuts.add("max_accumulators")
            self._cuts.miss("max_accumulators", 0, f"loop stages of more than {most} accumulators")
            return None
        op_count = self.op_count(wired, stage, inner)
        if op_count > self._limits.max_ops:
            self._cuts.add("max_ops")
            self._cuts.miss("max_ops", op_count, f"a graph of {op_count} block operators")
            return None
        candidate = Candidate(wired, stage, dims.assignment, dims.grid, inner=inner)
        order = rank(self._arena, self.placement, candidate, dims.grid, self.own)
        return Ranked(order, candidate, op_count, held)
