"""The experiments: they run the commands anyone can type, and a run that was cut short goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import click
import pytest
from click.testing import CliRunner

from prism.cli import main as prism
from prism.frontend import load_program
from prism.ir import bind_sizes
from prism.plugins import Group, installed
from prism_experiments import bench, demo

LINE = {
    "result": {
        "contestants": [
            {"name": "prism", "median_s": 0.002, "ratio": 1.0, "bandwidth_fraction": 0.85},
            {"name": "numpy", "median_s": 0.005, "ratio": 2.5, "bandwidth_fraction": 0.34},
        ]
    },
    "failure": None,
}


# --- demo ------------------------------------------------------------------------------------


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


# --- bench -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("workload", "sizes"), [*bench.CASES, *bench.SMOKE_CASES])
def test_every_case_names_a_workload_and_all_its_sizes(workload, sizes):
    _, program = load_program(workload)
    given = {name: int(size) for name, size in (part.split("=") for part in sizes.split(","))}
    assert set(bind_sizes(program, given)) >= set(given)


def test_every_workload_is_measured_at_two_sizes():
    workloads = installed(Group.WORKLOAD).values()
    ours = [w.name for w in workloads if w.source.startswith("prism-superopt:")]
    names = [workload for workload, _ in bench.CASES]
    assert Counter(names) == dict.fromkeys(ours, 2)


@pytest.fixture
def measured(monkeypatch):
    """The cases that were measured; each takes the next answer, or a good one."""
    calls, answers = [], []

    def measure(program, sizes, setting):
        calls.append((program, sizes))
        return answers.pop(0) if answers else LINE

    monkeypatch.setattr(bench, "measure", measure)
    return calls, answers


@pytest.fixture
def run_bench(tmp_path):
    path = tmp_path / "deep" / "lines.jsonl"

    def run(*options):
        result = CliRunner().invoke(bench.main, ["--smoke", "-o", str(path), *options])
        assert result.exit_code == 0, result.output
        return result.stdout, path

    return run


def test_bench_prints_ours_theirs_and_the_ratio(measured, run_bench):
    text, path = run_bench()
    assert measured[0] == list(bench.SMOKE_CASES)
    for part in ("softmax_matmul", "2 ms", "5 ms", "2.50x", "85%", str(path)):
        assert part in text


def test_a_finished_case_is_not_measured_again(measured, run_bench):
    run_bench()
    text, path = run_bench()
    assert len(measured[0]) == len(bench.SMOKE_CASES)
    assert text.count("2.50x") == len(bench.SMOKE_CASES)
    run_bench("--again")
    assert len(measured[0]) == 2 * len(bench.SMOKE_CASES)
    assert len(path.read_text().splitlines()) == 2 * len(bench.SMOKE_CASES)


def test_another_setting_is_another_measurement(measured, run_bench):
    run_bench()
    run_bench("--budget", "99")
    assert len(measured[0]) == 2 * len(bench.SMOKE_CASES)


def test_an_interrupted_run_goes_on_where_it_stopped(measured, run_bench):
    _, path = run_bench()
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{second[:40]}")
    run_bench()
    assert measured[0][-1] == bench.SMOKE_CASES[-1]
    assert len(measured[0]) == len(bench.SMOKE_CASES) + 1
    run_bench()
    assert len(measured[0]) == len(bench.SMOKE_CASES) + 1


def test_a_failure_is_shown_and_tried_again(measured, run_bench):
    measured[1].append({"result": None, "failure": "error: no compiler"})
    text, _ = run_bench()
    assert "error: no compiler" in text
    assert "no compiler" not in run_bench()[0]


def test_a_case_that_fails_gives_the_message_of_the_command():
    setting = bench.Setting(budget=1.0, rounds=1, against="torhc")
    line = bench.measure("rmsnorm", "n=1,d=1,h=1", setting)
    assert line["result"] is None
    assert "no contestant named 'torhc'" in line["failure"]


@pytest.mark.slow
def test_bench_smoke_runs_for_real(monkeypatch, tmp_path):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "lines.jsonl"
    command = [sys.executable, "-m", "prism_experiments.bench", "--smoke", "--budget", "4"]
    done = subprocess.run([*command, "-o", str(path)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["failure"] for line in lines] == [None] * len(bench.SMOKE_CASES)
