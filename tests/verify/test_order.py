"""Verdicts depend on the graph alone: not on its company, its batch, its block or its order."""

from __future__ import annotations

import math
import random

import pytest
from verify.mutants_store import load, names
from verify.table import CASES, PROGRAMS
from verify.test_graphs import mutants

from prism.egraph import load_axioms
from prism.search import SearchOptions, search
from prism.verify import (
    ParallelVerifier,
    Verdict,
    Verifier,
    VerifyLimits,
    parallel,
    verify_graphs,
)

NAMES = ("matmul", "rmsnorm", "stable_softmax_matmul", "swiglu")
EVERY = 8
"""Every so many-th mutant."""


@pytest.fixture(scope="module")
def axioms():
    return load_axioms()


def mixed(name):
    """Graphs of a search, right and wrong ones of the table, and mutants of the right ones."""
    cases = [case for case in CASES if case.program == name]
    found = search(PROGRAMS[name], SearchOptions(max_graphs=20, workers=1, budget_s=None)).graphs
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
    for batch, renew in ((1, 400), (7, 400), (40, 400), (40, 11)):
        random.Random(batch + renew).shuffle(order)
        limits = VerifyLimits(batch=batch, renew=renew)
        found = verify_graphs(PROGRAMS[name], [graphs[i] for i in order], axioms, limits)
        assert list(found) == [alone[i] for i in order]


# --- stored mutants, in any number of processes -------------------------------------------------

STORED = 9
"""Of each family one mutant in so many, with the right graph that it was made from."""
QUICK = ("lora", "rmsnorm_mlp_paper")


def stored(name):
    """Some mutants, each with the graph that it was made from, shuffled."""
    found = load(name)
    some = found.mutants[::STORED]
    graphs = [g for m in some for g in (m.graph, found.right[m.name.partition(".")[0]])]
    random.Random(name).shuffle(graphs)
    return found.program, graphs


def in_workers(program, graphs, axioms, count, limits):
    pool = ParallelVerifier(Verifier(program, axioms, limits), count)
    try:
        return pool.verify(graphs), pool.late
    finally:
        pool.close()


@pytest.mark.parametrize(
    "name",
    [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in names() if n not in QUICK)],
)
def test_batches_of_one_and_workers_change_no_verdict_of_a_stored_mutant(name, axioms, monkeypatch):
    monkeypatch.setattr(parallel, "WORTH_S", 0.0)
    program, graphs = stored(name)
    alone = tuple(verify_graphs(program, [graph], axioms)[0] for graph in graphs)
    assert Verdict.PROVED in alone
    assert alone.count(Verdict.PROVED) < len(alone)
    for batch in (1, 40):
        assert verify_graphs(program, graphs, axioms, VerifyLimits(batch=batch)) == alone
    for count in (1, 2):
        limits = VerifyLimits(batch=2, renew=3)
        assert in_workers(program, graphs, axioms, count, limits) == (alone, 0)


@pytest.mark.parametrize("count", [0, 2])
def test_verdicts_that_the_clock_ended_are_counted_in_every_process(count, axioms, monkeypatch):
    monkeypatch.setattr(parallel, "WORTH_S", 0.0)
    monkeypatch.setattr(parallel, "PATIENCE", math.inf)
    program, graphs = stored("lora")
    limits = VerifyLimits(batch=2, renew=3, seconds=1e-9)
    if count:
        verdicts, late = in_workers(program, graphs, axioms, count, limits)
    else:
        verifier = Verifier(program, axioms, limits)
        verdicts, late = verifier.verify(graphs), verifier.late
    assert late == verdicts.count(Verdict.GAVE_UP) > 0
