"""`make bench`: what is measured, that a run cut short goes on, what table and goals say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest
from click.testing import CliRunner

from prism.frontend import load_program
from prism.ir import bind_sizes
from prism.plugins import Group, installed
from prism_experiments import bench
from prism_experiments.bench_table import GOALS, Goal, Line
from prism_experiments.sizes import SHAPES


def contestant(name, seconds, **given):
    missing = {"failure": None, "bandwidth_fraction": 0.0017 / seconds, "ratio": seconds / 0.002}
    return {"name": name, "median_s": seconds, **missing, **given}


def absent(name, reason):
    known = dict.fromkeys(("median_s", "ratio", "bandwidth_fraction"))
    return {"name": name, **known, "failure": reason}


ROWS = [
    contestant("prism", 0.002),
    contestant("numpy", 0.005),
    contestant("torch", 0.007),
    contestant("torch-compile", 0.0046),
    contestant("onnxruntime", 0.0018),
    absent("sdpa", "the program holds no attention"),
]


def line_of(rows=ROWS, warnings=(), *, is_fallback=False):
    result = {"contestants": rows, "warnings": list(warnings), "is_fallback": is_fallback}
    return {"result": result, "failure": None}


CASES = [*bench.MAIN, *bench.REST, *bench.SMOKE_CASES]


@pytest.mark.parametrize(("workload", "shape"), CASES)
def test_every_case_names_a_workload_and_all_its_sizes(workload, shape):
    _, program = load_program(workload)
    sizes = SHAPES[workload][shape]
    assert set(bind_sizes(program, sizes)) >= set(sizes)


def test_the_five_are_measured_in_both_forms_at_two_sizes_each():
    counts = Counter(workload for workload, _ in bench.MAIN)
    papers = ["rmsnorm_paper", "rmsnorm_mlp_paper", "swiglu_paper"]
    papers += ["attention_paper", "qk_attention_paper"]
    assert {w: counts[w] for w in (*bench.REAL, *papers)} == dict.fromkeys(
        (*bench.REAL, *papers), 2
    )


def test_the_long_form_measures_every_workload_and_nothing_twice():
    workloads = installed(Group.WORKLOAD).values()
    ours = {w.name for w in workloads if w.source.startswith("prism-superopt:")}
    cases = [*bench.MAIN, *bench.REST]
    assert {workload for workload, _ in cases} == ours
    assert len(cases) == len(set(cases))


def test_every_goal_is_measured():
    assert {(goal.workload, "decode") for goal in GOALS} <= set(bench.MAIN)


@pytest.fixture
def measured(monkeypatch):
    """The cases that were measured; each takes the next answer, or a good one."""
    calls, answers = [], []

    def measure(program, sizes, setting):
        calls.append((program, sizes))
        return answers.pop(0) if answers else line_of()

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


def test_the_table_shows_every_ratio_and_the_best_rival(measured, run_bench):
    text, path = run_bench()
    assert [program for program, _ in measured[0]] == ["rmsnorm", "softmax_matmul"]
    for part in ("softmax_matmul", "2 ms", "2.50x", "3.50x", "85%", "0.90x onnxruntime", str(path)):
        assert part in text
    assert "sdpa is missing at rmsnorm ragged and 1 more: the program holds no attention" in text


def test_a_busy_machine_is_marked(measured, run_bench):
    measured[1].append(line_of(warnings=["the machine was busy: others took 30% of the CPUs"]))
    text, _ = run_bench()
    assert "rmsnorm *" in text
    assert "softmax_matmul *" not in text
    assert "measure again when it is not" in text


def test_where_no_kernel_was_found_the_table_says_so(measured, run_bench):
    measured[1].append(line_of(is_fallback=True))
    text, _ = run_bench("--budget", "3")
    assert "2 ms (no kernel)" in text
    assert "rmsnorm ragged: no kernel in 3 s of tuning" in text
    assert "softmax_matmul ragged: no kernel" not in text
    run_bench("--budget", "3")
    assert [program for program, _ in measured[0]] == ["rmsnorm", "softmax_matmul", "rmsnorm"]


def test_a_finished_case_is_not_measured_again(measured, run_bench):
    run_bench()
    text, path = run_bench()
    assert len(measured[0]) == len(bench.SMOKE_CASES)
    assert text.count("3.50x") == len(bench.SMOKE_CASES)
    run_bench("--again")
    assert len(measured[0]) == 2 * len(bench.SMOKE_CASES)
    assert len(path.read_text().splitlines()) == 2 * len(bench.SMOKE_CASES)


def test_another_setting_is_another_measurement(measured, run_bench):
    run_bench()
    run_bench("--budget", "99")
    run_bench("--dtype", "float16")
    assert len(measured[0]) == 3 * len(bench.SMOKE_CASES)


def test_another_version_of_a_rival_is_another_measurement(measured, run_bench, monkeypatch):
    run_bench()
    monkeypatch.setattr(bench, "version", lambda name: "99")
    run_bench()
    assert len(measured[0]) == 2 * len(bench.SMOKE_CASES)


def test_an_interrupted_run_goes_on_where_it_stopped(measured, run_bench):
    _, path = run_bench()
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{second[:40]}")
    run_bench()
    assert len(measured[0]) == len(bench.SMOKE_CASES) + 1
    assert measured[0][-1] == measured[0][1]
    run_bench()
    assert len(measured[0]) == len(bench.SMOKE_CASES) + 1


def test_no_case_is_begun_that_would_end_after_the_limit(measured, run_bench):
    text, _ = run_bench("--limit", "-1")
    assert measured[0] == []
    assert "2 cases were not begun" in text
    run_bench("--only", "rmsnorm")
    assert [program for program, _ in measured[0]] == ["rmsnorm"]


def test_a_failure_is_shown_and_tried_again(measured, run_bench):
    measured[1].append({"result": None, "failure": "error: no compiler"})
    text, _ = run_bench()
    assert "rmsnorm ragged failed: error: no compiler" in text
    assert "no compiler" not in run_bench()[0]


def test_goals_are_reached_missed_or_not_measured():
    line = Line(("rmsnorm", "decode"), line_of())
    assert Goal("rmsnorm", "stream", 0.85).reached(line) == (pytest.approx(0.85), "85%")
    assert Goal("rmsnorm", "torch", 2.3).reached(line) == (
        pytest.approx(2.3),
        "2.30x torch-compile",
    )
    assert Goal("rmsnorm", "best", 1.0).reached(line)[1] == "0.90x onnxruntime"
    alone = Line(("rmsnorm", "decode"), line_of([ROWS[0], absent("torch", "not installed")]))
    assert Goal("rmsnorm", "torch", 2.3).reached(alone) == (None, "-")


def test_the_goals_of_a_run_are_listed_with_what_was_measured(measured, run_bench, monkeypatch):
    monkeypatch.setattr(bench, "SMOKE_CASES", (("rmsnorm", "decode"), ("swiglu", "ragged")))
    lines = [" ".join(text.split()) for text in run_bench()[0].splitlines()]
    assert "rmsnorm: of stream bandwidth 85% 85% reached" in lines
    assert "rmsnorm: onnxruntime 1.00x 0.90x onnxruntime missed" in lines
    assert "swiglu: the best torch 2.30x - not measured" in lines
    assert "swiglu ragged: the best of all rivals 1.00x 0.90x onnxruntime missed" in lines


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
    for line in lines:
        assert line["result"]["contestants"][1]["name"] == "numpy"
