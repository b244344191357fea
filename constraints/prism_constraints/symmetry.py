"""Which of several mappings that differ only in the names of grid dims counts (constraint 4).

Read the places (T,d) in the problem's order and write down, for each, which grid dim partitions
it: 0 for the first grid dim, 1 for the second, ..., and the number of grid dims for none. Of all
renamings of the grid dims the mapping whose list is lexicographically smallest is kept.

By constraint (2) at most one grid dim partitions a place, so the smallest mapping is the one that
uses grid dims in the order of their names: a grid dim is first used after its predecessor is. In
terms of columns (all m[T,d,p] of one p, in order of places) this reads: the columns of
neighbouring grid dims are lexicographically non-increasing. Encodings use either form; the tests
hold them against `is_smallest`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

from prism.ir import Assignment, MappingProblem, MapVar, Place


def places(problem: MappingProblem) -> tuple[Place, ...]:
    """Every (tensor, dim) of the problem, in order: the rows of the matrix of grid variables."""
    return tuple((t.name, d) for t in problem.tensors for d in t.dims)


def reading(problem: MappingProblem, assignment: Assignment) -> tuple[int, ...]:
    """For each place the index of the grid dim that partitions it; their number where none."""
    grid_of = {p.name: index for index, p in enumerate(problem.grid)}
    index_at = {(v.tensor, v.dim): grid_of[v.par] for v in assignment.true if v.par in grid_of}
    return tuple(index_at.get(place, len(problem.grid)) for place in places(problem))


def is_smallest(problem: MappingProblem, assignment: Assignment) -> bool:
    """Whether no renaming of the grid dims reads smaller; the definition of constraint (4)."""
    mine = reading(problem, assignment)
    count = len(problem.grid)
    return all(
        mine <= tuple((*renaming, count)[index] for index in mine)
        for renaming in permutations(range(count))
    )


def ordered(problem: MappingProblem, found: Iterable[frozenset[MapVar]]) -> tuple[Assignment, ...]:
    """The distinct assignments in the one order all encodings return: by variables, false first."""
    # the values read as one binary number, the first variable its highest digit
    digit = {v: 1 << i for i, v in enumerate(reversed(problem.variables()))}
    keyed = {sum(digit[v] for v in true): true for true in found}
    return tuple(Assignment(keyed[key]) for key in sorted(keyed))
