"""Every map of the inputs along one parallel dim, and what it makes of each tensor.

A map along one parallel dim gives each input a data dim or leaves it whole. Grid dims and the loop
have the same maps, and a tensor's state under one does not depend on the others, so one table
serves all: per term, its possible states and the dims in which it is a tile, under every map at
once. A set of maps is a bit mask.

That is how mapping variables stay symbolic while a graph grows: a partial graph keeps the set of
maps that its operators leave, and no map is ever chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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

_WHOLE: States = frozenset({REPLICATED})
_UNFINISHED: States = frozenset({PARTIAL, PEAK})


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """What all maps make of a term; terms that fare alike share a row.

    `states` and `tiles`: under each map the states it may be in (none: it cannot be placed), and
    the dims in which it is a tile. The other fields are sets of maps: those under which it has a
    state, may be whole in every block or iteration, may differ between them, may be a summand or a
    maximum of a part, and those that split all matched dims below it alike.
    """

    states: tuple[States, ...]
    tiles: tuple[int, ...]
    placed: Maps
    whole: Maps
    varying: Maps
    unfinished: Maps
    matched: Maps


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
        self._rows: dict[TermId, Row] = {}
        self._alike: dict[tuple[object, ...], Row] = {}
        self._unique: dict[tuple[object, ...], Row] = {}
        self._agree: dict[Tiled, bool] = {}

    def row(self, term: TermId) -> Row:
        """What the maps make of a term."""
        known = self._rows.get(term)
        if known is None:
            known = self._rows[term] = self._found(term)
        return known

    def _found(self, term: TermId) -> Row:
        if self.is_off:
            return Row((), (), self.all, self.all, self.all, self.all, self.all)
        value = self._arena.terms[term]
        if value.leaf is not None:
            leaf = tuple(leaf_state(value.inputs, m) for m in self.maps)
            tiles = tuple(0 if s == REPLICATED else 1 << s for s in leaf)
            return self._row([frozenset((s,)) for s in leaf], tiles, self.all)
        below = [self.row(t) for t in value.operands]
        operand_dims = tuple(self._arena.terms[t].dims for t in value.operands)
        key = (value.op, value.dim, operand_dims, *map(id, below))
        if key not in self._alike:
            tiles, matched = self._tiles(term, below, operand_dims)
            self._alike[key] = self._row(self._states(term, below), tiles, matched)
        return self._alike[key]

    def _row(self, states: Sequence[States], tiles: tuple[int, ...], matched: Maps) -> Row:
        """The one row of this content."""
        key = (tuple(states), tiles, matched)
        if key not in self._unique:
            self._unique[key] = Row(
                key[0],
                tiles,
                placed=_mask(bool(found) for found in states),
                whole=_mask(REPLICATED in found for found in states),
                varying=_mask(bool(found - _WHOLE) for found in states),
                unfinished=_mask(not found.isdisjoint(_UNFINISHED) for found in states),
                matched=matched,
            )
        return self._unique[key]

    def _states(self, term: TermId, below: Sequence[Row]) -> list[States]:
        """The states under each map, from those of the operands."""
        asked: dict[tuple[States, ...], States] = {}
        out = []
        for operands in zip(*(row.states for row in below), strict=True):
            if operands not in asked:
                asked[operands] = self._results(term, operands)
            out.append(asked[operands])
        return out

    def _results(self, term: TermId, operands: tuple[States, ...]) -> States:
        found: set[State] = set()
        for states in product(*map(sorted, operands)):
            if all(state == REPLICATED for state in states):
                found.add(REPLICATED)
            else:
                found.update(self._rules.results(term, states))
        return frozenset(found)

    def _tiles(
        self, term: TermId, below: Sequence[Row], operand_dims: tuple[int, ...]
    ) -> tuple[tuple[int, ...], Maps]:
        """The dims in which a term is a tile, under each map; and the maps that match."""
        value = self._arena.terms[term]
        reduced = 0 if OPS[value.op].kind is OpKind.ELEMENTWISE else 1 << value.dim
        matched = self.all
        for row in below:
            matched &= row.matched
        tiles = []
        for i, operands in enumerate(zip(*(row.tiles for row in below), strict=True)):
            if not self._do_agree(value.op, operands, operand_dims):
                matched &= ~(1 << i)
            tiles.append(_union(operands) & ~reduced)
        return tuple(tiles), matched

    def _do_agree(self, op: str, tiles: tuple[int, ...], operand_dims: tuple[int, ...]) -> bool:
        asked = Tiled(op, tiles, operand_dims)
        if asked not in self._agree:
            self._agree[asked] = self._gate.keeps(asked)
        return self._agree[asked]


def _mask(holds: Iterable[bool]) -> Maps:
    """The maps for which something holds."""
    return sum(1 << i for i, is_so in enumerate(holds) if is_so)


def _union(masks: Sequence[int]) -> int:
    out = 0
    for mask in masks:
        out |= mask
    return out
