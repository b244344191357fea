"""The tile program: what one block of a kernel computes, on tiles of concrete size.

It stands between the block graph of a muGraph and the source an emitter writes. Every value is a
tile with named axes; every axis knows whether it holds the whole data dimension, the block's chunk
of it, or the loop iteration's chunk of that. Nodes are in SSA order and each runs in one of three
stages: before the loop (what nothing in the loop changes), in its body, or after it.

`prism_kernels.lower` builds tile programs, `prism_kernels.range_safe` rewrites exp in them, the
emitters read them. Tile programs know nothing of a target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import assert_never

from prism.errors import KernelError
from prism.ir import AccumulatorKind, DataDim

ValueId = int
"""Index of a node in a tile program."""


class Stage(IntEnum):
    """When a node runs. The order is that of the run."""

    BEFORE = 0
    BODY = 1
    AFTER = 2


@dataclass(frozen=True, slots=True, order=True)
class Axis:
    """One axis of a tile: a data dim, the grid dim that splits it, whether the loop does too."""

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
    """Combines a body value over all iterations; exists after the loop.

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
    tile; the first of them writes it.
    """

    operand: ValueId
    target: str
    single: tuple[str, ...] = ()


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
    """The loop: `count` iterations, each with `tile` elements of the block's chunk of `dim`."""

    name: str
    count: int
    dim: DataDim | None = None
    tile: int = 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """A kernel-level array: which argument or output it is, its element strides by dim."""

    name: str
    position: int
    strides: tuple[tuple[DataDim, int], ...]


@dataclass(frozen=True, slots=True)
class TileProgram:
    """What one block computes. `axes[i]` and `stages[i]` belong to node i."""

    nodes: tuple[TileNode, ...]
    axes: tuple[tuple[Axis, ...], ...]
    stages: tuple[Stage, ...]
    sizes: Mapping[DataDim, int] = field(hash=False)
    grid: tuple[GridDim, ...]
    loop: Loop | None
    inputs: Mapping[str, Tensor] = field(hash=False)
    outputs: Mapping[str, Tensor] = field(hash=False)

    def chunk(self, axis: Axis) -> int:
        """The largest extent of an axis, over all blocks and iterations."""
        if axis.looped and self.loop is not None:
            return self.loop.tile
        for g in self.grid:
            if g.name == axis.grid:
                return g.tile
        return self.sizes[axis.dim]

    def users(self) -> tuple[tuple[ValueId, ...], ...]:
        """For each node, the nodes that read it, in order."""
        out: list[list[ValueId]] = [[] for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            for j in dict.fromkeys(operands(node)):
                out[j].append(i)
        return tuple(tuple(u) for u in out)


class Builder:
    """Adds nodes one by one, sharing equal ones and inferring axes and stages.

    Sharing is what lets a quotient of two separately written exp(x) drop its range reference.
    """

    def __init__(self) -> None:
        self.nodes: list[TileNode] = []
        self.axes: list[tuple[Axis, ...]] = []
        self.stages: list[Stage] = []
        self._known: dict[tuple[TileNode, tuple[Axis, ...] | None], ValueId] = {}

    def add(self, node: TileNode, axes: Iterable[Axis] | None = None) -> ValueId:
        """Add a node; `axes` are needed for loads and stores only.

        Raises:
            KernelError: the operands' axes do not match, or they never exist at one time.
        """
        given = None if axes is None else tuple(axes)
        key = (node, given)
        if key in self._known:
            return self._known[key]
        self.axes.append(self._infer_axes(node) if given is None else given)
        self.stages.append(self._infer_stage(node))
        self.nodes.append(node)
        self._known[key] = len(self.nodes) - 1
        return self._known[key]

    def _infer_axes(self, node: TileNode) -> tuple[Axis, ...]:
        match node:
            case Load() | Store():
                raise AssertionError("loads and stores come with their axes")
            case Scalar():
                return ()
            case Map(operands=ids):
                return self._union(ids)
            case Reduce(operand=operand, dim=dim):
                return tuple(a for a in self.axes[operand] if a.dim != dim)
            case Contract(left=left, right=right, dim=dim):
                return tuple(a for a in self._union((left, right)) if a.dim != dim)
            case Running(operand=operand):
                return self.axes[operand]
            case Accumulate(operand=operand, dim=dim):
                return tuple(a.whole() if a.dim == dim else a for a in self.axes[operand])
        assert_never(node)

    def _union(self, ids: tuple[ValueId, ...]) -> tuple[Axis, ...]:
        """The axes of a broadcast: the largest operand's order first."""
        out: dict[DataDim, Axis] = {}
        for i in sorted(ids, key=lambda i: -len(self.axes[i])):
            for axis in self.axes[i]:
                if out.setdefault(axis.dim, axis) != axis:
                    raise KernelError(
                        f"an operator meets {axis.dim!r} split in two ways ({axis} and "
                        f"{out[axis.dim]}); map both operands alike"
                    )
        return tuple(out.values())

    def _infer_stage(self, node: TileNode) -> Stage:
        ids = operands(node)
        found = {self.stages[i] for i in ids}
        match node:
            case Accumulate():
                return Stage.AFTER
            case Running():
                return Stage.BODY
            case Load():
                looped = any(a.looped for a in self.axes[-1])
                return Stage.BODY if looped else Stage.BEFORE
            case Map() | Reduce() | Contract() | Store() | Scalar():
                if {Stage.BODY, Stage.AFTER} <= found:
                    raise KernelError(
                        "a value of the loop body is read after the loop without an accumulator"
                    )
                return max(found, default=Stage.BEFORE)
        assert_never(node)


def prune(program: TileProgram) -> TileProgram:
    """Drop the nodes no store depends on."""
    live = {i for i, node in enumerate(program.nodes) if isinstance(node, Store)}
    for i in reversed(range(len(program.nodes))):
        if i in live:
            live.update(operands(program.nodes[i]))
    order = sorted(live)
    new = {old: k for k, old in enumerate(order)}
    return replace(
        program,
        nodes=tuple(_renumber(program.nodes[i], new) for i in order),
        axes=tuple(program.axes[i] for i in order),
        stages=tuple(program.stages[i] for i in order),
    )


def _renumber(node: TileNode, new: Mapping[ValueId, ValueId]) -> TileNode:
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
