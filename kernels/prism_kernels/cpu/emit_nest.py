"""Writes a loop nest: elementwise operators, reductions, accumulators and copies.

The innermost loop runs along the dimension in which most operands are contiguous, so that plain
loops vectorise. A value is loaded at the outermost level where its index is known (LLVM cannot
hoist a load past a store). A reduction along the innermost loop is a local scalar; any other one
adds to its result in memory, which is filled before the nest - or, when it adds straight into an
accumulator of the loop, before the loop: filling it inside the body would drop what is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from prism.ir import AccumulatorKind
from prism_kernels.cpu.places import Place, output_pointer
from prism_kernels.cpu.rescaling import rescale
from prism_kernels.cpu.writer import Extent, Writer
from prism_kernels.expressions import IN_ANY_ORDER, expression
from prism_kernels.nests import Nest
from prism_kernels.tile import (
    Accumulate,
    Axis,
    Contract,
    Load,
    Map,
    Reduce,
    Running,
    Scalar,
    Store,
    ValueId,
    operands,
)

_IDENTITY = {"sum": "real(0.0)", "max": "-INF"}

PART = 4096
"""Elements of a longer row that are added up apart: each addition to a long sum loses what is
below its last digit (a mean of 100,000 float32 numbers: 1.5e-5 of it)."""
FETCHED = 128
"""Elements of a row between which as many are fetched; where more are asked for at once, what
needs one of the first waits for all (row softmax: 10 % slower with 256, 25 % with 1024)."""
WRITTEN = 1024
"""Elements of a row that are put together and written past the caches at once (measured: 256 are
slower than to write as usual)."""


def emit_nest(w: Writer, nest: Nest) -> None:
    """Write one nest (not a contraction by micro-kernels)."""
    _Nest(w, nest).emit()


def identity(kind: AccumulatorKind) -> str:
    """What an accumulator starts from."""
    return _IDENTITY["sum" if kind is AccumulatorKind.SUM else "max"]


class _Nest:
    def __init__(self, w: Writer, nest: Nest) -> None:
        self.w = w
        self.nest = nest
        self.program = w.program
        self.plan = w.plan
        self.own = {i for i in nest.nodes if isinstance(self.program.nodes[i], Map)}
        self.values: dict[ValueId, str] = {}
        self.rows: dict[str, str] = {}
        """Pointer expression without the innermost index -> the variable that holds it."""
        self.order = self._loop_order()
        self.ahead = [a for a in w.ahead.get(nest, ()) if self._is_along(a.value)]
        self.streamed = [i for i in nest.nodes if i in w.streamed and self._is_along(i)]
        self.reductions = [i for i in nest.nodes if self._reduced_axis(i) is not None]
        # those along the innermost loop
        self.local = [i for i in self.reductions if self._reduced_axis(i) == self.order[-1]]
        self.piece = self._piece()
        self.is_split = 0 < self.piece < PART

    def emit(self) -> None:
        w = self.w
        for i in self.streamed:
            w.kernel("stream_row", f"stream_out(lanes={w.lanes}, dtype={w.dtype!r})")
            elements = self.piece or self.program.chunk(self.order[-1])
            w.line(f"row{i} = {self._stack(elements)}()")
        if self.is_split:
            for i in self.local:
                w.line(f"parts{i} = {self._stack(self.piece)}()")
        self._prepare_memory()
        self._load(level=-1)
        for level, axis in enumerate(self.order[:-1]):
            w.open_loop(axis)
            self._load(level=level)
        self._innermost()
        for axis in reversed(self.order[:-1]):
            w.close_loop(axis)

    def _stack(self, elements: int) -> str:
        return self.w.kernel(f"stack_{elements}", f"stack({elements}, {self.w.dtype!r})")

    def _innermost(self) -> None:
        """The innermost loop, with the pointers to its rows before it."""
        w = self.w
        self.mark = w.mark()
        for i in self.local:
            w.line(f"r{i} = {_IDENTITY[self._operator(i)]}")
        if self.is_split:
            self._pieces()
        elif self.piece:
            self._parts()
        else:
            length = w.extent(self.order[-1]) if self.order else 1
            self._fetch("0", length)
            with w.loops(self.order[-1:]):
                self._body()
            self._stream("0", length)
        w.insert(self.mark, [f"{name} = {row}" for row, name in self.rows.items()])
        for i in self.local:
            self._finish(i)

    def _body(self) -> None:
        """What is done at each position."""
        known = dict(self.values)
        self._load(level=len(self.order) - 1)
        for i in self.nest.nodes:
            self._node(i)
        self.values = known

    def _parts(self) -> None:
        """The innermost loop, its reductions in parts."""
        w = self.w
        at, extent = f"i_{w.name(self.order[-1].dim)}", w.extent(self.order[-1])
        for i in self.local:
            w.line(f"whole{i} = r{i}")
        with w.block(f"for part in range(0, {extent}, {PART}):"):
            for i in self.local:
                w.line(f"r{i} = {_IDENTITY[self._operator(i)]}")
            with w.block(f"for {at} in range(part, smaller(part + {PART}, {extent})):"):
                self._body()
            for i in self.local:
                combine = IN_ANY_ORDER[self._operator(i)]
                w.line(f"whole{i} = {combine.format(f'whole{i}', f'r{i}')}")
        for i in self.local:
            w.line(f"r{i} = whole{i}")

    def _pieces(self) -> None:
        """The innermost loop in short pieces, and something else between them.

        Its reductions have as many results as a piece has elements until the end: each would else
        be brought from the lanes of a vector to one number once for each piece.
        """
        w, piece = self.w, self.piece
        at, extent = f"i_{w.name(self.order[-1].dim)}", w.extent(self.order[-1])
        for i in self.local:
            with w.block(f"for lane in range({piece}):"):
                w.line(f"store(parts{i}, lane, {_IDENTITY[self._operator(i)]})")
        full: Extent = extent // piece * piece if isinstance(extent, int) else w.fresh("full")
        if not isinstance(extent, int):
            w.line(f"{full} = {extent} // {piece} * {piece}")
        with w.block(f"for part in range(0, {full}, {piece}):"):
            self._fetch("part", piece)
            with w.block(f"for {at} in range(part, part + {piece}):"):
                self._body()
            self._stream("part", piece)
        if full != extent:
            w.line(f"part = {full}")
            with w.block(f"for {at} in range(part, {extent}):"):
                self._body()
            self._stream("part", f"{extent} - part")
        for i in self.local:
            combine = IN_ANY_ORDER[self._operator(i)]
            with w.block(f"for lane in range({piece}):"):
                w.line(f"r{i} = {combine.format(f'r{i}', f'load(parts{i}, lane)')}")

    def _piece(self) -> int:
        """Elements of the innermost loop's pieces; 0: the whole at once."""
        length = self.program.chunk(self.order[-1]) if self.order else 0
        short = WRITTEN if self.streamed else FETCHED
        if (self.streamed or self.ahead) and length > short:
            return short
        return PART if self.local and length > 2 * PART else 0

    def _fetch(self, at: str, count: Extent) -> None:
        """Fetch a piece of the next iteration's rows."""
        w = self.w
        for a in self.ahead:
            function = w.kernel("fetch", "fetch_row()")
            outer = [x for x in self.program.axes[a.value] if x not in self.order[-1:]]
            row = w.pointer_at(self.plan.places[a.value], outer)
            w.line(f"{function}(offset({row}, {a.distance} + {at}), {count})")

    def _stream(self, at: str, count: Extent) -> None:
        """Write a piece of the rows that go past the caches."""
        for i in self.streamed:
            row, _ = self._at(self.plan.places[i], self.program.axes[i])
            start = row if at == "0" else f"offset({row}, {at})"
            self.w.line(f"stream_row({start}, row{i}, {count})")

    def _prepare_memory(self) -> None:
        """Rescale accumulators, and fill the results of reductions that add in memory."""
        for i in self.nest.nodes:
            rescale(self.w, self._accumulator_of(i))
        for i in self.reductions:
            if i not in self.local and i not in self.plan.nests.sinks:
                start = _IDENTITY[self._operator(i)]
                self.w.fill(self.plan.places[i], self.program.axes[i], start)

    # -- order

    def _loop_order(self) -> list[Axis]:
        """The axes, the one with the most contiguous operands last."""
        space = list(self.nest.space)
        if not space:
            return []
        votes = dict.fromkeys(space, 0)
        touched = [j for i in self.nest.nodes for j in (i, *operands(self.program.nodes[i]))]
        for v in touched:
            place = self.plan.places.get(v)
            if place is None:
                continue
            weight = 4 if place.is_argument else 2 if len(place.strides) > 1 else 1
            for axis in self.program.axes[v]:
                if axis in votes and place.strides[axis.dim] == 1 and self.program.chunk(axis) > 1:
                    votes[axis] += weight
        inner = max(space, key=lambda a: (votes[a], self.program.chunk(a) > 1, space.index(a)))
        return [*(a for a in space if a != inner), inner]

    # -- statements

    def _load(self, level: int) -> None:
        """Load what is known from this loop level on."""
        for i in self.nest.nodes:
            for j in self._reads(i):
                if j in self.own or j in self.values or self._level(j) != level:
                    continue
                node = self.program.nodes[j]
                if isinstance(node, Scalar):
                    self.values[j] = self.w.number(node.value)
                    continue
                self.values[j] = f"t{j}"
                place, axes = self.plan.places[j], self.program.axes[j]
                at = self._position(place, axes) if level == len(self.order) - 1 else None
                self.w.line(f"t{j} = load({at or self._outer_at(place, axes)})")

    def _level(self, j: ValueId) -> int:
        """The innermost loop that value j depends on."""
        axes = [a for a in self.program.axes[j] if self.w.extent(a) != 1]
        return max((self.order.index(a) for a in axes if a in self.order), default=-1)

    def _node(self, i: ValueId) -> None:
        w, node, axes = self.w, self.program.nodes[i], self.program.axes[i]
        match node:
            case Map(op=op, operands=ids):
                w.line(f"t{i} = {expression(op, [self.values[j] for j in ids], 'real')}")
                self.values[i] = f"t{i}"
                if i in self.streamed:
                    at = self._at(self.plan.places[i], axes)[1]
                    w.line(f"store(row{i}, {at}{' - part' if self.is_split else ''}, t{i})")
                elif i in self.plan.places:
                    w.line(f"store({self._position(self.plan.places[i], axes)}, t{i})")
            case Reduce() | Contract():
                self._reduce(i)
            case Running(operand=operand):
                self._run(i, self.values[operand])
            case Accumulate(operand=operand):
                self._accumulate(i, node, self.values[operand])
            case Store(operand=operand, target=target):
                if i not in self.plan.in_place:
                    strides = dict(self.program.outputs[target].strides)
                    output = Place(output_pointer(self.program, target), strides)
                    w.line(f"store({self._position(output, axes)}, {self.values[operand]})")
            case Load() | Scalar():
                raise AssertionError("belongs to no nest")
            case _:
                assert_never(node)

    def _reduce(self, i: ValueId) -> None:
        node = self.program.nodes[i]
        term = " * ".join(self.values[j] for j in operands(node))
        combine = IN_ANY_ORDER[self._operator(i)]
        if i in self.local and self.is_split:
            at = f"parts{i}, i_{self.w.name(self.order[-1].dim)} - part"
            self.w.line(f"store({at}, {combine.format(f'load({at})', term)})")
            return
        if i in self.local:
            self.w.line(f"r{i} = {combine.format(f'r{i}', term)}")
            return
        at = self._position(self.plan.places[i], self.program.axes[i])
        self.w.line(f"store({at}, {combine.format(f'load({at})', term)})")

    def _finish(self, i: ValueId) -> None:
        """After the innermost loop: store a local reduction, or add it into its accumulator."""
        place, axes = self.plan.places[i], self.program.axes[i]
        if i in self.plan.nests.sinks:
            combine = IN_ANY_ORDER[self._operator(i)]
            self.w.store(place, axes, combine.format(self.w.load(place, axes), f"r{i}"))
        else:
            self.w.store(place, axes, f"r{i}")

    def _run(self, i: ValueId, value: str) -> None:
        """Move a running reference and note by how much."""
        w, place, axes = self.w, self.plan.places[i], self.program.axes[i]
        at = self._position(place, axes)
        w.line(f"old = load({at})")
        w.line(f"new = maximum(old, bound({value}))")
        w.line(f"store({at}, new)")
        for (m, c), drift in self.plan.drifts.items():
            if m == i:
                moved = "old - new" if c == 1.0 else f"{w.number(c)} * (old - new)"
                w.line(f"store({self._position(drift, axes)}, exp({moved}))")

    def _accumulate(self, i: ValueId, node: Accumulate, value: str) -> None:
        w, place = self.w, self.plan.places[i]
        axes = self.program.axes[node.operand]
        if node.kind is AccumulatorKind.CONCAT:
            looped = [a for a in axes if a.dim == node.dim]
            start = w.loop_start(self.program.ended(i))
            tile = w.pointer_at(place, looped, {a.dim: start for a in looped})
            row = Place(tile, place.strides)
            w.line(f"store({self._position(row, axes)}, {value})")
            return
        at = self._position(place, axes)
        combine = IN_ANY_ORDER["sum" if node.kind is AccumulatorKind.SUM else "max"]
        w.line(f"store({at}, {combine.format(f'load({at})', value)})")

    # -- addresses

    def _is_along(self, i: ValueId) -> bool:
        """Whether the innermost loop meets neighbours in memory."""
        inner = self.order[-1:]
        return any(a in self.program.axes[i] for a in inner) and (
            self.plan.places[i].strides[inner[0].dim] == 1
        )

    def _position(self, place: Place, axes: Iterable[Axis]) -> str:
        """Pointer and index of the current position in the innermost loop, as arguments."""
        return ", ".join(self._at(place, axes))

    def _at(self, place: Place, axes: Iterable[Axis]) -> tuple[str, str]:
        """Pointer and index of the current position in the innermost loop."""
        inner = self.order[-1:]
        outer = [a for a in axes if a not in inner]
        row = self.w.pointer_at(place, outer)
        if row != self.w.pointer(place):
            row = self.rows.setdefault(row, f"p{len(self.rows)}")
        return row, self.w.index(place, [a for a in axes if a in inner])

    def _outer_at(self, place: Place, axes: Iterable[Axis]) -> str:
        """Pointer and index of a position in an outer loop."""
        return f"{self.w.pointer(place)}, {self.w.index(place, axes)}"

    # -- facts about nodes

    def _reads(self, i: ValueId) -> tuple[ValueId, ...]:
        node = self.program.nodes[i]
        return (node.operand,) if isinstance(node, Accumulate) else operands(node)

    def _operator(self, i: ValueId) -> str:
        node = self.program.nodes[i]
        return node.op if isinstance(node, Reduce) else "sum"

    def _reduced_axis(self, i: ValueId) -> Axis | None:
        node = self.program.nodes[i]
        if not isinstance(node, (Reduce, Contract)):
            return None
        return next(a for a in self.nest.space if a.dim == node.dim)

    def _accumulator_of(self, i: ValueId) -> ValueId:
        """The accumulator node i works on: itself, or the one it adds or writes into."""
        nests = self.plan.nests
        return nests.sinks.get(i, nests.slices.get(i, i))
