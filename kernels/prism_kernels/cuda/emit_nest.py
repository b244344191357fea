"""Writes a loop nest: elementwise operators, reductions along one axis, accumulators.

A nest without a reduction is spread over the threads. In one with a reduction each thread walks its
share of the reduced axis innermost, and the threads of a group then combine what they have. For
that all of them must come along: the outer loops have literal bounds, and conditions stand inside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import assert_never

from prism.ir import AccumulatorKind, DataDim
from prism_kernels.cuda.alignment import is_vector, widest
from prism_kernels.cuda.emit_result import IDENTITY, deposit, operator_of, shuffle
from prism_kernels.cuda.layout import Share
from prism_kernels.cuda.plan import Place, reads, reduced_axis, slice_of
from prism_kernels.cuda.writer import Writer
from prism_kernels.expressions import COMBINE, expression
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
)


class NestEmitter:
    """One nest, and the position in it that is being written."""

    def __init__(self, w: Writer, nest: Nest) -> None:
        self.w = w
        self.nest = nest
        self.program = w.program
        self.plan = w.plan
        self.layout = w.plan.layout(nest.nodes[0])
        self.own = {i for i in nest.nodes if isinstance(self.program.nodes[i], Map)}
        self.values: dict[ValueId, str] = {}
        self.position: dict[DataDim, str] = {}
        self.reduced = reduced_axis(self.program, nest)
        lanes = {d: k for k, (d, _) in enumerate(self.layout.shares)}
        self.outer = sorted(
            (a for a in nest.space if a != self.reduced), key=lambda a: -lanes.get(a.dim, 0)
        )
        self.reductions = [i for i in nest.nodes if isinstance(self.program.nodes[i], Reduce)]

    def emit(self) -> None:
        """Write the nest."""
        if self.reduced is None:
            self._spread()
        else:
            self._reduce(self.reduced)

    # -- without a reduction

    def _spread(self) -> None:
        w = self.w
        with ExitStack() as stack:
            stack.enter_context(w.when(w.lead(self.layout)))
            self._load([])
            for k, axis in enumerate(self.outer[:-1]):
                walk = w.walk(axis, self.layout[axis.dim])
                self.position[axis.dim] = stack.enter_context(walk)
                self._load(self.outer[: k + 1])
            self._innermost(self.outer[:-1], self.outer[-1:])

    def _innermost(self, known: Sequence[Axis], axes: Sequence[Axis]) -> None:
        """The loop over the last axis, if there is one, with the nodes in its body."""
        w = self.w
        with ExitStack() as stack:
            for axis in axes:
                if self.layout[axis.dim].width > 1:
                    self._in_groups(known, axis)
                    return
                walk = w.walk(axis, self.layout[axis.dim])
                self.position[axis.dim] = stack.enter_context(walk)
                self._load([*known, axis])
            for i in self.nest.nodes:
                self._node(i)

    def _in_groups(self, known: Sequence[Axis], axis: Axis) -> None:
        """The same, several neighbours at a time: what can be is moved in one access."""
        w, share, axes = self.w, self.layout[axis.dim], self.program.axes
        with w.groups(axis, share) as first:
            self.position[axis.dim] = first
            groups: dict[ValueId, str] = {}
            for v, place in self._vector_reads(known, axis):
                groups[v] = f"x{v}"
                each = min(share.width, widest(self.program, place, axes[v]))
                w.load_group(groups[v], share.width, each, place, axes[v], self.position)
            stores = dict(self._vector_stores(axis))
            w.registers.update({f"y{i}": share.width for i in stores})
            with w.neighbours(axis, share, first) as (number, index):
                self.position[axis.dim] = index
                self.values.update({v: f"{name}[{number}]" for v, name in groups.items()})
                self._load([*known, axis])
                for i in self.nest.nodes:
                    if i in stores:
                        w.line(f"y{i}[{number}] = {self._stored(i)}")
                    else:
                        self._node(i)
            self.position[axis.dim] = first
            for i, place in stores.items():
                each = min(share.width, widest(self.program, place, axes[i]))
                w.store_group(f"y{i}", share.width, each, place, axes[i], self.position)

    def _vector_reads(self, known: Sequence[Axis], axis: Axis) -> Iterator[tuple[ValueId, Place]]:
        """The values that are read from an array along an axis, several at once."""
        wanted = dict.fromkeys(v for i in self.nest.nodes for v in reads(self.program.nodes[i]))
        for v in wanted:
            is_due = set(self.program.axes[v]) <= {*known, axis}
            if v in self.values or not is_due or not isinstance(self.program.nodes[v], Load):
                continue
            place = self.plan.place(v)
            if is_vector(self.program, place, self.program.axes[v], axis.dim):
                yield v, place

    def _vector_stores(self, axis: Axis) -> Iterator[tuple[ValueId, Place]]:
        """The stores into an array along an axis, several elements at once."""
        for i in self.nest.nodes:
            node = self.program.nodes[i]
            if isinstance(node, Store):
                place = self.plan.outputs[node.target]
                if is_vector(self.program, place, self.program.axes[i], axis.dim):
                    yield i, place

    def _stored(self, i: ValueId) -> str:
        node = self.program.nodes[i]
        assert isinstance(node, Store)
        return self.values[node.operand]

    # -- with one

    def _reduce(self, reduced: Axis) -> None:
        w, share = self.w, self.layout[reduced.dim]
        with ExitStack() as stack:
            conditions = [c for axis in self.outer for c in self._pass(stack, axis)]
            fresh = [i for i in self.reductions if i not in self.plan.partials]
            for i in fresh:
                w.line(f"r{i} = {IDENTITY[operator_of(w, i)]}")
            with w.when([*w.lead(self.layout), *conditions]):  # idle threads add nothing up
                self._load([])
                self._load(self.outer)
                for i in self.reductions:
                    if i in self.plan.partials:
                        self._rescale_partial(i)
                self._innermost(self.outer, [reduced])
            for i in fresh:
                self._combine(i, share, conditions)

    def _pass(self, stack: ExitStack, axis: Axis) -> list[str]:
        """The loop with literal bounds over an outer axis; returns the condition for its body."""
        w, share, extent = self.w, self.layout[axis.dim], self.w.extent(axis)
        passes = self._passes(axis)
        mine = w.coordinate(share)
        if passes == 1:
            self.position[axis.dim] = mine
        else:
            name = w.name(axis.dim)
            stack.enter_context(w.block(f"for j_{name} in range({passes}):"))
            step = f"j_{name} * {share.threads}" if share.threads > 1 else f"j_{name}"
            w.line(f"i_{name} = u32({step}{f' + {mine}' if mine != '0' else ''})")
            self.position[axis.dim] = f"i_{name}"
        if extent == passes * share.threads:
            return []
        return [f"{self.position[axis.dim]} < {extent}"]

    def _passes(self, axis: Axis) -> int:
        return self.layout.passes(axis.dim, self.program.chunk(axis))

    def _rescale_partial(self, i: ValueId) -> None:
        node = self.program.nodes[self.plan.nests.sinks[i]]
        assert isinstance(node, Accumulate)
        for m, c in node.scales:
            drift = self.w.read(m, self.position, self.plan.drifts[m, c])
            self.w.line(f"{self.partial(i)} *= {drift}")

    # -- statements

    def _load(self, known: Sequence[Axis]) -> None:
        """Load what the loops opened so far determine."""
        for i in self.nest.nodes:
            node = self.program.nodes[i]
            for v in reads(node):
                if v in self.own or v in self.values:
                    continue
                source = self.program.nodes[v]
                if isinstance(source, Scalar):
                    self.values[v] = self.w.number(source.value)
                elif set(self.program.axes[v]) <= set(known):
                    self.values[v] = f"t{v}"
                    self.w.line(f"t{v} = {self.w.read(v, self.position)}")

    def _node(self, i: ValueId) -> None:
        w, node = self.w, self.program.nodes[i]
        match node:
            case Map(op=op, operands=ids):
                operands = [self.values[v] for v in ids]
                w.line(f"t{i} = {expression(op, operands, 'f32', divides=True)}")
                self.values[i] = f"t{i}"
                if i in self.plan.places:
                    self._write(i, f"t{i}")
            case Reduce(operand=operand):
                total = self.partial(i) if i in self.plan.partials else f"r{i}"
                combined = COMBINE[operator_of(w, i)].format(total, self.values[operand])
                w.line(f"{total} = {combined}")
            case Running(operand=operand):
                self._run(i, self.values[operand])
            case Accumulate(operand=operand):
                self._accumulate(i, node, self.values[operand])
            case Store(operand=operand, target=target):
                place = self.plan.outputs[target]
                w.store(place, self.program.axes[i], self.position, self.values[operand])
            case Load() | Scalar() | Contract():
                raise AssertionError("belongs to no nest of this kind")
            case _:
                assert_never(node)

    def _write(self, i: ValueId, value: str) -> None:
        self.w.store(self.plan.places[i], self.program.axes[i], self.position, value)

    def _run(self, i: ValueId, value: str) -> None:
        """Move a running reference and note by how much."""
        w, axes = self.w, self.program.axes[i]
        w.line(f"old = {w.read(i, self.position)}")
        w.line(f"new = maximum(old, bound({value}))")
        self._write(i, "new")
        for (m, c), drift in self.plan.drifts.items():
            if m == i:
                moved = "old - new" if c == 1.0 else f"{w.number(c)} * (old - new)"
                w.store(drift, axes, self.position, f"exp({moved})")

    def _accumulate(self, i: ValueId, node: Accumulate, value: str) -> None:
        w, place, axes = self.w, self.plan.places[i], self.program.axes[node.operand]
        if node.kind is AccumulatorKind.CONCAT:
            w.store(slice_of(place, w.program, i), axes, self.position, value)
            return
        old = w.read(i, self.position, place)
        w.store(place, axes, self.position, COMBINE[operator_of(w, i)].format(old, value))

    # -- registers that add up over the loop

    def partial(self, i: ValueId) -> str:
        """The register in which this thread adds up reduction i at the current position."""
        return self.w.register(f"p{i}", [(a.dim, self._passes(a)) for a in self.outer])

    def clear(self, i: ValueId) -> None:
        """Before the loop: start the registers of reduction i."""
        count = math.prod(self._passes(axis) for axis in self.outer)
        self.w.start_registers(f"p{i}", count, IDENTITY[operator_of(self.w, i)])

    def finish(self, i: ValueId) -> None:
        """After the loop: combine what the threads of a group have, and write it."""
        assert self.reduced is not None
        with ExitStack() as stack:
            conditions = [c for axis in self.outer for c in self._pass(stack, axis)]
            self.w.line(f"r{i} = {self.partial(i)}")
            self._combine(i, self.layout[self.reduced.dim], conditions)

    def _combine(self, i: ValueId, share: Share, conditions: Sequence[str]) -> None:
        shuffle(self.w, f"r{i}", share, operator_of(self.w, i))
        deposit(self.w, i, self.layout, self.position, conditions)
