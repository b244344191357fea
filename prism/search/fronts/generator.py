"""The generator of tune mode: only graphs that no other one beats for all sizes and tiles.

    columns    what one parallel dim may do, over all op DAGs            columns
    dead ends  operators that no placement allows along a column         states
    bounds     what a partial op DAG costs at least, for all sizes       polynomials, bounds
    dives      the op DAGs that look cheapest, at many points            dives
    walk       all the others, branch and bound per loop column          walk
    families   an op DAG with a loop stage, under its maximal grids      families, costs
    fronts     exact dominance between families of one loop column       front

A family is listed once for each maximal grid: fewer grid dims is one of them at size 1, and so is
no loop where there may be one. Within a loop column all families read and write the same, so they
differ in work and in the tiles they hold. The mappings come from the encoding, legality from the
pruners, stages from `stages`, exactly as when all graphs are listed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism.search.cone import Cone
from prism.search.dags import OpDag, dag_table
from prism.search.dimension import DimensionPruner
from prism.search.fronts.bounds import Bounds
from prism.search.fronts.columns import possible_columns, used_inputs
from prism.search.fronts.costs import Prices
from prism.search.fronts.dives import Dives, points
from prism.search.fronts.families import Families, Grids, Loop
from prism.search.fronts.front import Front, Probes
from prism.search.fronts.states import Reach, Reaches, class_dims
from prism.search.fronts.walk import Walk
from prism.search.generate import Materials, fits_outputs, offered, preferred_dag
from prism.search.grid import Column
from prism.search.mapper import Late
from prism.search.placement import REPLICATED
from prism.search.pruning import Matched
from prism.search.ranking import OVERFLOWING, Ranked

DIVE_SHARE = 0.5
"""The part of the time for generating after which no more dives begin."""


class FrontGenerator:
    """Lists the graphs of the fronts."""

    def __init__(self, materials: Materials, seed: int) -> None:
        self.mapper = materials.mapper()
        self._materials = materials
        self._seed = seed
        self._run: _Run | None = None

    def candidates(
        self, cone: Cone, is_late: Late, progress: Callable[[int], None]
    ) -> list[Ranked]:
        """The candidates on the fronts, the best looking first."""
        run = _Run(self._materials, self.mapper, cone, self._seed)
        self._run = run
        run.dive(is_late, progress)
        run.walk(lambda: is_late(1.0))
        out = [
            ranked
            for front in run.families.fronts.values()
            for member in front.members
            if member.payload is not None
            for ranked in run.families.ranked(member.payload)
        ]
        progress(len(out))
        return sorted(out, key=lambda found: found.rank)

    def counters(self) -> dict[str, Any]:
        """What it did."""
        return {"states": 0, "dags": 0} if self._run is None else self._run.counters()


class _Run:
    """The tables and fronts of one cone."""

    def __init__(self, materials: Materials, mapper: Any, cone: Cone, seed: int) -> None:
        arena, gate = materials.arena, materials.gate
        self._materials = materials
        self._cone = cone
        own = preferred_dag(cone)
        wired = arena.wire(cone, own)
        mapper.own = frozenset(() if wired is None else wired.nodes)
        operators = {operator for _, operator in own}
        self._table = dag_table(
            cone, lambda o: gate.keeps(offered(cone, o, is_own=o in operators))
        )
        self._own_daring = frozenset(
            (o.op, o.children) for _, o in own if o.op in OVERFLOWING
        )
        self._max_operators = materials.limits.max_ops - len(used_inputs(cone, self._table))
        dims = class_dims(arena, cone, self._table)
        is_matched = any(isinstance(p, DimensionPruner) for p in gate.pruners)
        possible = possible_columns(arena, cone, self._table, is_matched=is_matched)
        if possible.is_cut:
            materials.cuts.add("columns", "columns: not all that a parallel dim may do was tried")
        reaches = Reaches(arena, cone, self._table, dims, mapper.rules)
        prices = Prices(arena)
        probes = Probes(prices, seed)
        widest = _widest(cone, possible.grid, reaches, materials.limits.grid_dims)
        sizes = [d.size for d in arena.program.dims]
        found: list[Reach] = []
        self._columns: list[Column] = []
        for column in possible.loop:
            if len({sizes[s] for s in column.inputs if s >= 0}) > 1:
                materials.cuts.add("mixed_loops")
                continue
            reach = reaches.along(column.inputs, is_loop=True)
            if _may_loop(cone, column, reach):
                self._columns.append(column)
                found.append(reach)
        self.families = Families(materials, mapper, prices)
        self.families.fronts = {c.inputs: Front(probes, widest) for c in self._columns}
        self._bounds = Bounds(
            arena, cone, self._table, dims, prices, probes, self._columns, found, self._own_daring
        )
        self._dives = Dives(self._bounds)
        self._seen: set[tuple[int, ...]] = set()
        self._walk: Walk | None = None
        self._dag_count = 0

    def dive(self, is_late: Late, progress: Callable[[int], None]) -> None:
        """Fill the fronts with what is good somewhere."""
        for point in points(len(self._columns), self._bounds.probe_count):
            if is_late(DIVE_SHARE):
                return
            dag = self._dives.dive(point, self._table.roots, self._max_operators)
            if dag is not None:
                self._visit(dag, np.ones(len(self._columns), dtype=bool))
                progress(self.families.count)

    def walk(self, is_late: Callable[[], bool]) -> None:
        """Look at all other op DAGs that may be on a front."""
        fronts = list(self.families.fronts.values())
        self._walk = Walk(self._table, self._bounds, fronts, self._visit, is_late)
        self._walk.run(self._max_operators)
        if self._walk.count.is_cut:
            self._materials.cuts.add("budget_s", "time: not every op DAG was tried")

    def counters(self) -> dict[str, Any]:
        """What was done so far."""
        count = None if self._walk is None else self._walk.count
        return {
            "states": self.families.stage_steps
            + self._dives.step_count
            + (count.visited if count else 0),
            "dive_steps": self._dives.step_count,
            "partial_dags": count.visited if count else 0,
            "bounded": count.bounded if count else 0,
            "dags": self._dag_count,
            "families": self.families.count,
        }

    def _visit(self, dag: OpDag, live: NDArray[np.bool_]) -> None:
        """Offer the families of a complete op DAG to the fronts."""
        wired = self._materials.arena.wire(self._cone, dag)
        if wired is None or not fits_outputs(self._materials.arena, wired.roots):
            self._materials.cuts.add("malformed")
            return
        if wired.roots in self._seen:
            return
        self._seen.add(wired.roots)
        self._dag_count += 1
        if not self._materials.gate.keeps(Matched(self._materials.arena, wired)):
            return
        is_daring = any(
            o.op in OVERFLOWING and (o.op, o.children) not in self._own_daring for _, o in dag
        )
        loops = [c.inputs for c, alive in zip(self._columns, live, strict=True) if alive]
        self.families.offer(wired, loops, is_daring=is_daring)


def _widest(
    cone: Cone, grid: tuple[Column, ...], reaches: Reaches, most: int
) -> Grids:
    """The maximal grids any graph may have: of all columns that some op DAG may allow."""
    legal = [column for column in grid if _may_map(cone, column, reaches)]
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
