"""Trials on a cluster, with a stand-in for Ray: tests/test_ray.py has the real one."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace

import pytest
from stand_in_cluster import StandIn
from tune.fake_target import FakeTarget, OfflineTarget
from tune.graphs import MATMUL
from tune.test_tuner import SIZES, tuner

from prism.cluster import LOST_RETRIES, Needs, Node
from prism.errors import ClusterLostError, UsageError
from prism.protocols import Device
from prism.record import Outcome, RecordFile, versions
from prism.tune import cluster as tune_cluster
from prism.tune.cluster import ClusterRunner, Kind, kind_of, places
from prism.tune.host import Order, Ready, Refused, TrialHost
from prism.tune.pool import Died
from prism.tune.runner import Attempt, Ended
from prism.tune.worker import Build, Failed


class InstantHost:
    """A host that says which attempt it was given, as a failure."""

    def __init__(self, wanted, packed):
        self.closed = False

    def open(self):
        return Ready("somewhere")

    def prepare(self):
        pass

    def run(self, attempt, best_s):
        return Ended(Failed(Outcome.ERROR, f"attempt {attempt.build.trial}"), host="somewhere")

    def close(self):
        self.closed = True


class RefusingHost(InstantHost):
    def open(self):
        return Refused("somewhere is another device (a toaster)")


class GpuTarget(FakeTarget):
    def device(self):
        return Device("fake GPU", 4096, 1024, 2**17, 2**25, 0, 3000.0, "gpu", "fake_90")


def task_of(**options):
    return tuner(**options)._task


def on_cluster(cluster, *, records=None, **options):
    """A run whose trials are on the stand-in."""
    run = tuner(records=records, **options)
    run._runner = ClusterRunner(cluster, run._task)
    return run


def attempts(count):
    builds = [Build(number, None, "float32", None) for number in range(count)]
    return [Attempt(build, None, 1.0, 1.0, 3) for build in builds]


def words(ended):
    return [one.answer.detail for one in ended]


def run_all(cluster, count):
    with ClusterRunner(cluster, task_of()) as runner:
        return list(runner.run(attempts(count), lambda: 1.0)), runner


def test_a_staged_attempt_may_take_one_more_run_before_its_host_is_hung():
    def allowed_s(*, is_staged):
        now = tune_cluster._Round([replace(attempts(1)[0], run_s=1000.0, is_staged=is_staged)])
        cluster = StandIn(kind=InstantHost)
        with ClusterRunner(cluster, task_of()) as runner:
            runner._start(now, 0, runner._hosts[0], 1.0)
        (running,) = now.running.values()
        return running.deadline

    assert allowed_s(is_staged=True) - allowed_s(is_staged=False) == pytest.approx(1000.0, abs=100)


# --- the tuner on a cluster


def test_a_run_on_a_cluster_finds_what_a_run_here_finds(tmp_path):
    records = tmp_path / "trials.jsonl"
    cluster = StandIn()
    result = on_cluster(cluster, records=records).run()
    assert dict(result.best.config.schedule)["delay_ms"] == 1
    assert result.outcomes == {"ok": 3}
    assert result.best.max_error < 1e-6
    assert "on a Ray cluster" in result.notes[-1]
    assert "up to 2 at once" in result.notes[-1]
    assert all(host.is_ended for host in cluster.hosts)
    trials = RecordFile(records).read()
    assert all(trial.host for trial in trials)
    assert [trial.at_once for trial in trials] == [2, 2, 1]
    assert {t.key.device for t in trials} == {FakeTarget().device().text}


def test_what_ran_on_a_cluster_is_resumed_here_and_the_other_way_round(tmp_path):
    records = tmp_path / "trials.jsonl"
    on_cluster(StandIn(), records=records, trials=2).run()
    here = tuner(records=records).run()
    assert here.resumed == 2
    assert [trial.host == "" for trial in RecordFile(records).read()] == [False, False, True]
    assert on_cluster(StandIn(), records=records).run().resumed == 3


def test_a_lost_machine_costs_its_running_trial_only(tmp_path):
    records = tmp_path / "trials.jsonl"
    result = on_cluster(StandIn().lose("run", 0), records=records).run()
    assert result.outcomes == {"ok": 3}
    assert len(RecordFile(records).read()) == 3
    assert "1 begun again: a machine was lost" in result.notes[-1]


def test_the_finals_go_on_where_their_machine_is_lost():
    cluster = StandIn().lose("ask", 1)  # the timing: the kernel of 1 ms has nobody near it
    result = on_cluster(cluster).run()
    assert dict(result.best.config.schedule)["delay_ms"] == 1
    assert cluster.calls["ask"] == 4  # the build, the timing that was lost, and both again


def test_where_the_cluster_goes_away_the_best_so_far_is_the_answer(tmp_path):
    records = tmp_path / "trials.jsonl"
    cluster = StandIn()

    def go_away(done, total, what):
        cluster.is_gone = done == 2

    result = on_cluster(cluster, records=records, progress=go_away).run()
    assert result.stopped == "cluster lost"
    assert any("went away" in note for note in result.notes)
    assert result.best.median_s == min(t.median_s for t in RecordFile(records).read())


def test_an_interrupt_ends_every_host():
    cluster = StandIn()

    def interrupt(done, total, what):
        if done == 1:
            raise KeyboardInterrupt

    assert on_cluster(cluster, progress=interrupt).run().stopped == "interrupted"
    assert cluster.hosts
    assert all(host.is_ended for host in cluster.hosts)


def test_kernels_that_are_only_compiled_share_a_machine():
    cluster = StandIn((Node("1", "one", 3, 0),))
    result = on_cluster(cluster, target="OfflineTarget").run()
    assert [host.needs for host in cluster.hosts] == [Needs(1, 0, "1")] * 3
    assert dict(result.best.config.schedule)["delay_ms"] == 2


# --- rounds


@pytest.mark.parametrize("newest_first", [False, True])
def test_answers_come_in_the_order_of_the_attempts(newest_first):
    ended, _ = run_all(StandIn(kind=InstantHost, newest_first=newest_first), 5)
    assert words(ended) == [f"attempt {number}" for number in range(5)]


def test_a_trial_that_loses_its_machine_again_and_again_has_failed():
    cluster = StandIn((Node("1", "one", 2, 0),), kind=InstantHost)
    ended, _ = run_all(cluster.lose("run", *range(LOST_RETRIES + 1)), 1)
    assert isinstance(ended[0].answer, Died)
    assert ended[0].answer.last_words == "lost its machine 4 times: the machine is gone"
    assert cluster.calls["run"] == LOST_RETRIES + 1


def test_a_machine_that_joins_is_taken_on():
    cluster = StandIn((Node("1", "one", 2, 0),), kind=InstantHost)
    with ClusterRunner(cluster, task_of()) as runner:
        assert len(runner) == 1
        cluster.machines += (Node("2", "two", 2, 0),)
        list(runner.run(attempts(1), lambda: 1.0))
        assert len(runner) == 2


def test_where_no_machine_is_left_the_run_ends():
    cluster = StandIn(kind=InstantHost).lose("run", *range(9))
    with ClusterRunner(cluster, task_of()) as runner:
        cluster.machines = ()
        with pytest.raises(ClusterLostError, match="a whole node of fake machine"):
            list(runner.run(attempts(1), lambda: 1.0))


# --- which machines


def test_machines_of_another_device_are_refused_by_name():
    with pytest.raises(UsageError, match=r"which need a whole node of fake machine.*a toaster"):
        run_all(StandIn(kind=RefusingHost), 1)


def test_a_cluster_without_such_a_machine_is_refused():
    task = replace(task_of(), target=GpuTarget())
    with pytest.raises(UsageError, match="no machine for the trials, which need a GPU of fake GPU"):
        ClusterRunner(StandIn(), task).__enter__()


def test_busy_machines_are_waited_for_so_long(monkeypatch):
    monkeypatch.setattr(tune_cluster, "BUSY_S", 0.05)
    cluster = StandIn(kind=InstantHost, busy=frozenset({"open"}))
    with pytest.raises(UsageError, match="became free"):
        run_all(cluster, 1)
    assert all(host.is_ended for host in cluster.hosts)


def opened(**changes):
    """What a host answers to an order with these changes."""
    order = replace(Order.of(task_of()), **changes)
    host = TrialHost(versions(), pickle.dumps(order))
    try:
        return host.open()
    finally:
        host.close()


def test_a_host_serves_its_own_device_alone():
    assert isinstance(opened(), Ready)
    assert "another device (fake machine, 2 threads" in opened(device="fake machine, 9 threads").why


def test_a_host_of_another_version_does_not_read_its_order():
    other = dict(versions()) | {"prism-superopt": "0.0.1"}
    refused = TrialHost(tuple(other.items()), b"not to be read").open()
    assert "has other versions" in refused.why
    assert "prism-superopt 0.0.1" in refused.why


def test_a_target_that_a_host_cannot_make_is_a_refusal():
    assert (
        "no such plugin" in opened(target="nowhere.py:Target").why
        or "nowhere" in opened(target="nowhere.py:Target").why
    )


@pytest.mark.parametrize(
    ("target", "kind"),
    [(FakeTarget, Kind.NODE), (GpuTarget, Kind.GPU), (OfflineTarget, Kind.CPU)],
)
def test_what_a_trial_takes_follows_from_its_target(target, kind):
    assert kind_of(target()) is kind


NODES = (Node("a", "head", 0, 0), Node("b", "small", 2, 1), Node("c", "large", 8, 2))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Kind.NODE, [Needs(2, 0, "b"), Needs(8, 0, "c")]),
        (Kind.GPU, [Needs(1, 1, "b"), Needs(1, 1, "c"), Needs(1, 1, "c")]),
        (Kind.CPU, [Needs(1, 0, "b"), Needs(1, 0, "c")] * 2 + [Needs(1, 0, "c")] * 6),
    ],
)
def test_places_are_whole_nodes_gpus_or_cpus(kind, expected):
    assert places(kind, NODES) == expected


def test_an_order_survives_the_way_to_its_host():
    order = Order.of(task_of())
    assert pickle.loads(pickle.dumps(order)) == order
    assert (order.program, dict(order.sizes)) == (MATMUL, SIZES)


def test_ray_is_imported_only_for_a_cluster():
    code = "import sys, prism.tune.cluster, prism.sweep.cluster, prism.driver, prism.cli; "
    code += "sys.exit('ray' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
