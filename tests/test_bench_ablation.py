"""The ablation tables: a row for each setting, and an alarm where the generators disagree."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from prism_experiments import bench_ablation

ARGUMENTS = ["--workloads", "matmul", "--ablated", "matmul", "--budget", "1"]


def rows_of(result):
    return [line.split() for line in result.stdout.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def rows():
    result = CliRunner().invoke(bench_ablation.main, ARGUMENTS)
    assert result.exit_code == 0, result.output
    return rows_of(result)


def test_each_setting_has_a_row(rows):
    assert [row[0] for row in rows].count("forward") == 1
    assert next(row for row in rows if row[0] == "forward")[-2:] == ["the", "same"]
    assert sum(row[:2] == ["all", "pruners"] for row in rows) == 1
    assert sum(row[0] == "without" for row in rows) == 4
    for kinds in (["imap,", "fmap,", "omap"], ["imap"], ["fmap"], ["omap"], ["none"]):
        assert sum(row[: len(kinds)] == kinds and row[len(kinds)] != "fmap," for row in rows) == 2


def test_a_search_that_was_cut_visited_at_least_so_many(rows):
    (row,) = [row for row in rows if row[:2] == ["without", "expression"]]
    assert row[2] == row[4] == ">="


def test_generators_that_disagree_are_an_error(monkeypatch):
    def lossy(program, options):
        return real(program, options if options.generator == "cone" else fewer(options))

    def fewer(options):
        return bench_ablation.replace(options, grid_dims=1)

    real = bench_ablation.search
    monkeypatch.setattr(bench_ablation, "search", lossy)
    result = CliRunner().invoke(bench_ablation.main, ARGUMENTS)
    assert result.exit_code == 1
    assert "OTHERS" in result.stdout
