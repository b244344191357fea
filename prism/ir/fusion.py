"""Groups nodes that may be computed together: of one kind, reading each other, in units.

Each group is computed as a unit, at one time. So no value outside a group may wait for one member
while another member waits for it (the group is *convex*), and no two groups may wait for each
other, though each alone is convex: units in order, the graph of units has no cycle.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def fused_groups(
    reads: Sequence[Sequence[int]], kinds: Sequence[Hashable | None]
) -> tuple[tuple[int, ...], ...]:
    """The groups of nodes that have a kind, each in exactly one, by their first node.

    `reads[i]` are the nodes before i that node i reads. Greedy: each node joins what it reads
    where that leaves units in order.
    """
    unit = [frozenset((i,)) for i in range(len(reads))]
    for i, kind in enumerate(kinds):
        if kind is None:
            continue
        for j in reads[i]:
            if kinds[j] != kind or j in unit[i]:
                continue
            joined = unit[i] | unit[j]
            if not _waits_for_itself(joined, reads, unit):
                for member in joined:
                    unit[member] = joined
    groups = {unit[i]: None for i, kind in enumerate(kinds) if kind is not None}
    return tuple(tuple(sorted(g)) for g in sorted(groups, key=min))


def _waits_for_itself(
    members: frozenset[int], reads: Sequence[Sequence[int]], unit: Sequence[frozenset[int]]
) -> bool:
    """Whether something outside that members need needs a member, all units taken as one."""
    needed = [j for i in members for j in reads[i] if j not in members]
    seen: set[frozenset[int]] = set()
    while needed:
        one = unit[needed.pop()]
        if not one.isdisjoint(members):
            return True
        if one not in seen:
            seen.add(one)
            needed.extend(j for i in one for j in reads[i] if j not in one)
    return False
