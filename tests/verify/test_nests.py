"""A loop inside a loop: the axioms and placement agree on right and wrong graphs."""

from __future__ import annotations

import re

import nested
import pytest

from prism.egraph import load_axioms
from prism.search import explain
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
