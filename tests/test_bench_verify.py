"""The table of milliseconds per proof."""

from __future__ import annotations

from click.testing import CliRunner

from prism_experiments import bench_verify


def test_a_row_says_how_many_were_proved_and_what_each_took(monkeypatch):
    monkeypatch.setattr(bench_verify, "GOAL_MS", 1000.0)
    result = CliRunner().invoke(bench_verify.main, ["--workloads", "matmul", "--rounds", "1"])
    assert result.exit_code == 0, result.output
    cells = [line for line in result.stdout.splitlines() if line.strip()][-1].split()
    assert cells[0] == "matmul"
    assert int(cells[1]) == int(cells[2]) > 0
    assert cells[3] == "0"
    assert 0.0 < float(cells[4]) < 1000.0


def test_a_goal_that_is_missed_is_an_alarm(monkeypatch):
    monkeypatch.setattr(bench_verify, "GOAL_MS", 0.0)
    result = CliRunner().invoke(bench_verify.main, ["--workloads", "matmul", "--rounds", "1"])
    assert result.exit_code == 1
    assert "MISSED" in result.stdout
