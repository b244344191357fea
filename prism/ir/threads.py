"""Thread graphs: which elementwise operators of a block graph one thread computes in registers.

A thread graph joins elementwise operators of one loop stage and one set of dimensions that read
each other, so that it can be computed as a unit (`fusion`): in exp(x) / sum(exp(x)) the division
waits for a sum over the exponentials, so the two are apart. Derived, never stored.

The threads of a block share a thread graph as blocks share a kernel. Its grid are *block dims*, one
for each data dim of its values, and each partitions that dim of every value that has it: of what
is read at the border and of what is written there. A value read that lacks the dim is replicated.
What one thread has in registers is its share of each value; no thread needs another's.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from prism.ir.fusion import fused_groups
from prism.ir.graph import BlockGraph, BlockNode, GraphOp, InputLoader, OutputSaver, ThreadGraph
from prism.ir.mapping import Mapping, MapVar, ParDim, ParKind
from prism.ir.ops import OPS, OpKind
from prism.ir.program import Apply, DataDim, TensorId
from prism.ir.stages import loop_stages
from prism.ir.text import value_names


def thread_graphs(kernel: GraphOp) -> tuple[ThreadGraph, ...]:
    """The thread graphs of a kernel's block graph, each elementwise operator in exactly one."""
    values = _Values(kernel.block)
    return tuple(values.threads(nodes) for nodes in _fused(kernel, values))


def thread_graph(kernel: GraphOp, nodes: tuple[TensorId, ...]) -> ThreadGraph:
    """The thread graph of these nodes of a kernel's block graph, every dim of theirs shared."""
    return _Values(kernel.block).threads(nodes)


def thread_kernel(kernel: GraphOp, threads: ThreadGraph) -> GraphOp:
    """A thread graph as blocks see a kernel: loaders, operators, savers, with the threads as grid.

    Values keep the names they have in the block graph (`value_names`). What reads kernels (terms,
    placement, evaluation) reads thread graphs this way.
    """
    return _Values(kernel.block).kernel(threads)


class ThreadShape(NamedTuple):
    """What a thread graph is but for the names of values; they go by number, those read first.

    `dims` are those of its own values, in the order of its block dims; `reads` the dims of each
    value read, `operators` names with operands, `writes` the values written.
    """

    dims: tuple[DataDim, ...]
    reads: tuple[tuple[DataDim, ...], ...]
    operators: tuple[tuple[str, tuple[int, ...]], ...]
    writes: tuple[int, ...]


def thread_shapes(kernel: GraphOp) -> tuple[tuple[tuple[TensorId, ...], ThreadShape], ...]:
    """The nodes of each thread graph, and its shape: those of one shape are mapped alike."""
    loops = {p.name for p in kernel.loops}
    looped = frozenset([v for v in kernel.mapping.true if v.par in loops])
    return _shapes(kernel.block, kernel.loops, looped)


@lru_cache(maxsize=4_096)
def _shapes(
    block: BlockGraph, loops: tuple[ParDim, ...], looped: frozenset[MapVar]
) -> tuple[tuple[tuple[TensorId, ...], ThreadShape], ...]:
    """See `thread_shapes`: no map along the grid changes any."""
    values = _Values(block)
    found = _fused(GraphOp((), loops, Mapping(looped), block), values)
    return tuple((nodes, values.shape(nodes)) for nodes in found)


def _fused(kernel: GraphOp, values: _Values) -> tuple[tuple[TensorId, ...], ...]:
    """The nodes of each thread graph."""
    kinds = [
        (stage, dims) if is_elementwise(node) else None
        for node, stage, dims in zip(
            kernel.block.nodes, loop_stages(kernel), values.dims, strict=True
        )
    ]
    return fused_groups(values.reads, kinds)


def is_elementwise(node: BlockNode) -> bool:
    """Whether a node may be in a thread graph."""
    return isinstance(node, Apply) and OPS[node.op].kind is OpKind.ELEMENTWISE


def border_of(block: BlockGraph, nodes: tuple[TensorId, ...]) -> tuple[TensorId, ...]:
    """What some nodes read of others, then those of them whose values are written."""
    values = _Values(block)
    return (*values.read_by(nodes), *values.written_by(nodes))


class _Values:
    """The values of a block graph, with what thread graphs take of them."""

    def __init__(self, block: BlockGraph) -> None:
        self.nodes = block.nodes
        self.dims = block.tensor_dims()
        self.names = value_names(block.nodes)
        self.reads = [block.operands(i) for i in range(len(block.nodes))]
        self.readers: list[set[TensorId]] = [set() for _ in block.nodes]
        for i, operands in enumerate(self.reads):
            for j in operands:
                self.readers[j].add(i)
        self.order = tuple(dict.fromkeys(d for loader in block.loaders for d in loader.dims))
        self._stored: dict[frozenset[DataDim], tuple[DataDim, ...]] = {}

    def threads(self, nodes: tuple[TensorId, ...]) -> ThreadGraph:
        """See `thread_graph`."""
        true = []
        shared = self.stored(nodes[0])
        for i in (*self.read_by(nodes), *self.written_by(nodes)):
            name, dims = self.names[i], self.dims[i]
            true += [MapVar(name, d, f"th{k}") for k, d in enumerate(shared) if d in dims]
        return ThreadGraph(nodes, block_dims(len(shared)), Mapping(frozenset(true)))

    def kernel(self, threads: ThreadGraph) -> GraphOp:
        """See `thread_kernel`."""
        nodes: list[BlockNode] = []
        place: dict[TensorId, TensorId] = {}
        for i in self.read_by(threads.nodes):
            place[i] = len(nodes)
            nodes.append(InputLoader(self.names[i], self.stored(i)))
        for i in threads.nodes:
            node = self.nodes[i]
            assert isinstance(node, Apply)
            place[i] = len(nodes)
            nodes.append(Apply(node.op, tuple([place[j] for j in node.operands]), node.dim))
        written = self.written_by(threads.nodes)
        nodes += [OutputSaver(place[i], self.names[i], self.stored(i)) for i in written]
        return GraphOp(threads.grid, (), threads.mapping, BlockGraph(tuple(nodes)))

    def shape(self, nodes: tuple[TensorId, ...]) -> ThreadShape:
        """The shape of their thread graph."""
        read = self.read_by(nodes)
        place = {i: n for n, i in enumerate((*read, *nodes))}
        operators = []
        for i in nodes:
            node = self.nodes[i]
            assert isinstance(node, Apply)
            operators.append((node.op, tuple([place[j] for j in node.operands])))
        written = tuple([place[i] for i in self.written_by(nodes)])
        reads = tuple([self.stored(i) for i in read])
        return ThreadShape(self.stored(nodes[0]), reads, tuple(operators), written)

    def read_by(self, nodes: tuple[TensorId, ...]) -> list[TensorId]:
        """What some nodes read of others, in order."""
        return sorted({j for i in nodes for j in self.reads[i]}.difference(nodes))

    def written_by(self, nodes: tuple[TensorId, ...]) -> list[TensorId]:
        """Those that others read; and what nobody reads, since something must be left."""
        return [i for i in nodes if not self.readers[i] or not self.readers[i].issubset(nodes)]

    def stored(self, i: TensorId) -> tuple[DataDim, ...]:
        """The dims of a value in the order in which the block's loaders have them."""
        dims = self.dims[i]
        if dims not in self._stored:
            self._stored[dims] = tuple(d for d in self.order if d in dims)
        return self._stored[dims]


@cache
def block_dims(count: int) -> tuple[ParDim, ...]:
    """So many block dims; `t0` would look like a tensor between kernels."""
    return tuple(ParDim(f"th{k}", ParKind.BLOCK) for k in range(count))
