"""Writes a contraction: register micro-tiles over each thread's share of the contracted axis.

The threads' registers are walked by loops with literal bounds, which LLVM unrolls. Where an axis
does not divide, a thread beyond its end computes the last element again and does not write it: no
load needs a condition.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from prism.ir import DataDim
from prism_kernels.cuda.contraction import Tiling
from prism_kernels.cuda.emit_result import IDENTITY, deposit, shuffle
from prism_kernels.cuda.writer import Writer
from prism_kernels.tile import Accumulate, Axis, Contract, ValueId


class ContractionEmitter:
    """One contraction, and the position in it that is being written."""

    def __init__(self, w: Writer, i: ValueId) -> None:
        self.w = w
        self.i = i
        node = w.program.nodes[i]
        assert isinstance(node, Contract)
        self.node = node
        self.tiling: Tiling = w.plan.tilings[i]
        self.layout = self.tiling.layout
        self.result = w.program.axes[i]
        self.depth = next(a for a in w.program.axes[node.left] if a.dim == node.dim)
        self.position: dict[DataDim, str] = {}

    def emit(self) -> None:
        """Write the contraction; one that is persistent adds into its registers."""
        if self.tiling.is_persistent:
            self._rescale()
            self._accumulate()
            return
        with self._rounds():
            self._zero()
            self._accumulate()
            self._combine()

    def clear(self) -> None:
        """Before the loop: start the registers."""
        self._zero()

    def finish(self) -> None:
        """After the loop: combine what the threads have, and write it."""
        with self._rounds():
            self._combine()

    # -- registers

    def _tile(self, dim: DataDim) -> int:
        return self.tiling.tile[dim]

    def _zero(self) -> None:
        self.w.start_registers(f"p{self.i}", self.tiling.results, IDENTITY["sum"])

    def _register(self, name: str, axes: Sequence[Axis]) -> str:
        """The register of the current micro-tile position."""
        return self.w.register(name, [(a.dim, self._tile(a.dim)) for a in axes])

    @contextmanager
    def _tile_loops(self, axes: Sequence[Axis]) -> Iterator[None]:
        """The unrolled loops over some axes of the micro-tile."""
        with ExitStack() as stack:
            for axis in axes:
                if self._tile(axis.dim) > 1:
                    head = f"for j_{self.w.name(axis.dim)} in range({self._tile(axis.dim)}):"
                    stack.enter_context(self.w.block(head))
            yield

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
        if sizes[held] > 1:
            w.registers[f"h{self.i}"] = sizes[held]
        with w.walk(self.depth, self.layout[self.depth.dim]) as index:
            self.position[self.depth.dim] = index
            with self._tile_loops(axes[held]):
                self._place(axes[held], clamped=True)
                fragment = self._register(f"h{self.i}", axes[held])
                w.line(f"{fragment} = {w.read(held, self.position)}")
            with self._tile_loops(axes[streamed]):
                self._place(axes[streamed], clamped=True)
                w.line(f"b = {w.read(streamed, self.position)}")
                with self._tile_loops([a for a in axes[held] if a not in axes[streamed]]):
                    total = self._register(f"p{self.i}", self.result)
                    w.line(f"{total} += {fragment} * b")

    def _result_axes(self, v: ValueId) -> list[Axis]:
        """The axes of an operand that the result has, in the result's order."""
        return [a for a in self.result if a in self.w.program.axes[v]]

    def _rescale(self) -> None:
        """Multiply the registers by the drift of the range references of their accumulator."""
        w = self.w
        node = w.program.nodes[w.plan.nests.sinks[self.i]]
        assert isinstance(node, Accumulate)
        for m, c in node.scales:
            own = [a for a in self.result if a in w.program.axes[m]]
            with self._tile_loops(own):
                self._place(own, clamped=True)
                w.line(f"drift = {w.read(m, self.position, w.plan.drifts[m, c])}")
                with self._tile_loops([a for a in self.result if a not in own]):
                    w.line(f"{self._register(f'p{self.i}', self.result)} *= drift")

    def _combine(self) -> None:
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
