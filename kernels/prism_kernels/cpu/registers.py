"""How contractions are cut for the register file and caches of the machine.

Measured rules, each worth a factor of 1.3 or more somewhere: rows of a stream are read whole or in
long pieces; with few rows of the other operand the contracted axis is cut in blocks of 16, outside
the columns, so that the accumulator stays in the L2 cache, and the next block is fetched, in the
order of memory, while one is multiplied; short rows of a stream (a head of 128) are taken whole
into registers, and where that takes several passes over them, in blocks that the L1 cache holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from prism_kernels.cpu.contraction import Contraction, Form
from prism_kernels.cpu.widths import Widths
from prism_kernels.tile import Load, TileProgram

LONG_STREAM_BYTES = 256 << 10
"""A stream longer than this does not stay in the L2 cache."""
PANEL_SHARE = 0.7
"""The part of the L2 cache that a panel of columns may fill."""
LONG_ROW_CALLS = 4
"""A row that takes as many calls to be fetched is worth a panel without its rest."""
SHORT_ROW_BYTES = 1024
PASS_BYTES = 16 << 10
"""What several passes read of a stream of short rows, one after the other: half an L1 cache."""
AHEAD_BYTES = 16 << 10
"""How far ahead pieces of rows are fetched."""
FEW_ROWS = 16
FEW_ROWS_K_BLOCKS = (16, 8, 32)
"""The first by default. More rows are less traffic of the accumulator and more in the caches, where
rows that lie pages apart push each other out; of a narrow stream twice as many fit."""
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
            width = 2 if rows <= 4 or k_block >= FEW_ROWS_K_BLOCKS[0] else 1
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


def rows_ahead(program: TileProgram, c: Contraction, regs: Registers) -> int:
    """How many rows ahead a DOT stream of pieces of rows is fetched; 0: not at all.

    The processor itself fetches rows that follow each other, and better (measured: 3-8 %).
    """
    if not isinstance(program.nodes[c.stream], Load) or not is_long(program, c, regs.widths):
        return 0
    row = program.chunk(c.depth) * regs.widths.of_value(program, c.stream)
    return max(AHEAD_BYTES // row, dot_rows(program, c, regs))


def _k_block(program: TileProgram, c: Contraction, regs: Registers, rows: int, columns: int) -> int:
    depth = program.chunk(c.depth)
    if not is_long(program, c, regs.widths) or columns <= 8 * regs.lanes:
        return 0
    block = MANY_ROWS_K_BLOCK
    if rows <= FEW_ROWS:
        if not isinstance(program.nodes[c.stream], Load):
            return 0
        block = regs.k_block or FEW_ROWS_K_BLOCKS[0]
    return block if depth > block else 0


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


def dot_height(program: TileProgram, c: Contraction, regs: Registers) -> int:
    """How many rows of the row operand a DOT micro-kernel takes at most.

    Pieces of rows come back from the L1 cache for the next few, and registers do not spill
    (measured: 20 %); whole long rows would not.
    """
    is_narrow = regs.widths.of_value(program, c.stream) != regs.widths.computed
    is_piece = program.chunk(c.depth) < program.sizes[c.depth.dim]
    return regs.row_block or (4 if is_narrow or is_piece else 8)


def dot_rows(program: TileProgram, c: Contraction, regs: Registers) -> int:
    """How many rows of the stream a DOT micro-kernel takes: a power of two."""
    width = regs.widths.of_value(program, c.stream)
    rows = min(program.elements(c.rows), dot_height(program, c, regs))
    most = regs.vectors // rows
    if width != regs.widths.computed:  # widened rows of the stream stand in registers, too
        most = (regs.vectors - 1) // (rows + 1)
    # short rows follow each other in memory: one at a time reads a plain stream
    is_short = program.chunk(c.depth) * width <= SHORT_ROW_BYTES
    wish = 1 if is_short else max(1, min(4, most))
    columns = program.elements(c.columns)
    largest = max(1, min(regs.dot_rows or wish, regs.lanes, columns))
    return 1 << (largest.bit_length() - 1)
