"""The reference encoding: plain backtracking in Python, no solver, written apart from the others.

Places (T,d) that dimension matching ties together form groups; a group is partitioned by one grid
dim or none, along a loop it is partitioned or not, and every member alike. The places are walked in
order and a group is decided where its first place stands, its grid dim before its loops. Options
are tried in the order that assignments are sorted in, so they come out sorted, and whoever wants
only some of them does not pay for the rest.

Of renamings of the grid dims only the one that takes them up in order is visited: a group may take
a grid dim that is in use, or the next new one. There are no dead ends: what must still be used can
be, as any group may take any new grid dim, and the walk keeps enough groups for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter

from prism.ir import Enumeration, Mapping, MappingProblem, MapVar, ParDim, ParKind, Place
from prism_constraints.symmetry import places

Group = tuple[Place, ...]


class BacktrackingEncoding:
    """Mapping variables decided group by group."""

    name = "backtracking"

    def enumerate(self, problem: MappingProblem, *, limit: int | None = None) -> Enumeration:
        """All assignments up to symmetry, sorted; with a limit the first `limit` of them."""
        every = assignments_in_order(problem)
        found = tuple(every if limit is None else islice(every, limit + 1))
        return Enumeration(found[:limit], complete=limit is None or len(found) <= limit)


@dataclass(frozen=True, slots=True)
class _Decision:
    """One group, to be decided along one loop, or along the grid where `loop` is None."""

    group: Group
    loop: ParDim | None
    grid_groups_after: int
    """How many later decisions can take up a grid dim."""


@dataclass(frozen=True, slots=True)
class _Walk:
    """Decisions so far: `used` grid dims, tensors `taken` along each p, the variables chosen."""

    step: int
    used: int
    taken: frozenset[tuple[str, str]]
    true: frozenset[MapVar]

    def takes(self, group: Group, par: ParDim, used: int) -> _Walk | None:
        """Partition the group along `par`, or None where (1) forbids it."""
        taking = {(t, par.name) for t, _ in group}
        if not self.taken.isdisjoint(taking):
            return None
        variables = (MapVar(t, d, par.name) for t, d in group)
        return _Walk(self.step + 1, used, self.taken | taking, self.true.union(variables))


def assignments_in_order(problem: MappingProblem) -> Iterator[Mapping]:
    """All assignments up to symmetry, sorted, found one by one."""
    decisions = _decisions(problem)
    grid_groups = sum(decision.loop is None for decision in decisions)
    if problem.must_partition and len(problem.grid) > grid_groups:
        return
    stack = [_Walk(0, 0, frozenset(), frozenset())]
    while stack:
        walk = stack.pop()
        if walk.step == len(decisions):
            yield Mapping(walk.true)
        else:
            stack.extend(reversed(list(_options(problem, decisions[walk.step], walk))))


def _options(problem: MappingProblem, decision: _Decision, walk: _Walk) -> Iterator[_Walk]:
    """The ways to decide, in order: nothing is partitioned, or along the last grid dim, ..."""
    unused = len(problem.grid) - walk.used if problem.must_partition else 0
    if decision.loop is not None or unused <= decision.grid_groups_after:
        yield _Walk(walk.step + 1, walk.used, walk.taken, walk.true)
    if decision.loop is not None:
        looped = walk.takes(decision.group, decision.loop, walk.used)
        if looped is not None:
            yield looped
        return
    for index in reversed(range(min(walk.used + 1, len(problem.grid)))):
        used = max(walk.used, index + 1)
        if problem.must_partition and len(problem.grid) - used > decision.grid_groups_after:
            continue
        mapped = walk.takes(decision.group, problem.grid[index], used)
        if mapped is not None:
            yield mapped


def _decisions(problem: MappingProblem) -> list[_Decision]:
    """What is to be decided, in the order of the variables."""
    rank = {place: i for i, place in enumerate(places(problem))}
    kinds: list[tuple[ParKind, ParDim | None]] = [(ParKind.LOOP, loop) for loop in problem.loops]
    if problem.grid:
        kinds.insert(0, (ParKind.GRID, None))
    asked = [
        (rank[group[0]], order, group, loop)
        for order, (kind, loop) in enumerate(kinds)
        for group in problem.groups(kind)
        # a group that holds two dims of one tensor stays whole for good, by (1)
        if len({t for t, _ in group}) == len(group)
    ]
    asked.sort(key=itemgetter(0, 1))
    decisions: list[_Decision] = []
    grid_groups_after = 0
    for _, _, group, loop in reversed(asked):
        decisions.append(_Decision(group, loop, grid_groups_after))
        grid_groups_after += loop is None
    return decisions[::-1]
