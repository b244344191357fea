"""Legality of a mapping along one grid dim: does every output end up as its omap says?

A state along one grid dim depends on the op DAG and on that dim's column of the mapping alone, so
each column is tested once per DAG and its states are kept per sub-term, shared by all DAGs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

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


class GridPlacement:
    """The states of terms along grid dims, per column of the inputs."""

    def __init__(self, arena: Arena, gate: Gate, rules: PlacementRules) -> None:
        self._arena = arena
        self._gate = gate
        self._rules = rules
        self._known: dict[tuple[State, ...], dict[TermId, frozenset[State]]] = {}

    def is_legal(self, wired: Wired, column: Column) -> bool:
        """Whether every output can be saved as the column says."""
        states = self._known.setdefault(column.inputs, {})
        for term in (*wired.leaves, *wired.nodes):
            if term not in states:
                states[term] = self._states(term, column.inputs, states)
            if not states[term]:
                return False
        return all(
            any(self._gate.keeps(Saved(state, mapped)) for state in sorted(states[root]))
            for root, mapped in zip(wired.roots, column.outputs, strict=True)
        )

    def state(self, term: TermId, column: Column) -> State:
        """The state of a term along a grid dim; for legal columns, the tile where there are two."""
        return max(self._known[column.inputs][term])

    def is_sharded(self, term: TermId, column: Column) -> bool:
        """Whether blocks along the grid dim share the term's work; for legal columns."""
        return self.state(term, column) >= 0

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
