"""Symbolic sizes: the extent of a tile as a function of the sizes D_d and the counts d_p.

The tile of dimension d of tensor T has D_d / sigma(T, d) elements, where sigma is the product of
the d_p with m[T,d,p] = 1 (paper, section 4); a ragged split rounds up. Nested splits round up once:
ceil(ceil(D / x) / i) = ceil(D / (x i)), so one quotient per dimension says it all, and a tensor's
tile is a product of such quotients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from prism.ir.graph import GraphOp
from prism.ir.program import DataDim


@dataclass(frozen=True, slots=True, order=True)
class Extent:
    """The largest tile of `dim` when it is split along every one of `pars`: ceil(D / prod d_p)."""

    dim: DataDim
    pars: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.pars:
            case ():
                return self.dim
            case (par,):
                return f"{self.dim}/{par}"
            case _:
                return f"{self.dim}/({'*'.join(self.pars)})"

    def value(self, sizes: Mapping[DataDim, int], counts: Mapping[str, int]) -> int:
        """The number of elements at given sizes and counts."""
        return -(-sizes[self.dim] // math.prod(counts[p] for p in self.pars))


@dataclass(frozen=True, slots=True)
class Size:
    """A product: an integer times extents. Made by `size_of` and `*`, which keep it simple."""

    factor: int
    extents: tuple[Extent, ...]

    def __str__(self) -> str:
        number = [str(self.factor)] if self.factor != 1 or not self.extents else []
        return " * ".join([*number, *map(str, self.extents)])

    def __mul__(self, other: Size) -> Size:
        # the order of a product is of no consequence: sort, so that equal sizes compare equal
        return Size(self.factor * other.factor, tuple(sorted((*self.extents, *other.extents))))

    def value(self, sizes: Mapping[DataDim, int], counts: Mapping[str, int]) -> int:
        """The number of elements at given sizes and counts."""
        return self.factor * math.prod(e.value(sizes, counts) for e in self.extents)

    def bind(self, sizes: Mapping[DataDim, int], counts: Mapping[str, int]) -> Size:
        """The size with what is known put in; the rest stays symbolic."""
        out = ONE
        for extent in self.extents:
            out *= _bound(extent, sizes, counts)
        return Size(self.factor * out.factor, out.extents)


ONE = Size(1, ())
"""The size of a scalar."""


def size_of(dim: DataDim, pars: tuple[str, ...] = ()) -> Size:
    """The tile of a dimension split along `pars`."""
    return Size(1, (Extent(dim, pars),))


def tile_size(graph_op: GraphOp, tensor: str, dim: DataDim) -> Size:
    """The tile of `dim` of a kernel-level tensor that one block holds at a time."""
    pars = (*graph_op.grid, *graph_op.loops)
    mapped = tuple(p.name for p in pars if graph_op.mapping.dim_of(tensor, p.name) == dim)
    return size_of(dim, mapped)


def _bound(extent: Extent, sizes: Mapping[DataDim, int], counts: Mapping[str, int]) -> Size:
    known = sizes.get(extent.dim)
    # splitting in one chunk is not splitting, and a single element cannot be split
    pars = tuple(p for p in extent.pars if counts.get(p) != 1)
    if known == 1:
        return ONE
    if known is not None and all(p in counts for p in pars):
        return Size(Extent(extent.dim, pars).value(sizes, counts), ())
    return size_of(extent.dim, pars)
