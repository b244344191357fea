"""`prism bench` beyond a saved kernel: all rivals, devices that are not here, users' operators."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_checks import assert_refused

from prism.plugins import Group, installed

ROOT = Path(__file__).parents[2]
TINY = "n=4,d=6,h=5"


def test_a_device_that_is_not_here_is_refused_before_any_work(prism, fake_target):
    offline = fake_target.replace("FakeTarget", "OfflineTarget")
    args = ["bench", "matmul", "--sizes", TINY, "--target", offline]
    assert_refused(prism(*args), "OfflineTarget", "fake GPU", "not here", "--target cuda")


def test_all_stands_for_every_installed_contestant(prism_json, fake_target, monkeypatch):
    asked = []

    def stop(program, task, against, options, progress):
        asked.extend(against)
        raise KeyboardInterrupt

    monkeypatch.setattr("prism.cli.bench.run_bench", stop)
    args = ["bench", "matmul", "--sizes", TINY, "--target", fake_target, "--budget", "0.5"]
    with pytest.raises((KeyboardInterrupt, AssertionError)):
        prism_json(*args, "--against", "all")
    assert asked == sorted(installed(Group.CONTESTANT))


@pytest.mark.usefixtures("operators")
def test_a_program_with_users_operators_is_timed(
    prism, prism_json, fake_target, tmp_path, monkeypatch
):
    monkeypatch.chdir(shutil.copytree(ROOT / "experiments" / "examples", tmp_path / "mine"))
    args = ["bench", "programs.py:gated", "--sizes", TINY, "--target", fake_target]
    args += ["--budget", "1", "--rounds", "1", "--threads", "1"]
    assert_refused(prism(*args), "gelu_quick", "--axioms FILE.egg")
    data = prism_json(*args, "--axioms", "operators.egg")
    ours, numpy = data["contestants"]
    assert numpy["failure"] is None
    assert ours["error"] < 1e-5
    assert numpy["error"] < 1e-5
