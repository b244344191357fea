"""Legality of a mapping along one grid dim: does every output end up as its omap says?

A state along one grid dim depends on the op DAG and on that dim's column of the mapping alone, so
each column is tested once per DAG and its states are kept per sub-term, shared by all DAGs.

A kernel before the last may leave partial outputs to a later one: they are mapped to a *stack dim*,
all of them along the same grid dim (`Stacking`).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import product

from prism.ir import DataDim
from prism.search.placement import REPLICATED, State
from prism.search.pruning import Gate, Saved
from prism.search.stages import PlacementRules
from prism.search.wiring import Arena, TermId, Wired


@dataclass(frozen=True, slots=True)
class Column:
    """One parallel dim's part of a mapping.

    For each of the program's inputs and outputs the data dim's number, or REPLICATED.
    """

    inputs: tuple[State, ...]
    outputs: tuple[State, ...]


@dataclass(frozen=True, slots=True)
class Stacking:
    """Outputs that blocks stack along `dim`: their numbers, and what they are, PARTIAL or PEAK."""

    dim: DataDim
    outputs: Mapping[int, State]


def divided(column: Column) -> int:
    """The dims that a column divides anywhere, as a mask."""
    mask = 0
    for dim in (*column.inputs, *column.outputs):
        if dim >= 0:
            mask |= 1 << dim
    return mask


class GridPlacement:
    """The states of terms along grid dims, per column of the inputs."""

    def __init__(
        self, arena: Arena, gate: Gate, rules: PlacementRules, stacking: Stacking | None = None
    ) -> None:
        self._stacking = stacking
        self._arena = arena
        self._gate = gate
        self._rules = rules
        self._known: dict[tuple[State, ...], dict[TermId, frozenset[State]]] = {}
        self._sharded: dict[tuple[State, ...], set[TermId]] = {}

    def is_legal(self, wired: Wired, column: Column) -> bool:
        """Whether every output can be saved as the column says."""
        if self.root_states(wired, column) is None:
            return False
        states, saved = self._known[column.inputs], self._as_saved(column)
        return saved is not None and all(
            any(self._gate.keeps(Saved(state, mapped)) for state in sorted(states[root]))
            for root, mapped in zip(wired.roots, saved, strict=True)
        )

    def divides(self, term: TermId, column: Column) -> bool:
        """Whether blocks along the grid dim share a value's elements or its terms; legal columns.

        A partial value is shared: each block computes other summands.
        """
        return self.state(term, column) != REPLICATED

    def root_states(self, wired: Wired, column: Column) -> tuple[State, ...] | None:
        """The states of the outputs where the inputs are mapped so; None where placement fails."""
        states = self._known.setdefault(column.inputs, {})
        for term in (*wired.leaves, *wired.nodes):
            if term not in states:
                states[term] = self._states(term, column.inputs, states)
                if max(states[term], default=REPLICATED) >= 0:
                    self._sharded.setdefault(column.inputs, set()).add(term)
            if not states[term]:
                return None
        return tuple(max(states[root]) for root in wired.roots)

    def stacks(self, column: Column) -> bool:
        """Whether blocks along the grid dim stack outputs."""
        if self._stacking is None:
            return False
        return self._arena.dim_index(self._stacking.dim) in column.outputs

    def _as_saved(self, column: Column) -> tuple[State, ...] | None:
        """The states that outputs are saved in; None where only some of the stacked ones are."""
        if self._stacking is None or not self.stacks(column):
            return column.outputs
        dim, stacked = self._arena.dim_index(self._stacking.dim), self._stacking.outputs
        if any(column.outputs[index] != dim for index in stacked):
            return None
        return tuple(stacked.get(i, mapped) for i, mapped in enumerate(column.outputs))

    def state(self, term: TermId, column: Column) -> State:
        """The state of a term along a grid dim; for legal columns, the tile where there are two."""
        return max(self._known[column.inputs][term])

    def sharded(self, column: Column) -> AbstractSet[TermId]:
        """The terms whose work blocks along the grid dim share, as far as they were asked about."""
        return self._sharded.get(column.inputs, set())

    def _states(
        self, term: TermId, inputs: tuple[State, ...], known: Mapping[TermId, frozenset[State]]
    ) -> frozenset[State]:
        """The states a term may be in; one, unless a pruner is switched off."""
        value = self._arena.terms[term]
        if value.leaf is not None:
            return frozenset((leaf_state(value.inputs, inputs),))
        found: set[State] = set()
        for states in product(*(sorted(known[t]) for t in value.operands)):
            if all(state == REPLICATED for state in states):
                found.add(REPLICATED)
            else:
                found.update(self._rules.results(term, states))
        return frozenset(found)


def leaf_state(input_mask: int, inputs: tuple[State, ...]) -> State:
    """The state of a leaf: that of its input, replicated for constants and sizes."""
    return inputs[input_mask.bit_length() - 1] if input_mask else REPLICATED
