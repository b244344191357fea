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
from itertools import product

from prism.ir import DataDim
from prism_kernels.cuda.dialect import WARP
from prism_kernels.cuda.layout import Layout, power_above

MOST_PERSISTENT = 64
"""Results per thread that may stay in registers over the loop."""
MOST_TILE = 32
"""Results per thread at a time otherwise."""
MOST_SCRATCH = 6 << 10
"""Elements of shared memory for adding up across warps."""

# costs, in instructions
SHARED_LOAD = 1.0
GLOBAL_LOAD = 1.5
SECTOR = 0.5
BARRIER = 40.0
SHUFFLE = 2.0


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand: where its elements lie, and whether it may be staged; strides in elements."""

    strides: tuple[tuple[DataDim, int], ...]
    is_global: bool
    element_bytes: int
    is_stageable: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """A contraction in one block and iteration."""

    extents: tuple[tuple[DataDim, int], ...]
    """Of every dim of the operands."""
    depth: DataDim
    left: Operand
    right: Operand
    iterations: int
    """How many times it runs; more than once: it adds up over the loop."""
    is_sum: bool
    """Whether it adds into an accumulator of the loop."""
    threads: int
    staging: int
    """Schedule option `S`, see `prism_kernels.cuda.places.STAGING`."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a contraction is computed."""

    layout: Layout
    tile: Mapping[DataDim, int] = field(hash=False)
    """Result dim -> elements per thread at a time."""
    is_persistent: bool
    staged: tuple[bool, bool]
    """Whether the left and the right operand are staged in shared memory."""
    cost: float

    @property
    def results(self) -> int:
        """Results that one thread holds at a time."""
        return math.prod(self.tile.values())


@lru_cache(maxsize=4096)
def plan_contraction(problem: Problem) -> Tiling:
    """The cheapest tiling."""
    # where no layout keeps its scratch small, it may be as large as it is: it goes to the workspace
    tiling = _cheapest(problem, MOST_SCRATCH) or _cheapest(problem, math.inf)
    assert tiling is not None  # without a limit every layout is possible
    return tiling


def _cheapest(problem: Problem, most_scratch: float) -> Tiling | None:
    best: Tiling | None = None
    for staged in _staging(problem):
        for layout in _layouts(problem, staged):
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


def _layouts(problem: Problem, staged: tuple[bool, bool]) -> Iterator[Layout]:
    """Every split of all threads over the main axes, with each sensible lane axis."""
    extents = dict(problem.extents)
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
) -> Tiling | None:
    extents = dict(problem.extents)
    passes = {d: layout.passes(d, n) for d, n in extents.items()}
    depth = passes.pop(problem.depth)
    results = math.prod(passes.values())
    along = layout[problem.depth]
    outputs = math.prod(n for d, n in extents.items() if d != problem.depth)
    if along.warps > 1 and along.warps * outputs > most_scratch:
        return None
    persists = problem.is_sum and results <= MOST_PERSISTENT
    tile = dict(passes) if persists else _shrink(passes)
    rounds = math.prod(-(-passes[d] // tile[d]) for d in passes)
    cost = float(rounds * depth * math.prod(tile.values()))
    for operand, is_staged in zip((problem.left, problem.right), staged, strict=True):
        mine = dict(operand.strides)
        loads = rounds * depth * math.prod(n for d, n in tile.items() if d in mine)
        cost += loads * _load_cost(operand, layout, is_staged=is_staged)
        if is_staged:
            size = math.prod(extents[d] for d in mine)
            copied = -(-size // problem.threads)
            cost += copied * (GLOBAL_LOAD + 4 * SECTOR + SHARED_LOAD) + BARRIER
    finish = results * (SHUFFLE * math.log2(along.lanes) + 1)
    if along.warps > 1:
        finish += BARRIER + -(-outputs // problem.threads) * along.warps * SHARED_LOAD
    cost += finish / (problem.iterations if persists else 1)
    return Tiling(layout, tile, persists, staged, cost)


def _shrink(passes: Mapping[DataDim, int]) -> dict[DataDim, int]:
    """A tile of at most MOST_TILE results, as square as may be."""
    tile = dict(passes)
    while math.prod(tile.values()) > MOST_TILE:
        longest = max(tile, key=lambda d: tile[d])
        tile[longest] = -(-tile[longest] // 2)
    return tile


def _load_cost(operand: Operand, layout: Layout, *, is_staged: bool) -> float:
    """Instructions that one load costs; what a warp reads apart costs a sector of 32 bytes each."""
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
            sectors *= max(1.0, lanes * operand.element_bytes / 32) if near else lanes
    return GLOBAL_LOAD + SECTOR * sectors
