"""The benchmark: what its statistics mean, and that workers are clean, equal and expendable."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace

import numpy as np
import pytest

from prism.bench import BenchOptions, Task, contestant, run_bench
from prism.bench.accuracy import norm_error, reference_of
from prism.bench.idle import others_share
from prism.bench.process import ContestantError, Worker, worker_environment
from prism.bench.results import Measured, Stream, paired_ratio, spread_of, summarize
from prism.bench.runner import _busy, _Runner, _shares
from prism.bench.stream import CacheFlusher, StreamMeter, allowed_cpus, last_level_cache_bytes
from prism.bench.task import border_bytes, make_inputs
from prism.bench.worker import serve
from prism.errors import KernelError, PluginError, UsageError
from prism.ir import Apply, Argument, DimInfo, Input, Output, Program, format_program

MATMUL = Program(
    name="matmul",
    dims=(DimInfo("n", "n"), DimInfo("d", "d"), DimInfo("h", "h")),
    arguments=(Argument("x", ("n", "d")), Argument("w", ("d", "h"))),
    nodes=(Input("x", "x", ("n", "d")), Input("w", "w", ("d", "h")), Apply("matmul", (0, 1), "d")),
    outputs=(Output(2, ("n", "h")),),
)

RIVALS = """
import os, time
import numpy as np
from prism.bench import NotAvailableError, Prepared, Way
from prism.bench.task import make_inputs, task_program

def prepared(task, seconds, factor=1.0):
    x, w = make_inputs(task_program(task), task)

    def call():
        time.sleep(seconds)
        return factor * (x @ w)

    return Prepared(call, lambda out: (np.asarray(out),), note="half asleep" if seconds else "")

class Fast:
    def prepare(self, task):
        print("chatter on standard output")
        return prepared(task, 0.002)

class Slow:
    def prepare(self, task):
        return prepared(task, 0.02)

class Wrong:
    def prepare(self, task):
        return prepared(task, 0.0, 1.01)

class Several:
    def prepare(self, task):
        def breaks():
            raise RuntimeError("no such instruction")
        return [
            Way("slow", lambda: prepared(task, 0.02)),
            Way("wrong", lambda: prepared(task, 0.0, 2.0)),
            Way("fast", lambda: prepared(task, 0.004)),
            Way("broken", breaks),
        ]

class NoneRight:
    def prepare(self, task):
        return [Way(name, lambda: prepared(task, 0.0, 2.0)) for name in ("a", "b")]

class Absent:
    def prepare(self, task):
        raise NotAvailableError("not installed: pip install absent")

class Raises:
    def prepare(self, task):
        raise ValueError("no such library")

class Dies:
    def prepare(self, task):
        os._exit(3)

class Hangs:
    def prepare(self, task):
        time.sleep(600)

class Environment:
    def prepare(self, task):
        import json, sys
        cpus = sorted(os.sched_getaffinity(0))
        raise ValueError(json.dumps([os.environ.get("OPENBLAS_NUM_THREADS"), cpus]))
"""


@pytest.fixture
def task():
    sizes = (("n", 2), ("d", 8), ("h", 4))
    text = format_program(MATMUL)
    return Task("unused", sizes, "float32", seed=3, threads=1, kernel="unused", text=text)


@pytest.fixture
def rival(tmp_path):
    path = tmp_path / "rivals.py"
    path.write_text(RIVALS)
    return lambda name: f"{path}:{name}"


def prepare_request(name, task, folder):
    np.savez(folder / "reference.npz", *reference_of(MATMUL, task))
    return {
        "op": "prepare",
        "contestant": name,
        "task": task.to_json(),
        "cpus": list(allowed_cpus()[:1]),
        "reference": str(folder / "reference.npz"),
    }


def test_ratio_is_paired_by_round_so_a_slow_round_cancels():
    ours = ((1.0, 1.0, 9.0), (10.0, 10.0), (1.0,))
    theirs = ((2.0, 2.0), (20.0, 20.0), (2.0, 2.0, 2.0))
    assert paired_ratio(theirs, ours) == 2.0


def test_rounds_a_rival_did_not_reach_are_left_out_of_its_ratio():
    assert paired_ratio(((3.0,),), ((1.0,), (1.0,))) == 3.0
    assert paired_ratio((), ((1.0,),)) is None


STREAM = Stream(((2.0, 4.0, 8.0), (8.0,)), byte_count=16)


def test_bandwidth_fraction_is_paired_by_round_with_the_stream():
    row = summarize(Measured("a", ((1.0, 2.0, 30.0), (4.0,))), ((1.0,),), 8, STREAM)
    assert (row.median_s, row.min_s) == (3.0, 1.0)
    assert (row.p10_s, row.p90_s) == pytest.approx((1.3, 22.2))
    assert row.bandwidth_fraction == 1.0  # half the bytes in half the time, in either round
    assert STREAM.bytes_per_s == 16 / 6.0
    assert Stream((), 16).bytes_per_s is None
    assert Stream((), 16).fraction(((1.0,),), 8) is None


def test_a_failed_contestant_has_no_numbers_and_a_reason():
    row = summarize(Measured("a", (), failure="died"), ((1.0,),), 8, STREAM)
    assert (row.median_s, row.min_s, row.ratio, row.failure) == (None, None, None, "died")
    assert (row.p10_s, row.p90_s) == (None, None)


def test_two_groups_of_times_are_seen_in_their_tenths():
    row = summarize(Measured("a", ((1.0,) * 9, (2.0,) * 11)), ((1.0,),), 8, STREAM)
    assert (row.p10_s, row.median_s, row.p90_s) == (1.0, 2.0, 2.0)


def test_rounds_are_spread_evenly_over_the_starts():
    assert [list(r) for r in _shares(5, 2)] == [[0, 1], [2, 3, 4]]
    assert [list(r) for r in _shares(2, 3)] == [[0], [1]]


def test_border_bytes_count_each_argument_and_output_once():
    assert border_bytes(MATMUL, {"n": 2, "d": 8, "h": 4}, "float32") == 4 * (16 + 32 + 8)


def test_inputs_depend_on_the_seed_alone(task):
    first, again = make_inputs(MATMUL, task), make_inputs(MATMUL, task)
    assert [a.shape for a in first] == [(2, 8), (8, 4)]
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert all(a.dtype == np.float32 for a in first)


def test_a_task_survives_the_pipe(task):
    given = replace(task, tables=(("[twice]", "mine.toml"),))
    assert Task.from_json(json.loads(json.dumps(given.to_json()))) == given


def test_worker_environment_steers_no_library_and_gives_equal_threads():
    steering = {
        "OPENBLAS_CORETYPE": "Prescott",
        "OPENBLAS_L2_SIZE": "1",
        "MKL_CBWR": "X",
        "GOMP_SPINCOUNT": "9",
        "PRISM_CPU_SPIN_US": "9",
    }
    base = {**steering, "HOME": "/h"}
    env = worker_environment({**base, "NUMBA_NUM_THREADS": "64"}, 2)
    assert not set(steering) & set(env)
    assert env["HOME"] == "/h"
    assert {env[f"{lib}_NUM_THREADS"] for lib in ("OMP", "OPENBLAS", "MKL", "NUMBA")} == {"2"}


@pytest.mark.parametrize(("text", "size"), [("32768K\n", 32 << 20), ("1M", 1 << 20), ("512", 512)])
def test_cache_size_is_read_as_the_system_prints_it(tmp_path, text, size):
    (tmp_path / "index0").mkdir()
    (tmp_path / "index0" / "size").write_text("32K")
    (tmp_path / "index3").mkdir()
    (tmp_path / "index3" / "size").write_text(text)
    assert last_level_cache_bytes(tmp_path) == max(size, 32 << 10)


def test_an_unknown_cache_is_flushed_generously(tmp_path):
    assert last_level_cache_bytes(tmp_path) == 64 << 20


def test_every_thread_flushes_on_its_own_cpu():
    cpus = allowed_cpus()
    flusher, seen = CacheFlusher(cpus, cache_bytes=1 << 16), {}
    flusher._threads.run(lambda i: seen.update({i: os.sched_getaffinity(0)}))
    assert seen == {i: {cpu} for i, cpu in enumerate(cpus)}
    flusher.flush()


def test_the_stream_reads_more_than_the_cache_holds():
    meter = StreamMeter(allowed_cpus()[:1], cache_bytes=1 << 16)
    meter.read()
    assert meter.byte_count >= 64 << 20


def test_an_unknown_contestant_lists_the_known_ones():
    with pytest.raises(PluginError, match=r"no contestant named 'torhc'; known: .*numpy"):
        contestant("torhc")
    with pytest.raises(PluginError, match="there is no file"):
        contestant("/nowhere.py:A")


@pytest.mark.parametrize("against", [["numpy", "numpy"], ["prism"], ["stream"]])
def test_rivals_are_rivals_and_stand_once(task, against):
    with pytest.raises(UsageError, match="each rival once"):
        run_bench(MATMUL, task, against, BenchOptions())


def test_more_threads_than_cpus_are_refused(task):
    many = replace(task, threads=10_000)
    with pytest.raises(UsageError, match="10000 threads"):
        run_bench(MATMUL, many, ["numpy"], BenchOptions())


def test_a_failing_request_is_a_reply_not_the_end(task, tmp_path, rival):
    requests = [prepare_request(rival("Raises"), task, tmp_path)] * 2
    replies = io.StringIO()
    serve(io.StringIO("".join(json.dumps(r) + "\n" for r in requests)), replies)
    assert [json.loads(r) for r in replies.getvalue().splitlines()] == [
        {"error": "ValueError: no such library"}
    ] * 2


@pytest.mark.parametrize(
    ("name", "seconds", "reason"),
    [("Dies", 60.0, "ended with status 3"), ("Hangs", 1.0, "no answer in 1 s")],
)
def test_a_worker_that_dies_or_hangs_costs_itself_alone(  # noqa: PLR0917 - fixtures
    task, tmp_path, rival, name, seconds, reason
):
    worker = Worker(allowed_cpus()[:1], threads=1)
    try:
        with pytest.raises(ContestantError, match=reason):
            worker.ask(prepare_request(rival(name), task, tmp_path), seconds)
    finally:
        worker.close()


def test_a_worker_is_pinned_and_has_its_threads(task, tmp_path, rival, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "17")
    worker = Worker(allowed_cpus()[:1], threads=1)
    try:
        with pytest.raises(ContestantError) as caught:
            worker.ask(prepare_request(rival("Environment"), task, tmp_path), 60.0)
    finally:
        worker.close()
    threads, cpus = json.loads(str(caught.value).partition(": ")[2])
    assert (threads, cpus) == ("1", list(allowed_cpus()[:1]))


def test_contestants_take_turns_and_are_compared(task, rival):
    seen = []
    options = BenchOptions(rounds=3, calls=2, ours=rival("Fast"))
    names = ["Slow", "Several", "Wrong", "Raises", "Absent"]
    result = run_bench(
        MATMUL,
        task,
        [rival(name) for name in names],
        options,
        lambda done, total, what: seen.append((done, total, what.rpartition(":")[2])),
    )
    ours, slow, several, wrong, raises, absent = result.contestants
    assert result.ours is ours
    assert slow.ratio == pytest.approx(paired_ratio(slow.rounds, ours.rounds))
    assert min(t for times in slow.rounds for t in times) >= 0.02
    assert [len(r) for r in slow.rounds] == [2, 2, 2]
    assert (slow.error, ours.ratio) == (ours.error, 1.0)
    assert ours.error < 1e-6
    assert ours.spread >= 1.0
    assert wrong.failure == "norm error 0.01 against float64, allowed 4e-05"
    assert raises.failure == "ValueError: no such library"
    assert absent.failure == "not installed: pip install absent"
    assert any("Fast: half asleep" in w for w in result.warnings)
    assert any("Raises is not compared" in w for w in result.warnings)
    assert result.stream_gbps > 0
    turns = [what for done, _, what in seen if not what.startswith("start")][-7:]
    assert turns == ["Fast", *names, "stream"]
    data = json.loads(json.dumps(result.to_json()))
    assert data["sizes"] == {"n": 2, "d": 8, "h": 4}
    ways = data["contestants"][2]["ways"]
    assert (ways["fast"] >= 0.004, ways["slow"] >= 0.02) == (True, True)
    assert several.way == min(("slow", "fast"), key=ways.__getitem__)
    assert "norm error 1 " in ways["wrong"]
    assert ways["broken"] == "RuntimeError: no such instruction"


def test_a_contestant_without_a_right_way_says_why_of_each(task, tmp_path, rival):
    replies = io.StringIO()
    request = json.dumps(prepare_request(rival("NoneRight"), task, tmp_path))
    serve(io.StringIO(request + "\n"), replies)
    error = json.loads(replies.getvalue())["error"]
    assert error.count("norm error 1 against float64") == 2
    assert "a: " in error
    assert "; b: " in error


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ([3.0, 4.0], 0.0),
        ([3.0, 4.5], 0.1),
        ([3.0, np.nan], np.inf),
        ([np.inf, 4.0], np.inf),
        ([3.0, 4.0, 5.0], np.inf),
    ],
)
def test_the_error_is_a_norm_and_holes_or_other_shapes_are_wrong(output, error):
    found = norm_error([np.float32(output)], (np.array([3.0, 4.0]),), "float32")
    assert found == pytest.approx(error)


def test_what_the_dtype_cannot_hold_is_not_asked_for():
    reference = (np.array([1.0, 1e6, np.nan]),)
    assert norm_error([np.float16([1.0, np.inf, 7.0])], reference, "float16") == 0.0
    assert norm_error([np.float32([1.0, np.inf, 7.0])], reference, "float32") == np.inf


def _after(name, *rounds):
    cpu = [0.99 * t for times in rounds for t in times]
    return _Runner(name, rounds=list(rounds), cpu=cpu)


def test_a_busy_machine_is_told_by_what_others_take_its_cores_and_its_spread():
    calm = _after("a", (1.0, 1.1), (1.2, 1.0))
    assert list(_busy(0.01, calm, calm, threads=1)) == []
    assert "others took 50% of the CPUs" in next(_busy(0.5, calm, calm, threads=1))
    assert "got 50% of their CPUs" in next(_busy(0.01, calm, calm, threads=2))
    uneven = _after("a", (1.0, 1.0), (2.0, 2.0))
    (warning,) = _busy(0.01, calm, uneven, threads=1)
    assert "the slowest round of our kernel took 2.0 times the fastest" in warning


def test_what_others_take_is_what_is_in_use_while_we_sleep(tmp_path, monkeypatch):
    stat = tmp_path / "stat"
    stat.write_text("cpu 100 0 50 850 0 0 0 0 7 7\ncpu0 1 2 3\n")
    later = "cpu 120 0 60 910 5 0 0 5 9 9\n"
    monkeypatch.setattr("time.sleep", lambda _: stat.write_text(later))
    assert others_share(stat) == pytest.approx(0.35)  # 35 of 100 ticks were neither idle nor waited
    assert others_share(tmp_path / "none") is None


def test_the_spread_is_that_of_the_rounds_medians():
    assert spread_of(((1.0, 9.0, 1.0), (2.0, 2.0))) == 2.0
    assert spread_of(((1.0,),)) is None


def test_our_own_failure_ends_the_run(task, rival):
    options = BenchOptions(rounds=1, calls=1, ours=rival("Raises"))
    with pytest.raises(KernelError, match="matmul cannot be timed: ValueError: no such library"):
        run_bench(MATMUL, task, [], options)
