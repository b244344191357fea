"""What finished sGraphs cost, node by node and in plain numbers: shares nothing with the fronts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from prism.ir import (
    OPS,
    Accumulator,
    AccumulatorKind,
    Apply,
    InputLoader,
    LoopStage,
    OpKind,
    OutputSaver,
    loop_stages,
)

LIGHT = {"add", "sub", "mul", "maximum", "minimum", "neg", "square", "abs", "relu"}
ELEMENTWISE = OpKind.ELEMENTWISE


@dataclass
class Priced:
    """A graph as the oracle sees it. An extent is a tuple of (dim, what divides it there)."""

    grid: frozenset
    loop: frozenset
    work: list = field(default_factory=list)
    tiles: list = field(default_factory=list)
    inputs: list = field(default_factory=list)

    def cost(self, point):
        work = sum(
            point.extent(extent, self) * point.price(op) * (point.iterations(self) if body else 1)
            for op, extent, body in self.work
        )
        tiles, inputs = (
            sum(point.extent(extent, self) for extent in extents)
            for extents in (self.tiles, self.inputs)
        )
        return work, tiles, inputs


class Point:
    """Random sizes, counts and prices; every tile has two elements or more."""

    def __init__(self, random, dims, columns, loop):
        self.count = {column: 2 ** random.randint(0, 4) for column in columns}
        self.loop_count = 2 ** random.randint(0, 6) if loop else 1
        self.elementwise = 2 ** random.randint(0, 4)
        self.special = 2 ** random.randint(1, 4)
        self.sizes = {}
        for d in dims:
            size = 2 ** random.randint(1, 8)
            for column, count in self.count.items():
                size *= count if any(dim == d for _, dim in column) else 1
            self.sizes[d] = size * (self.loop_count if any(e == d for _, e in loop) else 1)

    def iterations(self, priced):
        return self.loop_count if priced.loop else 1

    def extent(self, extent, priced):
        """Grid dims that a graph lacks are of size 1, so there is nothing to divide by."""
        return math.prod(
            self.sizes[d]
            / math.prod(self.iterations(priced) if c == "loop" else self.count[c] for c in divided)
            for d, divided in extent
        )

    def price(self, op):
        if OPS[op].kind is OpKind.CONTRACT:
            return 1
        if op in LIGHT or OPS[op].kind is not ELEMENTWISE:
            return self.elementwise
        return self.elementwise * self.special


class SizedPoint(Point):
    """Random counts and prices at sizes that are given."""

    def __init__(self, random, sizes, columns, loop):
        self.sizes = sizes
        self.elementwise = 2 ** random.randint(0, 5)
        self.special = 2 ** random.randint(1, 6)
        looped = {dim for _, dim in loop}
        room = {d: math.log2(size) - 1 for d, size in sizes.items()}
        most = int(max(0, min((room[d] for d in looped), default=0)))
        self.loop_count = 2 ** random.randint(0, most)
        for d in looped:
            room[d] -= math.log2(self.loop_count)
        # two grid dims that divide one dim are never there together
        self.count = {
            column: 2 ** random.randint(0, int(max(0, min(room[d] for _, d in column))))
            for column in columns
        }


def priced(graph):
    """Reads a graph: along every parallel dim a value is whole, a sum, or a tile of one dim."""
    (kernel,) = graph.kernels
    columns = {
        p.name: frozenset((v.tensor, v.dim) for v in kernel.mapping.true if v.par == p.name)
        for p in (*kernel.grid, *kernel.loops)
    }
    loop = next((columns[p.name] for p in kernel.loops), frozenset())
    out = Priced(frozenset(columns[p.name] for p in kernel.grid), loop)
    dividing = columns | {p.name: "loop" for p in kernel.loops}
    nodes, dims = kernel.block.nodes, kernel.block.tensor_dims()
    stages = loop_stages(kernel)
    divided = []  # of each value: dim -> what divides it
    for i, node in enumerate(nodes):
        mine = _divided(kernel, node, dividing, [divided[j] for j in kernel.block.operands(i)])
        if isinstance(node, InputLoader):
            out.inputs.append(_extent(dims[i], mine))
        if isinstance(node, Apply):
            space = frozenset[str]().union(*(dims[j] for j in node.operands))
            if space:
                out.work.append((node.op, _extent(space, mine), stages[i] is LoopStage.BODY))
            if OPS[node.op].kind is not ELEMENTWISE:
                mine.pop(node.dim, None)
        divided.append(mine)
    readers = [
        [j for j in range(len(nodes)) if i in kernel.block.operands(j)] for i in range(len(nodes))
    ]
    for i, node in enumerate(nodes):
        if isinstance(node, Apply) and dims[i]:
            shown = _tile(i, nodes, readers, stages)
            if shown is not None:
                out.tiles.append(_extent(dims[i], divided[shown]))
    return out


def _extent(dims, divided):
    return tuple((d, tuple(divided.get(d, ()))) for d in sorted(dims))


def _divided(kernel, node, dividing, operands):
    """What divides each dim of a value; of an operator, of the elements it runs over."""
    mine = {}
    if isinstance(node, InputLoader):
        for name, by in dividing.items():
            d = kernel.mapping.dim_of(node.source, name)
            if d is not None:
                mine.setdefault(d, []).append(by)
        return mine
    for operand in operands:
        for d, by in operand.items():
            mine[d] = sorted({*by, *mine.get(d, [])}, key=str)
    if isinstance(node, Accumulator):
        return {d: [b for b in by if b != "loop"] for d, by in mine.items()}
    return mine


def _tile(i, nodes, readers, stages):
    """The value whose tile is in memory for node i: its own, its accumulator's, or none."""
    for j in readers[i]:
        # a saver that reads tiles put side by side stores each tile as it comes
        is_stored = all(isinstance(nodes[k], OutputSaver) for k in readers[j])
        is_concat = isinstance(nodes[j], Accumulator) and nodes[j].kind is AccumulatorKind.CONCAT
        if isinstance(nodes[j], Accumulator) and not (is_stored and is_concat):
            return j
    by = [j for j in readers[i] if isinstance(nodes[j], Apply)]
    if len(by) < len(readers[i]):
        return i if by else None  # saved
    if OPS[nodes[i].op].kind is not ELEMENTWISE or len(by) > 1:
        return i
    (reader,) = by
    is_fused = OPS[nodes[reader].op].kind is not OpKind.CONTRACT and stages[reader] is stages[i]
    return None if is_fused else i
