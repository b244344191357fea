"""Everything decided about a kernel before its memory is laid out and source is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prism.ir import DataDim
from prism_kernels.cuda.contraction import Tiling
from prism_kernels.cuda.layout import Layout, deal
from prism_kernels.nests import Nest, Nests
from prism_kernels.tile import (
    Accumulate,
    Axis,
    Reduce,
    TileNode,
    TileProgram,
    ValueId,
    operands,
)
from prism_kernels.writer import identifiers


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value lives: a parameter or a buffer, and element strides by dim.

    A positive `loop_stride` says that the memory holds the tiles of all iterations, this many
    elements apart per element of the loop's dim.
    """

    name: str
    strides: Mapping[DataDim, int] = field(hash=False)
    dtype: str = "float32"
    pointer: str = ""
    """The parameter of the kernel; none for a buffer."""
    loop_stride: int = 0

    @property
    def is_argument(self) -> bool:
        """Whether it is in an argument or output of the kernel, and not a buffer."""
        return bool(self.pointer)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything decided about a tile program but the addresses of buffers."""

    program: TileProgram
    dtype: str
    threads: int
    nests: Nests
    places: Mapping[ValueId, Place] = field(hash=False)
    layouts: Mapping[ValueId, Layout] = field(hash=False)
    """First node of a nest -> how the nest is dealt; of a staged load, how it is copied."""
    tilings: Mapping[ValueId, Tiling] = field(hash=False)
    staged: Mapping[ValueId, Place] = field(hash=False)
    """Load -> its copy in shared memory."""
    partials: frozenset[ValueId]
    """Reductions and contractions that add up in registers over the loop."""
    drifts: Mapping[tuple[ValueId, float], Place] = field(hash=False)
    """(running reference, exponent) -> by what its users are rescaled."""
    in_place: frozenset[ValueId]
    """Stores whose operand is written straight into the output."""
    scratch: Mapping[ValueId, Place] = field(hash=False)
    """Reductions across warps -> where the warps' results meet, one warp's after the other's."""
    buffers: Mapping[str, int] = field(hash=False)
    """Buffer -> elements."""

    def place(self, i: ValueId) -> Place:
        """Where value i is read."""
        return self.staged.get(i) or self.places[i]

    def extents(self, axes: Iterable[Axis]) -> dict[DataDim, int]:
        """The largest extent of each axis."""
        return {a.dim: self.program.chunk(a) for a in axes}

    def order(self, i: ValueId) -> list[Axis]:
        """The axes of value i from the one that is contiguous where it lives outwards."""
        strides = self.places[i].strides
        return sorted(self.program.axes[i], key=lambda a: strides[a.dim])

    def spread(self, i: ValueId) -> Layout:
        """How steps that only move or rescale value i are dealt."""
        return deal(self.order(i), self.extents(self.program.axes[i]), self.threads)

    def layout(self, i: ValueId) -> Layout:
        """How the work of node i, the first of its nest, is dealt."""
        return self.tilings[i].layout if i in self.tilings else self.layouts[i]


def reads(node: TileNode) -> tuple[ValueId, ...]:
    """The values that a node's nest reads: of an accumulator, what it adds up."""
    return (node.operand,) if isinstance(node, Accumulate) else operands(node)


def input_pointers(program: TileProgram) -> dict[str, str]:
    """Input -> parameter of the kernel; inputs that are one argument share it."""
    names = identifiers(program.inputs)
    first: dict[int, str] = {}
    for name, tensor in program.inputs.items():
        first.setdefault(tensor.position, f"in_{names[name]}")
    return {name: first[tensor.position] for name, tensor in program.inputs.items()}


def output_place(target: str, strides: Mapping[DataDim, int], dtype: str) -> Place:
    """An output in memory."""
    return Place(target, strides, dtype, target)


def reduced_axis(program: TileProgram, nest: Nest) -> Axis | None:
    """The axis that a nest (not of a contraction) reduces along."""
    for i in nest.nodes:
        node = program.nodes[i]
        if isinstance(node, Reduce):
            return next(a for a in nest.space if a.dim == node.dim)
    return None
