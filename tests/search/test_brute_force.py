"""Nothing is lost and nothing wrong is found: every stage and mapping, judged by running it.

The oracle knows no state and no table. For the operators as the program writes them it tries every
mapping that maps a dim alike wherever it occurs, every set of operators after the loop, every kind
of accumulator on every value that crosses, and keeps what computes the program at ragged sizes.
Graphs are compared up to the order of a commutative operator's operands.
"""

from __future__ import annotations

from itertools import chain, combinations, product

import numpy as np
import pytest
import search_programs as programs

from prism.errors import GraphError
from prism.ir import (
    GRID_DIMS,
    LOOP_DIM,
    OPS,
    Accumulator,
    AccumulatorKind,
    Apply,
    BlockGraph,
    GraphOp,
    InputLoader,
    Mapping,
    MapVar,
    MuGraph,
    OutputSaver,
    SGraph,
    check_sgraph,
    evaluate,
    evaluate_graph,
    output_name,
)
from prism.search import SearchOptions, explain, program_graph, search

SIZES = {"n": 5, "d": 7, "h": 3, "k": 5}
"""In two chunks every one of them is ragged."""


def subsets(items):
    return chain.from_iterable(combinations(items, k) for k in range(len(items) + 1))


def tensors(program):
    """Border tensors and their dims, outputs last."""
    inputs = {i.name: i.dims for i in program.inputs}
    outputs = {output_name(k): o.axes for k, o in enumerate(program.outputs)}
    return inputs, outputs


def mappings(program):
    """One grid dim, used by an output, and perhaps a loop; every dim mapped alike everywhere."""
    inputs, outputs = tensors(program)
    dims = [d.name for d in program.dims]
    for grid, loop in product(subsets(dims), subsets(dims)):
        everywhere = [set(ds) for ds in (inputs | outputs).values()]
        if any(len(ds & set(grid)) > 1 for ds in everywhere):
            continue
        if any(len(set(ds) & set(loop)) > 1 for ds in inputs.values()):
            continue
        if not any(set(ds) & set(grid) for ds in outputs.values()):
            continue
        true = [MapVar(t, d, "x") for t, ds in (inputs | outputs).items() for d in ds if d in grid]
        true += [MapVar(t, d, "i") for t, ds in inputs.items() for d in ds if d in loop]
        yield Mapping(frozenset(true)), bool(loop)


def accumulators(dims):
    yield AccumulatorKind.SUM, None
    yield AccumulatorKind.MAX, None
    for dim in sorted(dims):
        yield AccumulatorKind.CONCAT, dim


def graphs(program, mapping, *, looped):
    """Every graph of the program's own operators under a mapping, most of them wrong."""
    count = len(program.nodes)
    dims = program.tensor_dims()
    operators = [i for i, n in enumerate(program.nodes) if isinstance(n, Apply)]
    looped_inputs = {v.tensor for v in mapping.true if v.par == "i"}
    varies = []
    for node in program.nodes:
        if isinstance(node, Apply):
            varies.append(any(varies[j] for j in node.operands))
        else:
            varies.append(getattr(node, "name", None) in looped_inputs)
    for after in subsets(operators) if looped else [()]:
        reads = {j for i in after for j in program.nodes[i].operands}
        reads |= {o.tensor for o in program.outputs}
        crossing = [i for i in range(count) if i in reads and varies[i] and i not in after]
        if any(
            i not in operators and i not in {o.tensor for o in program.outputs} for i in crossing
        ):
            continue  # an input that the loop partitions is not read after it
        for kinds in product(*(accumulators(dims[i]) for i in crossing)):
            yield build(
                program, mapping, set(after), dict(zip(crossing, kinds, strict=True)), looped
            )


def build(program, mapping, after, accumulated, looped):
    nodes, body, whole = [], {}, {}

    def add(node):
        nodes.append(node)
        return len(nodes) - 1

    for i, node in enumerate(program.nodes):
        match node:
            case Apply():
                if i in after:
                    operands = tuple(whole.get(j, body.get(j, 999)) for j in node.operands)
                    whole[i] = add(Apply(node.op, operands, node.dim))
                else:
                    operands = tuple(body.get(j, 999) for j in node.operands)
                    body[i] = add(Apply(node.op, operands, node.dim))
            case _ if hasattr(node, "argument"):
                body[i] = add(InputLoader(node.name, node.dims))
            case _:
                body[i] = add(node)
        if i in accumulated:
            kind, dim = accumulated[i]
            whole[i] = add(Accumulator(body[i], kind, "i", dim))
    for k, output in enumerate(program.outputs):
        value = whole.get(output.tensor, body.get(output.tensor, 999))
        add(OutputSaver(value, output_name(k), output.axes))
    loops = (LOOP_DIM,) if looped else ()
    return SGraph(program, (GraphOp(GRID_DIMS[:1], loops, mapping, BlockGraph(tuple(nodes))),))


def is_right(graph, arrays, wanted):
    sizes = tuple((d.name, SIZES[d.name]) for d in graph.program.dims)
    (kernel,) = graph.kernels
    try:
        check_sgraph(graph)
        counts = tuple((p.name, 2) for p in (*kernel.grid, *kernel.loops))
        got = evaluate_graph(MuGraph(graph, sizes, (counts,)), arrays)
    except (GraphError, IndexError, ValueError):
        return False
    return all(np.allclose(a, b) for a, b in zip(wanted, got, strict=True))


def expressions(graph, *, bare=False):
    """What each output is, as nested text; `bare` of accumulators."""
    out, saved = [], {}
    for i, node in enumerate(graph.kernels[0].block.nodes):
        operands = [out[j] for j in graph.kernels[0].block.operands(i)]
        match node:
            case Apply(op=op, dim=dim):
                ordered = sorted(operands) if OPS[op].is_commutative else operands
                out.append(f"{op}[{dim}]({', '.join(ordered)})")
            case Accumulator(kind=kind, dim=dim):
                out.append(operands[0] if bare else f"{kind.value}[{dim}]<{operands[0]}>")
            case OutputSaver(target=target):
                out.append(operands[0])
                saved[target] = out[i]
            case _:
                out.append(str(node))
    return tuple(sorted(saved.items()))


def key(graph):
    return expressions(graph), graph.kernels[0].mapping


def useless_loop(graph):
    """Whether no accumulator ends the loop: it repeats the same work."""
    (kernel,) = graph.kernels
    return bool(kernel.loops) and not any(isinstance(n, Accumulator) for n in kernel.block.nodes)


PROGRAMS = [
    programs.matmul,
    programs.multiplied,
    programs.softmax,
    programs.softmax_matmul,
    programs.late_softmax_matmul,
    programs.exp_matmul,
    programs.scaled,
    programs.relu_product,
    programs.row_max,
    programs.exp_sum,
    programs.elementwise,
    programs.biased,
    programs.matmul_and_max,
]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_the_search_finds_what_brute_force_finds(function):
    program = programs.trace(function)
    options = SearchOptions(grid_dims=1, max_accumulators=9, max_ops=30, budget_s=None)
    result = search(program, options)
    assert result.complete
    arrays = programs.arrays_for(program, SIZES, seed=2)
    wanted = evaluate(program, arrays)
    right, wrong = set(), 0
    for mapping, looped in mappings(program):
        for graph in graphs(program, mapping, looped=looped):
            if not useless_loop(graph) and is_right(graph, arrays, wanted):
                assert explain(graph) is None
                right.add(key(graph))
            else:
                wrong += 1
    own = expressions(program_graph(program), bare=True)
    found = {
        key(g.graph)
        for g in result.graphs
        if not g.is_fallback and expressions(g.graph, bare=True) == own
    }
    assert found == right
    assert wrong > len(right) > 2
