"""Decides how tensor cores compute a contraction with few rows: weights stream through registers.

One operand, the *streamed* one (a weight matrix, the keys of attention), lies in global memory in
half precision and is read once, in vectors, straight into the fragments of `mma.sync`; it has the
16-row side of each product. The other one has few rows, which are the 8 columns. Which elements of
the depth a lane calls its own is free as long as both operands agree, so each lane takes
neighbouring ones, and no shared memory is needed to bring the streamed operand into shape:

* *across*: contiguous along its own dim. A lane reads 4 neighbouring depths, of each `vector`
  elements, and pairs the depths by permuting bytes: 16 deep, 8 x `vector` wide.
* *along*: contiguous along the depth. A lane reads `vector` elements of rows g and g + 8, which are
  pairs already: 4 x `vector` deep, 16 wide.

Rows that are an argument's are multiplied as they are. Rows that were computed are float32 numbers
of any size, which half precision may not hold: they are split in two tf32 numbers, which have
float32's range, and together 22 bits; half-precision weights are tf32 numbers as they stand.

Warps split the width and the depth; what several computed of one result is added up through shared
memory, as in `prism_kernels.cuda.contraction`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from prism.ir import DataDim
from prism_kernels.cuda.devices import SM_REGISTERS
from prism_kernels.cuda.dialect import WARP
from prism_kernels.cuda.layout import Layout, Share
from prism_kernels.cuda.operands import Operand, Problem
from prism_kernels.cuda.tensor_dialect import PACKED

ROWS = 8
"""Columns of a product: rows of the operand that does not stream."""
WIDTH = 16
"""Rows of a product: the width of the streamed operand that one product covers."""
MOST_ROWS = 64
MOST_TOTALS = 64
"""Results of a thread."""
MOST_WORDS = 64
"""Streamed words that a thread has under way."""
MOST_REGISTERS = 160
"""For totals, streamed words and rows together ..."""
OTHER_REGISTERS = 40
"""... beside these."""
MOST_PRODUCTS = 64
"""Products between two turns of the loop along the depth, if it reads several steps ahead: LLVM
unrolls loops of so many, and where it does not, local arrays move to memory."""

# costs, in instructions
MULTIPLY = 5.0
FETCH = 1.5
SECTOR = 0.5
PERMUTE = 1.0
READ = 1.5
APART = 8.0
SPLIT = 4.0
STORE = 3.0
BARRIER = 40.0


@dataclass(frozen=True, slots=True)
class StreamTiling:
    """How tensor cores compute a contraction; `streamed` is 0 for the left operand."""

    streamed: int
    main: DataDim
    """The streamed operand's own dim along which products are laid."""
    rows: tuple[DataDim, ...]
    """The own dims of the other operand."""
    others: tuple[DataDim, ...]
    """Dims that a block walks one after the other: those of both operands, further ones."""
    is_along: bool
    vector: int
    """Elements that a lane reads in one access."""
    blocks: int
    """Blocks of the width that a warp has at a time."""
    row_blocks: int
    """Products side by side for all rows."""
    wide_warps: int
    deep_warps: int
    unroll: int
    """Steps along the depth whose streamed elements are read before the first is used."""
    is_split: bool
    """Whether the rows are split in two tf32 numbers."""
    is_persistent: bool
    passes: int
    """How often a warp walks the depth, for one after the other of its blocks."""
    layout: Layout
    multiplications: float
    """Products of a warp in an iteration."""
    cost: float
    staged: tuple[bool, bool] = (False, False)

    @property
    def products(self) -> int:
        """Products over the width of one block."""
        return 1 if self.is_along else self.vector // 2

    @property
    def width(self) -> int:
        """How wide one block is."""
        return WIDTH * self.products

    @property
    def lane_depth(self) -> int:
        """Neighbouring elements along the depth that a lane has in a step."""
        return self.vector if self.is_along else 4

    @property
    def depth(self) -> int:
        """How deep one step is."""
        return 4 * self.lane_depth

    @property
    def step_products(self) -> int:
        """Products of one step."""
        deep = self.lane_depth // 4 * (4 if self.is_split else 1)
        return self.blocks * self.products * self.row_blocks * deep

    @property
    def fetches(self) -> int:
        """Accesses to the streamed operand of a lane, step and block."""
        return 2 if self.is_along else 4

    @property
    def words(self) -> int:
        """Words of one access."""
        return self.vector // 2

    @property
    def results(self) -> int:
        """Results that one thread holds at a time."""
        return 4 * self.blocks * self.products * self.row_blocks


def stream_tilings(problem: Problem) -> Iterator[StreamTiling]:
    """All ways in which tensor cores may compute a contraction of few rows."""
    for streamed in (0, 1):
        operand, other = problem.operands[streamed], problem.operands[1 - streamed]
        if _can_stream(problem, operand) and other.dtype in {operand.dtype, "float32"}:
            yield from _tilings_of(problem, streamed)


def _can_stream(problem: Problem, operand: Operand) -> bool:
    """Whether an operand can be read in vectors, and is wide at all."""
    own = [d for d, _ in operand.strides if d != problem.depth]
    return operand.is_global and operand.dtype in PACKED and operand.run >= 2 and bool(own)


def _tilings_of(problem: Problem, streamed: int) -> Iterator[StreamTiling]:
    extents = dict(problem.extents)
    operand, other = problem.operands[streamed], problem.operands[1 - streamed]
    mine, theirs = dict(operand.strides), dict(other.strides)
    near = operand.near
    own = [d for d in extents if d in mine and d not in theirs and d != problem.depth]
    rows = tuple(d for d in extents if d in theirs and d not in mine)
    row_blocks = -(-math.prod(extents[d] for d in rows) // ROWS)
    is_along = near == problem.depth
    if not own or row_blocks * ROWS > MOST_ROWS or not (is_along or near in own):
        return
    assert near is not None
    main = max(own, key=lambda d: extents[d]) if is_along else near
    is_split = not (other.is_exact and other.dtype == operand.dtype)
    others = tuple(d for d in extents if d not in {*rows, main, problem.depth})
    vectors = [v for v in (8, 4) if v <= operand.run] or [2]
    if is_along and vectors == [2]:
        return
    warps = problem.threads // WARP
    splits = [(warps // k, k) for k in (1, 2, 4, 8, 16, 32) if k <= warps]
    for vector, blocks, unroll, (wide, deep) in product(vectors, (1, 2, 4), (4, 2, 1), splits):
        if blocks > 1 and not is_along:
            continue
        yield from _tiling(
            problem,
            StreamTiling(
                streamed=streamed, main=main, rows=rows, others=others, is_along=is_along,
                vector=vector, blocks=blocks, row_blocks=row_blocks, wide_warps=wide,
                deep_warps=deep, unroll=unroll, is_split=is_split, is_persistent=False,
                passes=1, layout=Layout(()), multiplications=0.0, cost=0.0,
            ),
        )  # fmt: skip


def _tiling(problem: Problem, bare: StreamTiling) -> Iterator[StreamTiling]:
    """A tiling with what follows from its choices, if they fit."""
    extents = dict(problem.extents)
    passes = -(-extents[bare.main] // (bare.width * bare.blocks * bare.wide_warps))
    others = math.prod(extents[d] for d in bare.others)
    words = bare.unroll * bare.blocks * bare.fetches * bare.words
    steps = -(-extents[problem.depth] // bare.depth)
    rows = bare.row_blocks * bare.lane_depth * (2 if bare.is_split else 1)
    room = min(MOST_REGISTERS, SM_REGISTERS // problem.threads - OTHER_REGISTERS)
    if bare.results > MOST_TOTALS or words > MOST_WORDS or bare.results + words + rows > room:
        return
    if bare.deep_warps > steps or (bare.unroll > 1 and bare.unroll * bare.deep_warps > steps):
        return
    if bare.unroll > 1 and bare.unroll * bare.step_products > MOST_PRODUCTS:
        return
    shift = (WARP * bare.wide_warps).bit_length() - 1
    share = Share(bare.deep_warps, shift)
    yield replace(
        bare,
        is_persistent=problem.is_sum and passes * others == 1,
        passes=passes,
        layout=Layout(((problem.depth, share),) if bare.deep_warps > 1 else ()),
        multiplications=passes * others * _turns(bare, steps) * bare.unroll * bare.step_products,
        cost=_cost(problem, bare, passes * others, steps),
    )


def _turns(tiling: StreamTiling, steps: int) -> int:
    """How often a warp goes through the loop along the depth."""
    return -(-steps // (tiling.deep_warps * tiling.unroll))


def _cost(problem: Problem, tiling: StreamTiling, rounds: int, steps: int) -> float:
    """Instructions of a warp, for one iteration."""
    mine = _turns(tiling, steps) * tiling.unroll
    operand = problem.operands[tiling.streamed]
    sectors = WARP * tiling.vector * operand.element_bytes / 32
    fetches = tiling.blocks * tiling.fetches * (FETCH + SECTOR * sectors)
    pairs = tiling.blocks * tiling.products * tiling.lane_depth
    prepared = pairs * (2 if tiling.is_split else not tiling.is_along) * PERMUTE
    rows = tiling.row_blocks * _row_cost(problem, tiling)
    step = fetches + prepared + MULTIPLY * tiling.step_products + rows
    finish = tiling.results * STORE
    if tiling.deep_warps > 1:
        outputs = math.prod(n for d, n in problem.extents if d != problem.depth)
        finish += BARRIER + -(-outputs // problem.threads) * tiling.deep_warps
    is_persistent = problem.is_sum and rounds == 1
    return rounds * mine * step + rounds * finish / (problem.iterations if is_persistent else 1)


def _row_cost(problem: Problem, tiling: StreamTiling) -> float:
    """Instructions for what a lane needs of the rows of one product, in a step."""
    other, count = problem.operands[1 - tiling.streamed], tiling.lane_depth
    if tiling.is_split:
        return count * (READ + SPLIT + (APART if other.is_global else 0.0))
    if other.near == problem.depth and other.run >= count:
        return FETCH + SECTOR * count
    return count * (READ + (APART if other.is_global else 0.0))
