"""The stages of a GPU session: their processes, and how the GPU tests are run.

Stages that crash, hang or answer garbage are played by a script in place of the stages' process.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from prism.errors import KernelError
from prism_experiments.gpu import fallback, prepare, products
from prism_experiments.gpu.gputests import Places, run_tests
from prism_experiments.gpu.process import Child, Lost
from prism_experiments.gpu.results import Status
from prism_experiments.gpu.schedule import Clock
from prism_experiments.gpu.worker import Worker

# --- processes ---------------------------------------------------------------------------------

CHILD = """
import json, os, sys, time
from prism_experiments.gpu.channel import Channel
channel = Channel()
for line in sys.stdin:
    stage = json.loads(line)["stage"]
    print("begins", stage, flush=True)
    if stage == "crash":
        print("segmentation fault, so to speak", file=sys.stderr, flush=True)
        os.abort()
    if stage == "hang":
        channel.send({"partial": {"bytes": 7}})
        time.sleep(60)
    if stage == "garbage":
        channel._file.write("no json\\n"); channel._file.flush()
    if stage == "wrong":
        channel.send({"partial": {"bytes": "seven"}})
    if stage == "fails":
        channel.send({"failed": "a reason\\x1b[31m"})
    channel.send({"done": {"detail": stage}})
"""


@pytest.fixture
def worker(tmp_path):
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    made = Worker(
        "cpu", tmp_path / "log", Clock(100.0, time.monotonic), 10.0, arguments=(str(script),)
    )
    yield made
    made.retire()


@pytest.mark.parametrize(
    ("stage", "status", "detail"),
    [
        ("crash", "crash", "signal 6; it last printed: segmentation fault, so to speak"),
        ("hang", "timeout", "it last printed: begins hang"),
        ("garbage", "garbage", "no json"),
        ("wrong", "garbage", "partial.bytes: a count"),
        ("fails", "failed", "a reason"),
    ],
)
def test_a_stage_that_goes_wrong_says_how_and_keeps_what_it_told(worker, stage, status, detail):
    entry = {}
    told = list(worker.ask({"stage": stage}, 1.0, entry))
    assert entry["status"] == status
    assert detail in entry["detail"]
    assert told == ([{"bytes": 7}] if stage == "hang" else [])


def test_a_process_that_was_lost_is_replaced(worker):
    assert worker.employ({})
    entry = {}
    assert list(worker.ask({"stage": "crash"}, 1.0, entry, keep=True)) == []
    assert worker.employ({})
    assert list(worker.ask({"stage": "cell"}, 5.0, {}, keep=True)) == [{"detail": "cell"}]


def test_a_process_that_never_gets_ready_is_given_up(tmp_path):
    clock = Clock(100.0, time.monotonic)
    worker = Worker("cpu", tmp_path / "log", clock, 5.0, arguments=("-c", "raise SystemExit(3)"))
    entry = {}
    assert not worker.employ(entry)
    assert entry["status"] == "crash"
    assert "status 3" in entry["detail"]


def test_what_a_process_started_ends_with_it(tmp_path):
    code = (
        "import subprocess, sys; from prism_experiments.gpu.channel import Channel; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        "Channel().send({'pid': child.pid}); child.wait()"
    )
    with Child(["-c", code], tmp_path / "log") as child:
        pid = child.receive(time.monotonic() + 20)["pid"]
    for _ in range(100):
        if not is_alive(pid):
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} lives on")


def is_alive(pid):
    """Whether a process runs: one that waits for its parent to look does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_an_answer_without_an_end_is_garbage(tmp_path, monkeypatch):
    monkeypatch.setattr("prism_experiments.gpu.process.MAX_ANSWER", 1000)
    code = (
        "from prism_experiments.gpu.channel import Channel; c = Channel(); "
        "c._file.write('x' * 5000); c._file.flush(); input()"
    )
    with Child(["-c", code], tmp_path / "log") as child, pytest.raises(Lost) as lost:
        child.receive(time.monotonic() + 20)
    assert lost.value.status is Status.GARBAGE


# --- tests -------------------------------------------------------------------------------------

GPU_TESTS = """
import os, time
import numpy as np
import pytest

pytestmark = pytest.mark.gpu

@pytest.fixture
def three():
    yield 3

@pytest.mark.parametrize("n", [1, pytest.param(2, id="two")])
def test_passes(n, three, tmp_path, rng):
    assert n < three and tmp_path.is_dir() and rng.random() < 1

def test_skips():
    pytest.skip("no reason")

def test_fails():
    with pytest.raises(ValueError, match="x"):
        raise ValueError("x")
    assert np.float32(1) == 2

def test_breaks_the_context():
    raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS")

def test_dies():
    os.abort()

def test_hangs():
    time.sleep(60)

def test_comes_last():
    pass

@pytest.mark.skipif(True, reason="never")
def test_never():
    pass
"""


@pytest.fixture
def gpu_tests(tmp_path):
    """A folder with GPU tests, and the run of it: what was told last, and the verdict."""
    folder = tmp_path / "tests" / "gpu"
    folder.mkdir(parents=True)
    (tmp_path / "tests" / "pytest.ini").write_text(prepare.PYTEST_INI)
    (tmp_path / "tests" / "conftest.py").write_text(
        "import pytest, numpy\n@pytest.fixture\ndef rng(): return numpy.random.default_rng(0)\n"
    )

    def run(text, seconds=60.0):
        (folder / "test_it.py").write_text(text)
        told = []
        places = Places(tmp_path / "tests", tmp_path, tmp_path / "log")
        verdict = run_tests(
            places, time.monotonic() + seconds, lambda tally: told.append(tally.to_json())
        )
        return (
            verdict,
            told[-1],
            {case["name"].rpartition("::")[2]: case for case in told[-1]["cases"]},
        )

    return run


@pytest.mark.slow
def test_a_test_that_dies_or_hangs_costs_itself_alone(gpu_tests, monkeypatch):
    monkeypatch.setattr("prism_experiments.gpu.gputests.TEST_LIMIT_S", 2.0)
    (status, _), told, cases = gpu_tests(GPU_TESTS)
    assert status is Status.FAILED
    assert {name: case["outcome"] for name, case in cases.items()} == {
        "test_passes[1]": "passed",
        "test_passes[two]": "passed",
        "test_skips": "skipped",
        "test_fails": "failed",
        "test_breaks_the_context": "failed",
        "test_dies": "crash",
        "test_hangs": "timeout",
        "test_comes_last": "passed",
        "test_never": "skipped",
    }
    assert "assert np.float32(1.0) == 2" in cases["test_fails"]["message"]
    assert told["counts"]["passed"] == 3


@pytest.mark.slow
def test_tests_that_no_time_is_left_for_are_truncated(gpu_tests):
    text = "import pytest, time\npytestmark = pytest.mark.gpu\n" + "\n".join(
        f"def test_{n}(): time.sleep(0.5)" for n in range(60)
    )
    (status, _), told, _ = gpu_tests(text, seconds=6.0)
    assert status is Status.TRUNCATED
    assert told["counts"]["passed"] > 1
    assert sum(told["counts"].values()) == 60


@pytest.mark.slow
def test_where_pytest_does_not_start_the_tests_run_without_it(gpu_tests, tmp_path):
    (tmp_path / "tests" / "conftest.py").write_text("import no_such_package")
    (_, detail), told, _ = gpu_tests(GPU_TESTS)
    assert told["runner"] == "fallback"
    assert "no_such_package" in detail
    assert sum(told["counts"].values()) == 9


def test_a_bundle_without_gpu_tests_says_so(tmp_path):
    places = Places(tmp_path, tmp_path, tmp_path / "log")
    status, detail = run_tests(places, time.monotonic() + 5, lambda tally: None)
    assert status is Status.SKIPPED
    assert "no GPU tests" in detail


def fall_back(tmp_path, monkeypatch, no_gpu):
    """The outcomes of the tests above that neither die nor hang, without pytest."""
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "test_it.py").write_text(GPU_TESTS)
    monkeypatch.setitem(sys.modules, "pytest", fallback.stand_in())
    return {
        case.name.rpartition("::")[2]: fallback.run_case(case)
        for case in fallback.collect(tmp_path, no_gpu)
        if "dies" not in case.name and "hangs" not in case.name
    }


def test_without_pytest_the_tests_run_all_the_same(tmp_path, monkeypatch):
    outcomes = fall_back(tmp_path, monkeypatch, None)
    assert {name: outcome for name, (outcome, _) in outcomes.items()} == {
        "test_passes[0]": "passed",
        "test_passes[1]": "passed",
        "test_skips": "skipped",
        "test_fails": "failed",
        "test_breaks_the_context": "failed",
        "test_comes_last": "passed",
        "test_never": "skipped",
    }
    assert "AssertionError" in outcomes["test_fails"][1]


def test_without_a_gpu_every_test_is_skipped_with_the_reason(tmp_path, monkeypatch):
    outcomes = fall_back(tmp_path, monkeypatch, "no driver")
    assert set(outcomes.values()) == {("skipped", "no driver")}


# --- products that are left to the library ---------------------------------------------------


class Products:
    """A target that refuses, fails to emit, fails to load and takes one size each."""

    name = "cpu"

    def refusal(self, mu, dtype):
        return "too small" if dict(mu.sizes)["n"] == 1 else None

    def emit(self, mu, dtype):
        if dict(mu.sizes)["n"] == 2:
            raise KernelError("no layout\nfits")
        return SimpleNamespace(text="", meta=dict(mu.sizes))

    def load(self, path, meta):
        if meta["n"] == 3:
            raise OSError("the driver is gone")
        return lambda x, w: x @ w

    def estimate(self, mu, dtype):
        return 2e-6


def test_a_product_that_cannot_be_made_is_a_row_and_the_next_one_is_measured(tmp_path, monkeypatch):
    sizes = tuple((n, 3, 2) for n in (1, 2, 3, 4))
    monkeypatch.setattr(products, "SIZES", {False: sizes})
    rows = list(products.products(Products(), None, tmp_path / "kernel.py"))
    assert [(name, detail) for name, detail, _ in rows] == [
        ("library 1x3x2 float32", "too small"),
        ("library 2x3x2 float32", "KernelError: no layout fits"),
        ("library 3x3x2 float32", "OSError: the driver is gone"),
        ("library 4x3x2 float32", "predicted 2.0 us"),
    ]
    assert [call is None for *_, call in rows] == [True, True, True, False]
    assert rows[-1][2]().shape == (4, 2)
