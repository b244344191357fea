"""The GPU session without a GPU: its plan, its clock, its processes, its results, a rehearsal.

Stages that crash, hang or answer garbage are played by a script in place of the stages' process.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prism.errors import ParseError, UsageError
from prism.record import Outcome, Trial, TrialKey, append_line, to_line
from prism_experiments.gpu import prepare, session, show
from prism_experiments.gpu.nvidia import smi_facts
from prism_experiments.gpu.plan import load_plan, make_plan
from prism_experiments.gpu.results import (
    MAX_TEXT,
    clean,
    new_results,
    read_results,
    write_results,
)
from prism_experiments.gpu.schedule import Bounds, Clock, share
from prism_experiments.gpu.vetting import Text, vet

ROOT = Path(__file__).parent.parent
ARTIFACTS = {"matmul": "artifacts/matmul.json"}


# --- plan --------------------------------------------------------------------------------------


def test_every_shipped_workload_has_sizes():
    chosen = prepare.shipped()
    plan = make_plan(chosen, dict.fromkeys(chosen, "a.json"), "1")
    assert {cell.workload for cell in plan.cells} == set(chosen)
    names = [cell.name for cell in plan.cells]
    assert len(names) == len(set(names))


def test_decode_shapes_in_half_precision_come_first():
    first = make_plan(("matmul", "rmsnorm"), {}, "1").cells[:2]
    assert [(cell.shape, cell.dtype) for cell in first] == [("decode", "float16")] * 2


def test_a_workload_without_sizes_is_refused():
    with pytest.raises(UsageError, match=r"mine.*SHAPES"):
        make_plan(("mine",), {}, "1")


def test_a_rehearsal_takes_tiny_sizes_and_what_the_target_can_store():
    plan = make_plan(("matmul",), ARTIFACTS, "1")
    assert {cell.shape for cell in plan.cells_for("lockstep")} == {"tiny"}
    assert [cell.dtype for cell in plan.cells_for("cpu")] == ["float32"]
    assert plan.cells_for("cuda") == plan.cells


@pytest.fixture
def plan_file(tmp_path):
    def write(change=lambda data: None):
        data = json.loads(make_plan(("matmul",), ARTIFACTS, "1").to_text())
        change(data)
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(data))
        return path

    return write


def test_a_plan_reads_back(plan_file):
    assert load_plan(plan_file()) == make_plan(("matmul",), ARTIFACTS, "1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(schema="prism.gpu-plan/0"), "schema: one of"),
        (lambda data: data.pop("cells"), "cells beside"),
        (lambda data: data["cells"][0].update(dtype=3), r"cells\[0\].dtype: a text"),
        (lambda data: data["artifacts"].update(matmul="../x.json"), "not in the bundle"),
        (lambda data: data["artifacts"].clear(), "has no artifact"),
        (lambda data: data["limits"].update(tests_s=-1), "limits.tests_s: a number"),
    ],
)
def test_a_plan_that_was_changed_is_refused(plan_file, change, message):
    with pytest.raises(ParseError, match=message):
        load_plan(plan_file(change))


# --- schedule ----------------------------------------------------------------------------------


def run_cells(count, left_s, bounds, used):
    """The shares that cells get one after the other; each uses this part of its own."""
    shares = []
    while count and (seconds := share(count, left_s, bounds)) is not None:
        shares.append(seconds)
        left_s -= used * seconds
        count -= 1
    return shares


def test_cells_that_all_fit_share_the_time_equally():
    assert run_cells(4, 100.0, Bounds(20.0, 60.0), used=1.0) == pytest.approx([25.0] * 4)


def test_too_many_cells_leave_the_last_ones_out():
    shares = run_cells(40, 100.0, Bounds(20.0, 60.0), used=1.0)
    assert shares == pytest.approx([20.0] * 5)


def test_time_left_over_goes_to_the_cells_behind():
    shares = run_cells(40, 100.0, Bounds(20.0, 60.0), used=0.5)
    assert len(shares) > 5
    assert min(shares) >= 20.0


def test_no_cell_gets_more_than_its_most():
    assert share(1, 500.0, Bounds(20.0, 60.0)) == 60.0


def test_the_shares_never_exceed_the_time():
    for count, left, least in itertools.product((1, 3, 10), (5.0, 33.0, 400.0), (1.0, 7.0)):
        assert sum(run_cells(count, left, Bounds(least, 60.0), used=1.0)) <= left + 1e-6


def test_a_clock_keeps_a_reserve_back():
    now = 0.0
    clock = Clock(100.0, lambda: now)
    assert clock.left_s(30.0) == 70.0
    assert clock.deadline(500.0) == 100.0
    now = 90.0
    assert clock.left_s(30.0) == 0.0
    assert clock.elapsed_s == 90.0


# --- results -----------------------------------------------------------------------------------


def test_results_read_back(tmp_path):
    path = tmp_path / "r.json"
    results = new_results("1", "cpu", "now", 5.0)
    write_results(path, results)
    assert read_results(path) == results


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "prism.gpu-results/9"}, "schema: one of"),
        ({"cells": [{}]}, r"cells\[0\]: .*workload"),
        ({"elapsed_s": "long"}, "elapsed_s: a number"),
        ({"surprise": 1}, "no field surprise"),
        ({"target": "\x1b[2J"}, "target: a control character"),
        ({"overhead": [{"name": "x", "host_us": -1, "device_us": 1, "detail": ""}]}, "host_us"),
    ],
)
def test_results_of_another_shape_are_refused(tmp_path, change, message):
    path = tmp_path / "r.json"
    path.write_text(json.dumps({**new_results("1", "cpu", "now", 5.0), **change}))
    with pytest.raises(ParseError, match=message):
        read_results(path)


@pytest.mark.parametrize("text", ["", "[", "[" * 100_000, '{"a": 1e999}', "null"])
def test_what_is_no_results_file_is_refused(tmp_path, text):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(ParseError):
        read_results(path)
    assert show.main([str(path)]) == 2


def test_whatever_a_compiler_prints_can_be_written():
    everything = "".join(map(chr, range(0x300))) + "\u202e\u2066\ud800"
    cleaned = clean({"a": [everything, math.inf, math.nan, "\x1b[31mred\x1b[0m"], "b\x00": 1})
    vet(cleaned["a"][0], Text())
    assert cleaned["a"][1:] == [None, None, "red"]
    assert "b?" in cleaned
    assert len(clean("x" * 10_000)) == MAX_TEXT + 3


# --- session -----------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path):
    """A session that has not begun."""
    setting = session.Setting(tmp_path, tmp_path, tmp_path / "r.json", "cpu", 60.0)
    return session.Session(setting, make_plan(("matmul",), ARTIFACTS, "1"))


def test_a_cell_that_was_lost_is_counted_from_its_records(made, tmp_path):
    records = tmp_path / "cell.jsonl"
    for outcome in (Outcome.OK, Outcome.CRASH, Outcome.CRASH):
        append_line(records, to_line(trial(outcome)))
    entry = made.add_cell(made.plan.cells[0], "lost", 1.0)
    made.keep_trials(records, entry)
    assert entry["trials"]["outcomes"] == {"ok": 1, "crash": 2}
    assert entry["trials"]["first_details"] == {"crash": "it died"}
    assert [timed["median_s"] for timed in entry["trials"]["timed"]] == [0.5]
    made.save()
    results = read_results(made.setting.out)
    assert len((tmp_path / results["trials_file"]).read_text().splitlines()) == 3


def trial(outcome):
    key = TrialKey("p", "g", (("n", 4),), ((("x", 2),),), (), "float32", "cpu", "here", ())
    times = {"median_s": 0.5, "min_s": 0.4} if outcome is Outcome.OK else {"detail": "it died"}
    return Trial(key, "matmul", "g", 0, outcome, **times)


def test_what_is_under_way_when_the_session_is_killed_is_truncated(made):
    made.add_cell(made.plan.cells[0], session.UNDER_WAY, 5.0)
    with made.stage("cells", 5.0):
        (stage,) = read_results(made.setting.out)["stages"]
        assert (stage["status"], stage["detail"]) == ("truncated", "under way")
    results = read_results(made.setting.out)
    assert results["stages"][0]["status"] == "ok"
    assert results["cells"][0]["status"] == "truncated"
    assert not results["finished"]


def test_a_stage_that_raises_ends_alone(made):
    with made.stage("tests", 5.0):
        raise UsageError("no disk")
    assert made.results["stages"][0]["status"] == "failed"
    assert made.results["stages"][0]["detail"] == "no disk"


def test_bandwidth_is_bytes_over_time_over_what_the_memory_gives():
    entry = {"bytes": 10**9, "contestants": [{"median_s": 0.5, "bandwidth_fraction": None}]}
    session.add_fractions(entry, {"copy_gbps": 4.0})
    assert entry["contestants"][0]["bandwidth_fraction"] == pytest.approx(0.5)


def test_the_summary_names_what_went_wrong(made):
    entry = made.add_cell(made.plan.cells[0], "lost", 1.0)
    entry.update(status="crash", detail="signal 11")
    made.results["tests"] = {
        "runner": "pytest",
        "counts": {"failed": 1},
        "cases": [{"name": "t", "outcome": "failed", "seconds": 1.0, "message": "a\nwrong"}],
    }
    made.results["truncated"] = ["overhead"]
    text = show.summary(made.results)
    for part in ("signal 11", "failed t: wrong", "no time for: overhead", "not finished"):
        assert part in text


def test_nvidia_smi_is_read_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert smi_facts() == {}
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'H200, 580.1, 143771, 345, 1980, 3201, 3201, 700.00, 31'\n")
    tool.chmod(0o755)
    assert smi_facts()["gpu"] == "H200"
    assert smi_facts()["clock_sm_most_mhz"] == "1980"


# --- the whole ---------------------------------------------------------------------------------


def test_the_bundle_takes_what_the_gpu_tests_import(tmp_path):
    (tmp_path / "gpu").mkdir()
    for name, text in {
        "gpu/test_it.py": "from helpers import a",
        "helpers.py": "import deeper",
        "deeper.py": "import numpy",
        "other.py": "",
        "conftest.py": "",
    }.items():
        (tmp_path / name).write_text(text)
    found = {path.relative_to(tmp_path).as_posix() for path in prepare.needed_tests(tmp_path)}
    assert found == {"gpu/test_it.py", "helpers.py", "deeper.py", "conftest.py"}


MISSING = ("click", "egglog", "ortools", "platformdirs", "rich", "torch", "z3")
"""What a machine with a GPU may lack."""


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "lockstep"])
def test_a_session_is_rehearsed(tmp_path, target):
    bundle, out = tmp_path / "bundle", tmp_path / "out" / "results.json"
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for name in MISSING:
        text = f"raise ModuleNotFoundError('{name} is blocked in this test', name='{name}')"
        (blocked / f"{name}.py").write_text(text)
    assert prepare.main(["-o", str(bundle), "--workloads", "matmul"]) == 0
    command = [sys.executable, str(bundle / "run.py"), "--out", str(out), "--target", target]
    done = subprocess.run(
        [*command, "--limit-s", "60"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(blocked)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = read_results(out)
    assert results["finished"]
    statuses = {stage["name"]: stage["status"] for stage in results["stages"]}
    assert statuses["environment"] == statuses["overhead"] == "ok"
    assert statuses["cells"] in {"ok", "truncated"}
    cell = results["cells"][0]
    assert cell["tune"]["best"]["median_s"] > 0
    assert cell["trials"]["outcomes"]["ok"] > 0
    assert all(trial["predicted_s"] > 0 for trial in cell["trials"]["timed"])
    ours, torch = cell["contestants"]
    assert (ours["name"], ours["status"], ours["ratio"]) == ("prism", "ok", 1.0)
    assert ours["bandwidth_fraction"] > 0
    assert torch["status"] == "skipped"
    assert "blocked" in torch["detail"]
    assert results["overhead"][0]["host_us"] > 0
    trials = (out.parent / results["trials_file"]).read_text().splitlines()
    counts = [sum(c["trials"]["outcomes"].values()) for c in results["cells"] if c["trials"]]
    assert len(trials) == sum(counts)
    assert "matmul" in done.stdout


def test_run_without_a_bundle_says_what_to_do(tmp_path):
    script = ROOT / "experiments" / "gpu" / "run.py"
    command = [sys.executable, str(script), "--out", str(tmp_path / "r.json")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "make gpu-bundle" in done.stderr


def test_a_folder_of_somebody_else_is_not_replaced(tmp_path):
    (tmp_path / "mine.txt").write_text("")
    assert prepare.main(["-o", str(tmp_path), "--workloads", "matmul"]) == 2
    assert (tmp_path / "mine.txt").is_file()


@pytest.mark.parametrize("limit", ["nan", "-1", "0", "inf", "soon"])
def test_a_session_limit_must_be_a_time(tmp_path, limit):
    places = ["--bundle", str(tmp_path), "--work", str(tmp_path), "--out", str(tmp_path / "r.json")]
    with pytest.raises(SystemExit) as caught:
        session.main([*places, "--limit-s", limit])
    assert caught.value.code == 2


def test_a_session_with_a_broken_plan_ends_in_one_message(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(session, "die_with_parent", lambda: None)
    (tmp_path / "plan.json").write_text("{}", encoding="utf-8")
    places = ["--bundle", str(tmp_path), "--work", str(tmp_path), "--out", str(tmp_path / "r.json")]
    assert session.main(places) == 2
    assert capsys.readouterr().err.startswith("error: ")
