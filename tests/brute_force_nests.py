"""Brute force for small programs: every kernel with a loop inside a loop, judged by running it.

Of the program's own operators: every mapping of the inputs along both loops, every operator in the
loops, between rounds of the inner loop or after both, every kind of accumulator. An accumulator
combines what differs from iteration to iteration, and there is one per value and loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from brute_force_blocks import is_tied

from prism.errors import GraphError
from prism.ir import (
    LOOP_DIMS,
    Accumulator,
    AccumulatorKind,
    Apply,
    BlockGraph,
    GraphOp,
    Input,
    InputLoader,
    Mapping,
    MapVar,
    MuGraph,
    OutputSaver,
    SGraph,
    bind_sizes,
    check_sgraph,
    evaluate,
    evaluate_graph,
    live_nodes,
    output_name,
)

SIZES = {"n": 5, "d": 7, "h": 9, "k": 11, "q": 5, "e": 7, "f": 3}
"""Halved once, each has two chunks, not of one size."""


def right_nests(program) -> Iterator[SGraph]:
    """Every such kernel, without a grid, that gives the program's numbers."""
    sizes = bind_sizes(program, {name: SIZES[name] for name in program.size_names})
    arrays = [random_arrays(program, sizes, seed) for seed in range(3)]
    wanted = [evaluate(program, a) for a in arrays]
    pars = ((("i", 2), ("j", 2)),)
    for mapping in mappings(program):
        for block in Nests(program, mapping).blocks():
            graph = SGraph(program, (GraphOp((), LOOP_DIMS, mapping, block),))
            check_sgraph(graph)
            mu = MuGraph(graph, tuple(sizes.items()), pars)
            if all(computes(mu, a, w) for a, w in zip(arrays, wanted, strict=True)):
                yield graph


def random_arrays(program, sizes, seed):
    rng = np.random.default_rng(seed)
    return {a.name: rng.normal(size=[sizes[d] for d in a.axes]) for a in program.arguments}


def computes(mu, arrays, wanted):
    """Whether the graph gives these numbers."""
    try:
        found = evaluate_graph(mu, arrays)
    except GraphError:
        return False  # tiles of different shapes
    return all(np.allclose(f, w, rtol=1e-7) for f, w in zip(found, wanted, strict=True))


def mappings(program) -> Iterator[Mapping]:
    """Every mapping along two loops that divide different dims, matched dims alike."""
    inputs = program.inputs
    nodes = [program.nodes[i] for i in live_nodes(program)]
    columns = list(product(*((None, *node.dims) for node in inputs)))
    bare = BlockGraph(tuple(_loader(node) if isinstance(node, Input) else node for node in nodes))
    place = {i: k for k, i in enumerate(live_nodes(program))}
    operands = [
        replace(n, operands=tuple(place[j] for j in n.operands)) if isinstance(n, Apply) else n
        for n in bare.nodes
    ]
    for outer, inner in product(columns, repeat=2):
        first, second = set(outer) - {None}, set(inner) - {None}
        if not first or not second or first & second:
            continue
        mapping = Mapping(
            frozenset(
                MapVar(node.name, dim, par.name)
                for par, column in zip(LOOP_DIMS, (outer, inner), strict=True)
                for node, dim in zip(inputs, column, strict=True)
                if dim is not None
            )
        )
        kernel = GraphOp((), LOOP_DIMS, mapping, BlockGraph(tuple(operands)))
        if is_tied(SGraph(program, (kernel,))):
            yield mapping


def _loader(node):
    return InputLoader(node.name, node.dims)


@dataclass(frozen=True)
class Made:
    """A value: its node, its dims, the loops it varies along, how many surround it, its wait."""

    node: int
    dims: frozenset
    varies: frozenset
    level: int
    is_ended: bool = False


@dataclass(frozen=True)
class Attempt:
    """Nodes so far, and for each of the program's values what there is of it, innermost first."""

    nodes: tuple = ()
    made: dict = field(default_factory=dict)

    def adding(self, i, node, made) -> Attempt:
        of_value = (*self.made.get(i, ()), replace(made, node=len(self.nodes)))
        return Attempt((*self.nodes, node), {**self.made, i: of_value})


class Nests:
    """The block graphs of a program under one mapping."""

    def __init__(self, program, mapping):
        self.program = program
        self.mapping = mapping
        self.dims = program.tensor_dims()
        self.order = tuple(live_nodes(program))

    def blocks(self) -> Iterator[BlockGraph]:
        for attempt in self.from_value(Attempt(), 0):
            for finished in self.ready(attempt, [o.tensor for o in self.program.outputs], 0):
                savers = [
                    OutputSaver(
                        finished.made[o.tensor][-1].node,
                        output_name(k),
                        tuple(d for d in o.axes if d is not None),
                    )
                    for k, o in enumerate(self.program.outputs)
                ]
                yield BlockGraph((*finished.nodes, *savers))

    def from_value(self, attempt, k) -> Iterator[Attempt]:
        """Every way to make the program's values from number k on."""
        if k == len(self.order):
            yield attempt
            return
        i = self.order[k]
        for added in self.added(attempt, i, self.program.nodes[i]):
            yield from self.from_value(added, k + 1)

    def added(self, attempt, i, node) -> Iterator[Attempt]:
        dims = self.dims[i]
        if isinstance(node, Input):
            along = [self.mapping.dim_of(node.name, p.name) for p in LOOP_DIMS]
            varies = frozenset(k for k, dim in enumerate(along) if dim is not None)
            made = Made(0, dims, varies, max(varies, default=-1) + 1)
            yield attempt.adding(i, _loader(node), made)
        elif not isinstance(node, Apply):
            yield attempt.adding(i, node, Made(0, dims, frozenset(), 0))
        else:
            read = [attempt.made[j][0] for j in node.operands]
            if not any(m.is_ended for m in read):
                yield self.applied(attempt, i, read, max(m.level for m in read), is_ended=False)
            for level in (1, 0):
                for ready in self.ready(attempt, node.operands, level):
                    read = [self.at(ready, j, level) for j in node.operands]
                    if any(m.is_ended and m.level == level for m in read):
                        yield self.applied(ready, i, read, level, is_ended=True)

    def applied(self, attempt, i, read, level, *, is_ended):
        node = replace(self.program.nodes[i], operands=tuple(m.node for m in read))
        varies = frozenset().union(*(m.varies for m in read))
        return attempt.adding(i, node, Made(0, self.dims[i], varies, level, is_ended))

    def at(self, attempt, j, level):
        """What may be read of a value after the loop inside so many others."""
        for made in attempt.made[j]:
            if made.level == level or (made.level < level and not made.is_ended):
                return made
        return None

    def ready(self, attempt, needed, level) -> Iterator[Attempt]:
        """With an accumulator of any kind over each loop that a value must leave."""
        missing = [j for j in needed if self.at(attempt, j, level) is None]
        if not missing:
            yield attempt
            return
        j = missing[0]
        last = attempt.made[j][-1]
        if last.level < level:
            return  # it is there when a loop further out has ended
        is_output = j in [o.tensor for o in self.program.outputs]
        if isinstance(self.program.nodes[j], Input) and not is_output:
            return  # that would be a second loader
        loop = last.level - 1
        if loop not in last.varies:
            return  # the same in every iteration: there is nothing to combine
        made = replace(last, varies=last.varies - {loop}, level=loop, is_ended=True)
        for kind, dim in kinds(last.dims):
            node = Accumulator(last.node, kind, LOOP_DIMS[loop].name, dim)
            yield from self.ready(attempt.adding(j, node, made), needed, level)


def kinds(dims):
    """Every kind of accumulator of a value."""
    yield AccumulatorKind.SUM, None
    yield AccumulatorKind.MAX, None
    yield from ((AccumulatorKind.CONCAT, d) for d in sorted(dims))
