"""Tune mode as it is used: plug-ins, time, seeds, and what is not proved."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import search_programs as programs

from prism.errors import UsageError
from prism.frontend import load_program
from prism.identity import graph_id
from prism.ir import (
    Apply,
)
from prism.search import MODES, PROGRAM_ID, SearchOptions, search
from prism.verdict import Verdict
from prism.verify import Verifier
from prism_experiments.sizes import SHAPES

TUNE = SearchOptions(mode="tune", budget_s=None)


def others(result):
    return [g for g in result.graphs if not g.is_fallback]


def test_the_streaming_softmax_is_there():
    """One pass over k: the sum and the product are accumulated side by side, divided at the end."""
    result = search(programs.trace(programs.softmax_matmul), TUNE)
    streaming = [
        g
        for g in others(result)
        if {str(v) for v in g.graph.kernels[0].mapping.true if v.par == "i"}
        == {"m[x,k,i]", "m[w,k,i]"}
    ]
    assert [g.accumulator_count for g in streaming] == [2]


def test_a_graph_that_takes_no_new_exponential_is_kept_beside_those_that_do():
    """exp(x) / exp(max) costs less than exp(x - max), and may overflow: a target may refuse it."""
    result = search(programs.trace(programs.stable_softmax_matmul), TUNE)
    assert result.complete
    subtracts = {
        any(isinstance(n, Apply) and n.op == "sub" for n in g.graph.kernels[0].block.nodes)
        for g in others(result)
    }
    assert subtracts == {True, False}


def test_every_graph_of_tune_mode_is_one_of_count_mode():
    program = programs.trace(programs.rmsnorm)
    tuned, counted = (search(program, replace(TUNE, mode=m, max_graphs=None)) for m in MODES[::-1])
    assert tuned.complete
    assert counted.complete
    assert {g.id for g in tuned.graphs} < {g.id for g in counted.graphs}
    assert tuned.counters["proved"] == len(others(tuned)) < len(others(counted)) / 10


def test_at_given_sizes_graphs_are_fewer_and_all_of_them_proved():
    program = programs.trace(programs.rmsnorm)
    sized = replace(TUNE, sizes=(("n", 8), ("d", 4096), ("h", 4096)))
    tuned, everywhere = search(program, sized), search(program, TUNE)
    counted = search(program, replace(TUNE, mode="count", max_graphs=None))
    assert tuned.complete
    assert {g.id for g in tuned.graphs} < {g.id for g in counted.graphs}
    assert 0 < tuned.counters["proved"] == len(others(tuned)) < len(others(everywhere))


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["decode", "larger"])
@pytest.mark.parametrize("name", ["qk_attention", "rmsnorm_mlp", "ffn", "attention"])
def test_the_largest_workloads_finish_at_their_sizes(name, shape):
    """Two cores need 2 s for qk_attention, 0.5 s for the others; without sizes it is cut."""
    sizes = tuple(SHAPES[name][shape].items())
    result = search(load_program(name)[1], SearchOptions(mode="tune", budget_s=100.0, sizes=sizes))
    assert result.complete
    assert 0 < len(others(result)) < 80


def test_a_run_can_be_repeated():
    program = programs.trace(programs.stable_softmax_matmul)
    first, second = (search(program, TUNE) for _ in range(2))
    assert [g.id for g in first.graphs] == [g.id for g in second.graphs]
    assert first.counters["states"] == second.counters["states"]


DROPPING = """
from dataclasses import replace
from prism_constraints.backtracking import BacktrackingEncoding

class Dropping(BacktrackingEncoding):
    name = "dropping"

    def enumerate(self, problem, *, limit=None):
        answer = super().enumerate(problem, limit=limit)
        kept = tuple(a for a in answer.assignments if a.dim_of("out0", "y") is None)
        return replace(answer, assignments=kept)
"""
"""The plain encoding without the mappings in which a second grid dim partitions the output."""


def test_mappings_come_from_the_encoding_alone(tmp_path):
    """What is lost is what the encoding drops; graphs with less of a grid take its place."""
    (tmp_path / "mine.py").write_text(DROPPING)
    program = programs.trace(programs.rmsnorm)
    usual = search(program, TUNE)
    fewer = search(program, replace(TUNE, encoding=f"{tmp_path}/mine.py:Dropping"))
    assert {len(g.graph.kernels[0].grid) for g in others(usual)} == {2}
    assert {len(g.graph.kernels[0].grid) for g in others(fewer)} == {1}


@pytest.mark.parametrize("encoding", ["backtracking", "integer", "placement", "factorised"])
def test_every_encoding_gives_the_same_graphs(encoding):
    program = programs.trace(programs.softmax_matmul)
    usual, other = search(program, TUNE), search(program, replace(TUNE, encoding=encoding))
    assert {g.id for g in usual.graphs} == {g.id for g in other.graphs}


@pytest.mark.parametrize("pruner", ["expression", "placement", "dimension"])
def test_pruners_are_asked_and_can_be_switched_off(pruner):
    program = programs.trace(programs.softmax_matmul)
    usual, without = search(program, TUNE), search(program, replace(TUNE, without=(pruner,)))
    assert usual.counters["pruners"][pruner]["seen"] > 0
    assert pruner not in without.counters["pruners"]
    assert {g.id for g in others(usual)} <= {g.id for g in others(without)}


def test_without_any_time_the_program_itself_is_placed():
    program = programs.trace(programs.rmsnorm)
    result = search(program, replace(TUNE, budget_s=0.0))
    assert [g.is_fallback for g in result.graphs] == [True]
    assert not result.complete


def test_an_interrupt_keeps_what_is_proved():
    def press(step, done, _total):
        if step == "verify" and done > 0:
            raise KeyboardInterrupt

    options = replace(TUNE, grid_dims=1)
    result = search(programs.trace(programs.stable_softmax_matmul), options, press)
    assert not result.complete
    assert "interrupt" in result.counters["cut"]


def test_graphs_that_are_not_proved_are_replaced(monkeypatch):
    """By some that they had beaten, where there are any."""
    program = programs.trace(programs.softmax_matmul)
    usual = {g.id for g in search(program, TUNE).graphs}
    unproved = set()

    class Doubtful(Verifier):
        def judged(self, judge, graphs, terms):
            verdicts = zip(graphs, super().judged(judge, graphs, terms), strict=True)
            return tuple(Verdict.GAVE_UP if graph_id(g) in unproved else v for g, v in verdicts)

    monkeypatch.setattr(sys.modules[search.__module__], "Verifier", Doubtful)
    replaced = 0
    for bad in sorted(usual - {PROGRAM_ID}):
        unproved = {bad}
        result = search(program, TUNE)
        found = {g.id for g in result.graphs}
        assert bad not in found
        assert result.counters["cut"]["unproved"] == 1
        assert not result.complete
        replaced += bool(found - usual)
    assert replaced > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "fast"}, "no mode 'fast'; there are count, tune"),
        ({"mode": "tune", "generator": "forward"}, "mode tune needs the generator cone"),
    ],
)
def test_a_mode_that_cannot_be_says_so(options, message):
    with pytest.raises(UsageError, match=message):
        search(programs.trace(programs.matmul), SearchOptions(**options))
