"""A process with a Ray cluster on this machine, for the tests: `python -c DRIVER FOLDER PORT`.

Ray and its cluster live in a process of their own: they start dozens more, and warn a lot. The
cluster takes orders as files in its folder: `kill-node`, `kill-head`, `end`; `up` has its address.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

DRIVER = """
import sys, time
from pathlib import Path

from ray.cluster_utils import Cluster

folder, port = Path(sys.argv[1]), int(sys.argv[2])
cpus, gpus, nodes = map(int, sys.argv[3:])
has = {"num_cpus": cpus, "num_gpus": gpus, "object_store_memory": 100 * 2**20}
head = {**has, "include_dashboard": False, "ray_client_server_port": port}
cluster = Cluster(initialize_head=True, head_node_args=head)
others = [cluster.add_node(**has) for _ in range(nodes - 1)]
cluster.wait_for_nodes()
(folder / "up").write_text(cluster.address)
while not (folder / "end").exists():
    if (folder / "kill-node").exists():
        (folder / "kill-node").unlink()
        cluster.remove_node(others.pop(), allow_graceful=False)
    if (folder / "kill-head").exists():
        (folder / "kill-head").unlink()
        cluster.head_node.kill_gcs_server(check_alive=False)
        cluster.head_node.kill_raylet(check_alive=False)
    time.sleep(0.02)
cluster.shutdown()
"""

MARK = "PRISM_TEST_CLUSTER"


def wait_until(what, seconds, why):
    """Look every moment whether it is so."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, why()
        time.sleep(0.02)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def node():
    """Which machine of a cluster this process is on: the process of Ray's that all there are of."""
    pid = os.getpid()
    while (folder := Path("/proc", str(pid))) and pid > 1:
        if (folder / "comm").read_text().strip() == "raylet":
            return str(pid)
        pid = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return "none"


class LocalCluster:
    """A cluster of `nodes` equal machines, all on this one; no process of it outlives it."""

    def __init__(self, folder, *, nodes=1, cpus=1, gpus=0):
        self.folder, self.port, self.mark = folder / "cluster", free_port(), uuid.uuid4().hex
        self.counts, self.started = (cpus, gpus, nodes), []
        self.folder.mkdir()

    @property
    def environment(self):
        tests = str(Path(__file__).parent)
        return {
            **os.environ,
            MARK: self.mark,
            "PYTHONPATH": os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH")))),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DISABLE_IMPORT_WARNING": "1",
            "GRPC_ENABLE_FORK_SUPPORT": "0",  # its fork handlers crash clients' processes, at times
        }

    def __enter__(self):
        counts = map(str, (self.port, *self.counts))
        self.start("-c", DRIVER, str(self.folder), *counts)
        try:
            wait_until((self.folder / "up").exists, 60, self.said)
        except BaseException:
            self.__exit__()
            raise
        self.address = (self.folder / "up").read_text()
        return self

    def said(self):
        """What all of them have printed."""
        return "\n".join(path.read_text() for path in self.folder.glob("*.err"))

    def order(self, what):
        (self.folder / what).touch()

    def start(self, *words):
        """Start Python with these words beside the cluster."""
        number = len(self.started)
        out, err = (self.folder / f"{number}.{kind}" for kind in ("out", "err"))
        with out.open("wb") as to, err.open("wb") as errors:
            self.started.append(
                subprocess.Popen(
                    [sys.executable, *words], stdout=to, stderr=errors, env=self.environment
                )
            )
        return number

    def ended(self, number, seconds=100):
        """The status of what was started, once it has ended, and what it printed where."""
        process = self.started[number]
        wait_until(lambda: process.poll() is not None, seconds, self.said)
        out, err = (self.folder / f"{number}.{kind}" for kind in ("out", "err"))
        return process.returncode, out.read_text(), err.read_text()

    def left(self):
        """Processes of the cluster and of its users that are there."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found

    def __exit__(self, *_):
        self.order("end")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.started[0].wait(15)
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.started:
            process.wait()
