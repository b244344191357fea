"""What a graph costs, as polynomials that hold for every size: the work and the tiles of a block.

Variables: t_d, the tile of each data dim (what a block has of it in one iteration), d_i, the number
of iterations, and what operations cost relative to a multiply-add of a matmul: an elementwise one
e >= 1, one of a special function e * s with s >= 2. A dim that no output has is never cut to single
elements, so its tile is at least 2. Graphs are compared under one mapping, where blocks, loads,
stores and launches are equal; a value that a grid dim does not divide though it divides the dim
elsewhere has the factor d_p.

  work        one term per operator: the elements it runs over, all iterations together; an operator
              on unfinished sums or maxima runs in every iteration; on scalars it is free
  footprint   one term per value that has a tile of its own: a chain of elementwise operators is one
              cluster, in registers, and so has none but for its last value, and not even that one
              where only a reduction in the same stage reads it

A graph that takes an exponential the program does not take is *daring*: it may be refused, so it
dominates only graphs that dare as much.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from prism.ir import OPS, OpKind
from prism.search.fronts.polynomials import Monomial, Polynomial, power, total
from prism.search.grid import Column, GridPlacement
from prism.search.placement import AFTER, PARTIAL, PEAK, REPLICATED
from prism.search.stages import Stage
from prism.search.wiring import Arena, TermId, Wired, dims_in

LIGHT = frozenset({"add", "sub", "mul", "maximum", "minimum", "neg", "square", "abs", "relu"})
"""Elementwise operators of one instruction; the others are special functions."""

UNFINISHED = frozenset({PARTIAL, PEAK})


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost vector of a graph or of a part of one."""

    work: Polynomial
    footprint: Polynomial
    is_daring: bool = False


class Prices:
    """Turns what an operator or a value spans into monomials; knows the variables."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        count = len(arena.dim_names)
        self.iterations, self.elementwise, self.special = count, count + 1, count + 2
        self._first_grid = count + 3
        self._grid: dict[Column, int] = {}
        self._work: dict[tuple[str, int, int, Monomial], Polynomial] = {}
        self._tile: dict[tuple[int, int, Monomial], Polynomial] = {}

    @property
    def variable_count(self) -> int:
        """How many variables are in use."""
        return self._first_grid + len(self._grid)

    def grid(self, column: Column) -> int:
        """The variable d_p of a grid dim that does this."""
        return self._grid.setdefault(column, self._first_grid + len(self._grid))

    def work(self, op: str, space: int, looped: int, factor: Monomial = 0) -> Polynomial:
        """An operator over the dims of `space`; `looped` are those that the loop divides."""
        key = (op, space, space & looped, factor)
        known = self._work.get(key)
        if known is None:
            known = self._work[key] = self._priced(*key)
        return known

    def tile(self, dims: int, whole: int, factor: Monomial = 0) -> Polynomial:
        """A value of these dims of which `whole` are not divided though the loop divides them."""
        key = (dims, dims & whole, factor)
        known = self._tile.get(key)
        if known is None:
            monomial, coefficient = self._extent(dims, (dims & whole).bit_count())
            known = self._tile[key] = {monomial + factor: coefficient} if dims else {}
        return known

    def _priced(self, op: str, space: int, looped: int, factor: Monomial) -> Polynomial:
        if not space:
            return {}
        monomial, coefficient = self._extent(space, (space & looped).bit_count())
        if op not in LIGHT and OPS[op].kind is OpKind.ELEMENTWISE:
            monomial += power(self.special)
            coefficient *= 2
        if OPS[op].kind is not OpKind.CONTRACT:
            monomial += power(self.elementwise)
        return {monomial + factor: coefficient}

    def _extent(self, dims: int, iterations: int) -> tuple[Monomial, int]:
        monomial = power(self.iterations, iterations)
        for d in dims_in(dims):
            monomial += power(d)
        return monomial, 1 << dims.bit_count()


Factors = Mapping[TermId, Monomial]
"""What a grid dim multiplies the cost of a term by, where it is not 1."""


def looped_dims(states: Sequence[int]) -> int:
    """The dims that a loop column divides, as a mask."""
    mask = 0
    for state in states:
        if state >= 0:
            mask |= 1 << state
    return mask


def input_tiles(
    arena: Arena, prices: Prices, states: Sequence[int], names: Container[str]
) -> Polynomial:
    """The tiles of the inputs called `names` under a loop column."""
    looped = looped_dims(states)
    tiles = []
    for node, state in zip(arena.program.inputs, states, strict=True):
        if node.name in names:
            divided = 1 << state if state >= 0 else 0
            tiles.append(prices.tile(arena.mask(node.dims), looped & ~divided))
    return total(tiles)


class GraphCosts:
    """The costs of finished graphs, operator by operator."""

    def __init__(self, arena: Arena, prices: Prices, placement: GridPlacement) -> None:
        self._arena = arena
        self._prices = prices
        self._placement = placement
        self._read_of: Wired | None = None
        self._read_by: dict[TermId, list[TermId]] = {}

    def of(
        self, wired: Wired, stage: Stage | None, looped: int, factors: Factors
    ) -> tuple[Polynomial, Polynomial]:
        """Work and footprint of one graph; `looped` are the dims that its loop divides."""
        readers = self._readers(wired)
        late = power(self._prices.iterations)
        work, footprint = [], []
        for term in wired.nodes:
            value = self._arena.terms[term]
            factor = factors.get(term, 0)
            repeated = factor + late if self._is_late(term, stage) else factor
            work.append(self._prices.work(value.op, self._space(term), looped, repeated))
            if self._has_tile(term, wired, stage, readers):
                whole = looped & ~self._divided(term, stage)
                footprint.append(self._prices.tile(value.dims, whole, factor))
        return total(work), total(footprint)

    def _space(self, term: TermId) -> int:
        value = self._arena.terms[term]
        if OPS[value.op].kind is OpKind.ELEMENTWISE:
            return value.dims
        return self._arena.terms[value.operands[0]].dims | (
            self._arena.terms[value.operands[-1]].dims
        )

    def factors(self, wired: Wired, grid: Sequence[Column]) -> Factors:
        """d_p for each dim of a term that a grid dim divides elsewhere, but not there."""
        out: dict[TermId, Monomial] = {}
        for column in grid:
            mapped = looped_dims((*column.inputs, *column.outputs))
            for term in wired.nodes:
                missed = self._space(term) & mapped
                if missed:
                    state = self._placement.state(term, column)
                    missed &= ~(1 << state) if state >= 0 else -1
                if missed:
                    factor = power(self._prices.grid(column), missed.bit_count())
                    out[term] = out.get(term, 0) + factor
        return out

    def _readers(self, wired: Wired) -> Mapping[TermId, list[TermId]]:
        if self._read_of is not wired:
            self._read_of, self._read_by = wired, {}
            for term in wired.nodes:
                for operand in dict.fromkeys(self._arena.terms[term].operands):
                    self._read_by.setdefault(operand, []).append(term)
        return self._read_by

    def _is_late(self, term: TermId, stage: Stage | None) -> bool:
        """Whether an operator works on unfinished sums or maxima, in every iteration anew."""
        if stage is None or stage.state(term) not in UNFINISHED:
            return False
        return any(stage.state(t) in UNFINISHED for t in self._arena.terms[term].operands)

    def _has_tile(
        self,
        term: TermId,
        wired: Wired,
        stage: Stage | None,
        readers: Mapping[TermId, list[TermId]],
    ) -> bool:
        """Whether the value lies in memory; see the module's docstring."""
        if stage is not None and term in stage.accumulated:
            return True
        read_by = readers.get(term, [])
        if term in wired.roots:
            return bool(read_by)
        if OPS[self._arena.terms[term].op].kind is not OpKind.ELEMENTWISE or len(read_by) > 1:
            return True
        (reader,) = read_by
        is_contracted = OPS[self._arena.terms[reader].op].kind is OpKind.CONTRACT
        return is_contracted or _when(term, stage) != _when(reader, stage)

    def _divided(self, term: TermId, stage: Stage | None) -> int:
        """The dim of which an iteration holds a tile, as a mask."""
        if stage is None or term in stage.accumulated or stage.state(term) < 0:
            return 0
        return 1 << stage.state(term)


def _when(term: TermId, stage: Stage | None) -> int:
    """Before, in, or after the loop."""
    if stage is None or stage.state(term) == REPLICATED:
        return 0
    return 2 if stage.state(term) == AFTER else 1
