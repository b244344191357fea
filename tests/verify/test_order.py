"""Verdicts depend on the graph alone: not on its company, its batch, its block or its order."""

from __future__ import annotations

import random

import pytest
from verify.table import CASES, PROGRAMS
from verify.test_graphs import mutants

from prism.egraph import load_axioms
from prism.search import SearchOptions, search
from prism.verify import Verdict, VerifyLimits, verify_graphs

NAMES = ("matmul", "rmsnorm", "stable_softmax_matmul", "swiglu")
EVERY = 8
"""Every so many-th mutant."""


@pytest.fixture(scope="module")
def axioms():
    return load_axioms()


def mixed(name):
    """Graphs of a search, right and wrong ones of the table, and mutants of the right ones."""
    cases = [case for case in CASES if case.program == name]
    found = search(PROGRAMS[name], SearchOptions(max_graphs=20, workers=1)).graphs
    graphs = [g.graph for g in found if not g.is_fallback] + [case.graph for case in cases]
    for case in cases:
        graphs += mutants(case.graph)[::EVERY] if case.is_right else []
    return graphs


@pytest.mark.parametrize(
    "name", ["matmul", *(pytest.param(n, marks=pytest.mark.slow) for n in NAMES[1:])]
)
def test_company_batch_and_block_change_no_verdict(name, axioms):
    graphs = mixed(name)
    alone = [verify_graphs(PROGRAMS[name], [graph], axioms)[0] for graph in graphs]
    assert {Verdict.PROVED, Verdict.NOT_PROVED} <= set(alone)
    order = list(range(len(graphs)))
    for batch, renew in ((7, 400), (40, 400), (40, 11)):
        random.Random(batch + renew).shuffle(order)
        limits = VerifyLimits(batch=batch, renew=renew)
        found = verify_graphs(PROGRAMS[name], [graphs[i] for i in order], axioms, limits)
        assert list(found) == [alone[i] for i in order]
