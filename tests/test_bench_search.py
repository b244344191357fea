"""`make bench-search`: one row per workload and kind of search, goals beside what was reached."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from prism_experiments import bench_search

ARGUMENTS = ["--workloads", "matmul"]


@pytest.fixture(scope="module")
def lines():
    result = CliRunner().invoke(bench_search.main, [*ARGUMENTS, "--json"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def test_every_kind_of_search_is_measured(lines):
    assert [line["mode"] for line in lines] == list(bench_search.MODES)
    reference, full, tune = (line["graphs"] for line in lines)
    assert reference == full == 12
    assert tune == 3


def test_seconds_and_memory_are_those_of_the_search(lines):
    for line in lines:
        assert 0 < line["search_s"] < 5
        assert 20 < line["peak_mb"] < 2_000
        assert line["states"] > 0
        assert line["cuts"] == []


def test_what_cut_a_search_is_in_its_row(monkeypatch):
    cut = bench_search.Measured(
        "rmsnorm_paper", "reference", 0.5, 9, 9, 7, 3, 99.0, ("time: 4 left",)
    )
    monkeypatch.setattr(bench_search, "measure", lambda *_: cut)
    result = CliRunner().invoke(bench_search.main, ["--workloads", "rmsnorm_paper"])
    assert result.exit_code == 0, result.output
    assert "time: 4 left" in result.stdout
    assert "100 ms, 9" in result.stdout
