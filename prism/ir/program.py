"""A program: what the user wrote, as a list of operators over named dimensions.

Every axis of every tensor carries a *data dimension*, a name such as `n` or `d`. Two axes match
because they carry the same name, never because their sizes happen to agree. A dimension used twice
in one tensor gets an *alias*: another name of the same size. Axes of size one that only steer
broadcasting carry no dimension (`None` in `axes`).

A program is in SSA form: node i may refer to nodes 0..i-1. Sizes are symbolic until `bind_sizes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import index
from typing import SupportsIndex

import numpy as np

from prism.errors import SizeError
from prism.ir.ops import OPS, OpKind

DataDim = str
"""Name of a data dimension."""

TensorId = int
"""Index of a node in a program or block graph."""


@dataclass(frozen=True, slots=True)
class DimInfo:
    """A data dimension: `size` names the dimension whose size it shares (itself, or an alias)."""

    name: DataDim
    size: DataDim
    fixed: int | None = None
    """The size when the program itself fixes it (an annotation such as `"n 3"`)."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An array the caller passes; `axes[i]` is None where the array must have size one."""

    name: str
    axes: tuple[DataDim | None, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """One use of an argument under dimension names; X X^T reads one argument under two names.

    `dims` are the argument's non-unit axes in order, possibly renamed to aliases.
    """

    name: str
    argument: str
    dims: tuple[DataDim, ...]


@dataclass(frozen=True, slots=True)
class Const:
    """A scalar constant of the program (eps, a scale)."""

    value: float


@dataclass(frozen=True, slots=True)
class SizeOf:
    """The size of a whole data dimension as a scalar, e.g. the n of a mean."""

    dim: DataDim


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator applied to earlier nodes; `dim` for reductions, contractions, and along a dim."""

    op: str
    operands: tuple[TensorId, ...]
    dim: DataDim | None = None


Node = Input | Const | SizeOf | Apply


@dataclass(frozen=True, slots=True)
class Output:
    """A result: a tensor and the axes (None = size one) in which the caller gets it."""

    tensor: TensorId
    axes: tuple[DataDim | None, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A tensor program over named dimensions, sizes symbolic."""

    name: str
    dims: tuple[DimInfo, ...]
    arguments: tuple[Argument, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]

    @property
    def size_names(self) -> tuple[DataDim, ...]:
        """The dimensions whose sizes the caller chooses, in order of first use."""
        return tuple(d.name for d in self.dims if d.size == d.name and d.fixed is None)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The uses of arguments, in node order."""
        return tuple(n for n in self.nodes if isinstance(n, Input))

    def tensor_dims(self) -> tuple[frozenset[DataDim], ...]:
        """The dimensions each node's value may vary along."""
        return infer_dims(self.nodes)


def result_dims(
    op: str, dim: DataDim | None, operands: tuple[frozenset[DataDim], ...]
) -> frozenset[DataDim]:
    """The shape rule of an operator: dimensions of the result (see `OpKind`)."""
    union = frozenset().union(*operands)
    match OPS[op].kind:
        case OpKind.ELEMENTWISE | OpKind.ALONG:
            return union
        case OpKind.REDUCE | OpKind.CONTRACT:
            return union - {dim}


def reduced_dim(node: Apply) -> DataDim | None:
    """The dimension that an operator takes away: its name means nothing further out."""
    return None if OPS[node.op].kind is OpKind.ALONG else node.dim


def infer_dims(nodes: tuple[Node, ...]) -> tuple[frozenset[DataDim], ...]:
    """The dimensions of each node of an SSA list."""
    out: list[frozenset[DataDim]] = []
    for node in nodes:
        match node:
            case Input(dims=dims):
                out.append(frozenset(dims))
            case Const() | SizeOf():
                out.append(frozenset())
            case Apply(op=op, operands=operands, dim=dim):
                out.append(result_dims(op, dim, tuple(out[i] for i in operands)))
    return tuple(out)


def live_nodes(program: Program) -> Iterator[TensorId]:
    """The nodes an output depends on, in SSA order."""
    live = {o.tensor for o in program.outputs}
    for i in reversed(range(len(program.nodes))):
        node = program.nodes[i]
        if i in live and isinstance(node, Apply):
            live.update(node.operands)
    yield from sorted(live)


def bind_sizes(program: Program, sizes: Mapping[str, SupportsIndex]) -> dict[DataDim, int]:
    """Concrete size of every dimension, aliases and fixed ones included.

    Raises:
        SizeError: a size is missing, unknown, not a positive integer, or contradicts a fixed one.
    """
    known = {d.name: d for d in program.dims}
    chosen: dict[DataDim, int] = {}
    for name, value in sizes.items():
        if name not in known:
            raise SizeError(
                f"{program.name} has no dimension {name!r}; its dimensions are "
                f"{', '.join(program.size_names) or 'none'} (of two that an operator makes one, "
                "the first name is kept)"
            )
        chosen[name] = _size(name, value)
    out: dict[DataDim, int] = {}
    for info in program.dims:
        root = known[info.size]
        size = chosen.get(root.name) if root.fixed is None else root.fixed
        if size is None:
            raise SizeError(f"no size given for dimension {root.name!r} of {program.name}")
        given = chosen.get(info.name, size)
        if given != size:
            raise SizeError(
                f"dimension {info.name!r} of {program.name} has the size of {root.name!r}, "
                f"{size}, but {given} was given"
            )
        out[info.name] = size
    return out


def _size(name: DataDim, value: SupportsIndex) -> int:
    """A given size as an int; NumPy's integers will do, a bool or a float will not."""
    try:
        size = -1 if isinstance(value, bool | np.bool) else index(value)
    except TypeError:
        size = -1
    if size < 1:
        raise SizeError(f"size of {name!r} must be a positive integer, not {value!r}")
    return size
