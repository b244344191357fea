"""Decides how tensor cores compute a contraction with many rows: tiles pass through shared memory.

A block computes a tile of results at a time. Along the depth it walks in steps; the elements that a
step needs of both operands are copied to shared memory as they are (`cp.async`), several steps
ahead, into the *stages* of a ring, and read from there into fragments (`ldmatrix`, transposed where
an operand does not lie along the depth). Both operands are arguments in half precision that can be
copied 16 bytes at a time. Rows in shared memory are 16 bytes longer than what they hold, an odd
number of times 16 bytes, so that the eight rows of a matrix lie in different banks.

All of it happens within one step of the block (`prism_kernels.cuda.steps`), the barriers between
the stages too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product

from prism.ir import DataDim
from prism_kernels.cuda.dialect import WARP
from prism_kernels.cuda.layout import Layout, power_above
from prism_kernels.cuda.operands import Operand, Problem
from prism_kernels.cuda.tensor_dialect import PACKED

CHUNK = 8
"""Elements of a copy, and of the row of a matrix."""
WIDTH = 16
"""Rows of a product, columns of the two that one matrix load serves, depth of both."""
MOST_TOTALS = 64
"""Results of a thread at a time."""
MOST_RING_BYTES = 64 << 10
TILES = (128, 64, 32, 16)
DEPTHS = (32, 64)
STAGES = (3, 4, 2)

# costs, in instructions
COPY = 12.0
LOAD = 4.0
MULTIPLY = 5.0
SYNCHRONIZE = 40.0
STORE = 3.0
START = 400.0
"""Filling the ring."""
STALL = 80.0
"""Waiting for copies that were started one step ahead; further ahead, as much less."""


@dataclass(frozen=True, slots=True)
class PipelineTiling:
    """How tensor cores compute a contraction: rows are the left operand's, columns the right's."""

    mains: tuple[DataDim, DataDim]
    """The dims that rows and columns lie along."""
    others: tuple[DataDim, ...]
    """Dims that a block walks one after the other."""
    is_along: tuple[bool, bool]
    """Whether the left and the right operand lie along the depth."""
    tile: tuple[int, int]
    """Rows and columns that a block computes at a time."""
    warps: tuple[int, int]
    """How many warps share the rows, and the columns."""
    depth: int
    """Of a step."""
    stages: int
    turns: tuple[int, int]
    """How many tiles there are along the rows, and along the columns."""
    is_persistent: bool
    multiplications: float
    """Products of a warp in an iteration."""
    cost: float
    layout: Layout = field(default=Layout(()))  # no warps share the depth
    staged: tuple[bool, bool] = (False, False)

    @property
    def products(self) -> tuple[int, int]:
        """Products of a warp: along its rows, and along its columns."""
        return self.tile[0] // self.warps[0] // WIDTH, self.tile[1] // self.warps[1] // 8

    @property
    def results(self) -> int:
        """Results that one thread holds at a time."""
        return 4 * math.prod(self.products)

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of each operand in a stage: rows of memory, and elements of one."""
        left, right = (
            (width, self.depth) if is_along else (self.depth, width)
            for width, is_along in zip(self.tile, self.is_along, strict=True)
        )
        return left, right

    @property
    def strides(self) -> tuple[int, int]:
        """From row to row in shared memory, in elements of 4 bytes."""
        left, right = ((row + CHUNK) // 2 for _, row in self.shapes)
        return left, right

    @property
    def sizes(self) -> tuple[int, int]:
        """What each operand takes of a stage, in elements of 4 bytes."""
        left, right = (
            rows * stride for (rows, _), stride in zip(self.shapes, self.strides, strict=True)
        )
        return left, right

    @property
    def ring_elements(self) -> int:
        """What all stages take, in elements of 4 bytes."""
        return self.stages * sum(self.sizes)


def pipeline_tilings(problem: Problem) -> Iterator[PipelineTiling]:
    """All ways in which a contraction may pass through a ring."""
    left, right = problem.operands
    if not (_can_copy(left) and _can_copy(right) and left.dtype == right.dtype):
        return
    extents = dict(problem.extents)
    mains = _main(problem, left, right), _main(problem, right, left)
    if None in mains:
        return
    rows, columns = mains
    assert rows is not None
    assert columns is not None
    others = tuple(d for d in extents if d not in {rows, columns, problem.depth})
    is_along = left.near == problem.depth, right.near == problem.depth
    warps = problem.threads // WARP
    shares = [(k, warps // k) for k in (1, 2, 4, 8, 16, 32) if k <= warps]
    sides = [
        [t for t in TILES if t <= max(WIDTH, power_above(extents[d]))] for d in (rows, columns)
    ]
    tiles = product(sides[0], sides[1])
    for tile, share, depth, stages in product(tiles, shares, DEPTHS, STAGES):
        bare = PipelineTiling(
            (rows, columns), others, is_along, tile, share, depth, stages,
            turns=(-(-extents[rows] // tile[0]), -(-extents[columns] // tile[1])),
            is_persistent=False, multiplications=0.0, cost=0.0,
        )  # fmt: skip
        yield from _tiling(problem, bare)


def _can_copy(operand: Operand) -> bool:
    is_packed = operand.is_global and operand.is_exact and operand.dtype in PACKED
    return is_packed and operand.run == CHUNK


def _main(problem: Problem, operand: Operand, other: Operand) -> DataDim | None:
    """The dim that an operand's side of the results lies along; None if there is none."""
    theirs, extents = dict(other.strides), dict(problem.extents)
    own = [d for d, _ in operand.strides if d not in theirs]
    if operand.near != problem.depth:
        return operand.near if operand.near in own else None
    return max(own, key=lambda d: extents[d], default=None)


def _tiling(problem: Problem, bare: PipelineTiling) -> Iterator[PipelineTiling]:
    """A tiling with what follows from its choices, if it fits."""
    per_warp = [t // w for t, w in zip(bare.tile, bare.warps, strict=True)]
    if any(n < WIDTH for n in per_warp) or bare.results > MOST_TOTALS:
        return
    if 4 * bare.ring_elements > MOST_RING_BYTES:
        return
    rounds = math.prod((*bare.turns, *(dict(problem.extents)[d] for d in bare.others)))
    is_persistent = problem.is_sum and rounds == 1
    steps = -(-dict(problem.extents)[problem.depth] // bare.depth)
    cost = _cost(problem, bare, rounds, steps, is_persistent=is_persistent)
    products = rounds * steps * (bare.depth // WIDTH) * math.prod(bare.products)
    yield replace(bare, is_persistent=is_persistent, multiplications=products, cost=cost)


def _cost(
    problem: Problem, tiling: PipelineTiling, rounds: int, steps: int, *, is_persistent: bool
) -> float:
    """Instructions of a warp, for one iteration."""
    chunks = sum(rows * row // CHUNK for rows, row in tiling.shapes)
    high, wide = tiling.products
    deep = tiling.depth // WIDTH
    step = COPY * -(-chunks // problem.threads) + SYNCHRONIZE + STALL / (tiling.stages - 1)
    step += deep * (LOAD * (high + wide / 2) + MULTIPLY * high * wide)
    finish = tiling.results * STORE / (problem.iterations if is_persistent else 1)
    return rounds * (START + steps * step + finish)
