from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tune.fake_target import FAULTS
from tune.graphs import MATMUL, matmul_graph

from prism.errors import KernelError
from prism.plugins import Group, load
from prism.record import Outcome, RecordFile
from prism.tune import Budget, Task, Tuner, build_space, cases
from prism.tune.strategies import RandomStrategy

FAKE = Path(__file__).with_name("fake_target.py")
SIZES = {"n": 4, "d": 12, "h": 10}
LIMITS = {"compile_timeout_s": 1.0, "run_timeout_s": 1.0, "repeats": 3}


def tuner(target="FakeTarget", *, records=None, seed=0, progress=None, graph=None, **budget):
    """A run over one graph (no grid, no loop unless given) on a fake target."""
    name = f"{FAKE}:{target}"
    chosen = load(Group.TARGET, name)()
    graphs = (("g0", graph or matmul_graph(grid=0, loop=False)),)
    space = build_space(graphs, SIZES, chosen)
    limits = Budget(**{**LIMITS, **budget})
    task = Task(MATMUL, SIZES, name, chosen, "float32", seed, space, limits)
    strategy = RandomStrategy(space, lambda _: 0.0, seed)
    return Tuner(task, strategy, None if records is None else RecordFile(records), progress)


def test_the_fastest_kernel_wins_and_its_numbers_are_its_own():
    result = tuner().run()
    assert dict(result.best.config.schedule)["delay_ms"] == 1
    assert result.outcomes == {"ok": 3}
    assert result.best.min_s == result.best.median_s == 1e-3
    assert result.best.max_error < 1e-6
    assert result.best.source.startswith("# fake kernel matmul")
    assert result.space_size == 3
    assert result.stopped == "strategy"


@pytest.fixture
def large(monkeypatch):
    """All inputs count as large: attempts are staged."""
    monkeypatch.setattr(cases, "LARGE", 0)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("seed", range(2))  # either kernel is tried first
def test_on_large_inputs_no_kernel_leads_that_is_wrong_on_another_case(seed, tmp_path):
    records = tmp_path / "trials.jsonl"
    result = tuner("HastyTarget", seed=seed, records=records, workers=1).run()
    assert result.outcomes == {"ok": 1, "wrong": 1}
    assert FAULTS[dict(result.best.config.schedule)["fault"]] == "none"
    (wrong,) = (t for t in RecordFile(records).read() if t.outcome is Outcome.WRONG)
    assert "on large inputs" in wrong.detail


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("seed", range(2))
def test_on_large_inputs_a_kernel_that_spoils_them_costs_no_other_kernel(seed):
    result = tuner("CarelessTarget", seed=seed, workers=1).run()
    assert FAULTS[dict(result.best.config.schedule)["fault"]] == "none"


EXPECTED = {
    "none": "ok",
    "crash in run": "crash",
    "hang in run": "timeout-run",
    "nan": "wrong",
    "writes input": "wrong",
    "wrong tile": "wrong",
    "inaccurate": "inaccurate",
    "does not compile": "compile",
    "hang in compile": "timeout-compile",
    "crash in compile": "crash",
    "emitter breaks": "error",
    "refused": "refused",
    "raises in run": "error",
    "wrong while timed": "wrong",
    "loses the device": "crash",
    "overflows": "wrong",
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """A run over one kernel of every fault, and its records by fault."""
    records = tmp_path_factory.mktemp("faulty") / "trials.jsonl"
    result = tuner("FaultyTarget", records=records).run()
    return result, {FAULTS[dict(t.key.schedule)["fault"]]: t for t in RecordFile(records).read()}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_costs_its_candidate_only(fault, faulty):
    result, trials = faulty
    assert trials[fault].outcome.value == EXPECTED[fault]
    assert result.best is not None
    assert FAULTS[dict(result.best.config.schedule)["fault"]] == "none"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("wrong tile", "on drawn inputs: out0: norm error"),
        ("overflows", "on large inputs: out0: 1 of"),
        ("writes input", "writes into its input x"),
        ("does not compile", "TypeError: cannot unify"),
        ("emitter breaks", "ZeroDivisionError: no tile"),
        ("refused", "out of registers"),
        ("raises in run", "FloatingPointError: overflow"),
        ("wrong while timed", "right in the check, not while timed"),
        ("crash in run", "status -11"),
        ("loses the device", "an illegal memory access was encountered"),
        ("crash in compile", "status 3"),
    ],
)
def test_a_failed_trial_says_why(fault, words, faulty):
    assert words in faulty[1][fault].detail


def test_every_trial_is_counted(faulty):
    assert sum(faulty[0].outcomes.values()) == len(FAULTS) == len(faulty[1])


def test_no_right_kernel_is_no_winner():
    result = tuner("BrokenTarget").run()
    assert result.best is None
    assert result.outcomes == {"wrong": 1}


def test_a_target_that_starts_in_no_worker_is_an_error_that_says_why():
    with pytest.raises(KernelError, match="no licence on this machine"):
        tuner("UnstartableTarget").run()


def test_trials_on_record_are_not_repeated(tmp_path):
    records = tmp_path / "trials.jsonl"
    first = tuner(records=records, trials=2).run()
    assert first.stopped == "trials"
    second = tuner(records=records).run()
    assert second.resumed == 2
    assert second.outcomes == {"ok": 3}
    assert len(RecordFile(records).read()) == 3
    third = tuner(records=records, seed=7).run()
    assert third.resumed == 3
    assert dict(third.best.config.schedule)["delay_ms"] == 1


def test_a_record_of_another_kernel_source_is_measured_again(tmp_path):
    records = tmp_path / "trials.jsonl"
    tuner(records=records).run()
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    changed = [{**line, "source_sha256": "0" * 64} for line in lines]
    records.write_text("".join(json.dumps(line) + "\n" for line in changed))
    assert tuner(records=records).run().resumed == 0


@pytest.mark.parametrize("field", ["dtype", "device", "versions", "sizes", "graph_sha256"])
def test_a_record_of_another_situation_does_not_count(field, tmp_path):
    records = tmp_path / "trials.jsonl"
    tuner(records=records, trials=1).run()
    line = json.loads(records.read_text())
    other = {"versions": {"python": "2.7"}, "sizes": {"n": 5}}.get(field, "other")
    records.write_text(json.dumps({**line, field: other}) + "\n")
    assert tuner(records=records, trials=1).run().resumed == 0


def test_the_time_limit_ends_the_run():
    start = time.monotonic()
    result = tuner(graph=matmul_graph(grid=2), seconds=0.5).run()
    assert result.stopped == "budget"
    assert time.monotonic() - start < 60


def test_an_interrupt_returns_the_best_so_far_and_leaves_a_valid_record(tmp_path):
    records = tmp_path / "trials.jsonl"

    def interrupt(done, total, what):
        if done == 2:
            raise KeyboardInterrupt

    result = tuner(records=records, progress=interrupt).run()
    assert result.stopped == "interrupted"
    assert result.best is not None
    trials = RecordFile(records).read()
    assert [t.outcome for t in trials] == [Outcome.OK] * 2
    assert result.best.median_s == min(t.median_s for t in trials)


KILLED = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from tune.test_tuner import tuner
tuner(records=Path({records!r}), graph=__import__("tune.graphs").graphs.matmul_graph(grid=2)).run()
"""


def test_a_killed_run_resumes_and_leaves_no_worker_behind(tmp_path):
    records = tmp_path / "trials.jsonl"
    code = KILLED.format(path=[str(FAKE.parent.parent)], records=str(records))
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not (
        records.exists() and records.read_bytes().count(b"\n") >= 3
    ):
        time.sleep(0.02)
    workers = children(process.pid)
    assert workers
    process.send_signal(signal.SIGKILL)
    process.wait()
    on_record = len(RecordFile(records).read())
    assert on_record >= 3
    result = tuner(records=records, graph=matmul_graph(grid=2), trials=on_record + 1).run()
    assert result.resumed == on_record
    assert not any(alive(pid) for pid in workers)


def children(pid):
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in listed.split()]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]


def test_a_kernel_that_only_the_record_calls_right_does_not_lead_after_an_interrupt(tmp_path):
    records = tmp_path / "trials.jsonl"
    tuner("FaultyTarget", records=records).run()
    forged = [json.loads(line) for line in records.read_text().splitlines()]
    for line in forged:
        if line["outcome"] == "wrong":
            line.update(outcome="ok", median_s=1e-9, min_s=1e-9)
    records.write_text("".join(json.dumps(line) + "\n" for line in forged))

    def interrupt(done, total, what):
        if done == len(forged):
            raise KeyboardInterrupt

    result = tuner("FaultyTarget", records=records, progress=interrupt).run()
    assert result.stopped == "interrupted"
    assert result.best is None


def test_where_nothing_runs_the_best_prediction_without_spills_wins(tmp_path):
    records = tmp_path / "trials.jsonl"
    result = tuner("OfflineTarget", records=records).run()
    best = result.best
    assert (best.median_s, best.min_s, best.max_error) == (None, None, None)
    assert dict(best.config.schedule)["delay_ms"] == 2
    assert best.predicted_s == pytest.approx(1.1 * 2e-3)
    assert best.facts == {"registers": 40, "shared_bytes": 1024, "spills": 0}
    assert result.outcomes == {"ok": 3}
    assert result.notes == (
        "compiled for fake_90, not run: times are predicted",
        "the kernel was not checked",
    )
    for trial in RecordFile(records).read():
        assert (trial.median_s, trial.min_s, trial.max_error) == (None, None, None)
        assert trial.predicted_s == pytest.approx(1.1e-3 * dict(trial.key.schedule)["delay_ms"])
        assert trial.key.device == "fake GPU, fake_90"


def test_what_stands_in_for_a_kernel_that_cannot_run_is_checked():
    result = tuner("RehearsedTarget").run()
    assert dict(result.best.config.schedule)["delay_ms"] == 2
    assert 0 <= result.best.max_error < 1e-5
    assert len(result.notes) == 2
    assert "is wrong at small sizes" in result.notes[1]


def test_a_kernel_that_spills_is_chosen_where_there_is_no_other():
    assert tuner("SpillingTarget").run().best.facts["spills"] == 8


def test_where_the_kernel_predicts_nothing_the_target_does():
    assert tuner("ModellessTarget").run().best.predicted_s == pytest.approx(1e-3)


def test_predictions_on_record_are_resumed_but_seen_again_before_one_is_chosen(tmp_path):
    records = tmp_path / "trials.jsonl"
    tuner("OfflineTarget", records=records).run()
    forged = [json.loads(line) for line in records.read_text().splitlines()]
    for line in forged:
        if line["facts"]["spills"]:
            line.update(predicted_s=1e-9, facts={"spills": 0})
    records.write_text("".join(json.dumps(line) + "\n" for line in forged))
    result = tuner("OfflineTarget", records=records).run()
    assert result.resumed == 3
    assert dict(result.best.config.schedule)["delay_ms"] == 2


def test_a_prediction_on_record_does_not_stand_in_for_a_measurement(tmp_path):
    records = tmp_path / "trials.jsonl"
    tuner(records=records).run()
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    predicted = [{**line, "median_s": None, "min_s": None, "predicted_s": 1e-9} for line in lines]
    records.write_text("".join(json.dumps(line) + "\n" for line in predicted))
    assert tuner(records=records).run().resumed == 0


def test_a_run_without_a_winner_says_what_its_trials_failed_of():
    result = tuner("RefusingTarget").run()
    assert result.best is None
    assert result.notes == ("3 refused: out of registers",)


def test_what_was_refused_is_tried_once_it_may_run_and_the_other_way_round(tmp_path):
    records = tmp_path / "trials.jsonl"

    def run(reason):
        made = tuner(records=records)
        made._task.target.refusal = lambda mu, dtype: reason
        return made.run()

    assert run("torch is not installed").outcomes == {"refused": 3}
    again = run("torch is not installed")
    assert (again.resumed, again.best) == (3, None)
    there = run(None)
    assert (there.resumed, there.outcomes) == (0, {"ok": 3})
    gone = run("torch is not installed")
    assert (gone.resumed, gone.best) == (0, None)
