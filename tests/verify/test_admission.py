"""Admission never takes what full terms reject, whatever the graph and whoever guesses."""

from __future__ import annotations

import random
import sys
from dataclasses import replace

import pytest
import search_programs as programs
import stacked
from strategies import random_sgraph
from verify.table import CASES
from verify.test_graphs import mutants

from prism.egraph import load_axioms, make_axiom_set
from prism.errors import GraphError
from prism.ir import (
    Mapping,
    MapVar,
    check_sgraph,
    format_sgraph,
    parse_sgraph,
    stack_dims,
)
from prism.search import SearchOptions, explain, judging, search
from prism.search.placement import transfer
from prism.verify import Admission, Verdict, Verifier, verify_graphs
from prism.verify.admission import whole_form


@pytest.fixture(scope="module")
def axioms():
    return load_axioms()


def admission(program, axioms, guess=transfer):
    return Admission(program, axioms, guess, Verifier(program, axioms).verify)


def admitted(graphs, axioms, guess=transfer):
    """Of graphs of one program."""
    return admission(graphs[0].program, axioms, guess).admitted(graphs)


def assert_no_more_than_full_terms(graphs, axioms, guess=transfer):
    """The number admitted; each of these is proved, and placement finds no fault."""
    flags = admitted(graphs, axioms, guess)
    taken = [graph for graph, flag in zip(graphs, flags, strict=True) if flag]
    if taken:
        assert set(verify_graphs(taken[0].program, taken, axioms)) == {Verdict.PROVED}
    assert [explain(graph) for graph in taken] == [None] * len(taken)
    return len(taken)


def is_well_formed(graph):
    try:
        check_sgraph(graph)
    except GraphError:
        return False
    return True


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_right_graphs_of_the_table_are_admitted_and_wrong_ones_are_not(case, axioms):
    (flag,) = admitted([case.graph], axioms)
    # what is right for equal chunks alone has no states
    assert flag is (case.is_right and explain(case.graph) is None)


@pytest.mark.parametrize("case", [c for c in CASES if c.is_right], ids=lambda c: c.name)
def test_no_mutant_is_admitted_that_is_not_proved(case, axioms):
    graphs = [case.graph, *filter(is_well_formed, mutants(case.graph))]
    assert len(graphs) > 1
    assert_no_more_than_full_terms(graphs, axioms)


@pytest.mark.parametrize("start", range(0, 400, 40))
def test_random_graphs_are_admitted_only_where_they_are_proved(start, axioms):
    graphs = [random_sgraph(seed, 2 + seed % 5) for seed in range(start, start + 40)]
    count = sum(assert_no_more_than_full_terms([graph], axioms) for graph in graphs)
    assert 0 < count < len(graphs)


PROGRAMS = (
    programs.rmsnorm,
    programs.softmax_matmul,
    programs.swiglu,
    programs.row_max,
    programs.two_outputs,
    programs.biased,
)


def remapped(graph, chance):
    """The graph with its mapping variables drawn anew: legal ones and others."""
    (kernel,) = graph.kernels
    pars = (*kernel.grid, *kernel.loops)
    tensors = {n.source: n.dims for n in kernel.block.loaders}
    tensors |= {n.target: n.dims for n in kernel.block.savers}
    true = set()
    for par in pars:
        base = chance.choice([*sorted({d for dims in tensors.values() for d in dims}), None])
        for name, dims in tensors.items():
            dim = base if chance.random() < 0.85 else chance.choice([*dims, None])
            if dim in dims and not (par in kernel.loops and name.startswith("out")):
                true.add(MapVar(name, dim, par.name))
    return replace(graph, kernels=(replace(kernel, mapping=Mapping(frozenset(true))),))


@pytest.mark.parametrize("function", PROGRAMS)
def test_stages_with_any_mapping_are_admitted_only_where_they_are_proved(function, axioms):
    program = programs.trace(function)
    found = search(program, SearchOptions(max_graphs=40, budget_s=None)).graphs[:-1]
    chance = random.Random(1)
    drawn = [remapped(chance.choice(found).graph, chance) for _ in range(150)]
    graphs = list(dict.fromkeys(filter(is_well_formed, drawn)))
    count = assert_no_more_than_full_terms(graphs, axioms)
    assert 0 < count < len(graphs)


@pytest.mark.parametrize("function", PROGRAMS[:3])
def test_without_placement_the_search_lists_the_same_graphs(function, monkeypatch):
    """Most candidates are wrong then."""
    monkeypatch.setattr(sys.modules[search.__module__], "FEW", 0)
    monkeypatch.setattr(judging, "SAMPLE", 2)
    program = programs.trace(function)
    options = SearchOptions(
        max_ops=7, grid_dims=1, max_graphs=60, budget_s=None, without=("placement",)
    )
    full = search(program, options)
    sample = search(program, replace(options, verify="sample"))
    assert [g.id for g in sample.graphs] == [g.id for g in full.graphs]
    assert [(r.id, r.verdict) for r in sample.rejected] == [
        (r.id, r.verdict) for r in full.rejected
    ]
    assert sample.counters["admitted"] > 0 < sample.counters["not_proved"]


@pytest.mark.parametrize("function", PROGRAMS[:3])
@pytest.mark.parametrize("seed", range(3))
def test_a_wrong_guess_admits_nothing_wrong(function, seed, axioms):
    chance = random.Random(seed)

    def guess(op, dim, states, dims):
        right = transfer(op, dim, states, dims)
        return right if chance.random() < 0.7 else chance.choice((-1, -2, -3, 0, 1, None))

    program = programs.trace(function)
    found = search(program, SearchOptions(max_graphs=40, budget_s=None)).graphs[:-1]
    graphs = [remapped(g.graph, chance) for g in found] + [g.graph for g in found]
    assert_no_more_than_full_terms(list(filter(is_well_formed, graphs)), axioms, guess)


def test_without_axioms_nothing_that_is_distributed_is_admitted():
    none = make_axiom_set(())
    flags = admitted([c.graph for c in CASES if c.program == "matmul" and c.is_right], none)
    assert not any(flags)


@pytest.mark.parametrize("name", stacked.RIGHT)
def test_graphs_of_several_kernels(name, axioms):
    """Those with stacks are left to full terms."""
    graph = stacked.RIGHT[name]
    assert admitted([graph], axioms) == (not stack_dims(graph),)


@pytest.mark.parametrize("name", stacked.WRONG)
def test_wrong_graphs_of_several_kernels_are_not_admitted(name, axioms):
    assert admitted([stacked.WRONG[name]], axioms) == (False,)


@pytest.mark.parametrize("program", sorted({c.program for c in CASES}))
def test_company_order_and_sharing_of_blocks_change_nothing(program, axioms):
    graphs = [c.graph for c in CASES if c.program == program]
    graphs += [g for c in graphs for g in mutants(c)[::3] if is_well_formed(g)]
    graphs = random.Random(0).sample(graphs, min(10, len(graphs)))
    alone = [admitted([g], axioms)[0] for g in graphs]
    assert list(admitted(graphs, axioms)) == alone
    judge = admission(graphs[0].program, axioms)
    order = list(range(len(graphs)))
    random.Random(0).shuffle(order)
    # copies: equal blocks that are not the same object, dropped at once
    for i in order:
        assert judge.admitted([parse_sgraph(format_sgraph(graphs[i]))]) == (alone[i],)
    assert list(judge.admitted(graphs)) == alone


def test_the_whole_form_has_no_parallel_dims_and_computes_the_same(axioms):
    for case in CASES:
        whole = whole_form(case.graph)
        check_sgraph(whole)
        assert not any(k.grid or k.loops or k.mapping.true for k in whole.kernels)
        if case.is_right:
            assert verify_graphs(whole.program, [whole], axioms) == (Verdict.PROVED,)
