"""Every map of the inputs along one parallel dim, and what it makes of each tensor.

A map along one parallel dim gives each input a data dim or leaves it whole. Grid dims and the loop
have the same maps, and a tensor's state under one does not depend on the others, so one table
serves all: per term, its possible states and the dims in which it is a tile, under every map at
once. A set of maps is a bit mask.

That is how mapping variables stay symbolic while a graph grows: a partial graph keeps the set of
maps that its operators leave, and no map is ever chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice, product

from prism.ir import OPS, OpKind
from prism.search.grid import leaf_state
from prism.search.placement import PARTIAL, PEAK, REPLICATED, State
from prism.search.pruning import Gate, Tiled
from prism.search.stages import PlacementRules
from prism.search.wiring import Arena, TermId, dims_in

MAX_MAPS = 4_096
"""Programs with more maps along one dim are grown as if every graph fitted some map."""

Maps = int
"""A set of maps, as a bit mask."""

States = frozenset[State]

_NONE: States = frozenset()
_WHOLE: States = frozenset({REPLICATED})
_UNFINISHED: States = frozenset({PARTIAL, PEAK})


class Spread:
    """The table of terms by maps."""

    def __init__(self, arena: Arena, gate: Gate, rules: PlacementRules) -> None:
        self._arena = arena
        self._gate = gate
        self._rules = rules
        choices = [(REPLICATED, *dims_in(arena.mask(i.dims))) for i in arena.program.inputs]
        listed = list(islice(product(*choices), MAX_MAPS + 1))
        self.is_off = len(listed) > MAX_MAPS
        self.maps: tuple[tuple[State, ...], ...] = () if self.is_off else tuple(listed)
        """The state of each input under each map; the first leaves all of them whole."""
        self.all: Maps = 1 if self.is_off else (1 << len(self.maps)) - 1
        self._states: dict[TermId, tuple[States, ...]] = {}
        self._tiles: dict[TermId, tuple[tuple[int, ...], Maps]] = {}
        self._agree: dict[Tiled, bool] = {}

    def placed(self, term: TermId) -> Maps:
        """The maps under which a term has a state."""
        return self._mask(term, bool)

    def whole(self, term: TermId) -> Maps:
        """The maps under which every block or iteration computes all of a term."""
        return self._mask(term, lambda found: REPLICATED in found)

    def varying(self, term: TermId) -> Maps:
        """The maps under which a term differs between blocks or iterations."""
        return self._mask(term, lambda found: bool(found - _WHOLE))

    def unfinished(self, term: TermId) -> Maps:
        """The maps under which a term may be a summand or a maximum of a part."""
        return self._mask(term, lambda found: not found.isdisjoint(_UNFINISHED))

    def _mask(self, term: TermId, holds: Callable[[States], bool]) -> Maps:
        """The maps under which something holds of the states of a term."""
        if self.is_off:
            return self.all
        return sum(1 << i for i, found in enumerate(self.states(term)) if holds(found))

    def matched(self, term: TermId) -> Maps:
        """The maps that split all matched dims below a term alike."""
        return self.all if self.is_off else self._tiled(term)[1]

    def states(self, term: TermId) -> tuple[States, ...]:
        """The states a term may be in under each map; none where it cannot be placed."""
        known = self._states.get(term)
        if known is None:
            known = self._states[term] = self._placed_states(term)
        return known

    def _placed_states(self, term: TermId) -> tuple[States, ...]:
        value = self._arena.terms[term]
        if value.leaf is not None:
            return tuple(frozenset((leaf_state(value.inputs, m),)) for m in self.maps)
        below = zip(*(self.states(t) for t in value.operands), strict=True)
        asked: dict[tuple[States, ...], States] = {}
        out = []
        for operands in below:
            if operands not in asked:
                asked[operands] = self._results(term, operands)
            out.append(asked[operands])
        return tuple(out)

    def _results(self, term: TermId, operands: tuple[States, ...]) -> States:
        found: set[State] = set()
        for states in product(*map(sorted, operands)):
            if all(state == REPLICATED for state in states):
                found.add(REPLICATED)
            else:
                found.update(self._rules.results(term, states))
        return frozenset(found) if found else _NONE

    def _tiled(self, term: TermId) -> tuple[tuple[int, ...], Maps]:
        """The dims in which a term is a tile, under each map; and the maps that match."""
        known = self._tiles.get(term)
        if known is None:
            known = self._tiles[term] = self._found_tiles(term)
        return known

    def _found_tiles(self, term: TermId) -> tuple[tuple[int, ...], Maps]:
        value = self._arena.terms[term]
        if value.leaf is not None:
            states = (leaf_state(value.inputs, m) for m in self.maps)
            return tuple(0 if s == REPLICATED else 1 << s for s in states), self.all
        below = [self._tiled(t) for t in value.operands]
        operand_dims = tuple(self._arena.terms[t].dims for t in value.operands)
        matched = self.all
        for _, maps in below:
            matched &= maps
        tiles = []
        for i, operands in enumerate(zip(*(tiles for tiles, _ in below), strict=True)):
            if not self._do_agree(value.op, operands, operand_dims):
                matched &= ~(1 << i)
            tiles.append(_union(operands) & ~_reduced(value.op, value.dim))
        return tuple(tiles), matched

    def _do_agree(self, op: str, tiles: tuple[int, ...], operand_dims: tuple[int, ...]) -> bool:
        asked = Tiled(op, tiles, operand_dims)
        if asked not in self._agree:
            self._agree[asked] = self._gate.keeps(asked)
        return self._agree[asked]


def _union(masks: Sequence[int]) -> int:
    out = 0
    for mask in masks:
        out |= mask
    return out


def _reduced(op: str, dim: int) -> int:
    return 0 if OPS[op].kind is OpKind.ELEMENTWISE else 1 << dim
