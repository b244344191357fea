"""Pruners: a partial sGraph is kept, or dropped with a reason, and every answer is counted.

A pruner is a plug-in (entry-point group `prism.pruners`) with a name and a method `judge`. It must
be *sound*: it drops only what cannot be completed to a graph that is right. So switching one off
changes how much work is done, never whether a result is right: what it would have dropped is tried
and comes back from verification as not proved. A search without the dimension pruner may find
more: see there.

The search shows every pruner these partial graphs, and takes their equalities (dimension matching)
for the mapping problem:

  Offered  an operator of the e-graph, offered for a class that is needed
  Matched  a complete op DAG, no mapping yet
  Placed   one operator of a mapped DAG with a state for its result, along one parallel dim
  Saved    an output in a state, and the data dim it is mapped to, along one grid dim
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from prism.errors import UsageError
from prism.ir import DataDim
from prism.plugins import Group, installed, make
from prism.search.macros import Operator
from prism.search.wiring import Arena, Wired

Equality = tuple[tuple[str, DataDim], tuple[str, DataDim]]
"""Two places (tensor, dim) that are mapped alike."""


@dataclass(frozen=True, slots=True)
class Offered:
    """An operator of the e-graph; `is_computable` and `operand_dims` per operand."""

    operator: Operator
    is_computable: tuple[bool, ...]
    operand_dims: tuple[frozenset[DataDim], ...]


@dataclass(frozen=True, slots=True)
class Matched:
    """A complete op DAG over the terms of `arena`."""

    arena: Arena
    wired: Wired


@dataclass(frozen=True, slots=True)
class Placed:
    """An operator with the states of its operands and of its result (see `placement`).

    Dims are numbers of the program's dimensions, `operand_dims` bit masks over them.
    """

    op: str
    dim: int
    states: tuple[int, ...]
    operand_dims: tuple[int, ...]
    result: int


@dataclass(frozen=True, slots=True)
class Saved:
    """An output in `state` along a grid dim; `mapped` is its data dim there, or replicated."""

    state: int
    mapped: int


Partial = Offered | Matched | Placed | Saved


class Pruner(Protocol):
    """Keeps or drops partial sGraphs."""

    name: str

    def judge(self, partial: Partial) -> str | None:
        """Why the partial graph cannot be completed, or None to keep it."""


@runtime_checkable
class Matcher(Protocol):
    """A pruner that also knows which dims must be mapped alike."""

    def equalities(self, arena: Arena, wired: Wired) -> frozenset[Equality]:
        """The equalities that the operators of an op DAG force."""


@dataclass(slots=True)
class PrunerCount:
    """What one pruner did in one search."""

    seen: int = 0
    dropped: int = 0
    seconds: float = 0.0
    example: str | None = None
    """The first reason it gave."""


class Gate:
    """All pruners of one search, with their counters."""

    def __init__(self, pruners: Iterable[Pruner]) -> None:
        self.pruners = tuple(pruners)
        self.counts = {p.name: PrunerCount() for p in self.pruners}

    def keeps(self, partial: Partial) -> bool:
        """Whether no pruner drops the partial graph; stops at the first that does."""
        for pruner in self.pruners:
            count = self.counts[pruner.name]
            start = time.perf_counter()
            reason = pruner.judge(partial)
            count.seconds += time.perf_counter() - start
            count.seen += 1
            if reason is not None:
                count.dropped += 1
                count.example = count.example or reason
                return False
        return True

    def equalities(self, arena: Arena, wired: Wired) -> frozenset[Equality]:
        """What the pruners know must be mapped alike."""
        out: frozenset[Equality] = frozenset()
        for pruner in self.pruners:
            if isinstance(pruner, Matcher):
                start = time.perf_counter()
                out |= pruner.equalities(arena, wired)
                self.counts[pruner.name].seconds += time.perf_counter() - start
        return out


def load_pruners(without: Sequence[str]) -> tuple[Pruner, ...]:
    """Every installed pruner but those named.

    Raises:
        UsageError: a name that is not installed.
    """
    names = tuple(installed(Group.PRUNER))
    for name in without:
        if name not in names:
            raise UsageError(
                f"there is no pruner {name!r} to switch off; installed are "
                f"{', '.join(names) or 'none'}"
            )
    return tuple(make(Group.PRUNER, name) for name in names if name not in without)
