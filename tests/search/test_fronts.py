"""Tune mode: what it keeps is enough, what it drops is beaten, and a run can be repeated or cut.

The oracle shares nothing with the fronts: it reads finished sGraphs node by node and prices them
with plain numbers. Every graph that the list of all graphs has must be matched, at random sizes,
tiles, machine balances and memory limits, by one that tune mode keeps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random

import pytest
import search_programs as programs
from strategies import random_program

from prism.egraph import Limits as SaturationLimits
from prism.egraph import load_axioms, saturate
from prism.errors import UsageError
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
from prism.search import SearchOptions, search
from prism.search.answers import load_encoding
from prism.search.assemble import build_graph
from prism.search.cone import build_cone
from prism.search.fronts import FrontGenerator
from prism.search.generate import ConeGenerator, Materials, preferred_dag
from prism.search.mapper import Cuts, Limits
from prism.search.pruning import Gate, load_pruners
from prism.search.wiring import Arena

LIGHT = {"add", "sub", "mul", "maximum", "minimum", "neg", "square", "abs", "relu"}
ELEMENTWISE = OpKind.ELEMENTWISE


# ------------------------------------------------------------------------------------ the oracle


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
            self.sizes[d] / math.prod(self.iterations(priced) if c == "loop" else self.count[c]
                                      for c in divided)
            for d, divided in extent
        )

    def price(self, op):
        if OPS[op].kind is OpKind.CONTRACT:
            return 1
        if op in LIGHT or OPS[op].kind is not ELEMENTWISE:
            return self.elementwise
        return self.elementwise * self.special


def priced(graph):
    """Reads a graph: along every parallel dim a value is whole, a sum, or a tile of one dim."""
    (kernel,) = graph.kernels
    column = {p.name: frozenset((v.tensor, v.dim) for v in kernel.mapping.true if v.par == p.name)
              for p in (*kernel.grid, *kernel.loops)}
    loop = next((column[p.name] for p in kernel.loops), frozenset())
    out = Priced(frozenset(column[p.name] for p in kernel.grid), loop)
    names = {name: "loop" if any(name == p.name for p in kernel.loops) else c
             for name, c in column.items()}
    nodes, dims = kernel.block.nodes, kernel.block.tensor_dims()
    stages = loop_stages(kernel)
    tiled = []  # of each value: dim -> what divides it
    for i, node in enumerate(nodes):
        operands = kernel.block.operands(i)
        mine = {}
        match node:
            case InputLoader(source=source):
                for name, by in names.items():
                    d = kernel.mapping.dim_of(source, name)
                    if d is not None:
                        mine.setdefault(d, []).append(by)
            case Accumulator():
                mine = {d: [b for b in bys if b != "loop"] for d, bys in tiled[operands[0]].items()}
            case _:
                for j in operands:
                    for d, bys in tiled[j].items():
                        if set(bys) - set(mine.get(d, [])):
                            mine[d] = sorted({*bys, *mine.get(d, [])}, key=str)
        if isinstance(node, Apply):
            space = {d for j in operands for d in dims[j]}
            if space:
                extent = tuple((d, tuple(mine.get(d, ()))) for d in sorted(space))
                out.work.append((node.op, extent, stages[i] is LoopStage.BODY))
            if OPS[node.op].kind is not ELEMENTWISE:
                mine.pop(node.dim, None)
        tiled.append(mine)
        if isinstance(node, InputLoader):
            out.inputs.append(tuple((d, tuple(mine.get(d, ()))) for d in sorted(dims[i])))
    readers = {i: [j for j in range(len(nodes)) if i in kernel.block.operands(j)]
               for i in range(len(nodes))}
    for i, node in enumerate(nodes):
        if isinstance(node, Apply) and dims[i]:
            shown = _tile(i, nodes, readers, stages)
            if shown is not None:
                out.tiles.append(
                    tuple((d, tuple(tiled[shown].get(d, ()))) for d in sorted(dims[i]))
                )
    return out


def _tile(i, nodes, readers, stages):
    """The value whose tile is in memory for node i: its own, its accumulator's, or none."""
    for j in readers[i]:
        # a saver that reads tiles put side by side stores each tile as it comes
        is_stored = all(isinstance(nodes[k], OutputSaver) for k in readers[j])
        if isinstance(nodes[j], Accumulator):
            if not (is_stored and nodes[j].kind is AccumulatorKind.CONCAT):
                return j
    by = [j for j in readers[i] if isinstance(nodes[j], Apply)]
    if len(by) < len(readers[i]):
        return i if by else None  # saved
    if OPS[nodes[i].op].kind is not ELEMENTWISE or len(by) > 1:
        return i
    (reader,) = by
    is_fused = OPS[nodes[reader].op].kind is not OpKind.CONTRACT and stages[reader] is stages[i]
    return None if is_fused else i


# ---------------------------------------------------------------------------------- the two lists


@cache
def axioms():
    return load_axioms(("prism",))


def materials_for(program, cone, max_ops, accumulators=4):
    if max_ops is None:
        max_ops = len(program.inputs) + len(preferred_dag(cone)) + 4
    limits = Limits(max_ops, accumulators, 3, 10**9)
    gate = Gate(load_pruners(()))
    return Materials(Arena(program), gate, load_encoding("factorised"), limits, Cuts())


def graphs_of(make, program, cone, max_ops):
    materials = materials_for(program, cone, max_ops)
    found = make(materials).candidates(cone, lambda _share: False, lambda _count: None)
    assert not materials.cuts.sentences
    return [build_graph(materials.arena, ranked.candidate) for ranked in found]


def both(program, max_ops=None, seed=0):
    cone = build_cone(program, saturate(program, axioms(), SaturationLimits(seconds=20)))
    listed = graphs_of(ConeGenerator, program, cone, max_ops)
    kept = graphs_of(lambda m: FrontGenerator(m, seed), program, cone, max_ops)
    return [priced(g) for g in listed], [priced(g) for g in kept]


def one_size(program, loop):
    """Whether a loop divides dims of one size only; tune mode tries no other loops."""
    root = {d.name: d.size for d in program.dims}
    return len({root[d] for _, d in loop}) < 2


def assert_nothing_lost(program, listed, kept, random, samples):
    """At every point some kept graph does no more work, in about the same memory."""
    dims = [d.name for d in program.dims]
    columns = sorted({c for p in (*listed, *kept) for c in p.grid}, key=sorted)
    for loop in sorted({p.loop for p in listed if one_size(program, p.loop)}, key=sorted):
        ours = [p for p in kept if p.loop == loop or not loop]
        for _ in range(samples):
            point = Point(random, dims, columns, loop)
            memory = 2 ** random.uniform(4, 24)
            best = {}
            for p in listed:
                if p.loop == loop:
                    work, tiles, _ = p.cost(point)
                    if tiles <= memory:
                        best[p.grid] = min(best.get(p.grid, math.inf), work)
            costs = [(p.grid, *p.cost(point)) for p in ours]
            for grid, wanted in best.items():
                # tiles count as equal within a quarter of all, inputs included
                got = min(
                    work
                    for larger, work, tiles, inputs in costs
                    if grid <= larger and 4 * tiles <= 5 * memory + inputs
                )
                assert got <= wanted * (1 + 1e-9), (loop, grid)
