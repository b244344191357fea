"""Writes a contraction: register micro-tiles over each thread's share of the contracted axis.

The threads' registers are walked by loops with literal bounds, which LLVM unrolls. Where an axis
does not divide, a thread beyond its end computes the last element again and does not write it: no
load needs a condition. Along the dim that has a width, if there is one, a thread walks groups of
neighbours; an operand that is contiguous there is read a group at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from prism.ir import DataDim
from prism_kernels.cuda.alignment import widest
from prism_kernels.cuda.contraction import ThreadTiling
from prism_kernels.cuda.emit_result import deposit, shuffle
from prism_kernels.cuda.emit_sum import SumEmitter
from prism_kernels.cuda.writer import Writer
from prism_kernels.tile import Axis, ValueId


class ContractionEmitter(SumEmitter):
    """A contraction on threads."""

    tiling: ThreadTiling

    def __init__(self, w: Writer, i: ValueId, tiling: ThreadTiling) -> None:
        super().__init__(w, i, tiling)
        node = self.node
        self.layout = tiling.layout
        self.wide = tiling.wide
        vectors = zip(self.operands, tiling.vectors, strict=True)
        # one that is staged because others read it too is read element by element
        self.vectors = {v: is_vector and w.plan.place(v).is_argument for v, is_vector in vectors}
        self.result = w.program.axes[i]
        self.depth = next(a for a in w.program.axes[node.left] if a.dim == node.dim)
        self.first = "0"
        """The depth, or where the current group of depths starts."""

    def finish(self) -> None:
        """After the loop: combine what the threads have, and write it."""
        with self._rounds():
            self._write()

    # -- registers

    def _tile(self, dim: DataDim) -> int:
        return self.tiling.tile[dim]

    def _register(self, name: str, axes: Sequence[Axis]) -> str:
        """The register of the current micro-tile position."""
        return self.w.register(name, [(a.dim, self._tile(a.dim)) for a in axes])

    @contextmanager
    def _tile_loops(self, axes: Sequence[Axis]) -> Iterator[None]:
        """The unrolled loops over some axes of the micro-tile."""
        with ExitStack() as stack:
            for axis in axes:
                if axis.dim == self.wide:
                    self._group_loop(stack, axis)
                    self._neighbour_loop(stack, axis)
                elif self._tile(axis.dim) > 1:
                    head = f"for j_{self.w.name(axis.dim)} in range({self._tile(axis.dim)}):"
                    stack.enter_context(self.w.block(head))
            yield

    def _group_loop(self, stack: ExitStack, axis: Axis) -> None:
        """The unrolled loop over the groups of neighbours in the micro-tile, if it has several."""
        tile, width = self._tile(axis.dim), self.layout[axis.dim].width
        if tile > width:
            head = f"for o_{self.w.name(axis.dim)} in range(0, {tile}, {width}):"
            stack.enter_context(self.w.block(head))

    def _neighbour_loop(self, stack: ExitStack, axis: Axis) -> None:
        """The unrolled loop over one group, in which `j_d` counts through the micro-tile."""
        name, width = self.w.name(axis.dim), self.layout[axis.dim].width
        if self._tile(axis.dim) == width:
            stack.enter_context(self.w.block(f"for j_{name} in range({width}):"))
            return
        stack.enter_context(self.w.block(f"for u_{name} in range({width}):"))
        self.w.line(f"j_{name} = u32(o_{name} + u_{name})")

    def _in_group(self, axis: Axis) -> str:
        """Which of its group the current element is."""
        name = self.w.name(axis.dim)
        is_only = self._tile(axis.dim) == self.layout[axis.dim].width
        return f"j_{name}" if is_only else f"u_{name}"

    @contextmanager
    def _rounds(self) -> Iterator[None]:
        """The loops over the micro-tiles of a thread that holds one of several at a time."""
        with ExitStack() as stack:
            for axis in self.result:
                if self._has_rounds(axis):
                    passes, tile = self._passes(axis), self._tile(axis.dim)
                    head = f"for q_{self.w.name(axis.dim)} in range(0, {passes}, {tile}):"
                    stack.enter_context(self.w.block(head))
            yield

    def _passes(self, axis: Axis) -> int:
        return self.layout.passes(axis.dim, self.w.program.chunk(axis))

    def _has_rounds(self, axis: Axis) -> bool:
        return self._passes(axis) > self._tile(axis.dim)

    # -- indices

    def _is_exact(self, axis: Axis) -> bool:
        """Whether no thread has an index beyond the end."""
        tile = self._tile(axis.dim)
        covered = -(-self._passes(axis) // tile) * tile * self.layout[axis.dim].threads
        return self.w.extent(axis) == covered

    def _index(self, axis: Axis) -> str:
        """Which element of an axis the current position is, as an expression."""
        if axis.dim == self.wide:
            return f"{self._first(axis)} + {self._in_group(axis)}"
        share = self.layout[axis.dim]
        name = self.w.name(axis.dim)
        passes = [f"q_{name}"] * self._has_rounds(axis) + [f"j_{name}"] * (self._tile(axis.dim) > 1)
        mine = self.w.coordinate(share)
        steps = " + ".join(passes)
        if steps and share.threads > 1:
            steps = (
                f"({steps}) * {share.threads}" if len(passes) > 1 else f"{steps} * {share.threads}"
            )
        return " + ".join(t for t in (steps, mine) if t and t != "0") or "0"

    def _first(self, axis: Axis) -> str:
        """The first element of the current group of neighbours along an axis, as an expression."""
        share, name = self.layout[axis.dim], self.w.name(axis.dim)
        several = self._tile(axis.dim) > share.width
        passes = [f"q_{name}"] * self._has_rounds(axis) + [f"o_{name}"] * several
        steps = " + ".join(passes)
        if steps and share.threads > 1:
            steps = (
                f"({steps}) * {share.threads}" if len(passes) > 1 else f"{steps} * {share.threads}"
            )
        mine = self.w.coordinate(share)
        start = f"{mine} * {share.width}" if mine != "0" else ""
        return " + ".join(t for t in (steps, start) if t) or "0"

    def _place_group(self, axis: Axis) -> None:
        """Note the position of a group of neighbours; one beyond the end is the last one again."""
        w, extent, width = self.w, self.w.extent(axis), self.layout[axis.dim].width
        first, name = self._first(axis), f"g_{self.w.name(axis.dim)}"
        if not self._is_exact(axis):
            last = extent - width if isinstance(extent, int) else f"u32({extent} - {width})"
            w.line(f"{name} = smaller(u32({first}), {last})")
        elif first == "0":
            name = "0"
        else:
            w.line(f"{name} = u32({first})")
        self.position[axis.dim] = name

    def _place(self, axes: Sequence[Axis], *, clamped: bool) -> None:
        """Note the position along some axes, in variables where it takes a computation."""
        w = self.w
        for axis in axes:
            index, extent = self._index(axis), w.extent(axis)
            name = f"i_{w.name(axis.dim)}"
            if clamped and not self._is_exact(axis):
                last = extent - 1 if isinstance(extent, int) else f"u32({extent} - 1)"
                w.line(f"{name} = smaller(u32({index}), {last})")
                index = name
            elif "+" in index or "*" in index:
                w.line(f"{name} = u32({index})")
                index = name
            self.position[axis.dim] = index

    # -- the sum

    def _accumulate(self) -> None:
        w, node = self.w, self.node
        axes = {v: self._result_axes(v) for v in (node.left, node.right)}
        sizes = {v: math.prod(self._tile(a.dim) for a in axes[v]) for v in axes}
        held, streamed = (node.left, node.right)
        if sizes[held] > sizes[streamed]:
            held, streamed = streamed, held
        share = self.layout[self.depth.dim]
        extents = [(a.dim, self._tile(a.dim)) for a in axes[held]] + [(self.depth.dim, share.width)]
        fragment = w.register(f"h{self.i}", extents)
        if sizes[held] * share.width > 1:
            w.registers[f"h{self.i}"] = sizes[held] * share.width
        walk = w.walk if share.width == 1 else w.groups
        with walk(self.depth, share) as index:
            self.first = index
            with self._elements(held, axes[held], f"x{self.i}") as value:
                w.line(f"{fragment} = {value}")
            with self._elements(streamed, axes[streamed], f"y{self.i}") as value:
                w.line(f"b = {value}")
                with self._tile_loops([a for a in axes[held] if a not in axes[streamed]]):
                    total = self._register(f"p{self.i}", self.result)
                    w.line(f"{total} += {fragment} * b")

    @contextmanager
    def _elements(self, v: ValueId, axes: Sequence[Axis], group: str) -> Iterator[str]:
        """The unrolled loops over an operand's elements at the current depth; yields each.

        What is read in vectors goes through the registers `group`.
        """
        w, depth = self.w, self.depth
        share = self.layout[depth.dim]
        self.position[depth.dim] = self.first
        with ExitStack() as stack:
            if not self.vectors[v]:
                stack.enter_context(self._tile_loops(axes))
                if share.width > 1:
                    neighbours = w.neighbours(depth, share, self.first)
                    _, self.position[depth.dim] = stack.enter_context(neighbours)
                self._place(axes, clamped=True)
                yield w.read(v, self.position)
                return
            wide = [a for a in axes if a.dim == self.wide]
            others = [a for a in axes if a.dim != self.wide]
            stack.enter_context(self._tile_loops(others))
            self._place(others, clamped=True)
            for axis in wide:
                self._group_loop(stack, axis)
                self._place_group(axis)
            self._load_group(v, group)
            for axis in wide:
                self._neighbour_loop(stack, axis)
                yield f"{group}[{self._in_group(axis)}]"
            if not wide:
                number, _ = stack.enter_context(w.neighbours(depth, share, self.first))
                yield f"{group}[{number}]"

    def _load_group(self, v: ValueId, name: str) -> None:
        """Read a group of neighbours of an operand."""
        assert self.wide is not None
        w, axes, place = self.w, self.w.program.axes[v], self.w.plan.place(v)
        width = self.layout[self.wide].width
        each = min(width, widest(w.program, place, axes))
        w.load_group(name, width, each, place, axes, self.position)

    def _result_axes(self, v: ValueId) -> list[Axis]:
        """The axes of an operand that the result has, in the result's order."""
        return [a for a in self.result if a in self.w.program.axes[v]]

    def _multiply_by(self, reference: ValueId, exponent: float) -> None:
        """Read the drift once for all totals that it is for."""
        w = self.w
        own = [a for a in self.result if a in w.program.axes[reference]]
        with self._tile_loops(own):
            self._place(own, clamped=True)
            w.line(f"drift = {self._drift(reference, exponent)}")
            with self._tile_loops([a for a in self.result if a not in own]):
                w.line(f"{self._register(f'p{self.i}', self.result)} *= drift")

    def _write(self) -> None:
        """Combine what the threads of a group have, and write it."""
        w = self.w
        with self._tile_loops(self.result):
            self._place(self.result, clamped=False)
            conditions = [
                f"{self.position[a.dim]} < {w.extent(a)}"
                for a in self.result
                if not self._is_exact(a)
            ]
            w.line(f"r{self.i} = {self._register(f'p{self.i}', self.result)}")
            shuffle(w, f"r{self.i}", self.layout[self.depth.dim], "sum")
            deposit(w, self.i, self.layout, self.position, conditions)
