"""The kernels of a muGraph as lowering sees them: what its counts make of grid dims and loops.

A grid dim or loop splits one data dim, by the mapping; here its count becomes a tile size, and what
cannot be is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prism.errors import KernelError
from prism.ir import DataDim, GraphOp, MuGraph, all_sizes, chunk, is_legal_count, stack_dims
from prism_kernels.tile import GridDim, Loop


@dataclass(frozen=True, slots=True)
class Site:
    """A kernel to be lowered, and what there is to know of the graph around it."""

    op: GraphOp
    counts: Mapping[str, int]
    sizes: Mapping[DataDim, int]
    stacks: Mapping[DataDim, str]
    """The stack dims that this kernel makes, and the grid dim each is along."""


def sites_of(mu: MuGraph) -> list[Site]:
    """The kernels of a muGraph."""
    sizes, stacks = all_sizes(mu), stack_dims(mu.graph)
    return [
        Site(
            op,
            dict(counts),
            sizes,
            {dim: par for dim, (maker, par) in stacks.items() if maker == k},
        )
        for k, (op, counts) in enumerate(zip(mu.graph.kernels, mu.par_sizes, strict=True))
    ]


def pars_of(site: Site) -> tuple[tuple[GridDim, ...], tuple[Loop, ...]]:
    """The grid and the loops of one kernel."""
    grid = tuple(_grid_dim(site, par.name) for par in site.op.grid)
    return grid, _loops(site, grid)


def _mapped_dim(site: Site, par: str) -> DataDim | None:
    """The data dim split along a parallel dim, by whatever tensor; a stack dim is not split."""
    dims = {v.dim for v in site.op.mapping.true if v.par == par and v.dim not in site.stacks}
    if len(dims) > 1:
        raise KernelError(
            f"{par} splits {' and '.join(sorted(dims))}: a parallel dim may split one data dim only"
        )
    return next(iter(dims), None)


def _count(counts: Mapping[str, int], par: str, dim: DataDim | None, size: int) -> int:
    if par not in counts:
        raise KernelError(f"the muGraph gives no size for parallel dim {par!r}")
    count = counts[par]
    if count < 1 or (dim is not None and not is_legal_count(size, count)):
        raise KernelError(
            f"{par} cannot split {dim or 'nothing'} of size {size} in {count} chunks: "
            "one would be empty"
        )
    return count


def _grid_dim(site: Site, par: str) -> GridDim:
    dim = _mapped_dim(site, par)
    size = 1 if dim is None else site.sizes[dim]
    count = _count(site.counts, par, dim, size)
    return GridDim(par, count, dim, chunk(size, count) if dim is not None else 0)


def _loops(site: Site, grid: tuple[GridDim, ...]) -> tuple[Loop, ...]:
    out: list[Loop] = []
    for par in site.op.loops:
        dim = _mapped_dim(site, par.name)
        size = 1 if dim is None else _looped_extent(site, par.name, dim, grid)
        count = _count(site.counts, par.name, dim, size)
        out.append(Loop(par.name, count, dim, chunk(size, count) if dim is not None else 0))
    if len(out) > 1 and (None in {loop.dim for loop in out} or out[0].dim == out[1].dim):
        what = " and ".join(f"{loop.name} cuts {loop.dim or 'nothing'}" for loop in out)
        raise KernelError(f"{what}; two loops must cut different dims")
    return tuple(out)


def _looped_extent(site: Site, loop: str, dim: DataDim, grid: tuple[GridDim, ...]) -> int:
    """How many elements of its dim the loop runs over: all, or a block's chunk."""
    looped = [v.tensor for v in site.op.mapping.true if v.par == loop]
    split = {grid_of(site.op, tensor, dim) for tensor in looped}
    tiles = {g.name: g.tile for g in grid if g.count > 1}
    extents = {par: tiles[par] for par in split if par in tiles}
    if len(extents) > 1 or (extents and not split <= extents.keys()):
        raise KernelError(
            f"{loop} cuts {dim} of some tensors within the chunks of {' and '.join(extents)}, and "
            "that of others otherwise; a loop has tiles of one size"
        )
    return next(iter(extents.values()), site.sizes[dim])


def grid_of(op: GraphOp, tensor: str, dim: DataDim) -> str | None:
    """The grid dim that splits `dim` of `tensor`."""
    names = [p.name for p in op.grid if op.mapping.dim_of(tensor, p.name) == dim]
    if len(names) > 1:
        raise KernelError(f"{' and '.join(names)} both split {dim} of {tensor}")
    return names[0] if names else None
