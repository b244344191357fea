"""Decides where every value lives: in an argument, on the stack, in the workspace, or nowhere.

Rules, in order:

* inputs are read where they are; outputs are written in place when one value is exactly the output;
* a value that only its own nest reads stays in registers;
* small buffers lie on the stack (each an alloca of its own), large ones in the workspace;
* rows whose stride is a multiple of 1 KB would share a few sets of the L1 cache: they are padded,
  and a small operand of a contraction that lies so is copied (`packs`). For the same reason an
  output that is accumulated over the loop or in k-blocks gets a padded buffer of its own;
* what is stored narrower than it is computed is only read and written, never worked on in place:
  buffers are as wide as the arithmetic, and a small operand that many rows of a stream meet is
  widened once (`packs`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import assert_never

from prism.ir import AccumulatorKind, DataDim
from prism_kernels.cpu.contraction import Contraction, Form, plan_contraction
from prism_kernels.cpu.intrinsics import CACHE_LINE_BYTES
from prism_kernels.cpu.library import LibraryCall
from prism_kernels.cpu.registers import adds_in_memory
from prism_kernels.cpu.squares import sums_of_squares
from prism_kernels.cpu.widths import Widths
from prism_kernels.nests import Nest, Nests, form_nests
from prism_kernels.tile import (
    Accumulate,
    Axis,
    Contract,
    Load,
    Map,
    Reduce,
    Running,
    Scalar,
    Stage,
    Store,
    TileNode,
    TileProgram,
    ValueId,
)

STACK_BYTES = 32 << 10
"""Larger buffers go to the workspace."""
STACK_TOTAL_BYTES = 256 << 10
"""All stack buffers of a block together."""
PACK_BYTES = 512 << 10
"""Larger row operands are used where they are."""
FAR_ROW_BYTES = 2048
"""Rows of a raw argument this far apart are packed."""
PADDING_BYTES = 5 * CACHE_LINE_BYTES
"""Between rows that would share sets of L1; with one line, contractions in DOT form that read eight
such rows at once take a fifth longer."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value lives: a pointer variable and element strides by dim.

    A positive one of `loop_strides`, one for each loop, says that the memory holds the tiles of all
    iterations, this many elements apart per element of the loop's dim.
    """

    pointer: str
    strides: dict[DataDim, int] = field(hash=False)
    loop_strides: tuple[int, ...] = ()
    is_argument: bool = False


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of a block: on the stack, or `offset` elements into its workspace."""

    pointer: str
    elements: int
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Pack:
    """A dense copy of a raw input for a contraction, made once or in each iteration."""

    value: ValueId
    place: Place
    order: tuple[Axis, ...]
    stage: Stage


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything decided about a tile program before source is written."""

    program: TileProgram
    nests: Nests
    places: dict[ValueId, Place] = field(hash=False)
    contractions: dict[ValueId, Contraction] = field(hash=False)
    packs: dict[ValueId, Pack] = field(hash=False)
    drifts: dict[tuple[ValueId, float], Place] = field(hash=False)
    """(running reference, exponent) -> by what its users are rescaled."""
    squares: dict[ValueId, Nest] = field(hash=False)
    """Contraction -> the nest of a sum of squares that it makes as well."""
    in_place: frozenset[ValueId]
    """Stores whose operand is written straight into the output."""
    buffers: tuple[Buffer, ...]
    workspace_elements: int


Planned = Plan | LibraryCall
"""A kernel of a graph: ours, or a call of the library."""


def input_pointer(program: TileProgram, source: str) -> str:
    """The variable that points to this block's part of an input: `in_` and its name."""
    clean = _clean(source)
    twins = [n for n in program.inputs if _clean(n) == clean]
    return f"in_{clean}" + (f"_{twins.index(source)}" if len(twins) > 1 else "")


def output_pointer(program: TileProgram, target: str) -> str:
    """The variable that points to this block's part of an output: its name, `out_t0` for a t0."""
    if not program.is_between(target):
        return target
    clean = _clean(target)
    twins = [n for n in program.outputs if _clean(n) == clean]
    return f"out_{clean}" + (f"_{twins.index(target)}" if len(twins) > 1 else "")


@lru_cache(maxsize=256)
def _clean(name: str) -> str:
    """A name as part of a variable's."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


@lru_cache(maxsize=2048)
def plan(program: TileProgram, widths: Widths) -> Plan:
    """Decide nests, forms and places; configs of several kernels share many programs."""
    return _Planner(program, form_nests(program), widths).run()


class _Planner:
    def __init__(self, program: TileProgram, nests: Nests, widths: Widths) -> None:
        self.program = program
        self.nests = nests
        self.widths = widths
        self.bytes = widths.computed
        self.users = program.users()
        self.places: dict[ValueId, Place] = {}
        self.contractions: dict[ValueId, Contraction] = {}
        self.packs: dict[ValueId, Pack] = {}
        self.drifts: dict[tuple[ValueId, float], Place] = {}
        self.in_place: set[ValueId] = set()
        self.buffers: list[Buffer] = []
        self.workspace = 0
        self.stack = 0

    def run(self) -> Plan:
        for i, node in enumerate(self.program.nodes):
            self._place(i, node)
        for node in self.program.nodes:
            if isinstance(node, Accumulate):
                self._place_drifts(node)
        nests = self.nests.without(self.in_place)
        squares = sums_of_squares(self.program, nests, self.contractions, self.packs)
        return Plan(
            self.program,
            nests.without({i for nest in squares.values() for i in nest.nodes}),
            self.places,
            self.contractions,
            self.packs,
            self.drifts,
            squares,
            frozenset(self.in_place),
            tuple(self.buffers),
            self.workspace,
        )

    def _place(self, i: ValueId, node: TileNode) -> None:
        match node:
            case Load(source=source):
                self.places[i] = self._input_place(i, source)
            case Contract():
                self._place_contraction(i, node)
            case Map():
                if self._is_stored(i):
                    self._place_result(i, self._natural_order(i))
            case Reduce():
                self._place_result(i, self._natural_order(i))
            case Running() | Accumulate():
                self._place_accumulator(i, node)
            case Scalar() | Store():
                pass
            case _:
                assert_never(node)

    def _place_drifts(self, node: Accumulate) -> None:
        for key in node.scales:
            if key not in self.drifts:
                axes = self.program.axes[key[0]]
                self.drifts[key] = self._buffer(f"drift{len(self.drifts)}", axes)

    # -- where a computed value goes

    def _is_stored(self, i: ValueId) -> bool:
        """Whether a map's value must outlive its nest."""
        nest = self.nests.owner[i]
        # an output in place spares the store; one that is narrower is stored to by the nest
        kinds = (Contract, Store) if self.widths.are_equal else Contract
        return any(
            self.nests.owner.get(j) != nest or isinstance(self.program.nodes[j], kinds)
            for j in self.users[i]
        )

    def _place_accumulator(self, i: ValueId, node: Running | Accumulate) -> None:
        if i in self.places:  # its operand was written in place
            return
        if i in self.nests.last_values:
            self.places[i] = self.places[self.nests.last_values[i]]
        elif isinstance(node, Running):
            self.places[i] = self._buffer(f"v{i}", self.program.axes[i])
        else:
            self._place_result(i, self._natural_order(i))

    def _place_result(self, i: ValueId, order: tuple[Axis, ...]) -> None:
        """A place for a computed value: its accumulator's, a slice of one, or its own."""
        if i in self.nests.sinks:
            accumulator = self.nests.sinks[i]
            self._place_result(accumulator, order)
            self.places[i] = self.places[accumulator]
        elif i in self.nests.slices:
            accumulator = self.nests.slices[i]
            self._place_result(accumulator, order)
            whole = self.places[accumulator]
            number = self.program.ended(accumulator)
            steps = self.program.loop_strides(self.program.axes[i], whole.strides)
            # what holds the tiles of this loop may itself be a tile of the loop around it
            held = whole.loop_strides or (0,) * len(steps)
            self.places[i] = Place(
                whole.pointer,
                whole.strides,
                (*held[:number], steps[number], *held[number + 1 :]),
                is_argument=whole.is_argument,
            )
        else:
            self._place_owned(i, order)

    def _place_owned(self, i: ValueId, order: tuple[Axis, ...]) -> None:
        """The output that is this value, or a buffer with the axes in the given order."""
        axes = self.program.axes[i]
        for j in self.users[i]:
            node = self.program.nodes[j]
            if isinstance(node, Store) and self._can_be_output(i, j, node, order):
                tensor = self.program.outputs[node.target]
                self.in_place.add(j)
                pointer = output_pointer(self.program, node.target)
                self.places[i] = Place(pointer, dict(tensor.strides), is_argument=True)
                return
        by_dim = {a.dim: a for a in axes}
        self.places[i] = self._buffer(f"v{i}", tuple(by_dim[a.dim] for a in order))

    def _can_be_output(self, i: ValueId, j: ValueId, store: Store, order: tuple[Axis, ...]) -> bool:
        axes = self.program.axes[i]
        is_narrow = self.widths.of_value(self.program, j) != self.bytes
        if is_narrow and not self._is_only_written(i, j):
            return False
        if store.single or set(self.program.axes[j]) != set(axes):
            return False
        strides = dict(self.program.outputs[store.target].strides)
        if order and self._is_from_contraction(i) and strides[order[-1].dim] != 1:
            return False  # micro-kernels write whole vectors
        is_sum = self._adds_in_memory(i)
        return not (is_sum and len(axes) > 1 and self._has_far_rows(axes, strides))

    def _adds_in_memory(self, i: ValueId) -> bool:
        """Whether value i is a sum that grows in memory: over a loop, or in k-blocks."""
        node = self.program.nodes[i]
        if isinstance(node, Accumulate) and node.kind is AccumulatorKind.SUM:
            return True
        writers = [i, *(k for k, j in self.nests.slices.items() if j == i)]
        return any(
            adds_in_memory(self.program, self.contractions[k], self.widths)
            for k in writers
            if k in self.contractions
        )

    def _is_only_written(self, i: ValueId, reader: ValueId) -> bool:
        """Whether value i is tiles put side by side, each computed whole, for one reader alone."""
        node = self.program.nodes[i]
        if isinstance(node, Map):
            nest, owner = self.nests.owner[i], self.nests.owner
            others = [j for j in self.users[i] if j != reader]
            return all(
                owner.get(j) == nest and not isinstance(self.program.nodes[j], Contract)
                for j in others
            )
        if not isinstance(node, Accumulate) or node.kind is not AccumulatorKind.CONCAT:
            return False
        if node.scales or self.users[i] != (reader,):
            return False
        return self.nests.slices.get(node.operand) == i and self._is_only_written(node.operand, i)

    def _is_from_contraction(self, i: ValueId) -> bool:
        writers = [k for k, j in (*self.nests.sinks.items(), *self.nests.slices.items()) if j == i]
        is_own = isinstance(self.program.nodes[i], Contract)
        return is_own or any(self._is_from_contraction(k) for k in writers)

    def _has_far_rows(self, axes: Iterable[Axis], strides: dict[DataDim, int]) -> bool:
        return any(
            self.program.chunk(a) > 1 and strides[a.dim] * self.bytes % 4096 == 0 for a in axes
        )

    def _natural_order(self, i: ValueId) -> tuple[Axis, ...]:
        """The value's own order, but the axis a contraction sums over last if it has one."""
        axes = self.program.axes[i]
        for j in self.users[i]:
            node = self.program.nodes[j]
            if isinstance(node, Contract) and self._is_smaller_operand(i, node):
                last = [a for a in axes if a.dim == node.dim]
                return (*(a for a in axes if a.dim != node.dim), *last)
        return axes

    def _is_smaller_operand(self, i: ValueId, node: Contract) -> bool:
        other = node.right if node.left == i else node.left
        axes = self.program.axes
        return self.program.elements(axes[i]) <= self.program.elements(axes[other])

    # -- contractions

    def _place_contraction(self, i: ValueId, node: Contract) -> None:
        strides = {v: self.places[v].strides for v in (node.left, node.right)}
        contraction = plan_contraction(self.program, i, strides)
        self.contractions[i] = contraction
        if contraction.form is not Form.LOOPS:
            self._pack_row_operand(contraction)
        self._place_result(i, contraction.result_order)

    def _pack_row_operand(self, c: Contraction) -> None:
        if c.row in self.packs:
            return
        place, axes = self.places[c.row], self.program.axes[c.row]
        must = c.form is Form.DOT and place.strides[c.depth.dim] != 1
        width = self.widths.of_value(self.program, c.row)
        far = any(
            self.program.chunk(a) > 1 and place.strides[a.dim] * width >= FAR_ROW_BYTES
            for a in c.rows
        )
        size = self.program.elements(axes) * self.bytes
        helps = far or width != self.bytes
        if not must and not (place.is_argument and helps and size <= PACK_BYTES):
            return
        order = (*c.batch, *c.rows, c.depth)
        copy = self._buffer(f"pack{c.row}", order)
        self.packs[c.row] = Pack(c.row, copy, order, self.program.stages[c.row])

    # -- memory

    def _input_place(self, i: ValueId, source: str) -> Place:
        tensor = self.program.inputs[source]
        strides = dict(tensor.strides)
        pointer = input_pointer(self.program, source)
        steps = self.program.loop_strides(self.program.axes[i], strides)
        return Place(pointer, strides, steps, is_argument=True)

    def _buffer(self, name: str, order: tuple[Axis, ...]) -> Place:
        """A row-major buffer with padded rows."""
        strides: dict[DataDim, int] = {}
        stride = 1
        for k, axis in enumerate(reversed(order)):
            strides[axis.dim] = stride
            stride *= self.program.chunk(axis)
            if k == 0 and len(order) > 1 and stride * self.bytes % 1024 == 0:
                stride += PADDING_BYTES // self.bytes
        line = CACHE_LINE_BYTES // self.bytes
        elements = -(-stride // line) * line
        size = elements * self.bytes
        if size <= STACK_BYTES and self.stack + size <= STACK_TOTAL_BYTES:
            self.stack += size
            self.buffers.append(Buffer(name, elements))
        else:
            self.buffers.append(Buffer(name, elements, self.workspace))
            # one more line, so that equal buffers do not start in the same L1 set
            self.workspace += elements + 4 * line
        return Place(name, strides)
