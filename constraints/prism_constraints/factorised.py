"""The mapping as a product of columns, combined in plain Python: no solver, the fastest.

Constraints (1) and (3) speak of one parallel dim at a time, so the columns they allow (the places
partitioned along one p) are listed once per kind of p. (2) says that grid columns are disjoint, (4)
that they come in order, and nothing ties a loop to the grid or to another loop. A mapping is then
a choice of disjoint columns for the grid, and any column for each loop.

Assignments are sorted by their variables, read as one binary number. Parallel dims have variables
of their own, so the number of a mapping is the sum of the numbers of its columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import merge
from itertools import islice, product
from operator import itemgetter

from prism.ir import Column, Enumeration, Mapping, MappingProblem, MapVar, ParKind
from prism_constraints.backtracking import assignments_in_order

_MAX_COLUMNS = 100
"""Of the grid's columns, which are combined up to three at a time."""

_MAX_SORTED = 50_000
"""Of more mappings only the first ones are worked out, where there is a limit."""

Part = tuple[int, frozenset[MapVar]]
"""Some parallel dims' share of a mapping: the variables as a number, and those that are true."""


class FactorisedEncoding:
    """Columns per parallel dim, combined."""

    name = "factorised"

    def enumerate(self, problem: MappingProblem, *, limit: int | None = None) -> Enumeration:
        """All assignments up to symmetry, sorted; with a limit the first `limit` of them."""
        variables = problem.variables()
        bit = {v: 1 << (len(variables) - 1 - i) for i, v in enumerate(variables)}
        wanted = None if limit is None else limit + 1
        parts = _grid_parts(problem, bit, wanted)
        for loop in problem.loops:
            columns = islice(problem.columns(ParKind.LOOP), wanted)
            parts = _combined(parts, [_part(bit, c, loop.name) for c in columns], wanted)
        found = tuple(Mapping(true) for _, true in parts)
        return Enumeration(found[:limit], complete=limit is None or len(found) <= limit)


def _part(bit: dict[MapVar, int], column: Column, par: str) -> Part:
    true = frozenset([MapVar(t, d, par) for t, d in column])
    return sum(bit[v] for v in true), true


def _grid_parts(problem: MappingProblem, bit: dict[MapVar, int], wanted: int | None) -> list[Part]:
    """Every choice of disjoint columns for the grid dims, sorted; the first `wanted` at least."""
    columns = (column for column in problem.columns(ParKind.GRID) if column)
    few = list(islice(columns, None if wanted is None else _MAX_COLUMNS + 1))
    if wanted is not None and len(few) > _MAX_COLUMNS:
        # too many to combine all of them for the sake of the first ones
        grid_only = islice(assignments_in_order(replace(problem, loops=())), wanted)
        return [(sum(bit[v] for v in mapping.true), mapping.true) for mapping in grid_only]
    # (4): the columns of grid dims descend, so each choice of columns is met once
    few.reverse()
    chosen: list[tuple[int, Column, Part]] = [(-1, frozenset(), (0, frozenset()))]
    every = list(chosen)
    for par in problem.grid:
        parts = [_part(bit, column, par.name) for column in few]
        chosen = [
            (i, taken | few[i], (number + parts[i][0], true | parts[i][1]))
            for last, taken, (number, true) in chosen
            for i in range(last + 1, len(few))
            if taken.isdisjoint(few[i])  # (2)
        ]
        every += chosen
    used = chosen if problem.must_partition else every
    return sorted((part for _, _, part in used), key=itemgetter(0))


def _combined(parts: list[Part], others: list[Part], wanted: int | None) -> list[Part]:
    """Every sum of two, sorted; the first `wanted` of them at least."""
    if wanted is None or len(parts) * len(others) <= _MAX_SORTED:
        both = [(n + m, true | more) for (n, true), (m, more) in product(parts, others)]
        return sorted(both, key=itemgetter(0))
    rows = (_row(part, others) for part in parts[:wanted])
    return list(islice(merge(*rows, key=itemgetter(0)), wanted))


def _row(part: Part, others: Iterable[Part]) -> Iterator[Part]:
    """One part with each of the others, sorted as these are."""
    number, true = part
    for more, other in others:
        yield number + more, true | other
