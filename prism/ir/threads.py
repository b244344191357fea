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

from prism.ir.fusion import fused_groups
from prism.ir.graph import BlockGraph, BlockNode, GraphOp, InputLoader, OutputSaver, ThreadGraph
from prism.ir.mapping import Mapping, MapVar, ParDim, ParKind
from prism.ir.ops import OPS, OpKind
from prism.ir.program import Apply, DataDim, TensorId
from prism.ir.stages import loop_stages
from prism.ir.text import value_names


def thread_graphs(kernel: GraphOp) -> tuple[ThreadGraph, ...]:
    """The thread graphs of a kernel's block graph, each elementwise operator in exactly one."""
    block = kernel.block
    reads = [block.operands(i) for i in range(len(block.nodes))]
    dims, names = block.tensor_dims(), value_names(block.nodes)
    kinds = [
        (stage, dims[i]) if is_elementwise(block.nodes[i]) else None
        for i, stage in enumerate(loop_stages(kernel))
    ]
    out = []
    for nodes in fused_groups(reads, kinds):
        border = (*values_read(block, nodes), *values_written(block, nodes))
        shared = _in_order(block, dims[nodes[0]])
        grid = tuple(thread_dim(k) for k in range(len(shared)))
        true = frozenset(
            MapVar(names[i], dim, par.name)
            for par, dim in zip(grid, shared, strict=True)
            for i in border
            if dim in dims[i]
        )
        out.append(ThreadGraph(nodes, grid, Mapping(true)))
    return tuple(out)


ThreadKey = tuple[BlockGraph, tuple[ParDim, ...], frozenset[MapVar]]


def thread_key(kernel: GraphOp) -> ThreadKey:
    """Equal for kernels with the same thread graphs: no map along the grid changes any."""
    loops = {p.name for p in kernel.loops}
    looped = frozenset([v for v in kernel.mapping.true if v.par in loops])
    return kernel.block, kernel.loops, looped


def thread_dim(number: int) -> ParDim:
    """A block dim; `t` alone would look like a tensor between kernels."""
    return ParDim(f"th{number}", ParKind.BLOCK)


def is_elementwise(node: BlockNode) -> bool:
    """Whether a node may be in a thread graph."""
    return isinstance(node, Apply) and OPS[node.op].kind is OpKind.ELEMENTWISE


def values_read(block: BlockGraph, nodes: tuple[TensorId, ...]) -> tuple[TensorId, ...]:
    """What some nodes read of others, in order."""
    found = {j for i in nodes for j in block.operands(i)}
    return tuple(sorted(found.difference(nodes)))


def values_written(block: BlockGraph, nodes: tuple[TensorId, ...]) -> tuple[TensorId, ...]:
    """Those of some nodes that others read; and what nobody reads, since something must be left."""
    inside: set[TensorId] = set()
    outside: set[TensorId] = set()
    for i in range(len(block.nodes)):
        (inside if i in nodes else outside).update(block.operands(i))
    return tuple(i for i in nodes if i in outside or i not in inside)


def thread_kernel(kernel: GraphOp, threads: ThreadGraph) -> GraphOp:
    """A thread graph as blocks see a kernel: loaders, operators, savers, with the threads as grid.

    Values keep the names they have in the block graph (`value_names`). What reads kernels (terms,
    placement, evaluation) reads thread graphs this way.
    """
    block = kernel.block
    dims, names = block.tensor_dims(), value_names(block.nodes)
    nodes: list[BlockNode] = []
    place: dict[TensorId, TensorId] = {}
    for i in values_read(block, threads.nodes):
        place[i] = len(nodes)
        nodes.append(InputLoader(names[i], _in_order(block, dims[i])))
    for i in threads.nodes:
        node = block.nodes[i]
        assert isinstance(node, Apply)
        place[i] = len(nodes)
        nodes.append(Apply(node.op, tuple(place[j] for j in node.operands), node.dim))
    written = values_written(block, threads.nodes)
    nodes += [OutputSaver(place[i], names[i], _in_order(block, dims[i])) for i in written]
    return GraphOp(threads.grid, (), threads.mapping, BlockGraph(tuple(nodes)))


def _in_order(block: BlockGraph, dims: frozenset[DataDim]) -> tuple[DataDim, ...]:
    """Dims of a value in the order in which the block's loaders have them."""
    known = dict.fromkeys(d for loader in block.loaders for d in loader.dims)
    return tuple(d for d in known if d in dims)
