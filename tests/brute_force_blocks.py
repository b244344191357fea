"""Brute force for small programs, part 2: every block graph of an op DAG, judged by running it.

Every mapping of the inputs along grid dims and a loop, every operator in the loop or after it,
every kind of accumulator: what gives each block its part of the result is right. Chunks are
unequal, so that what only holds for equal ones shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from brute_force_terms import UnfitError, Value, applied, is_same, leaves_of, outputs_of

from prism.ir import (
    GRID_DIMS,
    LOOP_DIM,
    Accumulator,
    AccumulatorKind,
    Apply,
    BlockGraph,
    GraphOp,
    Input,
    InputLoader,
    Mapping,
    MapVar,
    OutputSaver,
    SGraph,
    output_name,
)

COUNT = 2
"""Blocks along a grid dim, iterations of the loop."""


def right_graphs(terms, chosen, grid_dims) -> Iterator[SGraph]:
    """Every graph of a DAG over so many grid dims, each in use, that gives the right numbers."""
    inputs = [n for i in leaves_of(terms, chosen) if isinstance(n := terms.nodes[i], Input)]
    columns = [
        dict(zip([n.name for n in inputs], dims, strict=True))
        for dims in product(*((None, *n.dims) for n in inputs))
    ]
    for grid in product(columns, repeat=grid_dims):
        if any(splits_twice(grid, node) for node in inputs):
            continue
        for loop in columns:
            for graph in Blocks(terms, chosen, grid, loop).graphs():
                if is_in_use(graph):
                    yield graph


def splits_twice(grid, node):
    """Rule (2): a dim lies on one grid dim only."""
    dims = [column[node.name] for column in grid if column[node.name] is not None]
    return len(set(dims)) < len(dims)


def is_in_use(graph):
    """Whether the loop ends in an accumulator and every grid dim splits an output."""
    (kernel,) = graph.kernels
    accumulates = any(isinstance(n, Accumulator) for n in kernel.block.nodes)
    targets = {n.target for n in kernel.block.savers}
    splitting = {v.par for v in kernel.mapping.true if v.tensor in targets}
    return (accumulates or not kernel.loops) and all(p.name in splitting for p in kernel.grid)


def is_tied(graph):
    """Whether dims that operators bring together are mapped alike."""
    (kernel,) = graph.kernels
    nodes, dims = kernel.block.nodes, kernel.block.tensor_dims()
    group = {(i, d): (i, d) for i in range(len(nodes)) for d in dims[i]}
    group |= {(i, n.dim): (i, n.dim) for i, n in enumerate(nodes) if isinstance(n, Apply) and n.dim}
    for _ in nodes:  # until nothing changes: a path has no more steps than there are nodes
        for i in range(len(nodes)):
            for j in kernel.block.operands(i):
                for d in dims[j]:
                    group[i, d] = group[j, d] = min(group[i, d], group[j, d])
    tied = {}
    for i, node in enumerate(nodes):
        if isinstance(node, InputLoader | OutputSaver):
            name = node.source if isinstance(node, InputLoader) else node.target
            for d in dims[i]:
                tied.setdefault(group[i, d], []).append((name, d))
    stored = {n.target for n in kernel.block.savers}
    return all(
        len({MapVar(name, d, par.name) in kernel.mapping.true for name, d in alike}) < 2
        for places in tied.values()
        for par in (*kernel.grid, *kernel.loops)
        if (alike := [p for p in places if par in kernel.grid or p[0] not in stored])
    )


# --- one DAG under one mapping ----------------------------------------------------------------


@dataclass(frozen=True)
class Placed:
    """Where the values of one node are.

    `body[b][t]`: in iteration t of block b, where iterations differ; `whole[b]`: outside the loop's
    body, where there is such a value; `is_after`: there is one only when the loop has ended.
    """

    body: tuple | None = None
    whole: tuple | None = None
    is_after: bool = False


@dataclass(frozen=True)
class Attempt:
    """Choices so far: where each node is, what runs after the loop, and the accumulators."""

    placed: dict
    after: frozenset = frozenset()
    accumulated: tuple = ()


class Blocks:
    """The block graphs of one DAG under one mapping of its inputs.

    `grid`: for each grid dim the dim of each input that it splits, or None; `loop` the same.
    """

    def __init__(self, terms, chosen, grid, loop):
        self.terms = terms
        self.order = sorted(chosen)
        self.outputs = outputs_of(terms, chosen)
        self.grid, self.loop = grid, loop
        self.blocks = list(product(range(COUNT), repeat=len(grid)))
        self.leaves = leaves_of(terms, chosen)

    def graphs(self) -> Iterator[SGraph]:
        start = Attempt({i: self.loaded(i) for i in self.leaves})
        for attempt in self.placed_from(start, 0):
            for finished in self.accumulated(attempt, self.outputs):
                for saved in self.savers(finished):
                    yield self.built(finished, saved)

    def loaded(self, i):
        node = self.terms.nodes[i]
        if not isinstance(node, Input):
            return Placed(whole=(self.terms.values[i],) * len(self.blocks))
        dim = self.loop[node.name]
        columns = [column[node.name] for column in self.grid]
        iterations = [()] if dim is None else [((dim, t),) for t in range(COUNT)]
        tiles = tuple(
            tuple(self.tile(i, (*zip(columns, block, strict=True), *last)) for last in iterations)
            for block in self.blocks
        )
        return Placed(body=tiles) if dim else Placed(whole=tuple(t for (t,) in tiles))

    def tile(self, i, splits):
        return tile(self.terms.sizes, self.terms.values[i], splits)

    def placed_from(self, attempt, k) -> Iterator[Attempt]:
        """Every way to run the operators from number k on, in the body or after it."""
        if k == len(self.order):
            yield attempt
            return
        node = self.terms.nodes[self.order[k]]
        operands = [attempt.placed[j] for j in node.operands]
        varies = any(p.body is not None for p in operands)
        if not any(p.is_after and p.body is None for p in operands):
            yield from self.applied(attempt, k, is_after=False)
        if varies or any(p.is_after for p in operands):
            for ready in self.accumulated(attempt, node.operands):
                yield from self.applied(ready, k, is_after=True)

    def applied(self, attempt, k, *, is_after) -> Iterator[Attempt]:
        i = self.order[k]
        node = self.terms.nodes[i]
        operands = [attempt.placed[j] for j in node.operands]
        varies = not is_after and any(p.body is not None for p in operands)
        try:
            values = tuple(
                tuple(
                    applied(
                        node.op,
                        node.dim,
                        [p.body[b][t] if varies and p.body else p.whole[b] for p in operands],
                    )
                    for t in range(COUNT if varies else 1)
                )
                for b in range(len(self.blocks))
            )
        except UnfitError:
            return
        placed = (
            Placed(body=values)
            if varies
            else Placed(whole=tuple(v for (v,) in values), is_after=is_after)
        )
        after = attempt.after | {i} if is_after else attempt.after
        ready = Attempt({**attempt.placed, i: placed}, after, attempt.accumulated)
        yield from self.placed_from(ready, k + 1)

    def accumulated(self, attempt, needed) -> Iterator[Attempt]:
        """With an accumulator of any kind for each value that differs between iterations."""
        missing = [i for i in needed if attempt.placed[i].whole is None]
        if not missing:
            yield attempt
            return
        i = missing[0]
        if i in self.leaves and i not in self.outputs:
            return  # an input that the loop partitions is not read after it
        body = attempt.placed[i].body
        for kind, dim in kinds(body[0][0].dims):
            try:
                whole = tuple(combined(kind, dim, parts) for parts in body)
            except UnfitError:
                continue
            yield from self.accumulated(
                Attempt(
                    {**attempt.placed, i: Placed(body, whole, is_after=True)},
                    attempt.after,
                    (*attempt.accumulated, (i, kind, dim)),
                ),
                needed,
            )

    def savers(self, attempt) -> Iterator[tuple]:
        """For each output the dim along each grid dim, so that every block holds its part."""
        options = []
        for i in self.outputs:
            whole = attempt.placed[i].whole
            options.append(
                [
                    dims
                    for dims in product((None, *self.terms.values[i].dims), repeat=len(self.grid))
                    if len(set(dims) - {None}) == sum(d is not None for d in dims)
                    and all(
                        is_same(value, self.tile(i, tuple(zip(dims, block, strict=True))))
                        for value, block in zip(whole, self.blocks, strict=True)
                    )
                ]
            )
        return product(*options)

    def built(self, attempt, saved):
        nodes, body, whole = [], {}, {}

        def add(node):
            nodes.append(node)
            return len(nodes) - 1

        def accumulate(i):
            for j, kind, dim in attempt.accumulated:
                if j == i:
                    whole[i] = add(Accumulator(body[i], kind, LOOP_DIM.name, dim))

        for i in self.leaves:
            node = self.terms.nodes[i]
            is_input = isinstance(node, Input)
            body[i] = add(InputLoader(node.name, node.dims) if is_input else node)
            accumulate(i)
        for i in self.order:
            node = self.terms.nodes[i]
            if i in attempt.after:
                operands = tuple(whole.get(j, body.get(j)) for j in node.operands)
                whole[i] = add(Apply(node.op, operands, node.dim))
            else:
                operands = tuple(body[j] for j in node.operands)
                body[i] = add(Apply(node.op, operands, node.dim))
                accumulate(i)
        program = self.terms.program
        for k, (i, output) in enumerate(zip(self.outputs, program.outputs, strict=True)):
            dims = tuple(d for d in output.axes if d is not None)
            add(OutputSaver(whole.get(i, body.get(i)), output_name(k), dims))
        grid = GRID_DIMS[: len(self.grid)]
        true = [
            MapVar(name, dim, par.name)
            for par, column in ((*zip(grid, self.grid, strict=True), (LOOP_DIM, self.loop)))
            for name, dim in column.items()
            if dim is not None
        ]
        true += [
            MapVar(output_name(k), dim, par.name)
            for k, dims in enumerate(saved)
            for par, dim in zip(grid, dims, strict=True)
            if dim is not None
        ]
        loops = (LOOP_DIM,) if any(self.loop.values()) else ()
        kernel = GraphOp(grid, loops, Mapping(frozenset(true)), BlockGraph(tuple(nodes)))
        return SGraph(program, (kernel,))


def part(size, index, count=COUNT):
    """Where a chunk lies: chunks are equal, the last one is what remains."""
    tile = -(-size // count)
    return index * tile, min(size, (index + 1) * tile)


def tile(sizes, value, splits):
    """The part of a whole value; a second split of a dim goes over what the first one left."""
    extents, array = dict(sizes), value.array
    for dim, index in splits:
        if dim is None:
            continue
        axis = value.dims.index(dim)
        start, stop = part(extents[dim], index)
        extents[dim] = -(-extents[dim] // COUNT)  # the last chunk is cut as if it were as long
        array = np.take(array, range(start, min(stop, array.shape[axis])), axis)
    return Value(value.dims, array)


def kinds(dims):
    yield AccumulatorKind.SUM, None
    yield AccumulatorKind.MAX, None
    for dim in dims:
        yield AccumulatorKind.CONCAT, dim


def combined(kind, dim, parts):
    if kind is AccumulatorKind.CONCAT:
        axis = parts[0].dims.index(dim)
        rest = {v.array.shape[:axis] + v.array.shape[axis + 1 :] for v in parts}
        if len(rest) > 1:
            raise UnfitError
        return Value(parts[0].dims, np.concatenate([v.array for v in parts], axis))
    if len({v.array.shape for v in parts}) > 1:
        raise UnfitError
    combine = np.add if kind is AccumulatorKind.SUM else np.maximum
    total = parts[0].array
    for value in parts[1:]:
        total = combine(total, value.array)
    return Value(parts[0].dims, total)
