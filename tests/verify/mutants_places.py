"""Mutation operators on where and when: maps, loop stages, accumulators, partial values, stacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verify.mutants_draft import Spot, spots, with_operands

from prism.ir import (
    OPS,
    Accumulator,
    AccumulatorKind,
    Apply,
    MapVar,
    OpKind,
    OutputSaver,
    SGraph,
    loop_places,
    stack_dims,
)

FUNCTIONS = {"exp", "log", "silu", "sigmoid", "tanh", "relu", "gelu_tanh", "gelu_erf"}


# --- maps ---------------------------------------------------------------------------------------


def missing_map(graph: SGraph) -> Iterator[SGraph]:
    """One variable less, or a dim that is no longer partitioned along p by anything it was."""
    for spot in spots(graph):
        true = spot.kernel.mapping.true
        places = {(v.dim, v.par) for v in true}
        for dim, par in sorted(places):
            yield spot.with_map(v for v in true if (v.dim, v.par) != (dim, par))
        for par in sorted({p for _, p in places}):
            yield spot.with_map(v for v in true if v.par != par)
        for var in sorted(true):
            yield spot.with_map(true - {var})


def wrong_map(graph: SGraph) -> Iterator[SGraph]:
    """A variable with another dim or another parallel dim; all inputs or outputs along another."""
    for spot in spots(graph):
        true = spot.kernel.mapping.true
        outputs = {n.target: n.dims for n in spot.block.savers}
        inputs = {n.source: n.dims for n in spot.block.loaders}
        for var in sorted(true):
            rest = true - {var}
            for dim in (inputs | outputs)[var.tensor]:
                yield spot.with_map(rest | {replace(var, dim=dim)})
            for par in (*spot.kernel.grid, *spot.kernel.loops):
                yield spot.with_map(rest | {replace(var, par=par.name)})
        for par in (*spot.kernel.grid, *spot.kernel.loops):
            others = {v for v in true if v.par != par.name}
            kept = {v for v in true if v.par == par.name and v.tensor in outputs}
            ends = [kept]
            if par in spot.kernel.grid:
                ends += [set(), *_columns(outputs, par.name)]
            for start in _columns(inputs, par.name):
                for end in ends:
                    yield spot.with_map(others | start | end)


def _columns(border, par) -> list[set[MapVar]]:
    """For each dim, every tensor that has it partitioned along it."""
    dims = sorted({d for has in border.values() for d in has})
    return [{MapVar(t, dim, par) for t, has in border.items() if dim in has} for dim in dims]


# --- accumulators and stages --------------------------------------------------------------------


def stage_moved(graph: SGraph) -> Iterator[SGraph]:
    """A loop stage, or the sum of what is stacked, moved over operators that are not linear."""
    stacks = stack_dims(graph)
    for spot in spots(graph):
        for i, node in enumerate(spot.block.nodes):
            match node:
                case Apply(op=op) if op not in FUNCTIONS:
                    yield from _inside(spot, i)
                    yield from _before_the_sum(spot, i, node, stacks)
                case Accumulator() if node.kind is not AccumulatorKind.CONCAT:
                    yield from _outside(spot, i, node)
                case _:
                    pass


def partial_into_function(graph: SGraph) -> Iterator[SGraph]:
    """An exponential or an activation gets a value that is not summed up yet."""
    stacks = stack_dims(graph)
    for spot in spots(graph):
        for i, node in spot.applied():
            if node.op in FUNCTIONS:
                yield from _inside(spot, i)
                yield from _before_the_sum(spot, i, node, stacks)
                inner = spot.block.nodes[node.operands[0]]
                if isinstance(inner, Apply) and OPS[inner.op].kind is not OpKind.ELEMENTWISE:
                    yield spot.with_node(i, _early, node, inner)
            if node.dim in stacks:
                for op in sorted(FUNCTIONS - {"log"}):
                    yield spot.with_node(i, _of_each, node, op)


def _inside(spot: Spot, i: int) -> Iterator[SGraph]:
    """What leads from accumulators to node i is done in each iteration, and then accumulated."""
    nodes = spot.block.nodes
    chain, ends, todo = {i}, set(), [i]
    while todo:
        for j in spot.block.operands(todo.pop()):
            if isinstance(nodes[j], Accumulator):
                ends.add(j)
            elif isinstance(nodes[j], Apply) and loop_places(spot.kernel)[j].ended is not None:
                todo += [] if j in chain else [j]
                chain.add(j)
    loops = {nodes[j].par for j in ends}
    if len(loops) == 1:
        yield spot.with_node(i, _chain, spot, sorted(chain), ends, *loops)


def _chain(draft, spot, chain, ends, par):
    here = {j: draft.place[spot.block.nodes[j].operand] for j in ends}
    for j in chain:
        node = spot.block.nodes[j]
        operands = [here[k] if k in here else draft.place[k] for k in node.operands]
        here[j] = draft.apply(node.op, *operands, dim=node.dim)
    return draft.add(Accumulator(here[chain[-1]], AccumulatorKind.SUM, par))


def _outside(spot: Spot, i: int, node: Accumulator) -> Iterator[SGraph]:
    """What is done in each iteration is done once, on accumulated operands."""
    inner = spot.block.nodes[node.operand]
    if isinstance(inner, Apply):
        number = [p.name for p in spot.kernel.loops].index(node.par)
        level = [place.level for place in loop_places(spot.kernel)]
        varies = {j for j in inner.operands if level[j] > number}
        yield spot.with_node(i, _once, node, inner, varies)


def _once(draft, node, inner, varies):
    def read(j):
        place = draft.place[j]
        return draft.add(replace(node, operand=place)) if j in varies else place

    return draft.apply(inner.op, *map(read, inner.operands), dim=inner.dim)


def _before_the_sum(spot: Spot, i: int, node: Apply, stacks) -> Iterator[SGraph]:
    """An operator on sums of what is stacked is done before these sums."""
    summed = {
        j: n.operands[0]
        for j in node.operands
        if isinstance(n := spot.block.nodes[j], Apply) and n.dim in stacks
    }
    for dim in sorted({spot.block.nodes[j].dim for j in summed}):
        yield spot.with_node(i, _summed_late, node, summed, dim)


def _summed_late(draft, node, summed, dim):
    read = [draft.place[summed.get(j, j)] for j in node.operands]
    return draft.apply("sum", draft.apply(node.op, *read, dim=node.dim), dim=dim)


def _early(draft, node, inner):
    """f(sum a) as sum f(a)."""
    read = [draft.place[j] for j in inner.operands]
    value = draft.apply("mul", *read) if len(read) > 1 else read[0]
    return draft.apply("sum", draft.apply(node.op, value), dim=inner.dim)


def _of_each(draft, node, op):
    """The sum over a stack dim of a function of what is stacked."""
    return draft.apply(node.op, draft.apply(op, draft.place[node.operands[0]]), dim=node.dim)


# --- reductions ---------------------------------------------------------------------------------

TURNED = {AccumulatorKind.SUM: AccumulatorKind.MAX, AccumulatorKind.MAX: AccumulatorKind.SUM}


def missing_reduction(graph: SGraph) -> Iterator[SGraph]:
    """A sum left out, or only the largest kept; over a dim, a loop or what blocks stacked."""
    for spot in spots(graph):
        for i, node in enumerate(spot.block.nodes):
            match node:
                case Apply(op="matmul", operands=(a, b), dim=dim):
                    yield spot.with_apply(i, "mul", a, b)
                    yield spot.with_node(i, _largest, a, b, dim)
                    yield spot.with_node(i, _largest, b, a, dim)
                case Apply(op=op, operands=(a,), dim=str(dim)):
                    yield spot.with_node(i, lambda draft, j: draft.place[j], a)
                    yield spot.with_apply(i, "sum" if op == "max" else "max", a, dim=dim)
                case Accumulator(kind=kind) if kind in TURNED:
                    yield spot.with_node(i, _turned, node)
                case _:
                    pass
    yield from _without_a_stack(graph)


def _largest(draft, a, b, dim):
    """A contraction in which only the largest of one operand is taken."""
    largest = draft.apply("max", draft.place[b], dim=dim)
    return draft.apply("mul", draft.apply("sum", draft.place[a], dim=dim), largest)


def _turned(draft, node):
    return draft.add(replace(node, operand=draft.place[node.operand], kind=TURNED[node.kind]))


def _without_a_stack(graph: SGraph) -> Iterator[SGraph]:
    """Blocks store their parts in one place; the kernel that summed them does not."""
    for dim in stack_dims(graph):
        bare = graph
        for k in range(len(graph.kernels)):
            spot = Spot(bare, k)
            summed = {i: node for i, node in spot.applied() if node.dim == dim}
            bare = spot.with_nodes({i: _operand(node) for i, node in summed.items()})
            spot = Spot(bare, k)
            bare = spot.with_block(_lacking(spot.block, dim))
            true = bare.kernels[k].mapping.true
            bare = Spot(bare, k).with_map(v for v in true if v.dim != dim)
        yield bare


def _operand(node):
    return lambda draft: draft.place[node.operands[0]]


def _lacking(block, dim):
    return replace(
        block,
        nodes=tuple(
            replace(n, dims=tuple(d for d in n.dims if d != dim)) if hasattr(n, "dims") else n
            for n in block.nodes
        ),
    )


def doubled_reduction(graph: SGraph) -> Iterator[SGraph]:
    """A value summed once more: copies of a loop, or over another dim."""
    for spot in spots(graph):
        places = loop_places(spot.kernel)
        dims = spot.block.tensor_dims()
        for i, node in enumerate(spot.block.nodes):
            if isinstance(node, OutputSaver):
                continue
            for number, loop in enumerate(spot.kernel.loops):
                ended = places[i].ended
                if places[i].level <= number and (ended is None or ended > number):
                    yield spot.with_node(i, _again, spot, i, loop.name)
            if isinstance(node, Apply) and OPS[node.op].kind is not OpKind.ELEMENTWISE:
                for dim in sorted(dims[i]):
                    yield spot.with_node(i, _summed, spot, i, dim)


def _copied(draft, spot, i):
    operands = [draft.place[j] for j in spot.block.operands(i)]
    return draft.add(with_operands(spot.block.nodes[i], operands))


def _again(draft, spot, i, par):
    return draft.add(Accumulator(_copied(draft, spot, i), AccumulatorKind.SUM, par))


def _summed(draft, spot, i, dim):
    return draft.apply("sum", _copied(draft, spot, i), dim=dim)
