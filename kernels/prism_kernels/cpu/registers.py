"""How contractions are cut for the register file and caches of the machine.

Measured rules, each worth a factor of 1.3 or more somewhere: rows of a stream are read whole or in
long pieces; with few rows of the other operand the contracted axis is cut in blocks of 8 to 32,
outside the columns, so that the accumulator stays in the L2 cache, and the next block is fetched,
in the order of memory, while one is multiplied; short rows of a stream (a head of 128) are taken
whole into registers, and where that takes several passes over them, in blocks that L1 holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from prism_kernels.cpu.contraction import Contraction, Form
from prism_kernels.cpu.intrinsics import CACHE_LINE_BYTES
from prism_kernels.cpu.widths import Widths
from prism_kernels.tile import Load, TileProgram

LONG_STREAM_BYTES = 256 << 10
"""A stream longer than this does not stay in the L2 cache."""
PANEL_SHARE = 0.4
"""The part of the L2 cache that a panel of columns may fill."""
LONG_ROW_CALLS = 4
"""A row that takes as many calls to be fetched is worth a panel without its rest."""
SHORT_ROW_BYTES = 1024
PASS_BYTES = 16 << 10
"""What several passes read of a stream of short rows, one after the other: half an L1 cache."""
AHEAD_BYTES = 16 << 10
"""How far ahead pieces of rows are fetched."""
ROWS_AHEAD_BYTES = 64 << 10
"""How far ahead whole rows are fetched (measured: a sixteenth faster than not; as much for 16 to
256 KB)."""
FEW_ROWS = 16
FEW_ROWS_K_BLOCKS = (16, 8, 32)
"""More rows are less traffic of the accumulator, which from L2 takes as long as 8 rows of
multiply-adds, and more streams for the processor. See `k_block_of_few_rows`."""
SHORT_BLOCK_ROWS = 6
"""Up to here multiply-adds and traffic hide behind memory anyway (measured: up to 20 % faster)."""
L2_WAYS = 8
CROWDED_WAYS = 5
"""Two blocks of rows that take as many ways of L2, or more, push each other out."""
MANY_ROWS_K_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Registers:
    """The registers and the L2 cache of the machine, and the schedule's wishes (0: ours)."""

    vectors: int
    lanes: int
    widths: Widths
    l2_bytes: int = 1 << 20
    l3_bytes: int = 32 << 20
    streams_stores: bool = False
    """Whether it can write past the caches."""
    k_block: int = 0
    column_vectors: int = 0
    row_block: int = 0
    dot_rows: int = 0


@dataclass(frozen=True, slots=True)
class DotBlocks:
    """How a DOT contraction is cut."""

    rows: int
    """Rows of the row operand in a call, at most."""
    count: int
    """Rows of the stream in a call: a power of two."""
    ahead: int
    """How many rows ahead the stream is fetched; 0: the processor does it alone."""


@dataclass(frozen=True, slots=True)
class AxpyBlocks:
    """How an AXPY contraction is cut: rows and vectors of the register block, k-block."""

    rows: int
    vectors: int
    k_block: int
    """0: the whole depth at once."""
    panel: int = 0
    """Columns for which all k-blocks are done before the next ones; 0: all."""
    fetch: bool = False
    """Whether the next block of rows is fetched while one is multiplied."""


def registers_of(machine: Registers, schedule: Mapping[str, int]) -> Registers:
    """Registers of the machine with the schedule's options."""
    return replace(
        machine,
        k_block=schedule.get("KB", 0),
        column_vectors=schedule.get("NV", 0),
        row_block=schedule.get("MR", 0),
        dot_rows=schedule.get("U", 0),
    )


def axpy_blocks(program: TileProgram, c: Contraction, regs: Registers) -> AxpyBlocks:
    """The block sizes of a contraction in AXPY form."""
    rows = program.elements(c.rows)
    columns = program.elements(c.columns)
    row_vectors = -(-columns // regs.lanes)
    k_block = _k_block(program, c, regs, rows, columns)
    budget = regs.vectors * 3 // 4
    if row_vectors <= 8 and regs.vectors >= 32 and not regs.row_block:
        height = max(1, min(rows, 16 // row_vectors))
        passes = -(-rows // height) * (1 if columns % regs.lanes == 0 else 2)
        k_block = _pass_depth(program, c, regs) if passes > 1 else 0
        return AxpyBlocks(height, row_vectors, k_block)
    most = min(budget, regs.row_block or (8 if rows < 12 or budget < 24 else 12))
    height = -(-rows // -(-rows // most))  # even blocks: 13 rows are 7 + 6
    width = regs.column_vectors
    if not width:
        width = (budget if rows > 8 else budget * 2 // 3) // height
        if k_block and rows <= FEW_ROWS:
            # with many rows of it a line of a narrow stream would have left the L1 cache before
            # its second vector; with few, wider pieces of each row in turn disturb prefetching
            width = 2 if rows <= SHORT_BLOCK_ROWS or k_block >= FEW_ROWS_K_BLOCKS[0] else 1
    # the rows of a block are as many streams, which the processor restarts at every page
    fetch = k_block > 0 and rows <= FEW_ROWS
    width = max(1, min(width, 8, row_vectors))
    panel = _panel(program, c, regs, k_block, width) if fetch else 0
    return AxpyBlocks(height, width, k_block, panel, fetch)


def _panel(program: TileProgram, c: Contraction, regs: Registers, k_block: int, width: int) -> int:
    """Columns of which two k-blocks and the accumulator stay in the L2 cache; 0: all.

    A long row that is not fetched in whole calls, or whose length is known at run time only, is cut
    in what is and a rest.
    """
    rows, columns = program.elements(c.rows), program.elements(c.columns)
    column = 2 * k_block * regs.widths.of_value(program, c.stream) + rows * regs.widths.computed
    most = int(PANEL_SHARE * regs.l2_bytes) // column
    step = width * regs.lanes * k_block
    if columns <= most:
        is_even = columns % step == 0 and all(
            program.sizes[a.dim] % program.chunk(a) == 0 for a in c.columns
        )
        return 0 if is_even or columns < LONG_ROW_CALLS * step else columns // step * step
    even = -(-columns // -(-columns // most))
    return min(-(-even // step), max(1, most // step)) * step


def _pass_depth(program: TileProgram, c: Contraction, regs: Registers) -> int:
    """How many short rows of a long stream the passes over it have at a time; 0: all."""
    depth, columns = program.chunk(c.depth), program.elements(c.columns)
    block = max(1, PASS_BYTES // (columns * regs.widths.of_value(program, c.stream)))
    return block if depth > block and is_long(program, c, regs.widths) else 0


def _k_block(program: TileProgram, c: Contraction, regs: Registers, rows: int, columns: int) -> int:
    depth = program.chunk(c.depth)
    if not is_long(program, c, regs.widths) or columns <= 8 * regs.lanes:
        return 0
    block = MANY_ROWS_K_BLOCK
    if rows <= FEW_ROWS:
        if not isinstance(program.nodes[c.stream], Load):
            return 0
        block = regs.k_block or _few_rows_k_block(program, c, regs, rows, columns)
    return block if depth > block else 0


def _few_rows_k_block(
    program: TileProgram, c: Contraction, regs: Registers, rows: int, columns: int
) -> int:
    """The k-block for few rows: small where they are very few, large where columns and L2 allow."""
    middle, small, large = FEW_ROWS_K_BLOCKS
    if rows <= SHORT_BLOCK_ROWS:
        return small
    is_wide = columns >= LONG_ROW_CALLS * 2 * regs.lanes * large
    return large if is_wide and ways_taken(program, c, regs, large) < CROWDED_WAYS else middle


def ways_taken(program: TileProgram, c: Contraction, regs: Registers, k_block: int) -> float:
    """The ways of L2 that two k-blocks take: rows a multiple of a way apart share sets."""
    node, width = program.nodes[c.stream], regs.widths.of_value(program, c.stream)
    if not isinstance(node, Load):
        return 0.0
    stride = dict(program.inputs[node.source].strides)[c.depth.dim] * width
    columns = program.elements(c.columns)
    most = int(PANEL_SHARE * regs.l2_bytes) // (2 * k_block * width)
    piece = max(CACHE_LINE_BYTES, min(columns, most) * width)
    way = regs.l2_bytes // L2_WAYS
    places = min(way, way // math.gcd(way, stride) * piece)
    return 2 * k_block * piece / places


def is_long(program: TileProgram, c: Contraction, widths: Widths) -> bool:
    """Whether what a block reads of the stream, all iterations together, leaves the L2 cache."""
    axes = program.axes[c.stream]
    tile = program.elements(axes) * widths.of_value(program, c.stream)
    return tile * program.tile_count(axes) > LONG_STREAM_BYTES


def adds_in_memory(program: TileProgram, c: Contraction, widths: Widths) -> bool:
    """Whether the result is read and written again and again: it had better not lie far apart."""
    return (
        c.form is Form.AXPY and program.elements(c.rows) <= FEW_ROWS and is_long(program, c, widths)
    )


def dot_blocks(program: TileProgram, c: Contraction, regs: Registers) -> DotBlocks:
    """The block sizes of a contraction in DOT form."""
    rows, count = _dot_rows(program, c, regs), _dot_count(program, c, regs)
    return DotBlocks(rows, count, _rows_ahead(program, c, regs, count))


def _rows_ahead(program: TileProgram, c: Contraction, regs: Registers, count: int) -> int:
    """How many rows ahead a stream is fetched: short ones follow each other as they are read."""
    if not isinstance(program.nodes[c.stream], Load) or not is_long(program, c, regs.widths):
        return 0
    row = _row_bytes(program, c, regs)
    if program.chunk(c.depth) < program.sizes[c.depth.dim]:
        return max(AHEAD_BYTES // row, count)
    return 0 if row <= SHORT_ROW_BYTES else max(ROWS_AHEAD_BYTES // row, count)


def _dot_rows(program: TileProgram, c: Contraction, regs: Registers) -> int:
    """How many rows of the row operand a DOT micro-kernel takes at most.

    Pieces of the stream come back from the L1 cache for the next few, and registers do not spill
    (measured: 20 %); with eight long rows at once it is the row operand that leaves L1.
    """
    is_short = _row_bytes(program, c, regs) <= SHORT_ROW_BYTES
    is_narrow = regs.widths.of_value(program, c.stream) != regs.widths.computed
    is_piece = program.chunk(c.depth) < program.sizes[c.depth.dim]
    return regs.row_block or (8 if is_short and not (is_narrow or is_piece) else 4)


def _row_bytes(program: TileProgram, c: Contraction, regs: Registers) -> int:
    return program.chunk(c.depth) * regs.widths.of_value(program, c.stream)


def _dot_count(program: TileProgram, c: Contraction, regs: Registers) -> int:
    """How many rows of the stream a DOT micro-kernel takes: a power of two."""
    width = regs.widths.of_value(program, c.stream)
    rows = min(program.elements(c.rows), _dot_rows(program, c, regs))
    most = regs.vectors // rows
    if width != regs.widths.computed:  # widened rows of the stream stand in registers, too
        most = (regs.vectors - 1) // (rows + 1)
    # short rows follow each other in memory: one at a time reads a plain stream
    wish = 1 if _row_bytes(program, c, regs) <= SHORT_ROW_BYTES else max(1, min(4, most))
    columns = program.elements(c.columns)
    largest = max(1, min(regs.dot_rows or wish, regs.lanes, columns))
    return 1 << (largest.bit_length() - 1)
