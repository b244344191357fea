"""Graphs of several kernels: the axioms and placement agree on right and wrong ones."""

from __future__ import annotations

import re

import pytest
import stacked

from prism.egraph import load_axioms
from prism.search import explain
from prism.verdict import Verdict
from prism.verify import find_counterexample, verify_graphs


def verdict(graph):
    (found,) = verify_graphs(graph.program, [graph], load_axioms(("prism",)))
    return found


@pytest.mark.parametrize("name", stacked.RIGHT)
def test_right_graphs_are_proved_and_placement_finds_no_fault(name):
    graph = stacked.RIGHT[name]
    assert verdict(graph) is Verdict.PROVED
    assert explain(graph) is None


@pytest.mark.parametrize("name", stacked.WRONG)
def test_wrong_graphs_are_not_proved(name):
    assert verdict(stacked.WRONG[name]) is not Verdict.PROVED


REASONS = {
    "whole beside a stack": "kernel 0, along x: t0 stacks along s a value that is whole",
    "a nonlinear operator before the sum": "kernel 1, along s: partial value of t0.* = sqrt",
    "the largest of sums": "kernel 1, along s: %1 = max of values that are partial",
    "the sum of maxima": "kernel 1, along s: %1 = sum of values that are a maximum of a part",
    "a quotient of each split": "kernel 1, along s: partial value of t0.* = div beside",
}


@pytest.mark.parametrize("name", REASONS)
def test_placement_says_why_a_stack_is_wrong(name):
    assert re.search(REASONS[name], explain(stacked.WRONG[name]) or "")


@pytest.mark.parametrize("name", stacked.RIGHT)
def test_numbers_are_tried_on_what_is_proved(name):
    graph = stacked.RIGHT[name]
    assert find_counterexample(graph.program, graph, is_proved=True) is None


@pytest.mark.parametrize("name", stacked.WRONG)
def test_numbers_show_what_is_wrong(name):
    graph = stacked.WRONG[name]
    found = find_counterexample(graph.program, graph)
    assert found is not None
    assert "x@0=" in str(found)


TILE = """\
kernel 0
  grid x
  map m[x,d,x]
  map m[t0,s,x]
  x = load x[n, d]
  save x as t0[s, n, d]
kernel 1
  t0 = load t0[s, n, d]
  %1 = max[s](t0)
  %2 = max[d](%1)
  save %2 as out0[n]
"""


def test_a_tile_stacked_as_if_it_were_whole_is_not_proved_in_any_company():
    """Its dim would have another size there: each block has a part of it."""
    right, tile = stacked.RIGHT["largest"], stacked.graph(stacked.largest, TILE)
    assert "stacks along s a value that is a tile along d" in (explain(tile) or "")
    verdicts = verify_graphs(right.program, [right, tile], load_axioms(("prism",)))
    assert verdicts[0] is Verdict.PROVED
    assert verdicts[1] is not Verdict.PROVED
