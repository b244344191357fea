"""Pruners: a partial sGraph is kept, or dropped with a reason, and every answer is counted.

A pruner is a plug-in (entry-point group `prism.pruners`) with a name and a method `judge`. It must
be *sound*: it drops only what cannot be completed to a graph that is right. So switching one off
changes how much work is done, never whether a result is right: what it would have dropped is tried
and comes back from verification as not proved. A search without the dimension pruner may find
more: see there.

The search shows every pruner these partial graphs, and takes their equalities (dimension matching)
for the mapping problem:

  Offered   an operator of the e-graph, offered for a class that is needed    cone generator
  Grown     an operator tried on tensors of a partial graph                   forward generator
  Narrowed  a partial graph and how many maps along one dim are left to it    forward generator
  Ended     tensors of a partial graph, taken for the outputs                 forward generator
  Matched   a complete op DAG, no mapping yet
  Bounded   what a partial op DAG costs at least, where sizes are known       mode tune
  Staged    an op DAG with its mapping and loop stage, where sizes are known
  Tiled     one operator with the dims in which its operands are tiles, along one parallel dim
  Placed    one operator of a mapped DAG with a state for its result, along one parallel dim
  Saved     an output in a state, and the data dim it is mapped to, along one grid dim

A pruner with `is_optional = True` is installed but judges only when it is asked for by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from prism.errors import UsageError
from prism.ir import DataDim
from prism.plugins import Group, installed, make
from prism.search.cone import Cone
from prism.search.macros import ClassId, Operator
from prism.search.situation import Situated, Situation
from prism.search.wiring import Arena, TermId, Wired

if TYPE_CHECKING:
    from prism.search.stages import Stage

Equality = tuple[tuple[str, DataDim], tuple[str, DataDim]]
"""Two places (tensor, dim) that are mapped alike."""


@dataclass(frozen=True, slots=True)
class Offered:
    """An operator of the e-graph; `is_computable` and `operand_dims` per operand."""

    operator: Operator
    is_computable: tuple[bool, ...]
    operand_dims: tuple[frozenset[DataDim], ...]
    is_own: bool = True
    """Whether the program itself computes it."""


@dataclass(frozen=True, slots=True)
class Grown:
    """An operator tried on tensors of a partial graph.

    `cls` is the e-class of its result in the cone, None where no `Classifier` knows one.
    """

    op: str
    dim: DataDim | None
    operand_dims: tuple[frozenset[DataDim], ...]
    cls: ClassId | None
    is_own: bool
    """Whether the program itself computes it."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A partial graph along one parallel dim: the maps of the inputs that are left to it.

    `matched` maps split all matched dims alike, `placed` of them leave every tensor in some state.
    """

    par: str
    matched: int
    placed: int


@dataclass(frozen=True, slots=True)
class Ended:
    """Tensors of a partial graph taken for the outputs: their e-classes and the outputs' own."""

    classes: tuple[ClassId | None, ...]
    roots: tuple[ClassId, ...]
    is_own: bool
    """Whether they are what the program itself returns."""


@dataclass(frozen=True, slots=True)
class Matched:
    """A complete op DAG over the terms of `arena`."""

    arena: Arena
    wired: Wired


@dataclass(frozen=True, slots=True)
class Bounded:
    """What a partial graph costs at least, at the sizes of the search.

    `work` in multiply-adds, `moved` in elements beside inputs and outputs (between kernels).
    """

    work: float
    moved: float = 0.0
    launches: int = 1


@dataclass(frozen=True, slots=True)
class Staged:
    """A graph but for its sizes: an op DAG with a loop stage and a grid.

    `spans`: the dims that each grid dim divides anywhere, as masks; `state` says which of them a
    term has in tiles along a grid dim (by number), or another state (see `placement`).
    """

    arena: Arena
    wired: Wired
    stage: Stage | None
    spans: tuple[int, ...]
    state: Callable[[TermId, int], int]


@dataclass(frozen=True, slots=True)
class Tiled:
    """An operator, and of each operand the dims in which it is a tile along one parallel dim.

    Dims are bit masks over the program's.
    """

    op: str
    tiles: tuple[int, ...]
    operand_dims: tuple[int, ...]


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


Partial = Offered | Grown | Narrowed | Ended | Matched | Bounded | Staged | Tiled | Placed | Saved


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


@runtime_checkable
class Classifier(Protocol):
    """A pruner that knows the e-class of an operator over e-classes of the cone."""

    def class_of(self, cone: Cone, operator: Operator) -> ClassId | None:
        """The class, or None outside the cone."""


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
        situated = [p for p in self.pruners if isinstance(p, Situated)]
        self._asked = tuple(p for p in self.pruners if p not in situated or p.is_situated)
        self._situated = tuple(p for p in situated if p.is_situated)
        # told apart once: a look at a protocol costs more than most judgements
        self._classifiers = tuple(p for p in self.pruners if isinstance(p, Classifier))

    def keeps(self, partial: Partial) -> bool:
        """Whether no pruner drops the partial graph; stops at the first that does."""
        return self.dropping(partial) is None

    def dropping(self, partial: Partial) -> str | None:
        """The name of the first pruner that drops the partial graph, or None."""
        for pruner in self._asked:
            count = self.counts[pruner.name]
            start = time.perf_counter()
            reason = pruner.judge(partial)
            count.seconds += time.perf_counter() - start
            count.seen += 1
            if reason is not None:
                count.dropped += 1
                count.example = count.example or reason
                return pruner.name
        return None

    def again(self, dropping: str | None, times: int) -> None:
        """Count an answer of `dropping` that the asker remembered and used so many times more."""
        for pruner in self._asked:
            count = self.counts[pruner.name]
            count.seen += times
            if pruner.name == dropping:
                count.dropped += times
                return

    @property
    def is_situated(self) -> bool:
        """Whether some pruner judges by sizes or a device."""
        return bool(self._situated)

    def nearest(self) -> Mapping[str, str]:
        """For pruners that judge by how much: of what they dropped, what came nearest."""
        return {p.name: p.nearest[1] for p in self._situated if p.nearest is not None}

    @property
    def has_classes(self) -> bool:
        """Whether some pruner knows e-classes."""
        return bool(self._classifiers)

    def class_of(self, cone: Cone, operator: Operator) -> ClassId | None:
        """The e-class of an operator, if some pruner knows it."""
        for pruner in self._classifiers:
            start = time.perf_counter()
            cls = pruner.class_of(cone, operator)
            self.counts[pruner.name].seconds += time.perf_counter() - start
            if cls is not None:
                return cls
        return None

    def equalities(self, arena: Arena, wired: Wired) -> frozenset[Equality]:
        """What the pruners know must be mapped alike."""
        out: frozenset[Equality] = frozenset()
        for pruner in self.pruners:
            if isinstance(pruner, Matcher):
                start = time.perf_counter()
                out |= pruner.equalities(arena, wired)
                self.counts[pruner.name].seconds += time.perf_counter() - start
        return out


def load_pruners(
    without: Sequence[str], extra: Sequence[str] = (), situation: Situation | None = None
) -> tuple[Pruner, ...]:
    """Every installed pruner but the optional ones and those named in `without`.

    `extra` names optional ones to have as well, or a stranger's `FILE.py:CLASS`. Those that judge
    by sizes or a device are told the situation.

    Raises:
        UsageError: a name that is not installed.
        PluginError: a pruner that cannot be made.
    """
    names = tuple(installed(Group.PRUNER))
    for name in without:
        if name not in names:
            raise UsageError(
                f"there is no pruner {name!r} to switch off; installed are "
                f"{', '.join(names) or 'none'}"
            )
    made = {name: make(Group.PRUNER, name) for name in names if name not in without}
    usual = [p for name, p in made.items() if name not in extra and not _is_optional(p)]
    asked = [made[name] if name in made else make(Group.PRUNER, name) for name in extra]
    if situation is not None:
        for pruner in (*usual, *asked):
            if isinstance(pruner, Situated):
                pruner.situate(situation)
    return (*usual, *asked)


def _is_optional(pruner: Pruner) -> bool:
    return bool(getattr(pruner, "is_optional", False))
