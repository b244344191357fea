"""Sweeps on a Ray cluster: two nodes on this machine, one of which is killed in the middle."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from sweep_grids import write_grid

from prism.sweep import read_cells

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Ray is not installed (extra ray)"
    ),
]

GPU_GRID = """
[settings]
do = "optimize"
target = "cuda"
program = "matmul"
sizes = "n=2,d=4,h=2"
[axes]
seed = [0, 1]
"""

SLOW_PROGRAM = """
import os, pathlib, time, uuid

here = pathlib.Path(__file__).parent
(here / "started" / uuid.uuid4().hex).write_text(os.environ.get("RAY_NODE_ID", "") or "?")
time.sleep(SECONDS)

def layer(x: "n d", w: "d h"):
    return x @ w
"""

GRID = """
[settings]
do = "verify"
candidate = "mine.py:layer"
[axes]
program = ["matmul"]
seed = [0, 1, 2, 3, 4, 5]
"""

DRIVER = """
import json, sys, threading, time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from prism.sweep import load_grid, read_cells, sweep
from prism.sweep.cluster import ClusterPool

folder, wanted = Path(sys.argv[1]), json.loads(sys.argv[2])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()

def kill_when_both_run():
    while len(list((folder / "started").iterdir())) < 2:
        time.sleep(0.05)
    cluster.remove_node(second, allow_graceful=False)
    (folder / "killed").touch()

if wanted["kill"]:
    threading.Thread(target=kill_when_both_run, daemon=True).start()
try:
    grid = load_grid(folder / "small.toml")
    sweep(grid, grid.cells, folder / "run.jsonl", ClusterPool(cluster.address))
finally:
    ray.shutdown()
    cluster.shutdown()
"""


def on_a_cluster(folder, grid, seconds, *, kill):
    """Run a grid on two nodes; how the run ended."""
    (folder / "started").mkdir()
    program = SLOW_PROGRAM.replace("SECONDS", str(seconds))
    (folder / "mine.py").write_text(program, encoding="utf-8")
    write_grid(folder, grid)
    wanted = json.dumps({"kill": kill})
    return subprocess.run(
        [sys.executable, "-c", DRIVER, str(folder), wanted],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "RAY_DISABLE_IMPORT_WARNING": "1"},
        timeout=110,
    )


def test_a_killed_node_costs_its_running_cells_only(tmp_path):
    done = on_a_cluster(tmp_path, GRID, 2, kill=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "killed").exists()
    cells = read_cells([tmp_path / "run.jsonl"])
    assert [(c.seed, c.outcome) for c in cells] == [(i, "ok") for i in range(6)]
    assert len((tmp_path / "run.jsonl").read_text().splitlines()) == 6
    begun = len(list((tmp_path / "started").iterdir()))
    assert 7 <= begun <= 8  # the one cell that the node was running, once more


def test_cells_for_a_gpu_are_refused_where_there_is_none(tmp_path):
    refused = on_a_cluster(tmp_path, GPU_GRID, 0, kill=False)
    assert "no machine of the cluster has a GPU" in refused.stderr
    assert not (tmp_path / "run.jsonl").read_text()
