"""Copies from global to shared memory that a thread starts and waits for later (`cp.async`).

From its start on until the thread has waited for it, what a copy writes is *under way*: a marker
lies there, which is no number, so that whoever reads it is found out. The copy counts as a write of
its thread twice: in the phase between two barriers in which it starts, where others may still read
what was there, and in that in which it is waited for, since only the next barrier shows it to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Target = tuple[int, int]
"""Element of shared memory, and the site that starts the copy into it."""


class UnderWay:
    """What lies where a copy has not arrived."""


UNDER_WAY: Final = UnderWay()


class UnderWayError(Exception):
    """An element that is touched while a copy into it is under way."""


class LeftUnderWayError(Exception):
    """A copy that a thread never waits for."""


@dataclass(slots=True)
class Copies:
    """The copies that one thread has under way."""

    values: dict[int, Any]
    reads: dict[int, int]
    writes: dict[int, int]
    """What it read and wrote of shared memory since the last barrier."""
    open_group: dict[Target, int] = field(default_factory=dict)
    """Target -> word, since the last commit."""
    groups: list[dict[Target, int]] = field(default_factory=list)

    def start(self, at: int, words: Sequence[int], site: int) -> None:
        """Start to write words."""
        for i, word in enumerate(words, at):
            if self.values.get(i) is UNDER_WAY:
                raise UnderWayError(i)
            self.reads.pop(i, None)  # a read before the start is in order
            self.writes[i] = site
            self.values[i] = UNDER_WAY
            self.open_group[i, site] = word

    def commit(self) -> None:
        """Close a group, an empty one too."""
        self.groups.append(self.open_group)
        self.open_group = {}

    def wait(self, most: int) -> None:
        """Until at most so many groups are under way."""
        done, self.groups = self.groups[: -most or None], self.groups[-most:] if most else []
        for (i, site), word in (item for group in done for item in group.items()):
            if self.values.get(i) is not UNDER_WAY:
                raise UnderWayError(i)
            self.values[i] = word
            self.writes[i] = site

    def finish(self) -> None:
        """At the end of the kernel nothing may be under way."""
        for group in (*self.groups, self.open_group):
            for i, _ in group:
                raise LeftUnderWayError(i)
