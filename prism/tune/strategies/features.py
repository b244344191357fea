"""What a regression sees of a config: numbers that mean the same in every graph and at all sizes.

Most are logarithms to base 2, of the kernel that reads most: how many blocks there are and how
evenly threads share them, how often loops run, in what contiguous pieces the largest input is read,
how large its tile and the block's results are. The others are of the whole graph: kernels, elements
between kernels, and where each of the emitter's options stands among its choices, from -1 to 1 (0
where a graph has no such option). Which bytes are moved and which operators run is in the cost
model's estimate already.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prism.ir import DataDim, GraphOp, chunk, stack_dims
from prism.tune.space import Config, GraphSpace


@dataclass(frozen=True, slots=True)
class _Read:
    """A tensor of a kernel: its dims, outermost in memory first, each with what divides it."""

    dims: tuple[DataDim, ...]
    pars: tuple[tuple[str, ...], ...]

    def tiles(self, sizes: dict[DataDim, int], counts: dict[str, int]) -> list[int]:
        """Elements of a tile along each dim."""
        out = []
        for dim, pars in zip(self.dims, self.pars, strict=True):
            extent = sizes[dim]
            for par in pars:
                extent = chunk(extent, counts[par])
            out.append(extent)
        return out


class Features:
    """The features of one graph's configs."""

    def __init__(self, graph: GraphSpace, threads: int, options: Sequence[str]) -> None:
        """`options`: the schedule's names in the whole space; a graph may lack some."""
        self._graph = graph
        self._threads = threads
        self._options = options
        self._choices = dict(graph.schedules)
        self._stacks = stack_dims(graph.graph)
        self._inputs = [
            [_read(op, n.source, n.dims) for n in op.block.loaders] for op in graph.graph.kernels
        ]
        self._results = [
            [_read(op, n.target, n.dims) for n in op.block.savers] for op in graph.graph.kernels
        ]

    def __call__(self, config: Config) -> list[float]:
        """Always as many numbers, in the same order."""
        counts = [dict(kernel) for kernel in config.par_sizes]
        sizes = dict(self._graph.sizes)
        sizes |= {dim: counts[k][par] for dim, (k, par) in self._stacks.items()}
        read = [sum(_elements(sizes, t) for t in tensors) for tensors in self._inputs]
        main = read.index(max(read))
        between = sum(_elements(sizes, t) for ts in self._results[:-1] for t in ts)
        return [
            *self._kernel(main, counts[main], sizes),
            float(len(counts)),
            math.log2(1 + between),
            *self._positions(dict(config.schedule)),
        ]

    def _positions(self, schedule: dict[str, int]) -> Iterator[float]:
        """Where the chosen options stand."""
        for name in self._options:
            choices = self._choices.get(name, ())
            if len(choices) < 2:
                yield 0.0
            else:
                yield 2 * choices.index(schedule[name]) / (len(choices) - 1) - 1

    def _kernel(
        self, k: int, counts: dict[str, int], sizes: dict[DataDim, int]
    ) -> tuple[float, ...]:
        op = self._graph.graph.kernels[k]
        blocks = math.prod(counts[p.name] for p in op.grid)
        trips = math.prod(counts[p.name] for p in op.loops)
        waves = chunk(blocks, self._threads)
        largest = max(self._inputs[k], key=lambda t: _elements(sizes, t), default=_Read((), ()))
        tiles = largest.tiles(sizes, counts)
        results = sum(math.prod(t.tiles(sizes, counts)) for t in self._results[k])
        return (
            math.log2(blocks),
            math.log2(waves * self._threads / blocks),
            math.log2(trips),
            math.log2(_piece(largest.dims, tiles, sizes)),
            math.log2(math.prod(tiles)),
            math.log2(max(1, results)),
        )


def _read(op: GraphOp, tensor: str, dims: tuple[DataDim, ...]) -> _Read:
    order = [p.name for p in (*op.grid, *op.loops)]
    mapped = {(v.dim, v.par) for v in op.mapping.true if v.tensor == tensor}
    return _Read(dims, tuple(tuple(p for p in order if (dim, p) in mapped) for dim in dims))


def _elements(sizes: dict[DataDim, int], tensor: _Read) -> int:
    return math.prod(sizes[dim] for dim in tensor.dims)


def _piece(dims: Sequence[DataDim], tiles: Sequence[int], sizes: dict[DataDim, int]) -> int:
    """Elements of a tile that lie side by side in memory."""
    length = 1
    for dim, tile in zip(reversed(dims), reversed(tiles), strict=True):
        length *= tile
        if tile != sizes[dim]:
            break
    return length


def all_options(graphs: Sequence[GraphSpace]) -> tuple[str, ...]:
    """The names of all options of a space, in order."""
    return tuple(sorted({name for graph in graphs for name, _ in graph.schedules}))
