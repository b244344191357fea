"""Workers know the operators that users define: programs and graphs only name them."""

from __future__ import annotations

import sys

import pytest
from operator_tables import GELU_QUICK, LERP

from prism.egraph import load_axioms
from prism.frontend import trace
from prism.operators import define_table
from prism.search import SearchOptions, search
from prism.verdict import Verdict
from prism.verify import ParallelVerifier, Verifier, VerifyLimits, parallel

pytestmark = pytest.mark.usefixtures("operators")

TABLE = GELU_QUICK + LERP


@pytest.fixture
def program():
    import prism  # noqa: PLC0415

    define_table(TABLE, "mine.toml")

    def mixed(x, w, v, t):
        return prism.ops.lerp(prism.ops.gelu_quick(x @ w), x @ v, t)

    return trace(mixed, x="n d", w="d h", v="d h", t="n")


def test_the_cone_and_the_lemmas_know_them(program, monkeypatch):
    module = sys.modules["prism.search.search"]  # the package has a function of that name
    monkeypatch.setattr(module, "FEW", 5)  # or all would be proved, without lemmas
    monkeypatch.setattr("prism.search.judging.SAMPLE", 3)
    found = search(program, SearchOptions(max_ops=9, verify="sample", budget_s=None))
    assert found.complete
    assert found.counters["not_proved"] == found.counters["gave_up"] == 0
    assert found.counters["proved"] < found.counters["admitted"]


def test_the_forward_generator_says_what_it_does_not_try(program):
    found = search(program, SearchOptions(generator="forward", budget_s=100.0))
    assert found.cuts == ("operators: no graphs with lerp, of 3 operands",)


def test_both_generators_find_the_same(program):
    import prism  # noqa: PLC0415

    gated = trace(lambda x, w: prism.ops.gelu_quick(x @ w) @ w, x="n d", w="d d")
    ids = [
        {
            g.id
            for g in search(gated, SearchOptions(generator=name, max_ops=6, budget_s=None)).graphs
        }
        for name in ("cone", "forward")
    ]
    assert ids[0] == ids[1]
    assert len(ids[0]) > 1


@pytest.mark.slow
def test_workers_give_the_same_verdicts(program, monkeypatch):
    monkeypatch.setattr(parallel, "WORTH_S", 0.0)
    graphs = [
        g.graph for g in search(program, SearchOptions(max_graphs=30, budget_s=None)).graphs[:-1]
    ]
    verifier = Verifier(program, load_axioms(), VerifyLimits(batch=4, renew=8))
    expected = verifier.verify(graphs)
    pool = ParallelVerifier(verifier, 2)
    try:
        assert pool.verify(graphs) == expected
        assert pool._workers
        assert pool.deaths == 0
    finally:
        pool.close()
    assert set(expected) == {Verdict.PROVED}
