"""Pruners: switched off one by one, written by others, counted, and sound."""

from __future__ import annotations

import pytest
import search_programs as programs

from prism.errors import UsageError
from prism.search import (
    Gate,
    Matched,
    Offered,
    Placed,
    Saved,
    SearchOptions,
    Staged,
    pruning,
    search,
)
from prism.search.dimension import DimensionPruner
from prism.search.expression import ExpressionPruner
from prism.search.macros import Operator
from prism.search.pruning import load_pruners
from prism.verdict import Verdict

PRUNERS = ("expression", "dimension", "placement")
SITUATED = ("hardware", "cost-bound")
"""They judge where sizes and a device are known; see their own tests."""
NOT_PROVED = Verdict.NOT_PROVED


def found(function, *without, **options):
    given = {"max_graphs": 3000, "budget_s": 60.0} | options
    return search(programs.trace(function), SearchOptions(without=without, **given))


def ids(result):
    return {g.id for g in result.graphs}


@pytest.mark.parametrize("name", PRUNERS)
@pytest.mark.parametrize("function", [programs.matmul, programs.exp_sum, programs.two_outputs])
def test_without_a_pruner_nothing_is_lost_and_nothing_wrong_is_found(function, name):
    base, result = found(function), found(function, name)
    assert ids(result) >= ids(base)
    assert name not in result.counters["pruners"]
    for graph in result.graphs:
        assert programs.computes_its_program(graph.graph, seed=3)


def test_without_any_pruner_verification_alone_finds_the_same():
    base, result = found(programs.matmul), found(programs.matmul, *PRUNERS)
    assert ids(result) == ids(base)
    assert result.counters["not_proved"] > 100


def test_what_placement_drops_reaches_verification_when_it_is_off():
    base, result = found(programs.matmul), found(programs.matmul, "placement")
    assert base.counters["not_proved"] == 0
    assert result.counters["not_proved"] > 0
    assert {r.verdict for r in result.rejected} == {NOT_PROVED}
    assert all(r.reason.startswith("along ") for r in result.rejected)


def test_pruners_are_counted():
    counts = found(programs.softmax_matmul).counters["pruners"]
    assert set(counts) == {*PRUNERS, *SITUATED}
    assert all(counts[name]["seen"] == 0 for name in SITUATED)
    assert counts["expression"]["dropped"] > 0
    assert counts["placement"]["dropped"] > 0
    assert all(c["seen"] >= c["dropped"] and c["seconds"] >= 0 for c in counts.values())


def test_an_unknown_pruner_cannot_be_switched_off():
    with pytest.raises(UsageError, match=r"no pruner 'placemnt'.*dimension, .*placement"):
        load_pruners(("placemnt",))


def test_pruners_come_through_the_plugin_door():
    names = {*PRUNERS, *SITUATED}
    assert {p.name for p in load_pruners(())} == names
    assert {p.name for p in load_pruners(("dimension",))} == names - {"dimension"}


def test_the_expression_pruner_drops_what_cannot_be_computed():
    pruner = ExpressionPruner()
    operator = Operator("add", (1, 2))
    dims = (frozenset("n"), frozenset("n"))
    assert pruner.judge(Offered(operator, (True, True), dims)) is None
    assert "cannot be computed" in pruner.judge(Offered(operator, (True, False), dims))


def test_the_dimension_pruner_drops_an_operator_over_a_dim_that_is_not_there():
    pruner = DimensionPruner()
    operator = Operator("matmul", (1, 2), "k")
    there, missing = frozenset("nk"), frozenset("n")
    assert pruner.judge(Offered(operator, (True, True), (there, there))) is None
    assert "over k" in pruner.judge(Offered(operator, (True, True), (there, missing)))


class NoDivision:
    """A stranger's pruner: unsound, but its own business."""

    name = "no-division"

    def judge(self, partial):
        match partial:
            case Offered(operator=operator) if operator.op == "div":
                return "no divisions today"
            case Offered() | Matched() | Placed() | Saved():
                return None


def test_the_gate_stops_at_the_first_reason_and_remembers_it():
    gate = Gate([NoDivision(), ExpressionPruner()])
    offered = Offered(Operator("div", (1, 2)), (False, True), (frozenset(), frozenset()))
    assert not gate.keeps(offered)
    assert gate.counts["no-division"].dropped == 1
    assert gate.counts["expression"].seen == 0
    assert gate.counts["no-division"].example == "no divisions today"


def test_equalities_follow_a_dim_from_input_to_output():
    problem = found(programs.matmul)
    for graph in problem.graphs:
        true = {str(v) for v in graph.graph.kernels[0].mapping.true}
        for par in "xyz":
            assert (f"m[x,d,{par}]" in true) == (f"m[w,d,{par}]" in true)
            assert (f"m[x,n,{par}]" in true) == (f"m[out0,n,{par}]" in true)


class OnlySmall:
    """A stranger's pruner that judges by sizes."""

    name = "only-small"

    def __init__(self):
        self.nearest = None
        self.sizes = {}

    @property
    def is_situated(self):
        return bool(self.sizes)

    def situate(self, situation):
        self.sizes = situation.sizes

    def judge(self, partial):
        if isinstance(partial, Staged) and partial.stage is not None:
            self.nearest = (1.0, f"a loop at n = {self.sizes['n']}")
            return self.nearest[1]
        return None


def test_a_pruner_that_judges_by_sizes_is_told_them_first(monkeypatch):
    monkeypatch.setattr(pruning, "installed", lambda _group: {"only-small": None})
    monkeypatch.setattr(pruning, "make", lambda _group, _name: OnlySmall())
    usual = found(programs.matmul)
    assert usual.counters["pruners"] == {
        "only-small": {"seen": 0, "dropped": 0, "seconds": 0.0, "example": None}
    }
    told = found(programs.matmul, sizes=(("n", 4), ("d", 8), ("h", 2)))
    assert told.counters["pruners"]["only-small"]["dropped"] > 0
    assert told.nearest == {"only-small": "a loop at n = 4"}
    assert not any(g.graph.kernels[0].loops for g in told.graphs)
    assert any(g.graph.kernels[0].loops for g in usual.graphs)
