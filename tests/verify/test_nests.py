"""A loop inside a loop: the axioms and placement agree on right and wrong graphs."""

from __future__ import annotations

import random
import re

import nested
import pytest
import search_programs as programs
from verify.test_admission import (
    admitted,
    assert_no_more_than_full_terms,
    is_well_formed,
    remapped,
)
from verify.test_graphs import mutants

from prism.egraph import load_axioms
from prism.search import SearchOptions, explain, search
from prism.verdict import Verdict
from prism.verify import verify_graphs


def verdict(graph):
    (found,) = verify_graphs(graph.program, [graph], load_axioms(("prism",)))
    return found


@pytest.mark.parametrize("name", nested.RIGHT)
def test_right_nests_are_proved_and_placement_finds_no_fault(name):
    graph = nested.RIGHT[name]
    assert verdict(graph) is Verdict.PROVED
    assert explain(graph) is None


REASONS = {
    "the exponential of a partial sum": "along j: partial value of %3 enters %4 = exp",
    "the sum of maxima": "along i: %4 accumulates %3 by sum .* it is a maximum of a part",
    "the largest of partial sums": "along j: %2 accumulates %1 by max .* it is partial",
    "replicated along the outer loop": "along i: %4 accumulates %3 by sum .* it is whole",
}


@pytest.mark.parametrize("name", nested.WRONG)
def test_wrong_nests_are_not_proved_and_placement_says_why(name):
    graph = nested.WRONG[name]
    assert verdict(graph) is not Verdict.PROVED
    assert re.search(REASONS[name], explain(graph) or "")


@pytest.fixture(scope="module")
def axioms():
    return load_axioms()


@pytest.mark.parametrize("name", [*nested.RIGHT, *nested.WRONG])
def test_right_nests_are_admitted_and_wrong_ones_are_not(name, axioms):
    (flag,) = admitted([{**nested.RIGHT, **nested.WRONG}[name]], axioms)
    assert flag is (name in nested.RIGHT)


@pytest.mark.parametrize("name", nested.RIGHT)
def test_no_mutant_of_a_nest_is_admitted_that_is_not_proved(name, axioms):
    graph = nested.RIGHT[name]
    graphs = [graph, *filter(is_well_formed, mutants(graph))]
    assert len(graphs) > 1
    assert 0 < assert_no_more_than_full_terms(graphs, axioms) < len(graphs)


@pytest.mark.parametrize(
    "function", [programs.rmsnorm_paper, programs.softmax_matmul, programs.matmul_and_max]
)
def test_nests_with_any_mapping_are_admitted_only_where_they_are_proved(function, axioms):
    options = SearchOptions(loop_dims=2, grid_dims=1, budget_s=None, max_graphs=None)
    found = search(programs.trace(function), options).graphs
    nests = [g.graph for g in found if len(g.graph.kernels[0].loops) == 2]
    chance = random.Random(3)
    drawn = [remapped(chance.choice(nests), chance) for _ in range(500)]
    graphs = list(dict.fromkeys(filter(is_well_formed, drawn)))
    count = assert_no_more_than_full_terms(graphs, axioms)
    assert 0 < count < len(graphs)
