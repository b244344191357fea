"""The tile program: what one block of a kernel computes, on tiles of concrete size.

It stands between the block graph of a muGraph and the source an emitter writes. Every value is a
tile with named axes; every axis knows whether it holds the whole data dimension, the block's chunk
of it, or the loop iteration's chunk of that. Nodes are in SSA order and each runs in one of three
stages: before the loop (what nothing in the loop changes), in its body, or after it. Where there is
a loop inside the loop, two more are in the outer one: before the inner loop and after it.

`prism_kernels.lower` builds tile programs, one for each kernel, `prism_kernels.range_safe` rewrites
exp in them, the emitters read them. Tile programs know nothing of a target.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import assert_never

from prism.ir import AccumulatorKind, DataDim

ValueId = int
"""Index of a node in a tile program."""


class Stage(IntEnum):
    """When a node runs. The order is that of the run."""

    BEFORE = 0
    OUTER = 1
    """In the outer of two loops, before the inner one."""
    BODY = 2
    BETWEEN = 3
    """In the outer of two loops, after the inner one."""
    AFTER = 4

    def may_read(self, other: Stage) -> bool:
        """Whether a value of another stage is there, without an accumulator."""
        match self:
            case Stage.BETWEEN:
                return other in {Stage.BEFORE, Stage.OUTER, Stage.BETWEEN}
            case Stage.AFTER:
                return other in {Stage.BEFORE, Stage.AFTER}
            case _:
                return other <= self


@dataclass(frozen=True, slots=True, order=True)
class Axis:
    """One axis of a tile: a data dim, the grid dim that splits it, whether a loop does too."""

    dim: DataDim
    grid: str | None = None
    looped: bool = False

    def whole(self) -> Axis:
        """The same axis with the chunks of all iterations side by side."""
        return Axis(self.dim, self.grid)


@dataclass(frozen=True, slots=True)
class Load:
    """This block's (and iteration's) tile of the kernel-level tensor `source`."""

    source: str


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number known now: a constant, or the size of a data dimension."""

    value: float


@dataclass(frozen=True, slots=True)
class Map:
    """An elementwise operator (a row of OPS), or "bound": limit to the finite numbers."""

    op: str
    operands: tuple[ValueId, ...]


@dataclass(frozen=True, slots=True)
class Reduce:
    """The "sum" or "max" over one axis of the tile."""

    op: str
    operand: ValueId
    dim: DataDim


@dataclass(frozen=True, slots=True)
class Contract:
    """The sum of products over one axis of the tiles."""

    left: ValueId
    right: ValueId
    dim: DataDim


@dataclass(frozen=True, slots=True)
class Running:
    """A running range reference: the largest `operand` of all iterations so far, made finite.

    Its *drift* in an iteration is exp(old - new), by which whatever was accumulated relative to
    the old reference is multiplied. Its last value is its MAX accumulator.
    """

    operand: ValueId


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Combines a value over all iterations of the innermost loop that changes it; there after it.

    `scales` lists (running reference, exponent): before each iteration's value is combined, what
    was accumulated is multiplied by drift ** exponent.
    """

    kind: AccumulatorKind
    operand: ValueId
    dim: DataDim | None = None
    scales: tuple[tuple[ValueId, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Store:
    """Writes this block's tile of the kernel-level tensor `target`.

    Its axes are the target's. Blocks that differ only in a grid dim of `single` compute the same
    tile; the first of them writes it. With `stack`, a dim of the target that is no axis here and a
    grid dim, the block writes at its index along that grid dim.
    """

    operand: ValueId
    target: str
    single: tuple[str, ...] = ()
    stack: tuple[DataDim, str] | None = None


TileNode = Load | Scalar | Map | Reduce | Contract | Running | Accumulate | Store


def operands(node: TileNode) -> tuple[ValueId, ...]:
    """The values a node reads."""
    match node:
        case Load() | Scalar():
            return ()
        case Map(operands=ids):
            return ids
        case Contract(left=left, right=right):
            return (left, right)
        case Accumulate(operand=operand, scales=scales):
            return (operand, *(m for m, _ in scales))
        case Reduce(operand=operand) | Running(operand=operand) | Store(operand=operand):
            return (operand,)
    assert_never(node)


@dataclass(frozen=True, slots=True)
class GridDim:
    """A grid dim: `count` blocks, each with a chunk of `tile` elements of `dim` (if any)."""

    name: str
    count: int
    dim: DataDim | None = None
    tile: int = 0


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: `count` iterations, each with `tile` elements of the block's chunk of `dim`.

    Two loops never cut one dim.
    """

    name: str
    count: int
    dim: DataDim | None = None
    tile: int = 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """A kernel-level array: its place among all of them, its element strides by dim.

    The places are those of the arguments, then of the outputs, then of what is between kernels.
    """

    name: str
    position: int
    strides: tuple[tuple[DataDim, int], ...]


@dataclass(frozen=True, slots=True)
class TileProgram:
    """What one block computes. `axes[i]` and `stages[i]` belong to node i.

    Programs are keys of caches: what costs much to hash and seldom tells two apart is left out.
    """

    nodes: tuple[TileNode, ...]
    axes: tuple[tuple[Axis, ...], ...]
    stages: tuple[Stage, ...]
    sizes: Mapping[DataDim, int] = field(hash=False)
    grid: tuple[GridDim, ...]
    loops: tuple[Loop, ...]
    """The outer one first."""
    inputs: Mapping[str, Tensor] = field(hash=False)
    outputs: Mapping[str, Tensor] = field(hash=False)
    between: frozenset[str] = frozenset()
    """The inputs and outputs that are tensors between kernels."""

    @property
    def loop(self) -> Loop | None:
        """The loop, where there is one and no other inside it."""
        return self.loops[0] if len(self.loops) == 1 else None

    def loop_of(self, axis: Axis) -> int | None:
        """The number of the loop that cuts an axis."""
        if axis.looped:
            for k, loop in enumerate(self.loops):
                if loop.dim == axis.dim:
                    return k
        return None

    def looped_axis(self, number: int) -> Axis | None:
        """An axis that a loop cuts; there is none where all tiles were inputs put side by side."""
        axes = (a for axes in self.axes for a in axes)
        return next((a for a in axes if self.loop_of(a) == number), None)

    def loop_strides(self, axes: Iterable[Axis], strides: Mapping[DataDim, int]) -> tuple[int, ...]:
        """For each loop the stride of the axis that it cuts; 0 if it cuts none of these."""
        out = [0] * len(self.loops)
        for axis in axes:
            number = self.loop_of(axis)
            if number is not None:
                out[number] = strides[axis.dim]
        return tuple(out)

    def loop_at(self, stage: Stage) -> int | None:
        """The number of the innermost loop around a stage."""
        return innermost(stage, len(self.loops))

    def ended(self, i: ValueId) -> int:
        """The number of the loop over which accumulator i combines, or that a reference follows."""
        node, around = self.nodes[i], self.loop_at(self.stages[i])
        if isinstance(node, Running):
            assert around is not None
            return around
        return 0 if around is None else around + 1

    def trips(self, stage: Stage) -> int:
        """How often a block runs a stage."""
        around = self.loop_at(stage)
        return 1 if around is None else math.prod(loop.count for loop in self.loops[: around + 1])

    def is_between(self, name: str) -> bool:
        """Whether an input or output is a tensor between kernels, of the type computed in."""
        return name in self.between

    def is_split(self, axis: Axis) -> bool:
        """Whether blocks have only a part of an axis."""
        return any(g.name == axis.grid and g.count > 1 for g in self.grid)

    def chunk(self, axis: Axis) -> int:
        """The largest extent of an axis, over all blocks and iterations."""
        around = self.loop_of(axis)
        if around is not None:
            return self.loops[around].tile
        for g in self.grid:
            if g.name == axis.grid:
                return g.tile
        return self.sizes[axis.dim]

    def elements(self, axes: Iterable[Axis]) -> int:
        """The elements of a tile with these axes, at most."""
        return math.prod(self.chunk(axis) for axis in axes)

    def tile_count(self, axes: Iterable[Axis]) -> int:
        """How many tiles the loops cut a value with these axes in."""
        around = {self.loop_of(axis) for axis in axes} - {None}
        return math.prod(loop.count for k, loop in enumerate(self.loops) if k in around)

    def extents(self, axes: Iterable[Axis]) -> dict[DataDim, int]:
        """The largest extent of each axis, by dim."""
        return {axis.dim: self.chunk(axis) for axis in axes}

    def users(self) -> tuple[tuple[ValueId, ...], ...]:
        """For each node, the nodes that read it, in order."""
        out: list[list[ValueId]] = [[] for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            for j in dict.fromkeys(operands(node)):
                out[j].append(i)
        return tuple(tuple(u) for u in out)


def innermost(stage: Stage, loop_count: int) -> int | None:
    """The number of the innermost of so many loops around a stage."""
    match stage:
        case Stage.BEFORE | Stage.AFTER:
            return None
        case Stage.OUTER | Stage.BETWEEN:
            return 0
        case Stage.BODY:
            return loop_count - 1
    assert_never(stage)


@dataclass(frozen=True, slots=True)
class Intermediate:
    """A tensor between kernels: C-contiguous, of the type that kernels compute in."""

    name: str
    dims: tuple[DataDim, ...]
    shape: tuple[int, ...]

    @property
    def strides(self) -> tuple[tuple[DataDim, int], ...]:
        """Element strides by dim."""
        return strides_of(self.dims, dict(zip(self.dims, self.shape, strict=True)))


@dataclass(frozen=True, slots=True)
class Lowered:
    """The tile programs of a muGraph's kernels in launch order, and the tensors between them."""

    programs: tuple[TileProgram, ...]
    between: tuple[Intermediate, ...] = ()


def connected(programs: Sequence[TileProgram], between: Sequence[Intermediate]) -> Lowered:
    """The programs, each with the tensors between kernels that it loads or stores."""
    known = programs[0]
    first = 1 + max(t.position for n, t in known.outputs.items() if n not in known.between)
    tensors = {t.name: Tensor(t.name, first + k, t.strides) for k, t in enumerate(between)}
    out = []
    for program in programs:
        read = {n.source for n in program.nodes if isinstance(n, Load)}
        written = {n.target for n in program.nodes if isinstance(n, Store)}
        inputs = {n: t for n, t in program.inputs.items() if n not in program.between}
        inputs |= {n: t for n, t in tensors.items() if n in read}
        outputs = {n: t for n, t in program.outputs.items() if n not in program.between}
        outputs |= {n: t for n, t in tensors.items() if n in written}
        names = frozenset(tensors) & (read | written)
        out.append(replace(program, inputs=inputs, outputs=outputs, between=names))
    return Lowered(tuple(out), tuple(between))


def prune(program: TileProgram, dead: Collection[str] = ()) -> TileProgram:
    """Drop the nodes no store depends on, and the stores to `dead` tensors."""
    live = {
        i
        for i, node in enumerate(program.nodes)
        if isinstance(node, Store) and node.target not in dead
    }
    for i in reversed(range(len(program.nodes))):
        if i in live:
            live.update(operands(program.nodes[i]))
    order = sorted(live)
    new = {old: k for k, old in enumerate(order)}
    return replace(
        program,
        nodes=tuple(renumbered(program.nodes[i], new) for i in order),
        axes=tuple(program.axes[i] for i in order),
        stages=tuple(program.stages[i] for i in order),
    )


def strides_of(
    axes: Sequence[DataDim | None], sizes: Mapping[DataDim, int]
) -> tuple[tuple[DataDim, int], ...]:
    """Element strides of a C-contiguous array; axes of None have size one."""
    out: list[tuple[DataDim, int]] = []
    stride = 1
    for dim in reversed(axes):
        if dim is not None:
            out.append((dim, stride))
            stride *= sizes[dim]
    return tuple(reversed(out))


def renumbered(node: TileNode, new: Mapping[ValueId, ValueId]) -> TileNode:
    """The node, reading values under their new numbers."""
    match node:
        case Load() | Scalar():
            return node
        case Map(operands=ids):
            return replace(node, operands=tuple(new[i] for i in ids))
        case Contract(left=left, right=right):
            return replace(node, left=new[left], right=new[right])
        case Accumulate(operand=operand, scales=scales):
            moved = tuple((new[m], c) for m, c in scales)
            return replace(node, operand=new[operand], scales=moved)
        case Reduce(operand=operand) | Running(operand=operand) | Store(operand=operand):
            return replace(node, operand=new[operand])
    assert_never(node)
