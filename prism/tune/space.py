"""The parameter space of a verified sGraph at given sizes: which d_p are legal, and which to try.

A dimension of size D may be split in c chunks when none of them is empty (`is_legal_count`). Where
a grid dim and the loop partition the same dimension, the loop splits the block's chunk in equal
tiles, and none may be empty in the clipped last block either. Every legal count is right (the proof
holds for every d_p); of the many, only a bounded set is worth trying, and `candidate_counts`
chooses it: counts near the number of threads for grid dims, tiles near `GOOD_TILE` for the loop,
powers of two first, divisors next. Count 1 is always among them.

The space is enumerated in plain Python; a CP-SAT model of the same rules checks it in the tests.

Several kernels. The count of a grid dim with a stack dim is that dim's size in later kernels, whose
choices therefore depend on it; it is never 1, as that is another graph. Each kernel keeps a fixed
number of choices (`MOST_CHOICES`), so a graph never has more than about a thousand: those whose
blocks come close to the number of threads, and among them loop tiles in their order. A kernel's
`sizes` name the dims it finds; a dim that they do not name is a stack dim of its own.

Ragged sizes. The proofs assume equal chunks, which counts for graphs that use a *local* size only:
in our graphs `SizeOf` and `mean` are global by definition, which leaves one such construct, the sum
over the loop of a value that is the same in every iteration (red(repl(t, p), p) = d_p t).
`uses_local_size` finds it; such a graph is tried at counts that divide (count 1 always does).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, islice, product

from prism.ir import (
    Accumulator,
    AccumulatorKind,
    DataDim,
    GraphOp,
    ParDim,
    ParKind,
    SGraph,
    chunk,
    is_legal_count,
    stack_dims,
    varies_along,
)
from prism.protocols import Target
from prism.record import Counts

GRID_LIMITS = {"x": 2**31 - 1, "y": 65535, "z": 65535}
"""Most blocks along each grid dim: CUDA's limits, which no CPU kernel needs to exceed."""

MOST_COUNTS = {0: 1, 1: 16, 2: 10, 3: 6}
"""Candidates kept per dim, by the number of grid dims of the kernel: it bounds their product."""

MOST_TILES = {0: 1, 1: 12, 2: 5}
"""Candidates kept per loop, by the number of loops."""

MOST_CHOICES = {2: 32, 3: 10}
"""Choices kept per kernel, by the number of kernels with any, if several: 32^2 and 10^3."""

GOOD_TILE = 128
"""A loop tile of this many elements is tried first; those far from it last."""


@dataclass(frozen=True, slots=True)
class Config:
    """One point of the space: a graph, its d_p per kernel, and the emitter's options."""

    graph_id: str
    par_sizes: tuple[Counts, ...]
    schedule: Counts

    def __str__(self) -> str:
        """Short and readable, e.g. `g3 x=2 i=64 unroll=4`; kernels are parted by bars."""
        kernels = (" ".join(f"{name}={n}" for name, n in kernel) for kernel in self.par_sizes)
        counts = " | ".join(kernels).split()
        return " ".join([self.graph_id, *counts, *(f"{name}={n}" for name, n in self.schedule)])


@dataclass(frozen=True, slots=True)
class GraphSpace:
    """The configs of one graph: every legal choice of counts times every schedule."""

    graph_id: str
    graph: SGraph
    sizes: Counts
    counts: tuple[tuple[Counts, ...], ...]
    schedules: tuple[tuple[str, tuple[int, ...]], ...]

    def __len__(self) -> int:
        """The number of configs."""
        return len(self.counts) * math.prod(len(choices) for _, choices in self.schedules)

    def config(self, index: int) -> Config:
        """Config number `index`; the first has one chunk everywhere and the default schedule."""
        schedule: list[tuple[str, int]] = []
        for name, choices in reversed(self.schedules):
            index, choice = divmod(index, len(choices))
            schedule.append((name, choices[choice]))
        return Config(self.graph_id, self.counts[index], tuple(reversed(schedule)))


@dataclass(frozen=True, slots=True)
class Space:
    """The configs of all graphs of an artifact."""

    graphs: tuple[GraphSpace, ...]
    threads: int = 1
    """How many blocks keep the whole machine busy (`Device.blocks`)."""

    def __len__(self) -> int:
        """The number of configs."""
        return sum(len(graph) for graph in self.graphs)

    def config(self, index: int) -> Config:
        """Config number `index`, graphs in order."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        ends = list(accumulate(len(graph) for graph in self.graphs))
        which = bisect_right(ends, index)
        return self.graphs[which].config(index - (ends[which - 1] if which else 0))

    def __iter__(self) -> Iterator[Config]:
        """All configs, lazily."""
        for graph in self.graphs:
            yield from (graph.config(i) for i in range(len(graph)))


def build_space(
    graphs: tuple[tuple[str, SGraph], ...], sizes: dict[DataDim, int], target: Target
) -> Space:
    """The space of graphs (id and sGraph) at sizes that name every data dim (`bind_sizes`)."""
    spaces: list[GraphSpace] = []
    threads = target.device().blocks
    for graph_id, graph in graphs:
        counts = graph_choices(graph, sizes, threads)
        if not counts:
            continue  # too small to be stacked
        spaces.append(
            GraphSpace(
                graph_id,
                graph,
                tuple(sorted(sizes.items())),
                counts,
                tuple(target.schedules(graph, sizes).items()),
            )
        )
    return Space(tuple(spaces), threads)


def graph_choices(
    graph: SGraph, sizes: dict[DataDim, int], threads: int
) -> tuple[tuple[Counts, ...], ...]:
    """The counts to try for the kernels of a graph, as few chunks as are legal first.

    There are none where a stack dim would have size 1.
    """
    several = MOST_CHOICES.get(sum(bool(op.grid or op.loops) for op in graph.kernels))
    known: dict[tuple[int, Counts], tuple[Counts, ...]] = {}
    out: list[tuple[tuple[Counts, ...], dict[DataDim, int]]] = [((), sizes)]
    for k, op in enumerate(graph.kernels):
        grown: list[tuple[tuple[Counts, ...], dict[DataDim, int]]] = []
        for chosen, found in out:
            key = (k, tuple(found.items()))
            if key not in known:
                known[key] = _kernel_choices(op, found, threads, several)
            grown += [
                ((*chosen, counts), found | stack_sizes(graph, k, counts)) for counts in known[key]
            ]
        out = grown
    return tuple(chosen for chosen, _ in out)


def stack_sizes(graph: SGraph, kernel: int, counts: Counts) -> dict[DataDim, int]:
    """The sizes of the stack dims that a kernel of the graph makes."""
    named = dict(counts)
    stacks = stack_dims(graph).items()
    return {dim: named[par] for dim, (maker, par) in stacks if maker == kernel}


def _kernel_choices(
    op: GraphOp, sizes: dict[DataDim, int], threads: int, several: int | None
) -> tuple[Counts, ...]:
    """The counts to try for one kernel; at most `several` where there are other kernels."""
    choices: Iterable[Counts]
    if several is None:
        choices = legal_choices(op, sizes, threads)
    else:
        choices = ranked_choices(op, sizes, threads)
    if uses_local_size(op):
        choices = (counts for counts in choices if not _is_ragged(op, counts, sizes))
    return tuple(islice(choices, several))


def legal_choices(op: GraphOp, sizes: dict[DataDim, int], threads: int) -> tuple[Counts, ...]:
    """The counts to try for the only kernel, all 1 first; each passes `is_legal`."""
    return tuple(
        (*grid, *loops)
        for grid in product(*_grid_choices(op, sizes, threads, threads))
        for loops in product(*_loop_choices(op, dict(grid), sizes, threads))
    )


def ranked_choices(op: GraphOp, sizes: dict[DataDim, int], threads: int) -> list[Counts]:
    """The counts to try for one kernel of several, the fewest chunks first, then by promise."""
    near = max(2, round(threads ** (1 / max(1, len(op.grid)))))
    grids = list(product(*_grid_choices(op, sizes, threads, near)))

    def distance(grid: Counts) -> float:
        doublings = math.log2(math.prod(count for _, count in grid) / threads)
        return max(doublings, -2 * doublings)  # idle threads are worse than many blocks

    out: list[tuple[int, Counts]] = []
    by_promise = [*grids[:1], *sorted(grids[1:], key=distance)]
    for position, grid in enumerate(by_promise[: max(MOST_CHOICES.values())]):
        loops = product(*_loop_choices(op, dict(grid), sizes, threads))
        out += [(position + 2 * tile, (*grid, *loop)) for tile, loop in enumerate(loops)]
    return [counts for _, counts in sorted(out, key=lambda entry: entry[0])]


def _grid_choices(
    op: GraphOp, sizes: dict[DataDim, int], threads: int, near: int
) -> list[list[tuple[str, int]]]:
    """For each grid dim the counts to try, those close to `near` first."""
    most, stacked = MOST_COUNTS[len(op.grid)], _stacked(op, sizes)
    out: list[list[tuple[str, int]]] = []
    for p in op.grid:
        extents, limit = _extents(op, p.name, {}, sizes), GRID_LIMITS[p.name]
        counts = candidate_counts(extents, threads, near=near, most=most, limit=limit)
        out.append([(p.name, c) for c in counts if c > 1 or p.name not in stacked])
    return out


def _loop_choices(
    op: GraphOp, grid: dict[str, int], sizes: dict[DataDim, int], threads: int
) -> list[list[tuple[str, int]]]:
    """For each loop the counts to try within the blocks of a grid."""
    out: list[list[tuple[str, int]]] = []
    for p in op.loops:
        extents = _extents(op, p.name, grid, sizes)
        near = chunk(max((e.full for e in extents), default=1), GOOD_TILE)
        counts = candidate_counts(extents, threads, near=near, most=MOST_TILES[len(op.loops)])
        out.append([(p.name, c) for c in counts])
    return out


def is_legal(op: GraphOp, counts: dict[str, int], sizes: dict[DataDim, int]) -> bool:
    """Whether these d_p leave no tile of any tensor empty, and stay within the grid's limits."""
    if any(counts[par] == 1 for par in _stacked(op, sizes)):
        return False
    for p in (*op.grid, *op.loops):
        extents = _extents(op, p.name, _around(p, counts), sizes)
        if not extents and counts[p.name] != 1:
            return False
        if not all(extent.splits_in(counts[p.name]) for extent in extents):
            return False
        if p.kind is ParKind.GRID and counts[p.name] > GRID_LIMITS[p.name]:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Extent:
    """What a parallelization dim splits: a whole dim, or chunks of which the last is clipped."""

    full: int
    last: int

    def splits_in(self, count: int) -> bool:
        """Whether no tile is empty, in a full chunk or in the last."""
        return (
            is_legal_count(self.full, count) and (count - 1) * chunk(self.full, count) < self.last
        )

    def is_ragged(self, count: int) -> bool:
        """Whether tiles differ in size."""
        return self.full != self.last or self.full % count != 0


def candidate_counts(
    extents: frozenset[Extent], threads: int, *, near: int, most: int, limit: int = 2**31 - 1
) -> tuple[int, ...]:
    """At most `most` counts worth trying for a dim that splits `extents`; 1 comes first.

    Powers of two, tiles of a power of two and multiples of `threads` go before divisors, those
    close to `near` (on a logarithmic scale) before those far from it.
    """
    if not extents:
        return (1,)
    smallest = min(extent.last for extent in extents)
    powers = [1 << k for k in range(smallest.bit_length())]
    plain = {*powers, *(threads * k for k in range(1, 5)), near}
    plain |= {chunk(extent.full, tile) for extent in extents for tile in powers}
    divisors = {d for d in range(1, math.isqrt(smallest) + 1) if smallest % d == 0}
    divisors |= {smallest // d for d in divisors}

    def rank(count: int) -> tuple[bool, bool, float, int]:
        return count != 1, count not in plain, abs(math.log2(count / near)), count

    legal = [
        count
        for count in plain | divisors
        if 1 <= count <= limit and all(extent.splits_in(count) for extent in extents)
    ]
    return tuple(sorted(legal, key=rank)[:most])


def _stacked(op: GraphOp, sizes: dict[DataDim, int]) -> set[str]:
    """The grid dims along which the kernel stacks partial values."""
    return {v.par for v in op.mapping.true if v.dim not in sizes}


def _around(par: ParDim, counts: dict[str, int]) -> dict[str, int]:
    """The counts of the dims outside `par`: a loop runs within a block."""
    return counts if par.kind is ParKind.LOOP else {}


def _extents(
    op: GraphOp, par: str, outer: dict[str, int], sizes: dict[DataDim, int]
) -> frozenset[Extent]:
    """What `par` splits in the tensors mapped along it; `outer`: counts of the dims around it.

    Nothing where it would split two dims, or a dim whole in some tensors and by chunks in others,
    or one that another loop splits: targets run a loop with one tile, and loops over different
    dims. A loop over a dim that some grid dim splits in tensors that the loop does not has no more
    tiles than the smallest chunk holds.
    """
    split = {v.tensor: v.dim for v in op.mapping.true if v.par == par and v.dim in sizes}
    if len(set(split.values())) != 1:
        return frozenset()
    dim = next(iter(split.values()))
    size = sizes[dim]
    loops = {p.name for p in op.loops}
    if par in loops and len({v.par for v in op.mapping.true if v.dim == dim} & loops) > 1:
        return frozenset()
    inner = [v for v in op.mapping.true if v.dim == dim and v.par != par and v.par in outer]
    around = {v.tensor: outer[v.par] for v in inner}
    cut = {v.tensor: v.par for v in inner if outer[v.par] > 1}
    if len({cut.get(tensor) for tensor in split}) > 1:
        return frozenset()
    out: set[Extent] = set()
    for count in (around.get(tensor, 1) for tensor in split):
        full = chunk(size, count)
        out.add(Extent(full, size - (count - 1) * full))
    if around:
        smallest = min(chunk(size, count) for count in around.values())
        out.add(Extent(smallest, smallest))
    return frozenset(out)


def uses_local_size(op: GraphOp) -> bool:
    """Whether a sum over a loop adds a value that is the same in every iteration."""
    varies = {p.name: varies_along(op, p.name) for p in op.loops}
    return any(
        isinstance(node, Accumulator)
        and node.kind is AccumulatorKind.SUM
        and not varies[node.par][node.operand]
        for node in op.block.nodes
    )


def _is_ragged(op: GraphOp, counts: Counts, sizes: dict[DataDim, int]) -> bool:
    """Whether tiles differ in size."""
    named = dict(counts)
    return any(
        extent.is_ragged(named[p.name])
        for p in (*op.grid, *op.loops)
        for extent in _extents(op, p.name, _around(p, named), sizes)
    )
