"""The table of workers: a row for each number, and whether they found the same."""

from __future__ import annotations

from click.testing import CliRunner

from prism_experiments import bench_workers


def test_each_number_of_workers_has_a_row_and_results_are_compared():
    arguments = ["--workloads", "matmul", "--rounds", "1", "--max-graphs", "10"]
    result = CliRunner().invoke(bench_workers.main, arguments)
    assert result.exit_code == 0, result.output
    first, second = [line.split() for line in result.stdout.splitlines() if line.strip()][-2:]
    assert first[:2] == ["matmul", "1"]
    assert first[-2:] == ["the", "same"]
    assert second[0] == "2"
    assert first[-3] == second[-1] == "10"


def test_results_that_differ_are_an_alarm():
    runs = [bench_workers.Measured(1.0, 1.0, 3, 1.0, digest) for digest in "ab"]
    rows = list(bench_workers._rows("w", [(1, runs[:1]), (2, runs[1:])]))
    assert rows[0][-1] == "DIFFERENT"
