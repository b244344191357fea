"""Ctrl-C at any step: what is proved so far, marked partial, soon, and no process left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import search_programs as programs

from prism import driver
from prism.artifact import load_artifact
from prism.cli.answer import Status
from prism.search import SearchOptions, search
from prism.verdict import Verdict

SEARCH = sys.modules[search.__module__]
PROGRAM = programs.trace(programs.stable_softmax_matmul)
COUNT = SearchOptions(budget_s=None, max_graphs=None)
SOON_S = 20.0
"""Of the processor's time: more than the grace of a second, on a slow machine."""

pytestmark = pytest.mark.skipif(
    signal.getsignal(signal.SIGINT) is not signal.default_int_handler,
    reason="interrupts are not for Python here",
)


def press_at(step, least, times=1):
    """A progress callback that interrupts, as Ctrl-C does, when a step has done so much."""
    pressed = []

    def show(now, done, _total):
        if now == step and done >= least and not pressed:
            pressed.append(time.process_time())
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    return show, pressed


OPTIONS = {
    "count": COUNT,
    "sample": replace(COUNT, verify="sample"),
    "tune": SearchOptions(mode="tune", budget_s=None),
    "plans": SearchOptions(mode="tune", budget_s=None, max_kernels=2),
}


@cache
def all_ids(name):
    """What a search finds that nobody interrupts."""
    return {g.id for g in search(PROGRAM, OPTIONS[name]).graphs}


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("name", "step", "least"),
    [
        ("count", "saturate", 0),
        ("count", "generate", 1),
        ("count", "verify", 1),
        ("sample", "verify", 1),
        ("tune", "generate", 0),
        ("tune", "verify", 0),
        ("plans", "generate", 0),
        ("plans", "verify", 0),
    ],
)
def test_an_interrupt_at_any_step_gives_what_is_proved(name, step, least, times):
    show, pressed = press_at(step, least, times)
    result = search(PROGRAM, OPTIONS[name], show)
    assert pressed
    assert time.process_time() - pressed[0] < SOON_S
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not result.complete
    assert "interrupt" in result.counters["cut"]
    assert "interrupted: only the graphs proved so far are listed" in result.cuts
    assert result.graphs[-1].is_fallback
    assert {g.id for g in result.graphs} <= all_ids(name) or step == "generate"
    verdicts = [g.verdict for g in result.graphs]
    assert result.counters["proved"] == verdicts[:-1].count(Verdict.PROVED)


def test_what_was_generated_is_verified_for_a_moment(monkeypatch):
    monkeypatch.setattr("prism.search.clock.GRACE_S", 100.0)  # a moment of any machine
    show, _ = press_at("generate", 1)
    result = search(PROGRAM, COUNT, show)
    assert len(result.graphs) > 1
    assert any(cut.startswith("interrupted: not every op DAG") for cut in result.cuts)
    assert not any(cut.startswith("time:") for cut in result.cuts)


def test_during_saturation_nothing_but_the_program_is_known():
    show, _ = press_at("saturate", 0)
    result = search(PROGRAM, COUNT, show)
    assert len(result.graphs) == 1
    assert result.counters["candidates"] == 0


def test_the_second_interrupt_stops_at_once():
    show, _ = press_at("generate", 1, times=2)
    assert len(search(PROGRAM, COUNT, show).graphs) == 1


def test_an_interrupted_optimize_neither_tunes_nor_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path))

    def show(_done, _total, what):
        if what == "search: generate":
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        driver.searched(PROGRAM, COUNT, cache=True, progress=show)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def children_of(pid):
    """The processes that a process has started (Linux)."""
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for(claim):
    end = time.monotonic() + 100
    while not (found := claim()) and time.monotonic() < end:
        time.sleep(0.02)
    assert found
    return found


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@pytest.fixture
def busy(tmp_path):
    """A long search by the command line with its two workers."""
    command = [sys.executable, "-m", "prism", "search", "rmsnorm_mlp_paper", "--verify", "full"]
    command += ["--max-graphs", "100000", "--budget", "1000", "--workers", "2", "--json"]
    command += ["-o", str(tmp_path / "art.json")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process, wait_for(lambda: len(c := children_of(process.pid)) == 2 and c)
        finally:
            process.kill()


@linux_only
def test_an_interrupt_of_a_search_with_workers_answers_and_ends_them(busy, tmp_path):
    process, workers = busy
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=100)
    assert (process.returncode, stderr) == (Status.INTERRUPTED, "")
    answer = json.loads(stdout)
    assert not answer["complete"]
    assert answer["counters"]["proved"] > 0
    assert len(load_artifact(tmp_path / "art.json").graphs) == len(answer["graphs"])
    assert not any(map(is_running, workers))


@linux_only
def test_workers_end_when_the_search_is_killed(busy):
    process, workers = busy
    process.kill()
    wait_for(lambda: not any(map(is_running, workers)))
