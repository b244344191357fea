"""Verdicts on sGraphs: right ones are proved, wrong ones are not and are numerically wrong."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from strategies import random_sgraph
from verify.table import CASES, PROGRAMS, SWIGLU, Case

from prism.egraph import AxiomFile, load_axioms, make_axiom_set
from prism.ir import (
    OPS,
    Accumulator,
    AccumulatorKind,
    Apply,
    BlockGraph,
    Mapping,
    OpKind,
    SGraph,
)
from prism.verify import Verdict, Verifier, VerifyLimits, find_counterexample, verify_graphs


@pytest.fixture(scope="module")
def axioms():
    return load_axioms()


@pytest.mark.parametrize("case", [c for c in CASES if c.is_right], ids=lambda c: c.name)
def test_a_right_graph_is_proved(case, axioms):
    assert verify_graphs(case.graph.program, [case.graph], axioms) == (Verdict.PROVED,)
    assert find_counterexample(case.graph.program, case.graph) is None


@pytest.mark.parametrize("case", [c for c in CASES if not c.is_right], ids=lambda c: c.name)
def test_a_wrong_graph_is_not_proved_and_is_wrong(case, axioms):
    assert verify_graphs(case.graph.program, [case.graph], axioms) == (Verdict.NOT_PROVED,)
    assert find_counterexample(case.graph.program, case.graph) is not None


def test_without_axioms_only_the_program_itself_is_proved():
    case = next(c for c in CASES if c.name == "a contraction in chunks")
    assert verify_graphs(case.graph.program, [case.graph], make_axiom_set(())) == (
        Verdict.NOT_PROVED,
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_verdicts_do_not_depend_on_order_or_company(name, axioms):
    graphs = [c.graph for c in CASES if c.program == name]
    program = PROGRAMS[name]
    alone = [verify_graphs(program, [g], axioms)[0] for g in graphs]
    assert list(verify_graphs(program, graphs, axioms)) == alone
    order = list(range(len(graphs)))
    for seed in range(3):
        random.Random(seed).shuffle(order)
        limits = VerifyLimits(batch=seed + 1, renew=3)
        found = verify_graphs(program, [graphs[i] for i in order], axioms, limits)
        assert list(found) == [alone[i] for i in order]


def test_a_verifier_gives_the_same_verdicts_call_by_call(axioms):
    graphs = [c.graph for c in CASES if c.program == "matmul"]
    verifier = Verifier(PROGRAMS["matmul"], axioms)
    found = [verifier.verify([graph])[0] for graph in graphs]
    assert found == list(verify_graphs(PROGRAMS["matmul"], graphs, axioms))


NEAR = {"mul": "div", "div": "mul", "add": "sub", "sub": "add", "sum": "mean"}


def changed(node, dims):
    """The node with one thing changed: its operator, its operands, how it accumulates."""
    match node:
        case Accumulator(kind=kind):
            dim = {AccumulatorKind.CONCAT: min(dims, default=None)}
            for other in set(AccumulatorKind) - {kind, *(dim if not dims else ())}:
                yield replace(node, kind=other, dim=dim.get(other))
        case Apply(op=op, operands=operands):
            if OPS[op].arity == 2:
                yield replace(node, operands=operands[::-1])
            elif OPS[op].kind is OpKind.ELEMENTWISE:
                yield replace(node, op="neg" if op != "neg" else "abs")
            if op in NEAR:
                yield replace(node, op=NEAR[op])


def mutants(graph: SGraph) -> list[SGraph]:
    """The graph with one mapping variable less, or one node changed."""
    (kernel,) = graph.kernels
    nodes, dims = kernel.block.nodes, kernel.block.tensor_dims()
    kernels = [
        replace(kernel, mapping=Mapping(kernel.mapping.true - {var})) for var in kernel.mapping.true
    ]
    kernels += [
        replace(kernel, block=BlockGraph((*nodes[:i], other, *nodes[i + 1 :])))
        for i, node in enumerate(nodes)
        for other in changed(node, dims[i])
    ]
    return [replace(graph, kernels=(k,)) for k in kernels]


@pytest.mark.parametrize("case", [c for c in CASES if c.is_right], ids=lambda c: c.name)
def test_no_mutant_that_computes_something_else_is_proved(case, axioms):
    graphs = mutants(case.graph)
    verdicts = verify_graphs(case.graph.program, graphs, axioms)
    for graph, verdict in zip(graphs, verdicts, strict=True):
        if verdict is Verdict.PROVED:
            assert find_counterexample(graph.program, graph) is None


@pytest.mark.parametrize("start", range(0, 120, 20))
def test_random_graphs_are_proved_only_where_they_are_right(start, axioms):
    seen = set()
    for seed in range(start, start + 20):
        graph = random_sgraph(seed, 2 + seed % 5)
        (verdict,) = verify_graphs(graph.program, [graph], axioms)
        is_wrong = find_counterexample(graph.program, graph) is not None
        assert not (verdict is Verdict.PROVED and is_wrong), seed
        seen.add((verdict is Verdict.PROVED, is_wrong))
    assert {(True, False), (False, True)} <= seen


GROWING = '(rewrite (Neg x) (Neg (Abs x)) :ruleset parallel :name "neg-grows")'


def test_only_the_culprit_gives_up(axioms):
    """A term that grows for ever must not take its batch along."""
    growing = make_axiom_set((*axioms.files, AxiomFile("growing.egg", GROWING)))
    good = [c.graph for c in CASES if c.program == "swiglu" and c.is_right]
    text = SWIGLU.replace("silu(%5)", "neg(%5)")
    culprit = Case("negated", "swiglu", text, is_right=False).graph
    limits = VerifyLimits(parallel_iterations=30)
    graphs = [*good, culprit, *good]
    found = verify_graphs(PROGRAMS["swiglu"], graphs, growing, limits)
    assert found == (Verdict.PROVED, Verdict.GAVE_UP, Verdict.PROVED)


def test_a_limit_is_not_a_negative_answer(axioms):
    case = next(c for c in CASES if c.name == "operands of the division swapped")
    limits = VerifyLimits(algebra_nodes=10)
    assert verify_graphs(case.graph.program, [case.graph], axioms, limits) == (Verdict.GAVE_UP,)
