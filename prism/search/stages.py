"""Loop stages: which operators run in the loop body, which after it, what is accumulated between.

For one op DAG and one mapping of its inputs along the loop, every operator in turn, children first:

  * all operands replicated: the value is the same in every iteration; it is hoisted, no choice
  * an operand exists only after the loop: so does the result
  * otherwise two options: in the body, where placement allows it, or after the loop

Where an operator runs after the loop, its operands that differ between iterations are accumulated:
partial ones summed, maxima kept, tiles put side by side; one accumulator per value, shared by its
readers. A partial value may be accumulated at once or flow on through linear operators: both come
out. An input that the loop partitions is not read after it (that would be a second loader). An
output that is a tile is stored by a saver inside the loop, without an accumulator. A loop in which
every output is the same in every iteration is useless.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prism.ir import OPS, OpKind
from prism.search.placement import AFTER, PARTIAL, PEAK, REPLICATED, State, possible_states
from prism.search.pruning import Gate, Placed
from prism.search.wiring import Arena, TermId, Wired


@dataclass(frozen=True, slots=True)
class Stage:
    """A loop stage of an op DAG.

    `accumulated`: values accumulated for operators after the loop or for an output; `stored`:
    outputs that are stored tile by tile in the loop. The states of all terms are kept by place,
    because the stages of one DAG share the places.
    """

    places: Mapping[TermId, int]
    by_place: tuple[State, ...]
    accumulated: tuple[TermId, ...]
    stored: tuple[TermId, ...]

    def state(self, term: TermId) -> State:
        """The state of a term of the DAG."""
        return self.by_place[self.places[term]]

    def is_late(self, term: TermId, operands: Iterable[TermId]) -> bool:
        """Whether an operator works on sums that are not finished: once per iteration, in full."""
        return self.state(term) == PARTIAL and any(self.state(t) == PARTIAL for t in operands)


class PlacementRules:
    """What the pruners allow one operator along one parallel dim, asked once per question."""

    def __init__(self, arena: Arena, gate: Gate) -> None:
        self._arena = arena
        self._gate = gate
        self._known: dict[tuple[TermId, tuple[State, ...]], tuple[State, ...]] = {}
        self._shared: dict[tuple[object, ...], tuple[State, ...]] = {}
        self._kept: dict[Placed, bool] = {}

    def results(self, term: TermId, states: tuple[State, ...]) -> tuple[State, ...]:
        """The states the result may be in; `states` of the operands, not all replicated."""
        key = (term, states)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._ask(term, states)
        return known

    def _ask(self, term: TermId, states: tuple[State, ...]) -> tuple[State, ...]:
        value = self._arena.terms[term]
        operand_dims = tuple(self._arena.terms[t].dims for t in value.operands)
        return self.allowed(value.op, value.dim, states, operand_dims, value.dims)

    def allowed(
        self,
        op: str,
        dim: int,
        states: tuple[State, ...],
        operand_dims: tuple[int, ...],
        result_dims: int,
    ) -> tuple[State, ...]:
        """The same for an operator over any values of these dims."""
        key = (op, dim, states, operand_dims, result_dims)
        known = self._shared.get(key)
        if known is None:
            placed = (
                Placed(op, dim, states, operand_dims, result)
                for result in possible_states(result_dims)
            )
            known = self._shared[key] = tuple(p.result for p in placed if self._keeps(p))
        return known

    def _keeps(self, placed: Placed) -> bool:
        if placed not in self._kept:
            self._kept[placed] = self._gate.keeps(placed)
        return self._kept[placed]


@dataclass(frozen=True, slots=True)
class StageLimits:
    """Budgets of one enumeration: accumulators per graph, stages and steps per (DAG, mapping)."""

    accumulators: int
    stages: int = 256
    steps: int = 20_000


Walk = tuple[int, tuple[State, ...], tuple[int, ...]]
"""How far a walk is, the state of each operator so far, the places accumulated."""


class StageWalk:
    """Enumerates the stages of one op DAG under one mapping along the loop.

    Values are numbered by place: leaves first, then operators.
    """

    def __init__(
        self,
        arena: Arena,
        wired: Wired,
        leaf_states: Mapping[TermId, State],
        rules: PlacementRules,
        limits: StageLimits,
    ) -> None:
        self._terms = (*wired.leaves, *wired.nodes)
        self._first = len(wired.leaves)
        self._rules = rules
        self._limits = limits
        self._places = place = {term: i for i, term in enumerate(self._terms)}
        self._operands = [tuple(place[t] for t in arena.terms[n].operands) for n in self._terms]
        self._inner = [term in wired.inner for term in self._terms]
        self._start = tuple(leaf_states[t] for t in wired.leaves)
        self._roots = tuple(dict.fromkeys(place[r] for r in wired.roots))
        self.is_cut = False
        """Whether a limit on stages or steps stopped the walk."""
        self.is_over_accumulators = False
        """Whether a stage with too many accumulators was left out."""
        self.steps = 0
        """How far it went."""

    def stages(self) -> Iterator[Stage]:
        """Every stage, once: operators in the body first."""
        stack: list[Walk] = [(self._first, self._start, ())]
        seen: set[object] = set()
        while stack:
            self.steps += 1
            place, states, accumulated = stack.pop()
            if place == len(self._terms):
                stage = self._finished(states, accumulated)
                if stage is not None and (key := _signature(stage)) not in seen:
                    seen.add(key)
                    yield stage
            else:
                stack.extend(reversed(self._options(place, states, accumulated)))
            if stack and (self.steps >= self._limits.steps or len(seen) >= self._limits.stages):
                self.is_cut = True
                return

    def _options(
        self, place: int, states: tuple[State, ...], accumulated: tuple[int, ...]
    ) -> list[Walk]:
        """The ways to go on with the operator at `place`, preferred first."""
        operands = tuple(states[i] for i in self._operands[place])
        if all(state == REPLICATED for state in operands):
            return [(place + 1, (*states, REPLICATED), accumulated)]
        body: list[Walk] = []
        if AFTER not in operands:
            # a macro is staged as one operator: it accumulates where its own sum is partial
            is_crossing = self._inner[place] and not {PARTIAL, PEAK}.isdisjoint(operands)
            if not is_crossing:
                body = [
                    (place + 1, (*states, state), accumulated)
                    for state in self._rules.results(self._terms[place], operands)
                ]
            if self._inner[place] and body:
                return body
        after = self._after(place, states, accumulated)
        return body if after is None else [*body, (place + 1, (*states, AFTER), after)]

    def _after(
        self, place: int, states: tuple[State, ...], accumulated: tuple[int, ...]
    ) -> tuple[int, ...] | None:
        """What is accumulated when the operator at `place` runs after the loop; None if illegal."""
        crossing = dict.fromkeys(
            i for i in self._operands[place] if states[i] not in (REPLICATED, AFTER)
        )
        if any(i < self._first for i in crossing):
            return None
        return self._within_limit((*accumulated, *(i for i in crossing if i not in accumulated)))

    def _finished(self, states: tuple[State, ...], accumulated: tuple[int, ...]) -> Stage | None:
        """The stage, once the outputs are accumulated too; None if useless or over the limit."""
        if all(states[root] == REPLICATED for root in self._roots):
            return None
        stored = tuple(r for r in self._roots if states[r] >= 0 and r not in accumulated)
        partial = tuple(
            r for r in self._roots if states[r] in (PARTIAL, PEAK) and r not in accumulated
        )
        whole = self._within_limit((*accumulated, *partial))
        if whole is None:
            return None
        return Stage(
            self._places,
            states,
            tuple(self._terms[i] for i in whole),
            tuple(self._terms[i] for i in stored),
        )

    def _within_limit(self, accumulated: tuple[int, ...]) -> tuple[int, ...] | None:
        if len(accumulated) > self._limits.accumulators:
            self.is_over_accumulators = True
            return None
        return accumulated


def _signature(stage: Stage) -> object:
    """What shows in the graph: with a pruner off, stages may differ in guesses that do not."""
    after = sum(1 << i for i, state in enumerate(stage.by_place) if state == AFTER)
    crossing = frozenset((t, stage.state(t)) for t in stage.accumulated + stage.stored)
    return after, crossing, len(stage.stored)


def accumulator_operators(arena: Arena, accumulated: tuple[TermId, ...]) -> int:
    """How many operators the accumulators count as: one after a reduction counts with it."""
    return sum(
        arena.terms[t].leaf is not None or OPS[arena.terms[t].op].kind is not OpKind.REDUCE
        for t in accumulated
    )
