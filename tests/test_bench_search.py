"""`make bench-search`: one row per workload and kind of search, goals beside what was reached."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import pytest
from click.testing import CliRunner

from prism_experiments import bench_goals, bench_search, searched

ROW = bench_goals.Measured(
    workload="rmsnorm_paper",
    kind="reference",
    search_s=0.5,
    peak_mb=99.0,
    states=7,
    dags=3,
    graphs=9,
    proved=8,
    admitted=1,
    plans=0,
    candidates=13,
    instantiable=4,
    asked=9,
    cuts=("time: 4 graphs were not judged",),
    seconds={"saturate": 0.1, "generate": 0.1, "verify": 0.25},
)


@pytest.fixture(scope="module")
def lines():
    """Two kinds of search by processes of their own."""
    with pytest.MonkeyPatch.context() as patch:
        kinds = {k: bench_search.KINDS[k] for k in ("reference", "plans")}
        patch.setattr(bench_search, "KINDS", kinds)
        result = CliRunner().invoke(bench_search.main, ["--smoke", "--json", "--budget", "300"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def test_searches_are_measured_in_processes_of_their_own(lines):
    reference, plans = lines
    assert reference["graphs"] == reference["instantiable"] == reference["asked"] == 12
    assert plans["graphs"] == plans["plans"] + reference["graphs"]
    for line in lines:
        assert 0 < line["search_s"] < 300
        assert 20 < line["peak_mb"] < 2_000
        assert line["states"] > 0
        assert line["proved"] + line["admitted"] == line["graphs"]
        assert line["cuts"] == []


@pytest.mark.parametrize("kind", bench_search.KINDS)
def test_every_kind_of_search_has_options_that_can_be_searched(kind, capsys):
    options = bench_search.KINDS[kind].options
    searched.main(["matmul", json.dumps(options)])
    answer = json.loads(capsys.readouterr().out)
    singles = 3 if "mode" in options else 12
    assert answer["graphs"] == answer["plans"] + singles
    assert (answer["plans"] > 0) == ("max_kernels" in options)


@pytest.fixture
def printed(monkeypatch):
    """The tables of a run in which a search reached half of what it should."""
    same = bench_goals.Goal("all agree", is_reached=True, found="by hand", is_due=True)
    monkeypatch.setattr(bench_search, "measure", lambda _, kind, __: replace(ROW, kind=kind))
    monkeypatch.setattr(bench_search, "agreements", lambda *_: [same])
    result = CliRunner().invoke(bench_search.main, ["--workloads", "rmsnorm_paper"])
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_what_cut_a_search_and_what_the_paper_found_is_in_its_row(printed):
    (row,) = [line for line in printed if line.startswith("rmsnorm_paper reference 500")]
    assert "9 of 13 8 1" in row
    assert "4 of 9 300 ms, 9" in row
    assert row.endswith(" time")


def test_a_goal_is_reached_or_not_or_was_not_run(printed):
    goals = {line.split(":")[0]: line for line in printed if ":" in line}
    assert "NO 500 ms, 9 graphs" in goals["rmsnorm_paper at the reference limits"]
    assert "not run" in goals["swiglu_paper at the reference limits"]
    assert " yes " in goals["most workloads in tune mode"]
    assert "all agree yes by hand" in printed


def test_where_a_goal_is_missed_the_steps_are_shown(printed):
    assert any("verify 250 ms rest 50 ms" in line for line in printed)


def test_a_disagreement_is_an_error(monkeypatch):
    other = bench_goals.Goal("all agree", is_reached=False, found="by hand", is_due=True)
    monkeypatch.setattr(bench_search, "measure", lambda _, kind, __: replace(ROW, kind=kind))
    monkeypatch.setattr(bench_search, "agreements", lambda *_: [other])
    result = CliRunner().invoke(bench_search.main, ["--smoke"])
    assert result.exit_code == 1


def test_encodings_and_generators_are_compared_anew():
    said = []
    encodings, generators = (
        bench_goals._encodings(["matmul"], said.append),
        bench_goals._generators(["matmul"], said.append),
    )
    assert encodings.is_reached
    assert generators.is_reached
    assert "boolean" in encodings.found
    assert "12 graphs" in generators.found


def test_brute_force_that_fails_is_no_agreement(monkeypatch, tmp_path):
    done = subprocess.CompletedProcess((), 1, "1 failed, 3 passed in 0.1s")
    monkeypatch.setattr(bench_goals.subprocess, "run", lambda *_, **__: done)
    goal = bench_goals.brute_force([tmp_path / "tests" / "search" / "test.py"], "test")
    assert not goal.is_reached
    assert goal.found.startswith("3 tests passed, 1 failed")
