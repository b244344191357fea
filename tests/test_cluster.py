"""The connection to a cluster, with a stand-in for the package `ray`."""

from __future__ import annotations

import socket
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest
from click.testing import CliRunner

from prism import cluster
from prism.cli import main
from prism.cluster import Lost, Needs, Node, RayCluster, connected
from prism.errors import ClusterLostError, KernelError, UsageError


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__("a traceback of many lines")
        self.cause = cause


class FakeRay(ModuleType):
    """As much of Ray as is called; `raises` is what `get` raises, `hangs` keeps it from an end."""

    raises: Exception | None = None
    hangs = False
    gcs_address = "127.0.0.1:1"
    initialized = False
    refuses = False
    aborts = 0

    def __init__(self):
        super().__init__("ray")
        self.exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
        self.said = []

    def is_initialized(self):
        return self.initialized

    def init(self, **options):
        if self.refuses:
            raise ConnectionError("nobody is there")
        if self.aborts:
            self.aborts -= 1
            raise ConnectionAbortedError(
                "Initialization failure:\nTraceback\nstart failed. See x.err"
            )
        self.said.append(options["address"])

    def shutdown(self):
        self.said.append("shutdown")

    def get_runtime_context(self):
        return SimpleNamespace(gcs_address=self.gcs_address)

    def get(self, ref):
        if self.hangs:
            time.sleep(60)
        if self.raises is not None:
            raise self.raises
        return ref

    def nodes(self):
        alive = {"NodeID": "b", "NodeManagerHostname": "two", "Alive": True}
        named = {"NodeID": "a", "NodeName": "one", "NodeManagerHostname": "x", "Alive": True}
        return [
            {**alive, "Resources": {"CPU": 4.0, "GPU": 1.0}},
            {**alive, "NodeID": "c", "Alive": False, "Resources": {}},
            {**named, "Resources": {"memory": 1.0}},
        ]

    def remote(self, function):
        return SimpleNamespace(
            options=lambda **options: SimpleNamespace(remote=lambda *args: (options, args))
        )


@pytest.fixture
def ray(monkeypatch):
    fake = FakeRay()
    strategies = ModuleType("ray.util.scheduling_strategies")
    strategies.NodeAffinitySchedulingStrategy = lambda node, *, soft: (node, soft)
    for name, module in {"ray": fake, "ray.util": ModuleType("ray.util")}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)
    monkeypatch.setattr(cluster, "BEAT_S", 0.02)
    monkeypatch.setattr(cluster, "PATIENCE_S", 0.05)
    return fake


@pytest.fixture
def head(ray):
    """Somebody who listens where the head is said to be."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ray.gcs_address = f"127.0.0.1:{server.getsockname()[1]}"
        yield server


def test_nodes_that_are_alive_in_a_fixed_order(ray):
    assert RayCluster(ray).nodes() == (Node("a", "one", 0, 0), Node("b", "two", 4, 1))


def test_work_takes_what_it_needs_and_ray_repeats_none(ray):
    options, args = RayCluster(ray).submit(print, "x", needs=Needs(2, 1, "a"))
    assert args == ("x",)
    assert (options["num_cpus"], options["num_gpus"], options["max_retries"]) == (2, 1, 0)
    assert options["scheduling_strategy"] == ("a", False)
    options, _ = RayCluster(ray).host(list, needs=Needs())
    assert "scheduling_strategy" not in options
    assert (options["max_restarts"], options["max_task_retries"]) == (0, 0)


def test_a_lost_worker_is_a_value_while_the_head_answers(ray, head):
    ray.raises = RayError("the node\nhas died")
    assert RayCluster(ray).get(1) == Lost("RayError: the node has died")


def test_what_work_raised_is_raised_if_it_is_ours_and_else_lost(ray):
    ray.raises = RayTaskError(KernelError("no GPU"))
    with pytest.raises(KernelError, match="no GPU"):
        RayCluster(ray).get(1)
    ray.raises = RayTaskError(ModuleNotFoundError("No module named 'prism'"))
    assert RayCluster(ray).get(1) == Lost("ModuleNotFoundError: No module named 'prism'")


@pytest.mark.parametrize("trouble", [{"hangs": True}, {"raises": RayError("lost")}])
def test_a_head_that_does_not_answer_is_a_lost_cluster(trouble, ray):
    for name, value in trouble.items():
        setattr(ray, name, value)
    here = RayCluster(ray)
    with pytest.raises(ClusterLostError, match=r"its head 127.0.0.1:1 does not answer"):
        here.get(1)
    assert here.is_lost


def test_a_call_may_take_its_time_while_the_head_answers(ray, head):
    here = RayCluster(ray)
    ray.get = lambda ref: time.sleep(0.3) or ref
    assert here.get(5) == 5


def test_a_broken_connection_is_a_lost_cluster(ray):
    ray.raises = ConnectionError("broken pipe")
    with pytest.raises(ClusterLostError, match="broken pipe"):
        RayCluster(ray).get(1)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("ray://machine", ("machine", 10001)),
        ("ray://machine:123", ("machine", 123)),
        ("ray://[::1]:123", ("::1", 123)),
        ("auto", ("127.0.0.1", 1)),
    ],
)
def test_where_the_head_is(address, expected, ray):
    assert RayCluster(ray, address)._head == expected


def test_a_connection_is_ended_by_who_made_it(ray):
    with connected("auto"):
        assert ray.said == ["auto"]
        ray.initialized = True
        with connected("auto"):
            pass
        assert ray.said == ["auto"]
    assert ray.said == ["auto", "shutdown"]


def test_no_address_is_no_cluster():
    with connected(None) as none:
        assert none is None


def test_a_cluster_that_is_not_there_is_refused(ray):
    ray.refuses = True
    with pytest.raises(UsageError, match="no Ray cluster at far:1: ConnectionError: nobody is"):
        connected("far:1").__enter__()


def test_a_head_that_starts_no_process_for_a_client_is_asked_again(ray):
    ray.aborts = cluster.CONNECT_TRIES - 1
    with connected("ray://far"):
        assert ray.said == ["ray://far"]


def test_a_head_that_never_does_is_not_taken_for_one_that_is_not_there(ray):
    ray.aborts = cluster.CONNECT_TRIES
    with pytest.raises(UsageError, match=r"far is there, but .* in 4 tries: start failed. See x"):
        connected("ray://far").__enter__()


def test_without_ray_the_option_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ["optimize", "matmul", "--sizes", "n=2,d=2,h=2", "--ray", "auto"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "pip install '.[ray]'" in " ".join(done.stderr.split())
