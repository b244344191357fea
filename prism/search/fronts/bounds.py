"""What a partial op DAG costs at least, along every loop column at once.

A partial DAG has chosen operators and classes it still needs. Every op DAG it can become pays for
the operators chosen, for the cheapest operator of each class needed (a polynomial below those of
all its operators that are alive along the column), and for the tiles that are certain: of values
that a contraction reads, that two operators read, or that are no elementwise operator's. All parts
are tables by class, choice and column, as polynomials and as rows of numbers at the probe points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prism.ir import OPS, OpKind
from prism.search.cone import Cone
from prism.search.dags import DagTable
from prism.search.fronts.chains import ANY, Dependence, bits, dependences, parts_of
from prism.search.fronts.costs import Cost, Prices, looped_dims
from prism.search.fronts.front import Scale
from prism.search.fronts.polynomials import ZERO, Polynomial, add, below_all, total
from prism.search.fronts.states import Reach, States
from prism.search.fronts.units import PartOf, Units
from prism.search.grid import Column
from prism.search.macros import MACRO_OF, ClassId, Operator
from prism.search.placement import PARTIAL, PEAK
from prism.search.ranking import OVERFLOWING
from prism.search.wiring import Arena

Rows = NDArray[np.float64]
"""One row per loop column."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An operator a class may have.

    `needs`: the classes it reads, as bits; `read_tiles`: those of them that get a tile of their own
    in any case; `tiles`: the classes of its own parts that do (bits, the class itself among them
    where `has_tile`); `units`: the parts it shares. `alive`, `costs` and `rows` are by loop column.
    """

    operator: Operator
    needs: int
    read_tiles: int
    tiles: int
    has_tile: bool
    units: int
    alive: NDArray[np.bool_]
    costs: tuple[Cost, ...]
    rows: Rows


@dataclass(frozen=True, slots=True)
class Least:
    """The least a class costs, by loop column: with its own tile, and without.

    Without polynomials where the rows decide.
    """

    costs: tuple[Cost, ...]
    rows: Rows
    bare_costs: tuple[Cost, ...]
    bare_rows: Rows


@dataclass(frozen=True, slots=True)
class ClassBound:
    """A class: its choices, its tile by loop column, and the least it costs.

    `least` is of its operator alone (key None) or of the way down to an input.
    `is_tile`: its value has a tile whatever its operator; `is_output`: nothing reads it at first.
    """

    cls: ClassId
    choices: tuple[Choice, ...]
    tile: tuple[Polynomial, ...]
    tile_rows: Rows
    least: Mapping[int | None, Least]
    is_tile: bool
    is_output: bool


@dataclass(frozen=True, slots=True)
class Tables:
    """What bounds are made from.

    `scales` are by column, all of one width. `own_daring`: the program's own operators that may
    overflow.
    """

    arena: Arena
    cone: Cone
    table: DagTable
    dims: Mapping[ClassId, int]
    prices: Prices
    scales: tuple[Scale, ...]
    columns: tuple[Column, ...]
    reaches: tuple[Reach, ...]
    own_daring: frozenset[Operator]


class Bounds:
    """The tables of one cone. Class number i is bit i, as in the table of op DAGs."""

    def __init__(self, tables: Tables, is_late: Callable[[], bool]) -> None:
        table = tables.table
        self._tables = tables
        self._looped = [looped_dims(column.inputs) for column in tables.columns]
        self._parts = Units(tables.arena, table, tables.dims)
        self._number = {cls: i for i, cls in enumerate(table.classes)}
        read = 0
        for choices in table.choices:
            for _, mask in choices:
                read |= mask
        self._unread_roots = table.roots & ~read
        self.count = len(tables.columns)
        self.width = max((scale.width for scale in tables.scales), default=0)
        self._decides = any(scale.decides for scale in tables.scales)
        known = dependences(tables.arena, tables.cone, table)
        nothing = Dependence(0, 0, 0, 0)
        self.dependence = tuple(known.get(cls, nothing) for cls in table.classes)
        self.units: dict[int, tuple[tuple[Cost, ...], Rows]] = {}
        self.classes: list[ClassBound] = []
        self.is_complete = True
        """False where time ran out: then nothing can be bounded."""
        for i, cls in enumerate(table.classes):
            if is_late():
                self.is_complete = False
                return
            self.classes.append(self._class(i, cls, table.choices[i]))

    def _class(
        self, index: int, cls: ClassId, offered: Sequence[tuple[Operator, int]]
    ) -> ClassBound:
        alive = np.array(
            [
                [bool(reach.by_choice[index][operator]) for reach in self._tables.reaches]
                for operator, _ in offered
            ],
            dtype=bool,
        ).reshape(-1, self.count)
        choices = tuple(
            self._choice(index, operator, mask, alive[j])
            for j, (operator, mask) in enumerate(offered)
        )
        dims = self._tables.dims.get(cls, 0)
        tile = tuple(
            self._tile(dims, looped, reach.states.get(cls, frozenset()))
            for looped, reach in zip(self._looped, self._tables.reaches, strict=True)
        )
        tile_rows = self._rows([Cost(ZERO, size) for size in tile])
        must = self.dependence[index].must
        ways: list[int | None] = [None, ANY, *bits(must)]
        if self._decides:
            least = {way: self._least_rows(choices, tile_rows, way) for way in ways}
        else:
            least = {way: self._least(choices, tile, way) for way in ways}
        return ClassBound(
            cls,
            choices,
            tile,
            tile_rows,
            least,
            is_tile=all(c.has_tile for c in choices),
            is_output=bool(self._tables.table.roots >> index & 1),
        )

    def _least(
        self, choices: Sequence[Choice], tile: Sequence[Polynomial], way: int | None
    ) -> Least:
        """The least of a class's operator and of what lies below it on the way to an input."""
        full: list[Cost] = []
        bare: list[Cost] = []
        for k in range(self.count):
            alive = [c for c in choices if c.alive[k]]
            below = [self._below(c, way, k) for c in alive]
            work = below_all(
                [add(c.costs[k].work, b.work) for c, b in zip(alive, below, strict=True)]
            )
            size = below_all([b.footprint for b in below])
            with_tile = below_all(
                [
                    add(tile[k], b.footprint) if c.has_tile else b.footprint
                    for c, b in zip(alive, below, strict=True)
                ]
            )
            full.append(Cost(work, with_tile))
            bare.append(Cost(work, size))
        return Least(tuple(full), self._rows(full), tuple(bare), self._rows(bare))

    def _least_rows(self, choices: Sequence[Choice], tile_rows: Rows, way: int | None) -> Least:
        """The same as numbers that decide: the least at each corner is below all in between."""
        full, bare = np.full((2, self.count, self.width), np.inf)
        work = self.width // 2
        for choice in choices:
            rows = self._rows_below(choice, way)
            rows[:, :work] += choice.rows[:, :work]
            rows[~choice.alive] = np.inf
            np.minimum(bare, rows, out=bare)
            np.minimum(full, rows + tile_rows if choice.has_tile else rows, out=full)
        is_dead = np.isinf(bare[:, 0])
        full[is_dead] = bare[is_dead] = 0.0
        return Least((), full, (), bare)

    def _rows_below(self, choice: Choice, way: int | None) -> Rows:
        """The rows of what is below an operator on the way to an input, dearest operand first."""
        below = [] if way is None else [self.classes[i].least for i in bits(choice.needs) if i]
        rows = [least[way].rows for least in below if way in least]
        if len(rows) < 2:
            return rows[0].copy() if rows else np.zeros((self.count, self.width))
        several = np.stack(rows)
        dearest = several[:, :, 0].argmax(axis=0)
        chosen: Rows = several[dearest, np.arange(self.count)]
        return chosen

    def _below(self, choice: Choice, way: int | None, column: int) -> Cost:
        """The least below an operator on the way to an input."""
        least = self._dearest_below(choice, way, column)
        return Cost(ZERO, ZERO) if least is None else least.costs[column]

    def _dearest_below(self, choice: Choice, way: int | None, column: int) -> Least | None:
        """What is below an operator on the way to an input: of its operands the dearest."""
        best: Least | None = None
        dearest = -1.0
        for i in bits(choice.needs) if way is not None else ():
            least = self.classes[i].least.get(way) if i else None
            if least is not None and least.rows[column, 0] > dearest:
                dearest = least.rows[column, 0]
                best = least
        return best

    def _choice(
        self, index: int, operator: Operator, needs: int, alive: NDArray[np.bool_]
    ) -> Choice:
        parts = self._parts.of(operator)
        own = [part for part in parts if part.unit is None]
        costs = tuple(self._cost(index, operator, own, k) for k in range(self.count))
        is_contraction = operator.op not in MACRO_OF and OPS[operator.op].kind is OpKind.CONTRACT
        tiles = units = 0
        for part in parts:
            if part.unit is not None:
                units |= 1 << part.unit
                self._keep_unit(part)
            if part.is_reduction and part.cls is not None:
                tiles |= 1 << self._number[part.cls]
        has_tile = bool(tiles >> index & 1)
        return Choice(
            operator, needs, needs if is_contraction else 0, tiles, has_tile, units, alive, costs,
            self._rows(costs),
        )  # fmt: skip

    def _keep_unit(self, part: PartOf) -> None:
        assert part.unit is not None
        if part.unit not in self.units:
            costs = tuple(
                Cost(
                    self._tables.prices.work(part.op, part.space, looped),
                    self._hidden_tile(part, looped, frozenset((0,))),
                )
                for looped in self._looped
            )
            self.units[part.unit] = (costs, self._rows(costs))

    def _hidden_tile(self, part: PartOf, looped: int, states: States) -> Polynomial:
        """The tile of a reduction inside a macro whose value no class stands for."""
        if part.cls is not None or not part.is_reduction:
            return ZERO
        return self._tile(part.dims, looped, states)

    def _cost(self, index: int, operator: Operator, own: Sequence[PartOf], column: int) -> Cost:
        looped = self._looped[column]
        is_daring = operator.op in OVERFLOWING and operator not in self._tables.own_daring
        work = total(self._tables.prices.work(part.op, part.space, looped) for part in own)
        states = self._tables.reaches[column].by_choice[index].get(operator, frozenset())
        size = [self._hidden_tile(part, looped, states) for part in own]
        if self._unread_roots >> index & 1 and states and states <= {PARTIAL, PEAK}:
            # accumulated in any case
            size.append(self._tile(self._result_dims(operator), looped, states))
        return Cost(work, total(size), is_daring)

    def _result_dims(self, operator: Operator) -> int:
        dims = _union([self._tables.dims.get(c, 0) for c in operator.children])
        return dims & ~(1 << self._tables.arena.dim_index(operator.dim)) if operator.dim else dims

    def _tile(self, dims: int, looped: int, states: States) -> Polynomial:
        """The smallest tile a value may have in any of the states."""
        divided = next((1 << s for s in sorted(states, reverse=True) if s >= 0), 0)
        return self._tables.prices.tile(dims, looped & ~divided)

    def _rows(self, costs: Sequence[Cost]) -> Rows:
        if not costs:
            return np.zeros((0, self.width))
        scales = self._tables.scales
        return np.vstack([s.row(cost) for s, cost in zip(scales, costs, strict=True)])

    def tiles(self, tiles: int, index: int, rest: int, choice: Choice) -> int:
        """The classes whose tiles are certain once a class has this operator.

        `tiles` were certain before; `rest` are the other classes needed.
        """
        # read by a contraction, or read a second time
        out = tiles | choice.read_tiles | (choice.needs & rest) | choice.tiles
        for i in bits(choice.needs):
            if self.classes[i].is_tile or self.classes[i].is_output:
                out |= 1 << i
        if self.classes[index].is_output and not tiles >> index & 1:
            out &= ~(1 << index)
        return out

    def parts(self, need: int, tiles: int) -> list[tuple[Least, bool]]:
        """What the classes needed cost at least: summands, and whether their tiles are counted."""
        out: list[tuple[Least, bool]] = []
        for part in parts_of(need, self.dependence):
            this = self.classes[part.index]
            is_counted = this.is_output or bool(tiles >> part.index & 1)
            out.append((this.least[part.way], is_counted))
        return out

    def rows(self, need: int, tiles: int) -> Rows:
        """The least that the classes needed cost, as numbers."""
        out = np.zeros((self.count, self.width))
        for least, is_bare in self.parts(need, tiles):
            out += least.bare_rows if is_bare else least.rows
        return out

    def cost(self, chosen: Sequence[Choice], need: int, tiles: int, column: int) -> Cost:
        """The bound of a partial DAG along one column, as polynomials."""
        costs = [c.costs[column] for c in chosen]
        units = 0
        for c in chosen:
            units |= c.units
        costs += [self.units[unit][0][column] for unit in bits(units)]
        for least, is_bare in self.parts(need, tiles):
            costs.append(least.bare_costs[column] if is_bare else least.costs[column])
        work = [cost.work for cost in costs]
        size = [cost.footprint for cost in costs]
        size += [self.classes[i].tile[column] for i in bits(tiles)]
        return Cost(total(work), total(size), any(c.is_daring for c in costs))


def _union(masks: Sequence[int]) -> int:
    out = 0
    for mask in masks:
        out |= mask
    return out
