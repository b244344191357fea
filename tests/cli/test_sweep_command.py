"""`prism sweep`: what it says, lists and refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cli_checks import assert_refused
from click.testing import CliRunner
from sweep_grids import SMALL, InstantPool, write_grid

from prism.cli import main


def test_the_command_counts_outcomes_and_fails_where_a_cell_failed(tmp_path, monkeypatch):
    monkeypatch.setattr("prism.cli.sweep.LocalPool", lambda _: InstantPool(outcome="failed"))
    output = tmp_path / "run.jsonl"
    args = ["sweep", str(write_grid(tmp_path)), "-o", str(output), "--shard", "2/4"]
    result = CliRunner().invoke(main, [*args, "--json"])
    answer = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (answer["planned"], answer["run"], answer["outcomes"]) == (2, 2, {"failed": 2})
    assert [failure["index"] for failure in answer["failures"]] == [1, 5]
    again = CliRunner().invoke(main, args)
    assert "0 cells run, 2 were there: 2 failed" in again.stdout
    assert "--retry" in again.stdout


def test_the_command_lists_cells_and_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["sweep", str(write_grid(tmp_path)), "--list"])
    title, first, *_, last = result.stdout.splitlines()
    assert title == "small: 8 cells"
    assert first == "1  program matmul, encoding boolean, seed 0"
    assert last == "8  program softmax_matmul, encoding integer, seed 1"
    assert not Path("records").exists()


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ("max_ops = -4", "cell 1 (program matmul, encoding boolean, seed 0): Invalid value"),
        ('mode = "dance"', "'--mode': 'dance' is not available"),
        ('generator = "con"', "there is no generator 'con'; there are cone, forward"),
        ('mode = "tune"\ngenerator = "forward"', "mode tune needs the generator cone"),
        ('keep = true\nverify = "sample"', "leave out --verify sample"),
        ('concrete = ["imap"]', "needs --generator forward"),
        ('sizes = "n=x"', "the size of 'n' must be an integer"),
    ],
)
def test_what_a_command_would_refuse_is_refused_before_anything_runs(tmp_path, change, part):
    grid = write_grid(tmp_path, SMALL.replace("max_ops = 6", change))
    output = tmp_path / "run.jsonl"
    result = CliRunner().invoke(main, ["sweep", str(grid), "-o", str(output)])
    assert_refused(result, part)
    assert not output.exists()


def test_what_optimize_chooses_itself_is_known_before_anything_runs(tmp_path):
    text = SMALL.replace('"search"', '"optimize"').replace("max_ops = 6", "loop_dims = 2")
    grid = write_grid(tmp_path, text.replace("[axes]", 'sizes = "n=4,d=4,h=4"\n[axes]'))
    result = CliRunner().invoke(main, ["sweep", str(grid), "-o", str(tmp_path / "run.jsonl")])
    assert_refused(result, "mode tune searches one loop")


def test_a_shipped_grid_goes_by_its_name():
    answer = CliRunner().invoke(main, ["sweep", "table2", "--smoke", "--list", "--json"])
    assert json.loads(answer.stdout)["grid"] == "table2"


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2"])
def test_a_shard_that_is_none_is_refused(tmp_path, shard):
    result = CliRunner().invoke(main, ["sweep", str(write_grid(tmp_path)), "--shard", shard])
    assert_refused(result, "i/n")


def test_a_grid_that_is_not_there_is_refused():
    assert_refused(CliRunner().invoke(main, ["sweep", "nowhere.toml"]), "cannot read the grid")


def test_ray_that_is_not_installed_is_said_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    output = tmp_path / "run.jsonl"
    args = ["sweep", str(write_grid(tmp_path)), "-o", str(output), "--ray", "auto"]
    assert_refused(CliRunner().invoke(main, args), "pip install '.[ray]'")
    assert not output.exists()
