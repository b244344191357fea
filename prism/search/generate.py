"""Generates candidates: op DAGs, their mappings, legal grids, loop stages, within the budgets.

The steps nest as the paper's generation does: an op DAG is wired, its mappings come from the
encoding, each grid dim is placed, each loop mapping staged. Candidates come out the best looking
first, so that a budget on verification cuts the worst. What a limit cut is noted in `Cuts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from prism.protocols import Encoding
from prism.search.assemble import Candidate
from prism.search.cone import Cone
from prism.search.dags import OpDag, Steps, dag_table, op_dags
from prism.search.grid import Column, GridPlacement, leaf_state
from prism.search.macros import ClassId, Operator
from prism.search.mappings import MappedDims, Mappings
from prism.search.pruning import Gate, Matched, Offered
from prism.search.ranking import Ranked, rank
from prism.search.stages import (
    PlacementRules,
    Stage,
    StageLimits,
    StageWalk,
    accumulator_operators,
)
from prism.search.wiring import Arena, TermId, Wired

MAX_PARTIAL_DAGS = 100_000
MAX_CANDIDATES_PER_DAG = 4_000


@dataclass(frozen=True, slots=True)
class Limits:
    """The budgets of generation in numbers; `candidates` bounds how many are listed."""

    max_ops: int
    max_accumulators: int
    grid_dims: int
    candidates: int


@dataclass(slots=True)
class Cuts:
    """What was left out.

    `counts`: how often each budget cut. `sentences`: what makes the search incomplete; the budgets
    that the caller set (operators, accumulators) do not.
    """

    sentences: dict[str, None] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, budget: str, sentence: str | None = None, count: int = 1) -> None:
        """Note a cut."""
        self.counts[budget] = self.counts.get(budget, 0) + count
        if sentence is not None:
            self.sentences[sentence] = None


class Generator:
    """The tables that the steps share."""

    def __init__(
        self, arena: Arena, gate: Gate, encoding: Encoding, limits: Limits, cuts: Cuts
    ) -> None:
        self.mappings = Mappings(encoding, arena)
        self.steps = Steps(MAX_PARTIAL_DAGS)
        self.dag_count = 0
        self._arena = arena
        self._gate = gate
        self._limits = limits
        self._cuts = cuts
        self._rules = PlacementRules(arena, gate)
        self._placement = GridPlacement(arena, gate, self._rules)
        self._own: frozenset[TermId] = frozenset()

    def candidates(
        self, cone: Cone, is_late: Callable[[], bool], progress: Callable[[int], None]
    ) -> list[Ranked]:
        """Every candidate within the budgets, the best looking first."""
        out: list[Ranked] = []
        seen: set[tuple[int, ...]] = set()
        own = self._arena.wire(cone, preferred_dag(cone))
        self._own = frozenset(() if own is None else own.nodes)
        for wired in self._wired_dags(cone):
            if wired.roots in seen:
                continue  # a macro beside its parts written out: the same terms
            seen.add(wired.roots)
            self.dag_count += 1
            # late, not even the rest of this one
            out.extend(takewhile(lambda _: not is_late(), self._placed(wired)))
            progress(len(out))
            if len(out) >= self._limits.candidates:
                self._cuts.add("candidates", f"candidates: stopped after {len(out)}")
                break
            if is_late():
                self._cuts.add("budget_s", "time: not every op DAG was tried")
                break
        return sorted(out, key=lambda found: found.rank)

    def _wired_dags(self, cone: Cone) -> Iterator[Wired]:
        """The op DAGs as terms, those that the pruners keep."""
        table = dag_table(cone, lambda operator: self._gate.keeps(offered(cone, operator)))
        for dag in op_dags(table, self._limits.max_ops, self.steps):
            wired = self._arena.wire(cone, dag)
            if wired is None or not self._fits_outputs(wired):
                self._cuts.add("malformed")
            elif self._gate.keeps(Matched(self._arena, wired)):
                yield wired
        if self.steps.is_cut:
            limit = self.steps.limit
            self._cuts.add("partial_dags", f"op DAGs: stopped after {limit} partial ones")

    def _fits_outputs(self, wired: Wired) -> bool:
        """Whether every output varies along the dims the program's own does."""
        program = self._arena.program
        dims = program.tensor_dims()
        return all(
            self._arena.terms[root].dims == self._arena.mask(tuple(dims[output.tensor]))
            for root, output in zip(wired.roots, program.outputs, strict=True)
        )

    def _placed(self, wired: Wired) -> Iterator[Ranked]:
        """The candidates of one op DAG.

        A graph with fewer grid dims is one with more of them at size one, but both are counted,
        as the paper does; without any grid only where no grid dim is legal.
        """
        equal = self._gate.equalities(self._arena, wired)
        legal: dict[Column, bool] = {}
        stages: dict[tuple[int, ...], tuple[Stage | None, ...]] = {}
        found = 0
        for count in range(self._limits.grid_dims, -1, -1):
            if count == 0 and found:
                return
            mapped = self.mappings.of(wired, equal, count)
            if self.mappings.is_cut:
                self._cuts.add("mappings", "mappings: an enumeration was cut short")
            for dims in mapped:
                if not all(self._is_legal(wired, column, legal) for column in dims.grid):
                    continue
                if dims.loop not in stages:
                    stages[dims.loop] = tuple(self._stages(wired, dims))
                for stage in stages[dims.loop]:
                    ranked = self._ranked(wired, stage, dims)
                    if ranked is not None:
                        found += 1
                        yield ranked
                if found >= MAX_CANDIDATES_PER_DAG:
                    self._cuts.add("candidates", "candidates: one op DAG has too many")
                    return

    def _is_legal(self, wired: Wired, column: Column, known: dict[Column, bool]) -> bool:
        """Whether a grid dim is used by some output and leaves all of them as mapped."""
        if column not in known:
            is_used = any(dim >= 0 for dim in column.outputs)
            known[column] = is_used and self._placement.is_legal(wired, column)
        return known[column]

    def _stages(self, wired: Wired, dims: MappedDims) -> Iterator[Stage | None]:
        """The loop stages of an op DAG under one mapping of its inputs along the loop."""
        if not dims.has_loop:
            yield None
            return
        terms = self._arena.terms
        leaves = {t: leaf_state(terms[t].inputs, dims.loop) for t in wired.leaves}
        limits = StageLimits(self._limits.max_accumulators)
        walk = StageWalk(self._arena, wired, leaves, self._rules, limits)
        yield from walk.stages()
        if walk.is_cut:
            self._cuts.add("stages", "loop stages: one op DAG has too many")
        if walk.is_over_accumulators:
            self._cuts.add("max_accumulators")

    def _ranked(self, wired: Wired, stage: Stage | None, dims: MappedDims) -> Ranked | None:
        """The candidate with its counts, or None beyond the operator budget."""
        accumulated = () if stage is None else stage.accumulated
        inputs = sum(self._arena.terms[t].inputs > 0 for t in wired.leaves)
        op_count = inputs + wired.operator_count + accumulator_operators(self._arena, accumulated)
        if op_count > self._limits.max_ops:
            self._cuts.add("max_ops")
            return None
        candidate = Candidate(wired, stage, dims.assignment, len(dims.grid))
        order = rank(self._arena, self._placement, candidate, dims.grid, self._own)
        return Ranked(order, candidate, op_count, len(accumulated))


def offered(cone: Cone, operator: Operator) -> Offered:
    """An operator as pruners see it."""
    return Offered(
        operator,
        tuple(c in cone.computable for c in operator.children),
        tuple(cone.dims.get(c, frozenset()) for c in operator.children),
    )


def preferred_dag(cone: Cone) -> OpDag:
    """The op DAG of preferred choices: the program's own."""
    needed = set(cone.roots)
    out: list[tuple[ClassId, Operator]] = []
    for cls in reversed(cone.order):
        if cls in needed and cone.choices[cls]:
            operator = cone.choices[cls][0]
            out.append((cls, operator))
            needed.update(operator.children)
    return tuple(reversed(out))
