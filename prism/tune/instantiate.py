"""Turns a config into a muGraph: an sGraph with every size and every d_p fixed.

A parallelization dim of size 1 does nothing: one block, or a loop of one iteration, whose
accumulators pass their operand on. Such dims are taken out, so that every sGraph which differs in
them alone gives one muGraph, and the tuner runs it once. A grid dim along which partial values are
stacked never has size 1.

MuGraphs are made one at a time, when a strategy asks for them; the space holds only numbers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from prism.errors import GraphError
from prism.identity import graph_id
from prism.ir import (
    GRID_DIMS,
    LOOP_DIMS,
    Accumulator,
    Apply,
    BlockGraph,
    BlockNode,
    GraphOp,
    Mapping,
    MapVar,
    MuGraph,
    OutputSaver,
    SGraph,
)
from prism.record import Counts
from prism.tune.space import Config, GraphSpace, is_legal, stack_sizes


def instantiate(space: GraphSpace, config: Config) -> MuGraph:
    """The muGraph of a config, without the parallelization dims of size 1.

    Raises:
        GraphError: the counts are not legal for the graph at these sizes.
    """
    sizes = dict(space.sizes)
    for k, (op, counts) in enumerate(zip(space.graph.kernels, config.par_sizes, strict=True)):
        if not is_legal(op, dict(counts), sizes):
            raise GraphError(
                f"{config}: a tile would be empty, or a stack of size 1, at sizes {sizes}"
            )
        sizes |= stack_sizes(space.graph, k, counts)
    simplified = [
        _without_unit_dims(op, dict(counts))
        for op, counts in zip(space.graph.kernels, config.par_sizes, strict=True)
    ]
    graph = SGraph(space.graph.program, tuple(op for op, _ in simplified))
    return MuGraph(graph, space.sizes, tuple(counts for _, counts in simplified), config.schedule)


def mu_identity(mu: MuGraph) -> str:
    """Equal for muGraphs that run the same operators in the same blocks with the same options."""
    return repr((graph_id(mu.graph), mu.sizes, mu.par_sizes, mu.schedule))


def _without_unit_dims(op: GraphOp, counts: dict[str, int]) -> tuple[GraphOp, Counts]:
    smaller, names = _kept(op, frozenset(name for name, count in counts.items() if count > 1))
    return smaller, tuple((new, counts[old]) for old, new in names)


@lru_cache(maxsize=4096)
def _kept(op: GraphOp, larger: frozenset[str]) -> tuple[GraphOp, tuple[tuple[str, str], ...]]:
    """A kernel with only these of its parallelization dims: their old and new names, in order."""
    kept = [p for p in op.grid if p.name in larger]
    names = {old.name: new.name for old, new in zip(kept, GRID_DIMS, strict=False)}
    loops = tuple(p for p in op.loops if p.name in larger)
    names |= {old.name: new.name for old, new in zip(loops, LOOP_DIMS, strict=False)}
    true = frozenset(
        MapVar(v.tensor, v.dim, names[v.par]) for v in op.mapping.true if v.par in names
    )
    block = _renamed(op.block, names)
    loops = LOOP_DIMS[: len(loops)]
    smaller = GraphOp(GRID_DIMS[: len(kept)], loops, Mapping(true), block, op.library)
    return smaller, tuple(names.items())


def _renamed(block: BlockGraph, names: dict[str, str]) -> BlockGraph:
    """The block graph with new names for loops; accumulators over others are their operands."""
    place: list[int] = []
    nodes: list[BlockNode] = []
    for node in block.nodes:
        if isinstance(node, Accumulator) and node.par not in names:
            place.append(place[node.operand])
            continue
        match node:
            case Apply(operands=operands):
                moved: BlockNode = replace(node, operands=tuple(place[i] for i in operands))
            case Accumulator(operand=operand, par=par):
                moved = replace(node, operand=place[operand], par=names[par])
            case OutputSaver(operand=operand):
                moved = replace(node, operand=place[operand])
            case _:
                moved = node
        place.append(len(nodes))
        nodes.append(moved)
    return BlockGraph(tuple(nodes))
