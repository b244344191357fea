"""Mutation operators on what is computed: operands, sizes, dims, constants, local sizes."""

from __future__ import annotations

from collections.abc import Iterator

from verify.mutants_draft import Spot, spots

from prism.ir import (
    Accumulator,
    AccumulatorKind,
    Apply,
    Const,
    InputLoader,
    SGraph,
    SizeOf,
)


def swapped_operands(graph: SGraph) -> Iterator[SGraph]:
    """A quotient or a difference the other way round."""
    for spot in spots(graph):
        for i, node in spot.applied():
            if node.op in {"div", "sub"}:
                yield spot.with_apply(i, node.op, *node.operands[::-1])


def missing_size(graph: SGraph) -> Iterator[SGraph]:
    """A mean that is a sum, or is divided by its size twice."""
    for spot in spots(graph):
        nodes = spot.block.nodes
        for i, node in enumerate(nodes):
            match node:
                case SizeOf():
                    yield spot.with_node(i, lambda draft: draft.add(Const(1.0)))
                case Apply(op="mean", operands=(a,), dim=dim):
                    yield spot.with_apply(i, "sum", a, dim=dim)
                    yield spot.with_node(i, _mean_over_size, a, dim)
                case Apply(op="div", operands=(a, b)) if isinstance(nodes[b], SizeOf):
                    yield spot.with_node(i, _divided_twice, a, b)
                case _:
                    pass


def _mean_over_size(draft, a, dim):
    mean = draft.apply("mean", draft.place[a], dim=dim)
    return draft.apply("div", mean, draft.add(SizeOf(dim)))


def _divided_twice(draft, a, b):
    once = draft.apply("div", draft.place[a], draft.place[b])
    return draft.apply("div", once, draft.place[b])


def wrong_dim(graph: SGraph) -> Iterator[SGraph]:
    """A reduction, a size or a row of tiles along another dim."""
    for spot in spots(graph):
        dims = spot.block.tensor_dims()
        for i, node in enumerate(spot.block.nodes):
            match node:
                case Apply(op=op, operands=(a,), dim=str(dim)):
                    for k in sorted(dims[a] - {dim}):
                        yield spot.with_apply(i, op, a, dim=k)
                case SizeOf(dim=dim):
                    for k in sorted({d.name for d in graph.program.dims} - {dim}):
                        yield spot.with_node(i, lambda draft, k: draft.add(SizeOf(k)), k)
                case Accumulator(kind=AccumulatorKind.CONCAT, operand=a, dim=dim):
                    for k in sorted(dims[a] - {dim}):
                        yield spot.with_node(i, _beside, node, k)
                case _:
                    pass


def _beside(draft, node, dim):
    return draft.add(Accumulator(draft.place[node.operand], node.kind, node.par, dim))


def wrong_contraction(graph: SGraph) -> Iterator[SGraph]:
    """A contraction over another dim, of another operand, or of sums."""
    for spot in spots(graph):
        dims = spot.block.tensor_dims()
        for i, node in spot.applied():
            if node.op != "matmul":
                continue
            a, b = node.operands
            for k in sorted((dims[a] & dims[b]) - {node.dim}):
                yield spot.with_apply(i, "matmul", a, b, dim=k)
            yield spot.with_node(i, _of_sums, a, b, node.dim)
            for j, kept in ((a, b), (b, a)):
                for other in range(i):
                    if other != j and dims[other] == dims[j]:
                        yield spot.with_apply(i, "matmul", other, kept, dim=node.dim)


def _of_sums(draft, a, b, dim):
    return draft.apply("mul", *(draft.apply("sum", draft.place[j], dim=dim) for j in (a, b)))


def wrong_constant(graph: SGraph) -> Iterator[SGraph]:
    """A constant of another value or sign, or left out."""
    for spot in spots(graph):
        nodes = spot.block.nodes
        for i, node in enumerate(nodes):
            match node:
                case Const(value=value):
                    for other in {2 * value + 1, -value, 1.0 - value} - {value}:
                        yield spot.with_node(i, lambda draft, c: draft.add(Const(c)), other)
                case Apply(operands=(a, b)):
                    for dropped, kept in ((a, b), (b, a)):
                        if isinstance(nodes[dropped], Const):
                            yield spot.with_node(i, lambda draft, j: draft.place[j], kept)
                case _:
                    pass


# --- sizes of tiles -----------------------------------------------------------------------------


def local_size(graph: SGraph) -> Iterator[SGraph]:
    """The size of a tile where that of the whole dim belongs."""
    for spot in spots(graph):
        for i, node in enumerate(spot.block.nodes):
            match node:
                case SizeOf(dim=dim):
                    yield from _local_counts(spot, i, dim)
                case Apply(op="mean" | "sum" as op, operands=(a,), dim=dim):
                    yield spot.with_node(i, _local_mean, a, dim, op)
                case Apply(op="div", operands=(a, b)) if isinstance(spot.block.nodes[b], SizeOf):
                    for loop in spot.kernel.loops:
                        yield spot.with_node(i, _by_iterations_too, a, b, loop.name)
                case _:
                    pass


def _local_counts(spot: Spot, i: int, dim: str) -> Iterator[SGraph]:
    for loop in spot.kernel.loops:
        yield spot.with_node(i, _by_iterations, dim, loop.name)
    for loader in spot.block.loaders:
        if dim in loader.dims:
            yield spot.with_node(i, _counted, spot, loader, dim)


def _iterations(draft, par):
    """Their number: the sum of as many ones."""
    return draft.add(Accumulator(draft.add(Const(1.0)), AccumulatorKind.SUM, par))


def _by_iterations(draft, dim, par):
    return draft.apply("div", draft.add(SizeOf(dim)), _iterations(draft, par))


def _by_iterations_too(draft, a, b, par):
    whole = draft.apply("div", draft.place[a], draft.place[b])
    return draft.apply("mul", whole, _iterations(draft, par))


def _ones(draft, value, dim):
    """How many elements along the dim there are here: the sum of as many ones."""
    ones = draft.apply("exp", draft.apply("sub", value, value))
    return draft.apply("sum", ones, dim=dim)


def _counted(draft, spot: Spot, loader: InputLoader, dim):
    count = _ones(draft, draft.add(loader), dim)
    for loop in reversed(spot.kernel.loops):
        if spot.kernel.mapping.dim_of(loader.source, loop.name) is not None:
            count = draft.add(Accumulator(count, AccumulatorKind.MAX, loop.name))
    return count


def _local_mean(draft, a, dim, op):
    """The mean of a tile; of a sum, its size times that, which is right."""
    total = draft.apply("sum", draft.place[a], dim=dim)
    mean = draft.apply("div", total, _ones(draft, draft.place[a], dim))
    return mean if op == "mean" else draft.apply("mul", mean, draft.add(SizeOf(dim)))
