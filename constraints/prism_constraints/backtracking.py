"""The reference encoding: plain backtracking in Python, no solver, written apart from the others.

Places (T,d) that dimension matching ties together form groups; a group is partitioned by one grid
dim or none, and every member alike. Groups are decided in the order of their first place. Of
renamings of the grid dims only the one that takes them up in order is visited: a group may take a
grid dim that is in use, or the next new one. The loop is decided in the same way, over the groups
that matching ties together among tensors that have loop variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

from prism.ir import DataDim, Enumeration, MappingProblem, MapVar
from prism_constraints.symmetry import ordered

Group = tuple[tuple[str, DataDim], ...]


class BacktrackingEncoding:
    """Mapping variables decided group by group."""

    name = "backtracking"

    def enumerate(self, problem: MappingProblem, *, limit: int | None = None) -> Enumeration:
        """All assignments up to symmetry, sorted; at most `limit` of them."""
        loop_choices = [tuple(_loop_choices(problem, p.name)) for p in problem.loops]
        every = (
            frozenset().union(grid, *loops)
            for grid in _grid_choices(problem)
            for loops in product(*loop_choices)
        )
        wanted = None if limit is None else limit + 1
        found = list(islice(every, wanted))
        complete = limit is None or len(found) <= limit
        return Enumeration(ordered(problem, found[:limit]), complete)


def _groups(problem: MappingProblem, *, with_outputs: bool) -> list[Group]:
    """Places tied together by matching, in order of first place."""
    group_of: dict[tuple[str, DataDim], list[tuple[str, DataDim]]] = {}
    for t in problem.tensors:
        if with_outputs or not t.is_output:
            for d in t.dims:
                group_of[t.name, d] = [(t.name, d)]
    for left, right in problem.equal:
        if left not in group_of or right not in group_of:
            continue
        keep, merge = group_of[left], group_of[right]
        if keep is not merge:
            keep.extend(merge)
            for place in merge:
                group_of[place] = keep
    distinct: dict[int, list[tuple[str, DataDim]]] = {}
    for members in group_of.values():
        distinct.setdefault(id(members), members)
    return [tuple(members) for members in distinct.values()]


def _clashes(groups: list[Group]) -> list[frozenset[int]]:
    """For each group the groups before it, or itself, that share a tensor with it.

    A group that holds two dims of one tensor clashes with itself: constraint (1) leaves it
    unpartitioned for good.
    """
    tensors = [[t for t, _ in members] for members in groups]
    return [
        frozenset(
            [j for j in range(i) if set(tensors[i]) & set(tensors[j])]
            + ([i] if len(set(tensors[i])) < len(tensors[i]) else [])
        )
        for i in range(len(groups))
    ]


def _grid_choices(problem: MappingProblem) -> Iterator[frozenset[MapVar]]:
    """Every choice of the grid variables, grid dims taken up in order."""
    groups = _groups(problem, with_outputs=True)
    clashes = _clashes(groups)
    grid = [p.name for p in problem.grid]
    chosen: list[str | None] = []

    def decide(used: int) -> Iterator[frozenset[MapVar]]:
        """Decide the next group; the first `used` grid dims are in use."""
        i = len(chosen)
        if i == len(groups):
            if used == len(grid) or not problem.must_partition:
                yield frozenset(
                    MapVar(t, d, p)
                    for members, p in zip(groups, chosen, strict=True)
                    if p is not None
                    for t, d in members
                )
            return
        chosen.append(None)
        yield from decide(used)
        chosen.pop()
        if i in clashes[i]:
            return
        taken = {chosen[j] for j in clashes[i]}
        for index in range(min(used + 1, len(grid))):
            if grid[index] not in taken:
                chosen.append(grid[index])
                yield from decide(max(used, index + 1))
                chosen.pop()

    yield from decide(0)


def _loop_choices(problem: MappingProblem, par: str) -> Iterator[frozenset[MapVar]]:
    """Every choice of the variables of one loop."""
    groups = _groups(problem, with_outputs=False)
    clashes = _clashes(groups)
    looped: list[int] = []

    def decide(i: int) -> Iterator[frozenset[MapVar]]:
        if i == len(groups):
            yield frozenset(MapVar(t, d, par) for j in looped for t, d in groups[j])
            return
        yield from decide(i + 1)
        if clashes[i].isdisjoint((*looped, i)):
            looped.append(i)
            yield from decide(i + 1)
            looped.pop()

    yield from decide(0)
