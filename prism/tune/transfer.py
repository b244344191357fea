"""What won at other sizes, carried over: configs of this space to begin with.

A graph is the same whatever the sizes, so the counts of a fast config say where to look at others.
Which counts? A grid dim divides work among threads, so its count stays; a loop cuts what fits a
cache, so its tile stays and its count grows with the dim. That is the first guess (`CARRIED`); for
the very best config all counts and all tiles are kept in turn, too. Each guess becomes the nearest
config that is legal here, with the same options where they exist.

A trial says more than that it was fast: how far the cost model was off is much the same for a like
config at other sizes. Strategies that learn are told so (`hints`).

Trials come from records of the same program, target and dtype. Graphs are known by their digest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from prism.errors import PrismError
from prism.ir import DataDim, GraphOp, MuGraph, ParDim, ParKind, chunk
from prism.record import Counts, Outcome, Trial, TrialKey
from prism.tune.instantiate import instantiate
from prism.tune.space import Config, GraphSpace, stack_sizes
from prism.tune.strategies import Learner, SeededStrategy, Strategy
from prism.tune.strategies.steps import Steps
from prism.tune.task import Identity, Task

CARRIED: tuple[Mapping[ParKind, bool], ...] = (
    {ParKind.GRID: False, ParKind.LOOP: True},
    {ParKind.GRID: False, ParKind.LOOP: False},
    {ParKind.GRID: True, ParKind.LOOP: True},
)
"""Whether the tile is kept, or else the count."""

BEST = 3
"""Configs of each record's sizes that are carried over, at most one of a graph with like counts."""

MOST = 3
"""Configs to begin with, from all sizes together."""

MOST_HINTS = 100


@dataclass(frozen=True, slots=True)
class Known:
    """A config that was fast at other sizes: its graph is one of the space's."""

    graph: GraphSpace
    sizes: Counts
    par_sizes: tuple[Counts, ...]
    schedule: Counts

    @property
    def config(self) -> Config:
        """The config there."""
        return Config(self.graph.graph_id, self.par_sizes, self.schedule)

    def mu(self) -> MuGraph:
        """Its muGraph there.

        Raises:
            GraphError: the counts are not legal there.
        """
        return instantiate(replace(self.graph, sizes=self.sizes), self.config)


@dataclass(frozen=True, slots=True)
class Hint:
    """What a trial at other sizes says of a config: its time over what was estimated for it."""

    config: Config
    ratio: float


def first_configs(trials: Iterable[Trial], task: Task) -> tuple[Config, ...]:
    """Configs for a task to begin with, from trials at other sizes, the nearest sizes first."""
    guesses: list[list[Config]] = []
    for group in _by_sizes(trials, task):
        guesses += [carried(known) for known, _ in group[:BEST]]
    # the first guess of each, then the others
    turns = sorted(
        (turn, place) for place, configs in enumerate(guesses) for turn in range(len(configs))
    )
    return tuple(dict.fromkeys(guesses[place][turn] for turn, place in turns))[:MOST]


def hints(
    trials: Iterable[Trial], task: Task, estimate: Callable[[Known], float]
) -> tuple[Hint, ...]:
    """What trials at other sizes say of configs of a task; `estimate`: what is predicted there."""
    every = [entry for group in _by_sizes(trials, task) for entry in group][:MOST_HINTS]
    found: dict[Config, Hint] = {}
    for known, seconds in every:
        predicted = estimate(known)
        config = carried(known)[0]
        if math.isfinite(predicted) and seconds > 0 and config not in found:
            found[config] = Hint(config, seconds / predicted)
    return tuple(found.values())


def taught(
    strategy: Strategy, trials: Iterable[Trial], task: Task, estimate: Callable[[Known], float]
) -> tuple[Strategy, tuple[str, ...]]:
    """A strategy that knows what was fast at other sizes, and a note that says so.

    One that learns is told all of it and begins with the best; others begin with the best few.
    """
    known = tuple(trials)
    first = first_configs(known, task)
    if not first:
        return strategy, ()
    if isinstance(strategy, Learner):
        for hint in hints(known, task, estimate):
            strategy.hint(hint.config, hint.ratio)
        first = first[:1]
    return SeededStrategy(first, strategy), ("began with what was fast at other sizes",)


def estimated_there(task: Task) -> Callable[[Known], float]:
    """What the task's target predicts at other sizes; infinite where it refuses."""

    def estimate(known: Known) -> float:
        try:
            return task.target.estimate(known.mu(), task.dtype)
        except PrismError:
            return math.inf

    return estimate


def _by_sizes(trials: Iterable[Trial], task: Task) -> list[list[tuple[Known, float]]]:
    """What was timed at other sizes, the nearest sizes first, of each the fastest first."""
    identity = Identity.of(task)
    like = identity.template
    graphs = {identity.graphs[g.graph_id]: g for g in task.space.graphs}
    groups: dict[Counts, list[tuple[Known, float]]] = {}
    for trial in trials:
        if _is_of_use(trial, like) and trial.key.graph in graphs:
            sizes = tuple(sorted(trial.key.sizes))
            graph = graphs[trial.key.graph]
            known = Known(graph, sizes, trial.key.par_sizes, trial.key.schedule)
            groups.setdefault(sizes, []).append((known, _seconds(trial)))
    nearest = sorted(groups, key=lambda sizes: (distance(dict(sizes), dict(like.sizes)), sizes))
    return [sorted(groups[sizes], key=lambda entry: entry[1]) for sizes in nearest]


def _is_of_use(trial: Trial, like: TrialKey) -> bool:
    key = trial.key
    same = (key.program, key.dtype, key.target) == (like.program, like.dtype, like.target)
    return same and trial.outcome is Outcome.OK and dict(key.sizes) != dict(like.sizes)


def _seconds(trial: Trial) -> float:
    seconds = trial.predicted_s if trial.median_s is None else trial.median_s
    return math.inf if seconds is None else seconds


def distance(one: Mapping[DataDim, int], other: Mapping[DataDim, int]) -> float:
    """How far apart sizes are: the doublings between them, all dims together."""
    if one.keys() != other.keys():
        return math.inf
    return sum(abs(math.log2(one[dim] / other[dim])) for dim in one)


def carried(known: Known) -> list[Config]:
    """The configs here that a config at other sizes suggests, the first guess first."""
    steps = Steps(known.graph)
    schedule = dict(known.schedule)
    found = (steps.nearest(_counts(known, keeps), schedule) for keeps in CARRIED)
    return list(dict.fromkeys(found))


def _counts(known: Known, keeps_tile: Mapping[ParKind, bool]) -> tuple[Counts, ...]:
    """Counts for the sizes of the space; they need not be legal."""
    graph = known.graph.graph
    there, here = dict(known.sizes), dict(known.graph.sizes)
    out: list[Counts] = []
    for k, (op, counts) in enumerate(zip(graph.kernels, known.par_sizes, strict=True)):
        old, new = dict(counts), dict(counts)
        for p in (*op.grid, *op.loops):
            if keeps_tile[p.kind]:
                new[p.name] = _same_tile(op, p, (there, old), (here, new))
        there |= stack_sizes(graph, k, counts)
        here |= stack_sizes(graph, k, tuple(new.items()))
        out.append(tuple((name, new[name]) for name, _ in counts))
    return tuple(out)


_Situation = tuple[dict[DataDim, int], dict[str, int]]
"""The sizes of dims and the counts of parallelization dims."""


def _same_tile(op: GraphOp, par: ParDim, there: _Situation, here: _Situation) -> int:
    """The count along `par` that leaves tiles as long as they were."""
    old, new = (_extent(op, par, *situation) for situation in (there, here))
    if old is None or new is None:
        return there[1][par.name]
    return chunk(new, chunk(old, there[1][par.name]))


def _extent(
    op: GraphOp, par: ParDim, sizes: dict[DataDim, int], counts: dict[str, int]
) -> int | None:
    """What `par` divides: a dim, or for a loop the chunk of it that a block has."""
    mapped = sorted(v for v in op.mapping.true if v.par == par.name and v.dim in sizes)
    if not mapped:
        return None
    dim, tensor = mapped[0].dim, mapped[0].tensor
    extent = sizes[dim]
    if par.kind is ParKind.LOOP:
        grid = {p.name for p in op.grid}
        for v in op.mapping.true:
            if (v.tensor, v.dim) == (tensor, dim) and v.par in grid:
                extent = chunk(extent, counts[v.par])
    return extent
