"""Decides how the threads of a block compute a contraction c = sum_k a b: the *tiling*.

Each thread owns a micro-tile of results in registers and walks its share of the contracted axis;
what several threads computed of one result is added up at the end, by shuffles and, across warps,
through shared memory. All ways to split the threads over the main axes (batch, rows, columns, k)
and both choices for each raw operand (read it where it is, or stage it in shared memory) are
costed, in instructions per thread and iteration; the cheapest is taken. Sums over the loop stay in
registers for the whole loop (`persistent`) where they fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, product

from prism.ir import DataDim
from prism_kernels.cuda.dialect import WARP
from prism_kernels.cuda.layout import Layout, power_above
from prism_kernels.cuda.operands import Operand, Problem
from prism_kernels.cuda.pipeline import PipelineTiling, pipeline_tilings
from prism_kernels.cuda.stream import StreamTiling, stream_tilings

CORES = (0, 1)
"""Schedule option `C`, the default first: 0 leaves contractions to tensor cores where that costs
less, 1 never does. Two more serve tests and rehearsals, and are no choices of the tuner's: 2
wherever it is possible; 3 the same, through a ring before anything else."""

MOST_PERSISTENT = 64
"""Results per thread that may stay in registers over the loop."""
MOST_TILE = 32
"""Results per thread at a time otherwise."""
MOST_HELD = 32
"""Elements of an operand that a thread may hold in registers."""
MOST_SCRATCH = 6 << 10
"""Elements of shared memory for adding up across warps."""

# costs, in instructions
SHARED_LOAD = 1.0
GLOBAL_LOAD = 1.5
SECTOR = 0.5
CONVERT = 1.0
BARRIER = 40.0
SHUFFLE = 2.0


@dataclass(frozen=True, slots=True)
class ThreadTiling:
    """How threads compute a contraction, each a micro-tile of results."""

    layout: Layout
    tile: Mapping[DataDim, int] = field(hash=False)
    """Result dim -> elements per thread at a time."""
    is_persistent: bool
    staged: tuple[bool, bool]
    """Whether the left and the right operand are staged in shared memory."""
    cost: float
    vectors: tuple[bool, bool] = (False, False)
    """Whether they are read several neighbours at a time, along the dim that has a width."""

    @property
    def wide(self) -> DataDim | None:
        """The dim of which a thread takes several neighbours at a time."""
        return next((d for d, share in self.layout.shares if share.width > 1), None)

    @property
    def results(self) -> int:
        """Results that one thread holds at a time."""
        return math.prod(self.tile.values())


CoreTiling = StreamTiling | PipelineTiling
Tiling = ThreadTiling | CoreTiling


@lru_cache(maxsize=4096)
def plan_contraction(problem: Problem) -> Tiling:
    """The cheapest tiling."""
    by_cores = _cheapest_of_cores(problem)
    if by_cores is not None and problem.cores >= 2:
        return by_cores
    by_threads = plan_by_threads(problem)
    return by_cores if by_cores is not None and by_cores.cost < by_threads.cost else by_threads


def _cheapest_of_cores(problem: Problem) -> CoreTiling | None:
    """The cheapest tiling for tensor cores, where they are wanted and can."""
    if problem.cores == 1:
        return None
    rings, streams = list(pipeline_tilings(problem)), stream_tilings(problem)
    found = rings if problem.cores == 3 and rings else chain[CoreTiling](streams, rings)
    return min(found, key=lambda t: t.cost, default=None)


def plan_by_threads(problem: Problem) -> ThreadTiling:
    """The cheapest tiling without tensor cores."""
    # where no layout keeps its scratch small, it may be as large as it is: it goes to the workspace
    tiling = _cheapest(problem, MOST_SCRATCH) or _cheapest(problem, math.inf)
    assert tiling is not None  # without a limit every layout is possible
    return tiling


def _cheapest(problem: Problem, most_scratch: float) -> ThreadTiling | None:
    best: ThreadTiling | None = None
    for staged in _staging(problem):
        for layout in _wide_layouts(problem, staged):
            tiling = _tiling(problem, layout, staged, most_scratch)
            if tiling is not None and (best is None or tiling.cost < best.cost):
                best = tiling
    return best


def _staging(problem: Problem) -> Iterator[tuple[bool, bool]]:
    def choices(operand: Operand) -> tuple[bool, ...]:
        if not operand.is_stageable or problem.staging == 1:
            return (False,)
        return (True,) if problem.staging == 2 else (False, True)

    yield from product(choices(problem.left), choices(problem.right))


def _main_axes(problem: Problem) -> list[DataDim]:
    """The longest dim of each kind (in both operands, left only, right only), then the depth."""
    extents = dict(problem.extents)
    left, right = dict(problem.left.strides), dict(problem.right.strides)
    kinds: dict[tuple[bool, bool], list[DataDim]] = {}
    for dim in extents:
        if dim != problem.depth:
            kinds.setdefault((dim in left, dim in right), []).append(dim)
    mains = [max(dims, key=lambda d: extents[d]) for _, dims in sorted(kinds.items())]
    return [*mains, problem.depth]


def _wide_layouts(problem: Problem, staged: tuple[bool, bool]) -> Iterator[Layout]:
    """Every layout, the larger operand read element by element and in vectors."""
    yield from _layouts(problem, staged, dict(problem.extents))
    extents = dict(problem.extents)
    operands = zip(problem.operands, staged, strict=True)
    raw = [operand for operand, is_staged in operands if operand.run > 1 and not is_staged]
    if not raw:
        return
    streamed = max(raw, key=lambda o: math.prod(extents[d] for d, _ in o.strides))
    assert streamed.near is not None
    groups = {**extents, streamed.near: extents[streamed.near] // streamed.run}
    for layout in _layouts(problem, staged, groups):
        yield layout.widened(streamed.near, streamed.run)


def _layouts(
    problem: Problem, staged: tuple[bool, bool], extents: Mapping[DataDim, int]
) -> Iterator[Layout]:
    """Every split of all threads over the main axes, with each sensible lane axis."""
    mains = [d for d in _main_axes(problem) if extents[d] > 1] or [problem.depth]
    caps = {d: min(power_above(extents[d]), problem.threads) for d in mains}
    total = min(problem.threads, math.prod(caps.values()))
    for lane in _lane_axes(problem, staged, mains):
        rest = [d for d in mains if d != lane]
        if problem.depth in rest:  # next to the lane axis it may still share its warp
            rest.sort(key=lambda d: d != problem.depth)
        for counts in _splits(total, [caps[d] for d in (lane, *rest)]):
            yield Layout.of(list(zip((lane, *rest), counts, strict=True)))
            if rest and rest[0] == problem.depth and len(rest) > 1 and counts[1] > 1:
                order, moved = [lane, *rest[1:], rest[0]], [counts[0], *counts[2:], counts[1]]
                yield Layout.of(list(zip(order, moved, strict=True)))


def _lane_axes(problem: Problem, staged: tuple[bool, bool], mains: list[DataDim]) -> list[DataDim]:
    """The axes along which an operand that is read from global memory is contiguous."""
    operands = zip((problem.left, problem.right), staged, strict=True)
    near = {
        d
        for operand, is_staged in operands
        if operand.is_global and not is_staged
        for d, stride in operand.strides
        if stride == 1
    }
    return [d for d in mains if d in near] or mains


def _splits(total: int, caps: list[int]) -> Iterator[tuple[int, ...]]:
    """All ways to write `total` as a product of powers of two within `caps`."""
    if len(caps) == 1:
        if total <= caps[0]:
            yield (total,)
        return
    count = 1
    while count <= min(caps[0], total):
        for rest in _splits(total // count, caps[1:]):
            yield (count, *rest)
        count *= 2


def _tiling(
    problem: Problem, layout: Layout, staged: tuple[bool, bool], most_scratch: float
) -> ThreadTiling | None:
    extents = dict(problem.extents)
    passes = {d: layout.passes(d, n) for d, n in extents.items()}
    depth = passes.pop(problem.depth)
    results = math.prod(passes.values())
    along = layout[problem.depth]
    outputs = math.prod(n for d, n in extents.items() if d != problem.depth)
    if along.warps > 1 and along.warps * outputs > most_scratch:
        return None
    persists = problem.is_sum and results <= MOST_PERSISTENT
    tile = dict(passes) if persists else _shrink(passes, layout)
    vectors = _vectors(problem, layout, staged)
    if _held(problem, layout, tile) > MOST_HELD:
        return None
    rounds = math.prod(-(-passes[d] // tile[d]) for d in passes)
    cost = float(rounds * depth * math.prod(tile.values()))
    for operand, is_staged, is_vector in zip(problem.operands, staged, vectors, strict=True):
        mine = dict(operand.strides)
        loads = rounds * depth * math.prod(n for d, n in tile.items() if d in mine)
        cost += loads * _load_cost(operand, layout, is_staged=is_staged, is_vector=is_vector)
        if is_staged:
            size = math.prod(extents[d] for d in mine)
            copied = -(-size // problem.threads)
            cost += copied * (GLOBAL_LOAD + 4 * SECTOR + SHARED_LOAD) + BARRIER
    finish = results * (SHUFFLE * math.log2(along.lanes) + 1)
    if along.warps > 1:
        finish += BARRIER + -(-outputs // problem.threads) * along.warps * SHARED_LOAD
    cost += finish / (problem.iterations if persists else 1)
    return ThreadTiling(layout, tile, persists, staged, cost, vectors)


def _vectors(problem: Problem, layout: Layout, staged: tuple[bool, bool]) -> tuple[bool, bool]:
    """Whether each operand is read several neighbours at a time."""
    wide = dict(layout.shares)
    left, right = (
        operand.run > 1 and not is_staged and operand.near in wide and wide[operand.near].width > 1
        for operand, is_staged in zip(problem.operands, staged, strict=True)
    )
    return left, right


def _held(problem: Problem, layout: Layout, tile: Mapping[DataDim, int]) -> int:
    """Registers that hold elements of the operand that does not stream, for a group of depths."""
    sizes = (
        math.prod(n for d, n in tile.items() if d in dict(operand.strides))
        for operand in problem.operands
    )
    width = layout[problem.depth].width
    return min(sizes) * width if width > 1 else 0


def _shrink(passes: Mapping[DataDim, int], layout: Layout) -> dict[DataDim, int]:
    """A tile of at most MOST_TILE results, as square as may be, of whole groups of neighbours."""
    tile, width = dict(passes), {d: layout[d].width for d in passes}
    while math.prod(tile.values()) > MOST_TILE:
        longest = max(tile, key=lambda d: tile[d] // width[d])
        tile[longest] = -(-tile[longest] // (2 * width[longest])) * width[longest]
    return tile


def _load_cost(operand: Operand, layout: Layout, *, is_staged: bool, is_vector: bool) -> float:
    """Instructions that loading an element costs.

    What a warp reads apart costs a sector of 32 bytes each; an access in vectors is shared by as
    many elements.
    """
    if not operand.is_global or is_staged:
        return SHARED_LOAD  # rows of buffers are padded: no bank conflicts
    strides = dict(operand.strides)
    sectors = 1.0
    left = WARP
    for dim, share in layout.shares:
        lanes = min(share.threads, left)
        left //= lanes
        if dim in strides:
            near = strides[dim] == 1
            run = lanes * share.width * operand.element_bytes
            sectors *= max(1.0, run / 32) if near else lanes
    at_once = 1
    if is_vector and operand.near is not None:
        at_once = min(operand.run, layout[operand.near].width)
    return (GLOBAL_LOAD + SECTOR * sectors) / at_once + (
        CONVERT if operand.element_bytes < 4 else 0
    )
