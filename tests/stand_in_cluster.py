"""A cluster without Ray: hosts are objects of this process, and work is done when it is waited for.

`lose(method, ...)` says which calls, counted from 0, are lost with their machine; what is given as
`busy` never ends.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from prism.cluster import Lost, Needs, Node
from prism.errors import ClusterLostError


@dataclass(eq=False)
class Work:
    """An answer to come."""

    name: str
    do: object
    answer: object = None
    is_done: bool = False


@dataclass(eq=False)
class Handle:
    """A host, and what it takes."""

    made: object
    needs: Needs
    is_ended: bool = False


@dataclass
class StandIn:
    """See `prism.cluster.Cluster`."""

    machines: tuple[Node, ...] = (Node("1", "one", 2, 0), Node("2", "two", 2, 0))
    kind: type | None = None
    """Made instead of what is asked for."""
    newest_first: bool = False
    busy: frozenset[str] = frozenset()
    lost: dict[str, set[int]] = field(default_factory=dict)
    is_gone: bool = False
    hosts: list[Handle] = field(default_factory=list)
    submitted: list[Needs] = field(default_factory=list)
    cancelled: list[Work] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)

    def lose(self, method, *places):
        self.lost[method] = set(places)
        return self

    def nodes(self):
        return self.machines

    def submit(self, function, *args, needs):
        self.submitted.append(needs)
        return self._work(function.__name__, lambda: function(*args))

    def host(self, kind, *args, needs):
        self.hosts.append(Handle((self.kind or kind)(*args), needs))
        return self.hosts[-1]

    def call(self, host, method, *args):
        return self._work(method, lambda: getattr(host.made, method)(*args))

    def _work(self, name, do):
        place = self.calls[name]
        self.calls[name] += 1
        if place in self.lost.get(name, ()):
            return Work(name, lambda: Lost("the machine is gone"))
        return Work(name, do)

    def wait(self, refs, timeout_s=None):
        if self.is_gone:
            raise ClusterLostError("the Ray cluster went away (for a test)")
        assert refs, "Ray refuses to wait for nothing"
        able = [ref for ref in refs if ref.name not in self.busy]
        if not able:
            assert timeout_s is not None, "this would wait for ever"
            return []
        work = able[-1] if self.newest_first else able[0]
        if not work.is_done:
            work.answer, work.is_done = work.do(), True
        return [work]

    def get(self, ref):
        assert ref.is_done
        return ref.answer

    def cancel(self, ref):
        self.cancelled.append(ref)

    def end(self, host):
        if not host.is_ended and hasattr(host.made, "close"):
            host.made.close()
        host.is_ended = True
