"""Complete graphs, sorted by op DAG, and the loop stages that they are.

What a graph fixes of its loop stage, before the loop is mapped, is its structure: which operators
run after the loop and what is accumulated. Under a map of the inputs along the loop that is one
stage of the op DAG, or none (with placement switched off several, which differ in guesses).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prism.search.cone import Cone
from prism.search.forward.concrete import Choice
from prism.search.forward.growth import Graph
from prism.search.forward.spread import Maps
from prism.search.forward.values import ValueId, Values
from prism.search.placement import AFTER, State
from prism.search.pruning import Ended, Gate
from prism.search.stages import PlacementRules, Stage, StageLimits, StageWalk, Walk
from prism.search.wiring import Arena, TermId, Wired


@dataclass(frozen=True, slots=True)
class Structure:
    """What runs after the loop, and what is accumulated."""

    after: frozenset[TermId] = frozenset()
    accumulated: frozenset[TermId] = frozenset()


def structure_of(stage: Stage | None) -> Structure:
    """The structure of a stage."""
    if stage is None:
        return Structure()
    after = frozenset(t for t in stage.places if stage.state(t) == AFTER)
    return Structure(after, frozenset(stage.accumulated))


@dataclass(slots=True)
class Seen:
    """Where a structure was completed: the maps along the loop left to it, the maps chosen."""

    maps: Maps = 0
    choices: set[Choice] = field(default_factory=set)


class Complete:
    """Every complete graph of one search."""

    def __init__(self, arena: Arena, gate: Gate, cone: Cone, values: Values) -> None:
        self.found: dict[Wired, dict[Structure, Seen]] = {}
        self._arena = arena
        self._gate = gate
        self._roots = cone.roots
        self._values = values
        self._known: dict[tuple[frozenset[ValueId], tuple[ValueId, ...]], Seen] = {}

    @property
    def count(self) -> int:
        """How many structures there are."""
        return sum(map(len, self.found.values()))

    def add(self, graph: Graph, outputs: tuple[ValueId, ...], maps: Maps, choice: Choice) -> None:
        """Note a graph, if the pruners take its tensors for the outputs.

        It was grown under these maps along the loop.
        """
        values = [self._values.values[v] for v in outputs]
        roots = tuple(value.term for value in values)
        is_own = roots == self._values.own_roots
        if not self._gate.keeps(Ended(tuple(v.cls for v in values), self._roots, is_own)):
            return
        key = (frozenset(graph.values), outputs)
        if key not in self._known:
            self._known[key] = self._sorted_in(graph, roots)
        seen = self._known[key]
        seen.maps |= graph.maps.matched & graph.maps.placed & maps
        seen.choices.add(choice)

    def _sorted_in(self, graph: Graph, roots: tuple[TermId, ...]) -> Seen:
        """The entry of a graph's structure."""
        values = [self._values.values[v] for v in graph.values]
        operators = [value for value in values if value.is_operator]
        inner = frozenset().union(*(value.inner for value in operators))
        plain = frozenset(value.term for value in operators if not value.inner)
        wired = self._arena.wired(roots, len(operators), inner - plain)
        structure = Structure(
            frozenset().union(*(value.after for value in values)),
            frozenset().union(*(value.accumulated for value in values)),
        )
        return self.found.setdefault(wired, {}).setdefault(structure, Seen())


class FixedWalk(StageWalk):
    """The stages of an op DAG in which exactly these operators run after the loop."""

    def __init__(
        self,
        arena: Arena,
        wired: Wired,
        leaf_states: Mapping[TermId, State],
        rules: PlacementRules,
        structure: Structure,
    ) -> None:
        super().__init__(arena, wired, leaf_states, rules, StageLimits(len(structure.accumulated)))
        self._structure = structure

    def stages(self) -> Iterator[Stage]:
        """Those that accumulate exactly what the structure says."""
        for stage in super().stages():
            if frozenset(stage.accumulated) == self._structure.accumulated:
                yield stage

    def _options(
        self, place: int, states: tuple[State, ...], accumulated: tuple[int, ...]
    ) -> list[Walk]:
        is_after = self._terms[place] in self._structure.after
        options = super()._options(place, states, accumulated)
        return [walk for walk in options if (walk[1][-1] == AFTER) == is_after]
