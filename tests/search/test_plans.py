"""Graphs of several kernels: all of them right, none left out that counts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
import search_programs as programs
import stacked

from prism import frontend as pr
from prism.egraph import load_axioms, saturate
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
from prism.protocols import Device
from prism.search import SearchOptions, explain, search
from prism.search.cone import build_cone
from prism.search.generate import preferred_dag
from prism.search.plans import best
from prism.search.plans.best import BestPlans
from prism.search.plans.cuts import MAX_CROSSING, CutTable
from prism.search.wiring import Arena
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


def own_dag(arena):
    """The program's own op DAG."""
    program = arena.program
    cone = build_cone(program, saturate(program, load_axioms(("prism",))))
    return arena.wire(cone, preferred_dag(cone))


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


GPU = Device(
    "a GPU",
    threads=132 * 2048,
    vector_bits=1024,
    l1_bytes=228 * 1024,
    l2_bytes=50 * 2**20,
    l3_bytes=0,
    stream_gbps=4800.0,
    kind="gpu",
    arch="sm_90",
    multiprocessors=132,
)
DECODING = (("q", 4), ("e", 128), ("k", 65536), ("f", 128))


def attention_of_normed_keys(q: "q e", k: "k e", v: "k f"):
    return stacked.attention(q, k / pr.sqrt(pr.mean(k**2, axis=-1, keepdims=True)), v)


def test_flash_decoding_comes_first_where_it_is_the_fastest(monkeypatch):
    """Few query rows, many keys: most of what reads the keys in few blocks is not looked into."""
    compared = []
    compare = BestPlans.compare

    def noted(self, dag, chain, pieces):
        compare(self, dag, chain, pieces)
        compared.append(self.kept[0][0].seconds)

    monkeypatch.setattr(BestPlans, "compare", noted)
    options = replace(TUNE, sizes=DECODING, device=GPU)
    result = search(programs.trace(attention_of_normed_keys), options)
    assert compared[0] <= 1.05 * compared[-1]
    assert result.counters["bounded_cuts"] > result.counters["cuts"] / 3
    assert any(has_stacked(g.graph, "exp", "sum") for g in result.graphs)


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


@pytest.mark.parametrize("kernels", [2, 3])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_plan_is_faster_than_what_is_known_of_its_cut_and_pieces(name, kernels, monkeypatch):
    """What is not looked into could not have been among the best."""
    compared: list[int] = []
    compare = BestPlans.compare

    def checked(self, dag, chain, pieces):
        compare(self, dag, chain, pieces)
        floors = dag.floors.of([chain])
        for floor, piece in zip(floors, pieces, strict=True):
            least = piece.least * (1 + 1e-9)
            assert (floor[0] <= least).all()
            assert (piece.floor <= least).all()
        compared.append(len(chain))

    monkeypatch.setattr(BestPlans, "compare", checked)
    monkeypatch.setattr(BestPlans, "_limit", lambda *_: np.full(24, np.inf))
    monkeypatch.setattr(best, "KEPT", 1)
    search(programs.trace(FUNCTIONS[name]), replace(TUNE, max_kernels=kernels))
    assert compared


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_left_out_early_would_not_have_been_kept(name, monkeypatch):
    """With no bound but the limits the best plan at each profile takes as long."""
    found = []
    kept = BestPlans.search

    def noted(self, *given):
        kept(self, *given)
        found.append([k[0].seconds for k in self.kept if k])

    monkeypatch.setattr(BestPlans, "search", noted)
    search(programs.trace(FUNCTIONS[name]), TUNE)
    monkeypatch.setattr(BestPlans, "_is_promising", lambda *_: True)
    search(programs.trace(FUNCTIONS[name]), TUNE)
    bounded, everything = found
    # what may take as long as the third best within 3 % is left out
    np.testing.assert_allclose(bounded, everything, rtol=0.031)


def subsets_closed_downwards(arena, wired):
    nodes = wired.nodes
    for chosen in product((False, True), repeat=len(nodes)):
        below = {t for t, taken in zip(nodes, chosen, strict=True) if taken}
        read = {o for t in below for o in arena.terms[t].operands if o in nodes}
        if below and read <= below:
            yield below


@pytest.mark.parametrize("name", FUNCTIONS)
def test_cuts_are_the_sets_closed_downwards_that_few_values_cross(name):
    program = programs.trace(FUNCTIONS[name])
    arena = Arena(program)
    wired = own_dag(arena)
    table = CutTable(arena, wired)
    cuts = {table.terms(cut): table.terms(table.crossing(cut)) for cut in table.cuts(10**6)}
    expected = {}
    for below in subsets_closed_downwards(arena, wired):
        read_above = {o for t in wired.nodes if t not in below for o in arena.terms[t].operands}
        crossing = below & (read_above | set(wired.roots))
        if len(crossing) <= MAX_CROSSING:
            expected[frozenset(below)] = crossing
    assert cuts == expected


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
