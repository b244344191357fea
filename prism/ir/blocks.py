"""The meaning of a muGraph: its kernels run block by block and iteration by iteration, in float64.

This is an independent witness: it looks at no proof, no placement and no emitted code, only at
what each block would load, compute and store. A wrong mapping shows as a wrong value, or as a
`GraphError`: operands that hold different parts of a dimension, blocks that store different values
in one place, a place that no block stores to.

Blocks run one after the other, so that no more than one block's values live at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prism.errors import GraphError, SizeError
from prism.ir.check_graph import check_mugraph
from prism.ir.evaluate import Array, Value, apply_op, input_values, output_array, sizes_of
from prism.ir.graph import (
    Accumulator,
    AccumulatorKind,
    BlockNode,
    GraphOp,
    InputLoader,
    MuGraph,
    OutputSaver,
    all_sizes,
    chunk,
    output_name,
)
from prism.ir.mapping import ParDim
from prism.ir.program import Apply, Const, DataDim, SizeOf, TensorId
from prism.ir.stages import LoopPlace, loop_places

_SAME = 1e-9
"""Blocks that store to one place may differ by the rounding of another order of summation."""


def evaluate_graph(mu: MuGraph, arrays: Mapping[str, ArrayLike]) -> tuple[Array, ...]:
    """The program's outputs as the graph's kernels compute them, in the outputs' axes.

    Raises:
        GraphError: the graph is malformed, or its blocks contradict each other.
        SizeError: the arrays do not have the muGraph's sizes.
        UsageError: an array is missing, unknown or not of real numbers.
    """
    check_mugraph(mu)
    program, sizes = mu.graph.program, dict(mu.sizes)
    found = sizes_of(program, arrays)
    if found != sizes:
        raise SizeError(f"the arrays have sizes {found}, but the graph is for {sizes}")
    tensors = input_values(program, arrays)
    sizes = all_sizes(mu)
    with np.errstate(all="ignore"):
        for k, kernel in enumerate(mu.graph.kernels):
            tensors |= _Launch(k, kernel, sizes, dict(mu.par_sizes[k]), tensors).run()
    return tuple(
        output_array(output, tensors[output_name(i)], sizes)
        for i, output in enumerate(program.outputs)
    )


def tile_range(size: int, splits: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Where chunk `index` of `count` begins and ends, for each (count, index) in turn.

    The last chunk is clipped; when a later split goes over a clipped chunk, its last tiles may be
    empty.
    """
    start, stop, tile = 0, size, size
    for count, index in splits:
        tile = chunk(tile, count)
        start += index * tile
        stop = min(stop, start + tile)
    return min(start, stop), stop


@dataclass(slots=True)
class _Stored:
    """A tensor in memory while the blocks of a kernel fill it."""

    value: Value
    written: NDArray[np.bool_]


@dataclass(slots=True)
class _Launch:
    """One kernel on its inputs."""

    index: int
    kernel: GraphOp
    sizes: Mapping[DataDim, int]
    counts: Mapping[str, int]
    tensors: Mapping[str, Value]
    places: tuple[LoopPlace, ...] = ()
    stored: dict[str, _Stored] = field(default_factory=dict)

    def run(self) -> dict[str, Value]:
        """Run every block; the tensors that the savers wrote."""
        self.places = loop_places(self.kernel)
        for saver in self.kernel.block.savers:
            shape = tuple(self.sizes[d] for d in saver.dims)
            empty = Value(saver.dims, np.full(shape, np.nan))
            self.stored[saver.target] = _Stored(empty, np.zeros(shape, bool))
        for block in self._indices(self.kernel.grid):
            self._run_block(block)
        for name, stored in self.stored.items():
            if not stored.written.all():
                place = _first(~stored.written)
                raise GraphError(f"kernel {self.index}: no block stores {name}{place}")
        return {name: stored.value for name, stored in self.stored.items()}

    def _run_block(self, block: Mapping[str, int]) -> None:
        values: dict[TensorId, Value] = {}
        self._run_level(0, block, values)
        for node in self.kernel.block.savers:
            self._store(node, values[node.operand], block)

    def _run_level(self, level: int, at: Mapping[str, int], values: dict[TensorId, Value]) -> None:
        """What stands inside so many loops: before the next loop, that loop, and after it."""
        self._run_nodes(LoopPlace(level), at, values)
        if level == len(self.kernel.loops):
            return
        totals: dict[TensorId, list[Value]] = {}
        for iteration in self._indices(self.kernel.loops[level : level + 1]):
            self._run_level(level + 1, {**at, **iteration}, values)
            self._accumulate(self.kernel.loops[level].name, values, totals)
        for i, parts in totals.items():
            node = self.kernel.block.nodes[i]
            assert isinstance(node, Accumulator)
            values[i] = self._combined(node, parts)
        self._run_nodes(LoopPlace(level, level), at, values)

    def _accumulate(
        self, par: str, values: Mapping[TensorId, Value], totals: dict[TensorId, list[Value]]
    ) -> None:
        """Take this iteration's values into the accumulators of a loop."""
        for i, node in enumerate(self.kernel.block.nodes):
            if isinstance(node, Accumulator) and node.par == par:
                so_far = totals.setdefault(i, [])
                so_far.append(values[node.operand])
                if node.kind is not AccumulatorKind.CONCAT:
                    so_far[:] = [self._combined(node, so_far)]

    def _run_nodes(
        self, place: LoopPlace, at: Mapping[str, int], values: dict[TensorId, Value]
    ) -> None:
        for i, node in enumerate(self.kernel.block.nodes):
            if self.places[i] == place and not isinstance(node, (Accumulator, OutputSaver)):
                values[i] = self._value(node, at, values)

    def _value(
        self, node: BlockNode, at: Mapping[str, int], values: Mapping[TensorId, Value]
    ) -> Value:
        match node:
            case InputLoader(source=source):
                tensor = self.tensors[source]
                return Value(tensor.dims, tensor.array[self._tile(source, tensor.dims, at)])
            case Const(value=value):
                return Value((), np.asarray(value, np.float64))
            case SizeOf(dim=dim):
                return Value((), np.asarray(self.sizes[dim], np.float64))
            case Apply(op=op, operands=operands, dim=dim):
                try:
                    return apply_op(op, dim, [values[j] for j in operands], self.sizes)
                except GraphError as error:
                    raise GraphError(f"kernel {self.index}: {error}") from error
            case Accumulator() | OutputSaver():
                raise AssertionError(node)

    def _combined(self, node: Accumulator, parts: Sequence[Value]) -> Value:
        dims = parts[0].dims
        arrays = [p.along(dims) for p in parts]
        match node.kind:
            case AccumulatorKind.SUM | AccumulatorKind.MAX:
                if len({a.shape for a in arrays}) > 1:
                    raise GraphError(
                        f"kernel {self.index}: {node.kind.value} over {node.par} of tiles with "
                        f"different shapes {sorted({a.shape for a in arrays})}"
                    )
                combine = np.add if node.kind is AccumulatorKind.SUM else np.maximum
                total = arrays[0]
                for array in arrays[1:]:
                    total = combine(total, array)
                return Value(dims, total)
            case AccumulatorKind.CONCAT:
                if node.dim not in dims:
                    raise GraphError(
                        f"kernel {self.index}: concat of {node.dim} over {node.par}: the value has "
                        f"dimensions {', '.join(dims) or 'none'}"
                    )
                axis = dims.index(node.dim)
                rest = {a.shape[:axis] + a.shape[axis + 1 :] for a in arrays}
                if len(rest) > 1:
                    raise GraphError(
                        f"kernel {self.index}: concat of {node.dim} over {node.par} of tiles that "
                        f"differ along other dimensions: {sorted(rest)}"
                    )
                return Value(dims, np.concatenate(arrays, axis=axis))

    def _store(self, saver: OutputSaver, value: Value, block: Mapping[str, int]) -> None:
        stored = self.stored[saver.target]
        tile = self._tile(saver.target, saver.dims, block)
        place = f"kernel {self.index}: {saver.target}"
        old, seen = stored.value.array[tile], stored.written[tile]
        for dim, extent in zip(value.dims, value.array.shape, strict=True):
            wanted = old.shape[saver.dims.index(dim)]
            if extent != wanted:
                raise GraphError(
                    f"{place}: a block holds {extent} elements of {dim} but stores {wanted}"
                )
        new = np.broadcast_to(value.along(saver.dims), old.shape)
        clash = seen & ~np.isclose(new, old, rtol=_SAME, atol=_SAME, equal_nan=True)
        if clash.any():
            offset = tuple(s.start for s in tile)
            at = [int(a) + b for a, b in zip(np.argwhere(clash)[0], offset, strict=True)]
            raise GraphError(f"{place}{at} gets different values from different blocks")
        stored.value.array[tile] = new
        stored.written[tile] = True

    def _tile(
        self, tensor: str, dims: Sequence[DataDim], at: Mapping[str, int]
    ) -> tuple[slice, ...]:
        """The part of a tensor that a block (and iteration) reads or writes."""
        mapping = self.kernel.mapping
        pars = [p.name for p in (*self.kernel.grid, *self.kernel.loops) if p.name in at]
        out = []
        for dim in dims:
            splits = [(self.counts[p], at[p]) for p in pars if mapping.dim_of(tensor, p) == dim]
            out.append(slice(*tile_range(self.sizes[dim], splits)))
        return tuple(out)

    def _indices(self, pars: Sequence[ParDim]) -> list[dict[str, int]]:
        names = [p.name for p in pars]
        ranges = [range(self.counts[n]) for n in names]
        return [dict(zip(names, index, strict=True)) for index in product(*ranges)]


def _first(mask: NDArray[np.bool_]) -> list[int]:
    return [int(i) for i in np.argwhere(mask)[0]]
