"""The table that compares the encodings: one row for each, and an alarm where they disagree."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from prism_experiments import bench_encodings

ARGUMENTS = ["--workloads", "matmul", "--rounds", "2"]


@pytest.fixture(autouse=True)
def _no_process(monkeypatch):
    monkeypatch.setattr(bench_encodings, "loading_s", lambda _name: 0.125)


def run(*encodings):
    return CliRunner().invoke(
        bench_encodings.main, [*ARGUMENTS, "--encodings", ",".join(encodings)]
    )


def test_a_row_for_each_encoding_and_a_total():
    result = run("backtracking", "factorised", "placement")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines() if line.strip()]
    assert ["matmul", "backtracking", "3", "3", "35"] in [row[:5] for row in rows]
    assert ["factorised", "3", "3", "35"] in [row[:4] for row in rows]
    assert ["placement", "3", "3", "12"] in [row[:4] for row in rows]
    assert sum(row[-1] == "same" for row in rows) == 2
    assert sum(row[-2:] == ["125", "ms"] for row in rows) == 3


def test_encodings_that_disagree_are_an_error(tmp_path):
    file = tmp_path / "lost.py"
    file.write_text(
        "from prism.ir import Enumeration\n"
        "from prism_constraints.backtracking import BacktrackingEncoding\n"
        "class Lost(BacktrackingEncoding):\n"
        "    def enumerate(self, problem, *, limit=None):\n"
        "        found = super().enumerate(problem, limit=limit)\n"
        "        return Enumeration(found.assignments[:1], found.complete)\n"
    )
    result = run("backtracking", f"{file}:Lost")
    assert result.exit_code == 1
    assert "OTHERS" in result.stdout


def test_loading_is_timed_in_a_process_of_its_own(monkeypatch):
    monkeypatch.undo()
    assert 0 < bench_encodings.loading_s("factorised") < 10
