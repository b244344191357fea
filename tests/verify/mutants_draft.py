"""Rewriting the block graph of an sGraph: what the mutation operators are written with.

An edit says what stands in for some nodes; the rest is copied in order, and what no saver needs any
more is left out, its mapping variables too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from prism.ir import (
    Accumulator,
    Apply,
    BlockGraph,
    GraphOp,
    Mapping,
    OutputSaver,
    SGraph,
)


class Draft:
    """A block graph being written, equal nodes once."""

    def __init__(self):
        self.nodes = []
        self.place = []
        """Where each node of the original is now."""

    def add(self, node):
        """The number of a node."""
        if node not in self.nodes:
            self.nodes.append(node)
        return self.nodes.index(node)

    def apply(self, op, *operands, dim=None):
        """The number of an operator on nodes by number."""
        return self.add(Apply(op, operands, dim))


Change = Callable[[Draft], int]
"""Adds nodes to a draft and says which stands in for the original one."""


def with_operands(node, operands):
    """The node reading other nodes."""
    match node:
        case Apply():
            return replace(node, operands=tuple(operands))
        case Accumulator() | OutputSaver():
            return replace(node, operand=operands[0])
        case _:
            return node


def redrawn(block: BlockGraph, changes: dict[int, Change]) -> BlockGraph:
    """The block graph with some nodes replaced."""
    draft = Draft()
    for i, node in enumerate(block.nodes):
        if i in changes:
            draft.place.append(changes[i](draft))
        else:
            operands = [draft.place[j] for j in block.operands(i)]
            draft.place.append(draft.add(with_operands(node, operands)))
    return without_dead_nodes(BlockGraph(tuple(draft.nodes)))


def without_dead_nodes(block: BlockGraph) -> BlockGraph:
    """Only what savers need."""
    live = set()
    for i in reversed(range(len(block.nodes))):
        if i in live or isinstance(block.nodes[i], OutputSaver):
            live |= {i, *block.operands(i)}
    place = {i: k for k, i in enumerate(sorted(live))}
    return BlockGraph(
        tuple(
            with_operands(block.nodes[i], [place[j] for j in block.operands(i)])
            for i in sorted(live)
        )
    )


@dataclass(frozen=True)
class Spot:
    """A kernel of a graph, about to be edited."""

    graph: SGraph
    index: int

    @property
    def kernel(self) -> GraphOp:
        return self.graph.kernels[self.index]

    @property
    def block(self) -> BlockGraph:
        return self.kernel.block

    def with_kernel(self, kernel: GraphOp) -> SGraph:
        """The graph with another kernel in this place."""
        kernels = list(self.graph.kernels)
        kernels[self.index] = kernel
        return replace(self.graph, kernels=tuple(kernels))

    def with_block(self, block: BlockGraph) -> SGraph:
        """The graph with another block graph here, without maps of what it does not load."""
        border = {n.source for n in block.loaders} | {n.target for n in block.savers}
        true = frozenset(v for v in self.kernel.mapping.true if v.tensor in border)
        return self.with_kernel(replace(self.kernel, mapping=Mapping(true), block=block))

    def with_nodes(self, changes: dict[int, Change]) -> SGraph:
        """The graph with some nodes of this kernel replaced."""
        return self.with_block(redrawn(self.block, changes))

    def with_node(self, i: int, change, *given) -> SGraph:
        """The graph with node i replaced by what `change(draft, *given)` adds."""
        return self.with_nodes({i: lambda draft: change(draft, *given)})

    def with_apply(self, i: int, op: str, *operands: int, dim=None) -> SGraph:
        """The graph with node i replaced by an operator on earlier nodes of the block."""
        return self.with_nodes(
            {i: lambda draft: draft.apply(op, *(draft.place[j] for j in operands), dim=dim)}
        )

    def with_map(self, true) -> SGraph:
        """The graph with other mapping variables here."""
        return self.with_kernel(replace(self.kernel, mapping=Mapping(frozenset(true))))

    def applied(self) -> Iterator[tuple[int, Apply]]:
        """The operators of the block graph, numbered."""
        for i, node in enumerate(self.block.nodes):
            if isinstance(node, Apply):
                yield i, node


def spots(graph: SGraph) -> list[Spot]:
    """Every kernel of a graph that is ours to edit."""
    return [Spot(graph, k) for k, kernel in enumerate(graph.kernels) if not kernel.library]
