"""Everything decided about a kernel before its memory is laid out and source is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from prism.ir import DataDim
from prism_kernels.cuda.contraction import Tiling
from prism_kernels.cuda.layout import Layout, deal
from prism_kernels.cuda.pipeline import PipelineTiling
from prism_kernels.nests import Nest, Nests
from prism_kernels.tile import (
    Accumulate,
    Axis,
    Reduce,
    Store,
    TileNode,
    TileProgram,
    ValueId,
    operands,
)
from prism_kernels.writer import identifiers


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value lives: a parameter or a buffer, and element strides by dim.

    A positive one of `loop_strides`, one for each loop, says that the memory holds the tiles of all
    iterations, this many elements apart per element of the loop's dim.
    """

    name: str
    strides: Mapping[DataDim, int] = field(hash=False)
    dtype: str = "float32"
    pointer: str = ""
    """The parameter of the kernel; none for a buffer."""
    loop_strides: tuple[int, ...] = ()
    stack: tuple[str, int] | None = None
    """Grid dim, stride: each block's part begins its index along the grid dim times the stride on.

    None where blocks do not stack their values."""

    @property
    def is_argument(self) -> bool:
        """Whether it is in an array that the kernel takes, and not a buffer."""
        return bool(self.pointer)

    @property
    def is_in_parts(self) -> bool:
        """Whether it holds the tiles of all iterations of some loop."""
        return any(self.loop_strides)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything decided about a tile program but the addresses of buffers."""

    program: TileProgram
    dtype: str
    threads: int
    nests: Nests
    inputs: Mapping[str, Place] = field(hash=False)
    outputs: Mapping[str, Place] = field(hash=False)
    places: Mapping[ValueId, Place] = field(hash=False)
    layouts: Mapping[ValueId, Layout] = field(hash=False)
    """Node of a nest -> how the nest is dealt; staged load -> how it is copied."""
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

    @property
    def rings(self) -> dict[ValueId, str]:
        """Contraction -> the buffer that its operands pass through, which must be shared memory."""
        found = {i for i, t in self.tilings.items() if isinstance(t, PipelineTiling)}
        return {i: ring_of(i) for i in sorted(found)}

    def place(self, i: ValueId) -> Place:
        """Where value i is read."""
        return self.staged.get(i) or self.places[i]

    def order(self, i: ValueId) -> list[Axis]:
        """The axes of value i from the one that is contiguous where it lives outwards."""
        strides = self.places[i].strides
        return sorted(self.program.axes[i], key=lambda a: strides[a.dim])

    def spread(self, i: ValueId) -> Layout:
        """How steps that only move or rescale value i are dealt."""
        return deal(self.order(i), self.program.extents(self.program.axes[i]), self.threads)

    def layout(self, i: ValueId) -> Layout:
        """How the nest of node i is dealt, or how a staged load is copied."""
        return self.tilings[i].layout if i in self.tilings else self.layouts[i]


def ring_of(i: ValueId) -> str:
    """The name of a contraction's ring."""
    return f"ring{i}"


def reads(node: TileNode) -> tuple[ValueId, ...]:
    """The values that a node's nest reads: of an accumulator, what it adds up."""
    return (node.operand,) if isinstance(node, Accumulate) else operands(node)


def input_places(program: TileProgram, dtype: str) -> dict[str, Place]:
    """Where each input is; inputs that are one argument share a parameter."""
    names = identifiers(program.inputs)
    between = _between_names(program)
    pointers: dict[int, str] = {}
    out: dict[str, Place] = {}
    for source, tensor in program.inputs.items():
        name = between.get(source, f"in_{names[source]}")
        pointer = pointers.setdefault(tensor.position, name)
        out[source] = Place(name, dict(tensor.strides), _stored(program, source, dtype), pointer)
    return out


def output_places(program: TileProgram, dtype: str) -> dict[str, Place]:
    """Where each output is."""
    between = _between_names(program)
    stacks = {n.target: n.stack for n in program.nodes if isinstance(n, Store) and n.stack}
    out: dict[str, Place] = {}
    for target, tensor in program.outputs.items():
        name, strides = between.get(target, target), dict(tensor.strides)
        dim, grid = stacks.get(target, ("", ""))
        stack = (grid, strides[dim]) if grid else None
        out[target] = Place(name, strides, _stored(program, target, dtype), name, stack=stack)
    return out


def _between_names(program: TileProgram) -> dict[str, str]:
    """What tensors between kernels are called."""
    found = (n for n in (*program.inputs, *program.outputs) if program.is_between(n))
    return {name: f"mid_{clean}" for name, clean in identifiers(found).items()}


def _stored(program: TileProgram, name: str, dtype: str) -> str:
    """Arguments and outputs are stored in the kernel's dtype, the rest as it is computed."""
    return "float32" if program.is_between(name) else dtype


def tile_in(place: Place, program: TileProgram, axes: Iterable[Axis]) -> Place:
    """An array as an iteration's tile with these axes is in it."""
    strides = program.loop_strides(axes, place.strides)
    return replace(place, loop_strides=strides) if any(strides) else place


def slice_of(place: Place, program: TileProgram, accumulator: ValueId) -> Place:
    """A concatenation as an iteration's tile is in it; it may be a slice of another one itself."""
    node, number = program.nodes[accumulator], program.ended(accumulator)
    assert isinstance(node, Accumulate)
    assert node.dim is not None
    held = place.loop_strides or (0,) * len(program.loops)
    strides = (*held[:number], place.strides[node.dim], *held[number + 1 :])
    return replace(place, loop_strides=strides)


def reduced_axis(program: TileProgram, nest: Nest) -> Axis | None:
    """The axis that a nest (not of a contraction) reduces along."""
    for i in nest.nodes:
        node = program.nodes[i]
        if isinstance(node, Reduce):
            return next(a for a in nest.space if a.dim == node.dim)
    return None
