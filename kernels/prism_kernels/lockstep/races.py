"""Finds two threads that touch one element without order between them, one of them writing.

Threads come in groups: members of one group are ordered among themselves (or were compared
before), members of two groups are not. Between two barriers every lane of a warp is a group of its
own; where `syncwarp` orders the accesses of a warp, the warp is; in a launch, every block is. Two
atomic additions never race, and neither do two reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from prism_kernels.lockstep.memory import Log, Site

Group = Sequence[Log]

MANY = -1
"""Stands for several groups at once."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a thread of a group did to an element, and where."""

    group: int
    thread: int
    action: str
    site: Site


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses to one element without order between them."""

    element: int
    first: Access
    second: Access


def find_race(groups: Sequence[Group]) -> Race | None:
    """The first race between groups, or None."""
    element = _written_twice(groups)
    if element is None:
        element = _added_and_read(groups)
    return None if element is None else _explain(groups, element)


def _written_twice(groups: Sequence[Group]) -> int | None:
    """An element that one group writes and another touches."""
    writers: dict[int, int] = {}
    for g, group in enumerate(groups):
        for log in group:
            if log.writes:
                if (i := _foreign(log.writes, writers, g)) is not None:
                    return i
                writers.update(dict.fromkeys(log.writes, g))
    if not writers:
        return None
    for g, group in enumerate(groups):
        for log in group:
            for touched in (log.reads, log.adds):
                if (i := _foreign(touched, writers, g)) is not None:
                    return i
    return None


def _added_and_read(groups: Sequence[Group]) -> int | None:
    """An element that one group adds to and another reads."""
    adders: dict[int, int] = {}
    for g, group in enumerate(groups):
        for log in group:
            for element in log.adds:
                adders[element] = g if adders.get(element, g) == g else MANY
    if not adders:
        return None
    for g, group in enumerate(groups):
        for log in group:
            if (i := _foreign(log.reads, adders, g)) is not None:
                return i
    return None


def _foreign(touched: dict[int, Site], owners: dict[int, int], group: int) -> int | None:
    """The smallest element touched that belongs to another group."""
    # mostly so; between two views it takes the time of the smaller one
    if touched.keys().isdisjoint(owners.keys()):
        return None
    return min((i for i in touched.keys() & owners.keys() if owners[i] != group), default=None)


def _explain(groups: Sequence[Group], element: int) -> Race:
    """The two accesses to an element that is known to be raced for, writes first."""
    accesses = [
        access for g, group in enumerate(groups) for access in accesses_to(group, element, g)
    ]
    for first, second in product(accesses, accesses):
        actions = {first.action, second.action}
        if (
            first.group != second.group
            and actions & {"writes", "adds to"}
            and actions != {"adds to"}
        ):
            return Race(element, first, second)
    raise AssertionError("no two accesses conflict")


def accesses_to(logs: Iterable[Log], element: int, group: int = 0) -> Iterator[Access]:
    """Who touched an element, writes first."""
    logs = list(logs)
    for action, field in (("writes", "writes"), ("adds to", "adds"), ("reads", "reads")):
        for log in logs:
            site = getattr(log, field).get(element)
            if site is not None:
                yield Access(group, log.thread, action, site)
