"""Graphs of several kernels: all of them right, none left out that counts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import search_programs as programs
import stacked

from prism.egraph import load_axioms
from prism.errors import UsageError
from prism.ir import (
    Accumulator,
    Apply,
    MuGraph,
    SGraph,
    bind_sizes,
    check_sgraph,
    evaluate,
    evaluate_graph,
    format_sgraph,
    is_one_contraction,
    parse_sgraph,
    stack_dims,
)
from prism.search import SearchOptions, explain, search
from prism.search.plans import PlanGenerator
from prism.verdict import Verdict
from prism.verify import verify_graphs

TUNE = SearchOptions(mode="tune", max_kernels=2, budget_s=None)
COUNT = replace(TUNE, mode="count", grid_dims=1, max_graphs=150)

FUNCTIONS = {
    f.__name__: f
    for f in (
        programs.matmul,
        programs.rmsnorm_paper,
        programs.softmax_matmul,
        programs.two_outputs,
        programs.residual,
        programs.row_max,
        stacked.attention,
        stacked.ffn,
    )
}


@cache
def graphs_of(function, options) -> list[SGraph]:
    """The graphs of several kernels that a search finds."""
    result = search(programs.trace(function), options)
    return [g.graph for g in result.graphs if len(g.graph.kernels) > 1]


def outputs_at_odd_sizes(graph):
    """What a graph and its program compute at sizes that leave tails."""
    program = graph.program
    sizes = bind_sizes(program, {name: 7 + i for i, name in enumerate(program.size_names)})
    counts = tuple(
        (*((p.name, 3) for p in kernel.grid), *((p.name, 2) for p in kernel.loops))
        for kernel in graph.kernels
    )
    mu = MuGraph(graph, tuple(sizes.items()), counts)
    rng = np.random.default_rng(7)
    arrays = {
        a.name: rng.normal(size=[1 if d is None else sizes[d] for d in a.axes])
        for a in program.arguments
    }
    return evaluate_graph(mu, arrays), evaluate(program, arrays)


@pytest.mark.parametrize("options", [TUNE, COUNT], ids=["tune", "count"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_graph_is_well_formed_and_computes_its_program(name, options):
    graphs = graphs_of(FUNCTIONS[name], options)
    assert graphs
    for graph in graphs:
        check_sgraph(graph)
        assert parse_sgraph(format_sgraph(graph)) == graph
        got, want = outputs_at_odd_sizes(graph)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_proofs_and_placement_agree_on_every_graph(name):
    graphs = graphs_of(FUNCTIONS[name], TUNE)
    verdicts = verify_graphs(graphs[0].program, graphs, load_axioms(("prism",)))
    assert set(verdicts) == {Verdict.PROVED}
    assert [explain(graph) for graph in graphs] == [None] * len(graphs)


def has_stacked(graph, *ops):
    """Whether blocks leave sums for a later kernel, computed with these operators."""
    if not stack_dims(graph):
        return False
    applied = {n.op for n in graph.kernels[0].block.nodes if isinstance(n, Apply)}
    return applied.issuperset(ops)


def test_attention_is_split_over_keys():
    """Flash decoding: numerator and denominator of each split, then their sums and the quotient."""
    found = [g for g in graphs_of(stacked.attention, TUNE) if has_stacked(g, "exp", "sum")]
    assert any(
        [n.op for n in g.kernels[1].block.nodes if isinstance(n, Apply)] == ["sum", "sum", "div"]
        for g in found
    )


@pytest.mark.parametrize(("function", "op"), [(programs.matmul, "sum"), (programs.row_max, "max")])
def test_a_single_reduction_is_split_and_put_together(function, op):
    (program,) = {g.program for g in graphs_of(function, COUNT)}
    found = [g for g in graphs_of(function, TUNE) if stack_dims(g)]
    assert program == programs.trace(function)
    assert all(
        [n.op for n in g.kernels[1].block.nodes if isinstance(n, Apply)] == [op] for g in found
    )
    assert found


def test_a_normalized_product_is_split_over_its_depth():
    found = [g for g in graphs_of(programs.rmsnorm_paper, TUNE) if stack_dims(g)]
    assert any(isinstance(n, Accumulator) for g in found for n in g.kernels[0].block.nodes)


def test_a_feed_forward_network_is_cut_at_its_hidden_layer():
    graphs = graphs_of(stacked.ffn, TUNE)
    cut = [g for g in graphs if not stack_dims(g)]
    assert any(
        [n.op for n in g.kernels[1].block.nodes if isinstance(n, Apply)] == ["matmul"] for g in cut
    )


def test_a_lone_product_may_go_to_a_library():
    library = [k for g in graphs_of(stacked.ffn, TUNE) for k in g.kernels if k.library]
    assert library
    assert all(is_one_contraction(k.block) and not k.grid for k in library)


def test_three_kernels_come_from_cutting_once_more():
    three = graphs_of(stacked.ffn, replace(TUNE, max_kernels=3))
    assert {len(g.kernels) for g in three} == {2, 3}


def test_one_kernel_is_found_whatever_else_is_looked_for():
    program = programs.trace(programs.rmsnorm_paper)
    one = search(program, replace(TUNE, max_kernels=1))
    more = search(program, TUNE)
    assert {g.id for g in one.graphs} <= {g.id for g in more.graphs}


def test_the_result_says_where_plans_were_compared():
    """In tune mode that is what is asked for, and no cut."""
    result = search(programs.trace(programs.rmsnorm_paper), TUNE)
    assert result.complete
    assert result.counters["compared_at"] == 24


def test_the_same_search_gives_the_same_graphs():
    program = programs.trace(stacked.attention)
    first, second = (search(program, TUNE) for _ in range(2))
    assert [g.id for g in first.graphs] == [g.id for g in second.graphs]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_plan_is_faster_than_the_bound_of_its_cut(name, monkeypatch):
    """What is not looked into could not have been among the best."""
    compared = []
    offer = PlanGenerator._offer

    def checked(self, dag, chain, pieces):
        if all(piece.options for piece in pieces):
            rows = [piece.least for piece in pieces]
            assert (self._least(dag, chain) <= np.add.reduce(rows) * (1 + 1e-9)).all()
            compared.append(chain)
        offer(self, dag, chain, pieces)

    monkeypatch.setattr(PlanGenerator, "_offer", checked)
    monkeypatch.setattr(PlanGenerator, "_limit", lambda *_: np.inf)
    search(programs.trace(FUNCTIONS[name]), TUNE)
    assert compared


def test_names_of_the_program_are_not_taken():
    def clashing(t0: "s0 d", w: "d s1"):
        return programs.rmsnorm_paper(t0, w)

    graphs = graphs_of(clashing, TUNE)
    assert graphs
    for graph in graphs:
        check_sgraph(graph)
        got, want = outputs_at_odd_sizes(graph)
        np.testing.assert_allclose(got[0], want[0], rtol=1e-8)


def test_at_known_sizes_other_plans_are_listed_than_for_all():
    program = programs.trace(stacked.ffn)
    few = search(program, replace(TUNE, sizes=(("n", 1), ("d", 64), ("f", 64), ("h", 64))))
    everywhere = search(program, TUNE)
    assert len(few.graphs) < len(everywhere.graphs)


@pytest.mark.parametrize("count", [0, 4])
def test_the_number_of_kernels_is_limited(count):
    with pytest.raises(UsageError, match=f"max_kernels must be 1 to 3, not {count}"):
        search(programs.trace(programs.matmul), SearchOptions(max_kernels=count))
