"""Writes a contraction as calls of the vector micro-kernels.

The result is walked in column blocks (along the streamed operand's contiguous axis) and, inside,
row blocks; blocks that do not fill a micro-kernel get a smaller one, then a masked one. A k-block
(see `registers`) is the outermost loop. Axes that memory allows to be walked as one are merged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from prism.ir import DataDim
from prism_kernels.cpu.contraction import Contraction, Form
from prism_kernels.cpu.places import Place
from prism_kernels.cpu.registers import (
    FEW_ROWS,
    Registers,
    axpy_blocks,
    dot_blocks,
)
from prism_kernels.cpu.rescaling import rescale
from prism_kernels.cpu.writer import Extent, Writer
from prism_kernels.tile import Axis, ValueId


@dataclass(frozen=True, slots=True)
class Run:
    """Axes walked as one: its extent, and the axis that carries the strides."""

    axis: Axis | None
    extent: Extent

    def stride(self, place: Place) -> int:
        """The element stride of the run in a place."""
        return 0 if self.axis is None else place.strides.get(self.axis.dim, 0)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a micro-kernel works: row m, column n, depth k of the runs, as expressions."""

    m: str = "0"
    n: str = "0"
    k: str = "0"
    depth: Extent = 0
    """How many elements of the contracted axis."""
    masked: bool = False
    """Whether only part of the column block exists."""
    ahead: int = 0
    """How many rows of the stream are fetched while as many are multiplied; 0: none."""
    start: str = "0"
    """Where the panel of columns begins in which n counts."""
    columns: Extent = 0
    """How many columns the panel has."""


@dataclass(frozen=True, slots=True)
class Later:
    """What a DOT micro-kernel fetches with each vector of a row: so many vectors."""

    vectors: int
    pointer: str
    step: int = 0
    """From the pointer, for each element of the row that was multiplied."""
    apart: int = 0
    """From each of the vectors to the next."""


Inner = Callable[[int, str], None]
"""Writes the code for a block of a given length at a given index."""


def emit_contraction(w: Writer, i: ValueId, registers: Registers) -> None:
    """Write contraction i."""
    _Emit(w, i, registers).emit()


class _Emit:
    def __init__(self, w: Writer, i: ValueId, registers: Registers) -> None:
        self.w = w
        self.i = i
        self.regs = registers
        self.c: Contraction = w.plan.contractions[i]
        self.accumulates = i in w.plan.nests.sinks
        pack = w.plan.packs.get(self.c.row)
        self.row = pack.place if pack else w.plan.places[self.c.row]
        self.stream = w.plan.places[self.c.stream]
        self.result = w.plan.places[i]
        made = w.plan.squares.get(i)
        self.squares = made.nodes[-1] if made else None
        """The sums of the stream's squares, if they are made as well."""
        self.rows, outer_rows = self._merge(self.c.rows, self.row)
        self.columns, outer_columns = self._merge(self.c.columns, self.stream)
        self.outer = (*self.c.batch, *outer_rows, *outer_columns)
        self.depth = w.extent(self.c.depth)

    def emit(self) -> None:
        nests = self.w.plan.nests
        rescale(self.w, nests.sinks.get(self.i, nests.slices.get(self.i, self.i)))
        with self.w.loops(self.outer):
            if self.c.form is Form.AXPY:
                self._axpy()
            else:
                self._dot()

    def _merge(self, axes: tuple[Axis, ...], operand: Place) -> tuple[Run, tuple[Axis, ...]]:
        """Walk as many axes as one as the memory of operand and result allows."""
        if not axes:
            return Run(None, 1), ()
        w = self.w
        base = axes[-1]
        extent = w.extent(base)
        rest = list(axes[:-1])
        while isinstance(extent, int):
            joined = next((a for a in rest if self._continues(base, extent, a, operand)), None)
            if joined is None:
                break
            rest.remove(joined)
            outer = w.extent(joined)
            extent = outer * extent if isinstance(outer, int) else f"{outer} * {extent}"
        return Run(base, extent), tuple(rest)

    def _continues(self, base: Axis, extent: int, outer: Axis, operand: Place) -> bool:
        places = [operand, self.result]
        if self.squares is not None and outer in self.w.program.axes[self.squares]:
            places.append(self.w.plan.places[self.squares])
        return all(p.strides[outer.dim] == extent * p.strides[base.dim] for p in places)

    # -- the two forms

    def _axpy(self) -> None:
        blocks = axpy_blocks(self.w.program, self.c, self.regs)
        if not blocks.k_block:
            whole = Position(depth=self.depth, columns=self.columns.extent)
            self._panel(blocks.rows, blocks.vectors, whole)
            return
        if not self.accumulates:
            self._zero()
        ahead = blocks.k_block if blocks.fetch else 0

        def panel(start: str, columns: Extent) -> None:
            place = Position(start=start, columns=columns, ahead=ahead)
            self._k_blocks(
                blocks.k_block,
                lambda k, depth: self._panel(
                    blocks.rows, blocks.vectors, replace(place, k=k, depth=depth), adds=True
                ),
            )

        self._panels(blocks.panel, panel)

    def _panels(self, width: int, panel: Callable[[str, Extent], None]) -> None:
        """Panels of columns, and what is left of them; one of all columns if `width` is 0."""
        w, columns = self.w, self.columns.extent
        if not width or (isinstance(columns, int) and columns <= width):
            panel("0", columns)
            return
        is_known = isinstance(columns, int)
        full: Extent = columns // width * width if isinstance(columns, int) else w.fresh("full")
        if not is_known:
            w.line(f"{full} = {columns} // {width} * {width}")
        start = w.fresh("panel")
        with w.block(f"for {start} in range(0, {full}, {width}):"):
            panel(start, width)
        if isinstance(columns, int) and isinstance(full, int):
            if columns > full:
                panel(str(full), columns - full)
            return
        rest = w.fresh("rest")
        w.line(f"{rest} = {columns} - {full}")
        with w.block(f"if {rest} > 0:"):
            panel(str(full), rest)

    def _panel(self, rows: int, vectors: int, at: Position, *, adds: bool = False) -> None:
        """All rows of a panel for one range of k."""
        lanes = self.regs.lanes

        def column(width: int, n: str, *, masked: bool) -> None:
            def block(height: int, m: str) -> None:
                here = replace(at, m=m, n=n, masked=masked)
                self._call_axpy(height, max(1, width // lanes), here, adds=adds)

            self._blocks(self.rows.extent, rows, block)

        self._column_blocks(at.columns, vectors * lanes, column)

    def _k_blocks(self, block: int, panel: Callable[[str, Extent], None]) -> None:
        w, depth = self.w, self.depth
        k = w.fresh("k")
        if not isinstance(depth, int):
            with w.block(f"for {k} in range(0, {depth}, {block}):"):
                panel(k, f"smaller({block}, {depth} - {k})")
            return
        with w.block(f"for {k} in range(0, {depth // block * block}, {block}):"):
            panel(k, block)
        if depth % block:
            panel(str(depth // block * block), depth % block)

    def _call_axpy(self, rows: int, vectors: int, at: Position, *, adds: bool) -> None:
        w, c = self.w, self.c
        fresh = not (adds or self.accumulates)
        name = f"axpy_{rows}x{vectors}" + "_masked" * at.masked + "_fresh" * fresh
        options = ", masked=True" * at.masked + ", fresh=True" * fresh
        stream = self._pointer(self.stream, c.stream, at)
        later: tuple[str, int] = (stream, 0)
        if at.ahead:
            name += "_fetch"
            options += ", fetch=True"
            later = self._later(vectors, at)
        w.kernel(name, f"axpy({rows}, {vectors}, lanes={w.lanes}, dtype={w.dtype!r}{options})")
        arguments = (
            self._pointer(self.result, self.i, at),
            self.rows.stride(self.result),
            self._pointer(self.row, c.row, at),
            self.rows.stride(self.row),
            self.row.strides[c.depth.dim],
            stream,
            self.stream.strides[c.depth.dim],
            at.depth,
            f"{at.columns} - {at.n}" if at.masked else 0,
            *later,
        )
        w.line(f"{name}({', '.join(str(a) for a in arguments)})")

    def _later(self, vectors: int, at: Position) -> tuple[str, int]:
        """What to fetch meanwhile: its pointer, and its stride from each k to the next.

        Pieces of the next k-block, so many that all calls together fetch it: in the order in which
        they lie in memory, where a row of it is fetched in whole calls.
        """
        width, columns = vectors * self.regs.lanes, at.columns
        next_rows = f"{at.k} + {at.ahead}"
        if not isinstance(columns, int) or columns % (width * at.ahead):
            place = replace(at, k=f"({next_rows})")
            step = self.stream.strides[self.c.depth.dim]
        else:
            row = columns // at.ahead
            k, n = f"({next_rows} + {at.n} // {row})", f"({at.n} % {row} * {at.ahead})"
            place, step = replace(at, k=k, n=n), width
        return self._pointer(self.stream, self.c.stream, place), step

    def _dot(self) -> None:
        blocks = dot_blocks(self.w.program, self.c, self.regs)
        rows, count = self.rows.extent, blocks.count
        written = [self.i] if self.squares is None else [self.i, self.squares]
        if any(self.columns.stride(self.w.plan.places[v]) != 1 for v in written):
            count = 1  # the sums of several are written as one vector

        def column(width: int, n: str) -> None:
            if isinstance(rows, int) and rows <= FEW_ROWS:
                for m in range(0, rows, blocks.rows):
                    height = min(blocks.rows, rows - m)
                    later = self._later_rows(m, height, width, n, blocks.ahead)
                    at = Position(m=str(m), n=n)
                    self._call_dot(height, width, at, later, squares=m == 0)
                return
            if self.squares is not None:
                self._call_dot(0, width, Position(n=n), squares=True)
            self._blocks(
                rows, blocks.rows, lambda height, m: self._call_dot(height, width, Position(m, n))
            )

        self._blocks(self.columns.extent, count, column, ones=True)

    def _later_rows(self, m: int, height: int, count: int, n: str, ahead: int) -> Later | None:
        """What a call fetches of the rows that are `ahead`.

        The calls with other rows of the row operand fetch the others. Rows that follow each other
        are fetched in the order of memory.
        """
        rows = self.rows.extent
        assert isinstance(rows, int)
        first, last = (count * done // rows for done in (m, m + height))
        if not ahead or first == last:
            return None
        pointer = self._pointer(self.stream, self.c.stream, Position(n=f"({n} + {ahead + first})"))
        row = self.columns.stride(self.stream)
        if row == self.depth:
            return Later(last - first, pointer, last - first, self.w.lanes)
        return Later(last - first, pointer, 1, row)

    def _call_dot(
        self,
        rows: int,
        count: int,
        at: Position,
        later: Later | None = None,
        *,
        squares: bool = False,
    ) -> None:
        w, c = self.w, self.c
        tail = not isinstance(self.depth, int) or self.depth % w.lanes != 0
        name = f"dot_{rows}x{count}" + "_add" * self.accumulates + "_tail" * tail
        options = ", add=True" * self.accumulates + f", tail={tail}"
        stream = self._pointer(self.stream, c.stream, at)
        square_sums = stream
        if squares and self.squares is not None:
            square_sums = self._pointer(w.plan.places[self.squares], self.squares, at)
            name += "_squares"
            options += ", squares=True"
        later = later or Later(0, stream)
        if later.vectors:
            name += f"_fetch{later.vectors}"
            options += f", fetch={later.vectors}"
        w.kernel(name, f"dot({rows}, {count}, lanes={w.lanes}, dtype={w.dtype!r}{options})")
        arguments = (
            self._pointer(self.result, self.i, at),
            self.rows.stride(self.result),
            self._pointer(self.row, c.row, at),
            self.rows.stride(self.row),
            stream,
            self.columns.stride(self.stream),
            self.depth,
            square_sums,
            later.pointer,
            later.step,
            later.apart,
        )
        w.line(f"{name}({', '.join(str(a) for a in arguments)})")

    # -- walking

    def _blocks(self, extent: Extent, step: int, inner: Inner, *, ones: bool = False) -> None:
        """Full steps, then the remainder: in one piece where its size is known (unless `ones`)."""
        w = self.w
        full: Extent
        if isinstance(extent, int):
            full = extent // step * step
            if full == step:
                inner(step, "0")
            elif full:
                self._each(0, full, step, inner)
            rest = extent - full
            if rest == 1 or (rest and not ones):
                inner(rest, str(full))
            elif rest:
                self._each(full, extent, 1, inner)
            return
        full = w.fresh("full")
        w.line(f"{full} = {extent} // {step} * {step}")
        self._each(0, full, step, inner)
        if step > 1:
            self._each(full, extent, 1, inner)

    def _each(self, first: Extent, last: Extent, step: int, inner: Inner) -> None:
        at = self.w.fresh("j")
        with self.w.block(f"for {at} in range({first}, {last}, {step}):"):
            inner(step, at)

    def _column_blocks(self, extent: Extent, step: int, inner: Callable[..., None]) -> None:
        """Column blocks of `step`, then whole vectors, then one masked vector."""
        w, lanes = self.w, self.regs.lanes

        def whole(width: int, n: str) -> None:
            inner(width, n, masked=False)

        if isinstance(extent, int):
            full = extent // step * step
            if full:
                self._blocks(full, step, whole)
            rest = extent - full
            if rest >= lanes:
                whole(rest // lanes * lanes, str(full))
            if rest % lanes:
                inner(lanes, str(extent - rest % lanes), masked=True)
            return
        last = w.fresh("full")
        w.line(f"{last} = {extent} // {step} * {step}")
        self._each(0, last, step, whole)
        self._each(last, extent, lanes, lambda width, n: inner(width, n, masked=True))

    def _zero(self) -> None:
        """Set the result (at the outer position) to zero."""
        axes = [a for a in (*self.c.rows, *self.c.columns) if a not in self.outer]
        with self.w.loops(sorted(axes, key=lambda a: -self.result.strides[a.dim])):
            self.w.store(self.result, self.w.program.axes[self.i], "real(0.0)")

    def _pointer(self, place: Place, value: ValueId, at: Position) -> str:
        """A pointer into a place at a position of the runs."""
        axes = self.w.program.axes[value]
        given: dict[DataDim, str] = {a.dim: "0" for a in axes if a not in self.outer}
        n = at.n if at.start == "0" else f"({at.start} + {at.n})"
        for run, index in ((self.rows, at.m), (self.columns, n)):
            if run.axis is not None:
                given[run.axis.dim] = index
        given[self.c.depth.dim] = at.k
        return self.w.pointer_at(place, axes, given)
