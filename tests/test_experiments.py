"""The demo runs the commands that anyone can type."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from prism.cli import main as prism
from prism_experiments import demo


@pytest.fixture
def ran(monkeypatch):
    """The commands the demo ran; none of them really runs, and each gives the next status."""
    calls, statuses = [], []

    def run(arguments):
        calls.append(arguments)
        return statuses.pop(0) if statuses else 0

    monkeypatch.setattr(demo, "run_prism", run)
    return calls, statuses


def test_demo_searches_optimizes_and_benches(ran):
    result = CliRunner().invoke(demo.main, ["--budget", "5", "--seed", "3"])
    assert result.exit_code == 0
    assert [arguments[0] for arguments in ran[0]] == ["search", "optimize", "bench"]
    assert all(f"$ prism {arguments[0]} rmsnorm" in result.output for arguments in ran[0])


def test_demo_uses_commands_as_they_are(ran):
    CliRunner().invoke(demo.main, [])
    for name, *arguments in ran[0]:
        command = prism.get_command(click.Context(prism), name)
        with command.make_context(name, list(arguments)) as context:
            assert context.params["seed"] == 0


def test_demo_times_the_kernel_it_has_just_tuned(ran):
    CliRunner().invoke(demo.main, [])
    _, optimize, timing = ran[0]
    assert "--no-cache" in optimize
    saved = optimize[optimize.index("--save") + 1]
    assert timing[timing.index("--kernel") + 1] == saved


def test_demo_stops_at_a_command_that_fails(ran):
    ran[1].extend([0, 2])
    result = CliRunner().invoke(demo.main, [])
    assert result.exit_code == 2
    assert [arguments[0] for arguments in ran[0]] == ["search", "optimize"]
    assert "ended with status 2" in result.stderr


@pytest.mark.slow
def test_demo_runs_for_real(monkeypatch, tmp_path):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path))
    command = [sys.executable, "-m", "prism_experiments.demo", "--sizes", "n=4,d=64,h=64"]
    command += ["--budget", "5", "--rounds", "1"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for part in ("program rmsnorm", "dropped", "proved", "kernel 0", "numpy", "of stream"):
        assert part in done.stdout
