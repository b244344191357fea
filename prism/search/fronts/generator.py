"""The generator of tune mode: only graphs that no other one beats for all sizes and tiles.

    columns    what one parallel dim may do, over all op DAGs            columns
    dead ends  operators that no placement allows along a column         states
    bounds     what a partial op DAG costs at least, for all sizes       polynomials, bounds
    dives      the op DAGs that look cheapest, at many points            dives
    walk       all the others, branch and bound per loop column          walk
    families   an op DAG with a loop stage, under its maximal grids      families, costs
    fronts     exact dominance between families of one loop column       front
    corners    the same at given sizes, where plain numbers decide       corners

A family is listed once for each maximal grid: fewer grid dims is one of them at size 1, and so is
no loop where there may be one. Within a loop column all families read and write the same, so they
differ in work and in the tiles they hold. A loop divides dims of one size: dividing two at once,
in step, would keep whole what either alone holds in tiles. The mappings come from the encoding,
legality from the pruners, stages from `stages`, exactly as when all graphs are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism.search.cone import Cone
from prism.search.dags import OpDag, dag_table
from prism.search.dimension import DimensionPruner
from prism.search.fronts.bounds import Bounds, Rows, Tables
from prism.search.fronts.columns import possible_columns, used_inputs
from prism.search.fronts.corners import Box, Corners
from prism.search.fronts.costs import Prices, input_tiles, looped_dims
from prism.search.fronts.dives import Dives, points
from prism.search.fronts.families import Families, Family, FamilyFront
from prism.search.fronts.front import Front, Grids, Probes, Scale
from prism.search.fronts.polynomials import ZERO
from prism.search.fronts.states import Reach, Reaches, TooLateError
from prism.search.fronts.walk import Walk, WalkCount
from prism.search.generate import Materials, fits_outputs, offered, preferred_dag
from prism.search.grid import Column
from prism.search.macros import ClassId
from prism.search.mapper import Late, Mapper
from prism.search.placement import REPLICATED, State
from prism.search.pruning import Bounded, Matched
from prism.search.ranking import OVERFLOWING, Ranked
from prism.search.wiring import Arena, dims_in

DIVE_SHARE = 0.6
"""The part of the time for generating after which no more dives begin, but the first ones."""


class FrontGenerator:
    """Lists the graphs of the fronts, then those that tie with them."""

    def __init__(self, materials: Materials, seed: int) -> None:
        self.mapper = materials.mapper()
        self._materials = materials
        self._seed = seed
        self._run: _Run | None = None
        self._spares: dict[int, list[Family | None]] = {}

    def candidates(
        self, cone: Cone, is_late: Late, progress: Callable[[int], None]
    ) -> list[Ranked]:
        """The candidates on the fronts, the best looking first, then the ties."""
        run = self._run = _Run(self._materials, self.mapper, cone, self._seed)
        run.search(is_late, progress)
        members = [m for front in run.families.fronts.values() for m in front.members]
        listed: list[Ranked] = []
        for member in members:
            for ranked in self._ranked(run, [member.payload]):
                listed.append(ranked)
                self._spares[id(ranked)] = [*member.ties, *member.spares]
        ties = self._ranked(run, (tie for member in members for tie in member.ties))
        progress(len(listed) + len(ties))
        return [*sorted(listed, key=lambda found: found.rank), *ties]

    def instead(self, unproved: Iterable[Ranked]) -> list[Ranked]:
        """What graphs of the fronts had beaten, to be judged where they are not proved."""
        if self._run is None:
            return []
        spares = [s for ranked in unproved for s in self._spares.get(id(ranked), ())]
        return self._ranked(self._run, spares)

    def counters(self) -> dict[str, Any]:
        """What it did."""
        return {"states": 0, "dags": 0} if self._run is None else self._run.counters()

    def _ranked(self, run: _Run, families: Iterable[Family | None]) -> list[Ranked]:
        found = [r for f in families if f is not None for r in run.families.ranked(f)]
        return sorted(found, key=lambda ranked: ranked.rank)


class _Run:
    """The tables and fronts of one cone."""

    def __init__(self, materials: Materials, mapper: Mapper, cone: Cone, seed: int) -> None:
        arena, gate = materials.arena, materials.gate
        self._materials = materials
        self._mapper = mapper
        self._cone = cone
        self._own = preferred_dag(cone)
        wired = arena.wire(cone, self._own)
        mapper.own = frozenset(() if wired is None else wired.nodes)
        operators = {operator for _, operator in self._own}
        self._own_daring = frozenset(o for o in operators if o.op in OVERFLOWING)
        self._table = dag_table(cone, lambda o: gate.keeps(offered(cone, o, is_own=o in operators)))
        self._dims: Mapping[ClassId, int] = {}
        self._used = used_inputs(cone, self._table)
        self._prices = Prices(arena)
        self._seed = seed
        self._box: Box | None = None
        self._scales: list[Scale] = []
        self._columns: list[Column] = []
        self._reaches: list[Reach] = []
        self.families = Families(materials, mapper, self._prices)
        self._seen: set[tuple[int, ...]] = set()
        self._dag_count = 0
        self._dives: Dives | None = None
        self._walked = WalkCount()

    def search(self, is_late: Late, progress: Callable[[int], None]) -> None:
        """Fill the fronts: the program's own op DAG, dives, then all others."""
        try:
            self._find_columns(lambda: is_late(1.0))
        except TooLateError:
            self._no_loops()
        everywhere = np.ones(len(self._columns), dtype=bool)
        offered_operators = {o for choices in self._table.choices for o, _ in choices}
        if offered_operators.issuperset(o for _, o in self._own):
            self._visit(self._own, everywhere)
        most = self._materials.limits.max_ops - len(self._used)
        bounds = None if is_late(1.0) else Bounds(self._tables(), lambda: is_late(1.0))
        if bounds is None or not bounds.is_complete:
            self._materials.cuts.out_of_time("only the program's own op DAG was tried")
            return
        self._dive(bounds, most, is_late, progress)
        fronts = self._fronts()
        walk = Walk(
            self._table, bounds, fronts, self._visit,
            is_late=lambda: is_late(1.0), keeps=self._keeps,
        )  # fmt: skip
        self._walked = walk.count
        walk.run(most)
        if walk.count.left:
            left = walk.count.left
            self._materials.cuts.out_of_time(f"{left} partial op DAGs were not completed", left)

    def _dive(
        self, bounds: Bounds, most: int, is_late: Late, progress: Callable[[int], None]
    ) -> None:
        """Visit what looks cheapest; at one point at least, however long all before took."""
        self._dives = Dives(bounds)
        everywhere = np.ones(len(self._columns), dtype=bool)
        for point in points(len(self._columns), self._scales[0]) if self._scales else ():
            if is_late(1.0 if point.is_first else DIVE_SHARE):
                break
            dag = self._dives.dive(point, self._table.roots, most)
            if dag is not None:
                self._visit(dag, everywhere)
                progress(self.families.count)

    def _keeps(self, bounds: Rows) -> bool:
        """Whether the pruners keep a partial op DAG that costs at least this, by live column."""
        gate, scale = self._materials.gate, self._scales[0]
        if not gate.is_situated or scale.whole is None:
            return True
        return gate.keeps(Bounded(float(bounds[:, scale.whole].min())))

    def counters(self) -> dict[str, Any]:
        """What was done so far."""
        dive_steps = 0 if self._dives is None else self._dives.step_count
        walked = self._walked
        return {
            "states": self._mapper.stage_steps + dive_steps + walked.visited,
            "dive_steps": dive_steps,
            "partial_dags": walked.visited,
            "bounded": walked.bounded,
            "dags": self._dag_count,
            "families": self.families.count,
        }

    def _no_loops(self) -> None:
        """One front, of graphs without a loop."""
        inputs = (REPLICATED,) * len(self._materials.arena.input_names)
        self._columns = [Column(inputs, (REPLICATED,) * len(self._cone.roots))]
        self._scales = [self._scale(inputs)]
        self.families.fronts = {inputs: Front(self._scales[0], frozenset(), ZERO)}

    def _find_columns(self, is_late: Callable[[], bool]) -> None:
        """What a loop may divide, with the states that leaves; a front for each.

        Raises:
            TooLateError: time ran out.
        """
        arena, cuts = self._materials.arena, self._materials.cuts
        is_matched = any(isinstance(p, DimensionPruner) for p in self._materials.gate.pruners)
        possible = possible_columns(arena, self._cone, self._table, is_matched=is_matched)
        if possible.is_cut:
            cuts.add("columns", "columns: not all that a parallel dim may do was tried")
        rules = self._mapper.rules
        reaches = Reaches(arena, self._cone, self._table, rules, is_late)
        self._dims = reaches.dims
        for column in possible.loop:
            if not _divides_one_size(arena, column):
                cuts.add("mixed_loops")
                continue
            reach = reaches.along(column.inputs, is_loop=True)
            if _may_loop(self._cone, column, reach):
                self._columns.append(column)
                self._reaches.append(reach)
        legal = [c for c in possible.grid if _may_map(self._cone, c, reaches)]
        widest = _widest(legal, self._materials.limits.grid_dims)
        self._box = self._box_of(widest)
        self._scales = [self._scale(column.inputs) for column in self._columns]
        for column, scale in zip(self._columns, self._scales, strict=True):
            tiles = input_tiles(arena, self._prices, column.inputs, self._used)
            self.families.fronts[column.inputs] = Front(scale, widest, tiles)

    def _box_of(self, widest: Grids) -> Box | None:
        """The ranges of tiles where sizes are known."""
        situation = self._materials.situation
        if situation is None or not situation.has_sizes:
            return None
        free = 0
        for column in (c for grid in widest for c in grid):
            free |= looped_dims((*column.inputs, *column.outputs))
        sizes = tuple(situation.sizes[name] for name in self._materials.arena.dim_names)
        box = Box(sizes, frozenset(dims_in(free)))
        return box if box.is_small else None

    def _scale(self, loop: tuple[State, ...]) -> Scale:
        if self._box is None:
            return Probes(self._prices, self._seed)
        return Corners(self._prices, self._box, looped_dims(loop), self._seed)

    def _fronts(self) -> list[FamilyFront]:
        """The fronts in the order of the columns."""
        return [self.families.fronts[column.inputs] for column in self._columns]

    def _tables(self) -> Tables:
        return Tables(
            self._materials.arena,
            self._cone,
            self._table,
            self._dims,
            self._prices,
            tuple(self._scales),
            tuple(self._columns),
            tuple(self._reaches),
            self._own_daring,
        )

    def _visit(self, dag: OpDag, live: NDArray[np.bool_]) -> None:
        """Offer the families of a complete op DAG to the fronts."""
        arena = self._materials.arena
        wired = arena.wire(self._cone, dag)
        if wired is None or not fits_outputs(arena, wired.roots):
            self._materials.cuts.add("malformed")
            return
        if wired.roots in self._seen:
            return
        self._seen.add(wired.roots)
        self._dag_count += 1
        if not self._materials.gate.keeps(Matched(arena, wired)):
            return
        is_daring = any(o.op in OVERFLOWING and o not in self._own_daring for _, o in dag)
        loops = [c.inputs for c, alive in zip(self._columns, live, strict=True) if alive]
        self.families.offer(wired, loops, is_daring=is_daring)


def _divides_one_size(arena: Arena, column: Column) -> bool:
    sizes = [d.size for d in arena.program.dims]
    return len({sizes[state] for state in column.inputs if state >= 0}) < 2


def _widest(legal: Iterable[Column], most: int) -> Grids:
    """The maximal grids that any graph may have, of columns that some op DAG allows."""
    sets = [
        frozenset(chosen)
        for count in range(most + 1)
        for chosen in combinations(legal, count)
        if all(_fit(a, b) for a, b in combinations(chosen, 2))
    ]
    return frozenset(s for s in sets if not any(s < other for other in sets))


def _fit(left: Column, right: Column) -> bool:
    """Whether two grid dims may be there at once: no dim of a tensor is divided by both."""
    pairs = zip((*left.inputs, *left.outputs), (*right.inputs, *right.outputs), strict=True)
    return all(a != b or a < 0 for a, b in pairs)


def _may_loop(cone: Cone, column: Column, reach: Reach) -> bool:
    """Whether some op DAG may have this loop, or none where the column maps nothing."""
    roots = [reach.states.get(root, frozenset()) for root in cone.roots]
    if not all(roots):
        return False
    is_none = all(state == REPLICATED for state in column.inputs)
    return is_none or any(states != {REPLICATED} for states in roots)


def _may_map(cone: Cone, column: Column, reaches: Reaches) -> bool:
    """Whether some op DAG may have this grid dim."""
    if all(dim < 0 for dim in column.outputs):
        return False
    reach = reaches.along(column.inputs, is_loop=False)
    return all(
        mapped in reach.states.get(root, frozenset())
        for root, mapped in zip(cone.roots, column.outputs, strict=True)
    )
