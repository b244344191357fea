"""Small sizes at which a kernel's like runs in the simulator.

The graph and the schedule stay, so the same code is written for other numbers: every parallel dim
that had several chunks still has two, and sizes that did not divide still do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from prism.ir import DataDim, GraphOp, MuGraph, chunk, is_legal_count, stack_dims

EXTENTS = (48, 40, 24, 12, 8, 4)
"""Sizes to try; less where a dim is not a multiple of its chunks."""
VECTOR = 8
"""What is a multiple of this stays one, so that it is read in the same vectors."""
CHUNKS = 2


def smaller(mu: MuGraph) -> Iterator[MuGraph]:
    """The muGraph at smaller and smaller sizes."""
    # dims of one size, such as e and its alias e', keep one
    alike = {info.name: info.size for info in mu.graph.program.dims}
    ragged = {alike.get(dim, dim) for dim, size in mu.sizes if _is_ragged(mu, dim, size)}
    fixed = {info.size for info in mu.graph.program.dims if info.fixed is not None}
    for extent in EXTENTS:
        sizes = {
            dim: min(size, _ragged(extent, size) if alike.get(dim, dim) in ragged else extent)
            if alike.get(dim, dim) not in fixed
            else size
            for dim, size in mu.sizes
        }
        yield replace(mu, sizes=tuple(sizes.items()), par_sizes=_counts(mu, sizes))


def _ragged(extent: int, size: int) -> int:
    """A little less than an extent."""
    return extent - VECTOR if size % VECTOR == 0 and extent > VECTOR else extent - 1


def _counts(mu: MuGraph, sizes: Mapping[DataDim, int]) -> tuple[tuple[tuple[str, int], ...], ...]:
    """How many chunks each parallel dim of each kernel has at the smaller sizes."""
    known, stacks = dict(sizes), stack_dims(mu.graph)
    out = []
    for k, (op, given) in enumerate(zip(mu.graph.kernels, mu.par_sizes, strict=True)):
        counts = {p: _fewer(op, p, count, known, dict(given)) for p, count in given}
        # what blocks stack is as long as there are blocks, for the kernels after this one
        known |= {dim: counts[par] for dim, (kernel, par) in stacks.items() if kernel == k}
        out.append(tuple(counts.items()))
    return tuple(out)


def _is_ragged(mu: MuGraph, dim: DataDim, size: int) -> bool:
    """Whether some parallel dim splits the dim in chunks of different sizes."""
    pairs = zip(mu.graph.kernels, mu.par_sizes, strict=True)
    return any(
        size % count
        for op, given in pairs
        for p, count in given
        if dim in {v.dim for v in op.mapping.true if v.par == p}
    )


def _fewer(
    op: GraphOp, par: str, count: int, sizes: Mapping[DataDim, int], given: Mapping[str, int]
) -> int:
    """How many chunks a parallel dim has at the smaller sizes."""
    wanted = min(count, CHUNKS)
    for dim in {v.dim for v in op.mapping.true if v.par == par} & sizes.keys():
        size = sizes[dim]
        outer = {v.par for v in op.mapping.true if v.dim == dim and v.par != par}
        if par in {p.name for p in op.loops}:  # the loop splits the block's chunk
            fewest = [chunk(size, min(given[p], CHUNKS)) for p in outer]
            size = min([size - (CHUNKS - 1) * c for c in fewest] or [size])
        if not is_legal_count(size, wanted):
            return 1
    return wanted
