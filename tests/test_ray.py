"""Sweeps and trials on real Ray clusters of this machine, whose nodes are killed in the middle."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest
from ray_driver import LocalCluster, wait_until
from sweep_grids import write_grid

from prism.record import Outcome, RecordFile
from prism.sweep import LocalPool, load_grid, read_cells, sweep

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Ray is not installed (extra ray)"
    ),
]

SLOW_PROGRAM = """
import os, pathlib, time, uuid, ray_driver

here = pathlib.Path(__file__).parent
name, gpu, begin = uuid.uuid4().hex, os.environ.get("CUDA_VISIBLE_DEVICES"), time.time()
(here / "begun" / name).write_text(ray_driver.node())
time.sleep(SECONDS)
(here / "done" / name).write_text(f"{begin} {time.time()} {gpu}")

def layer(x: "n d", w: "d h"):
    return x @ w
"""

GRID = """
[settings]
do = "verify"
candidate = "mine.py:layer"
[axes]
program = ["matmul"]
seed = [0, 1, 2, 3]
"""

GPU_GRID = """
[settings]
do = "optimize"
target = "cuda"
program = "mine.py:layer"
sizes = "n=2,d=4,h=2"
[axes]
seed = [0, 1]
"""

SWEEP = "import prism.cluster; prism.cluster.PATIENCE_S = 3; from prism.cli import main; main()"

SLOW_TARGET = """
import pathlib, time, uuid, ray_driver
from tune.fake_target import FakeTarget

begun = pathlib.Path(__file__).parent / "begun"

class SlowTarget(FakeTarget):
    options = {"fault": (0,), "delay_ms": (1, 2, 3, 4, 5, 6)}

    def load(self, path, meta):
        (begun / uuid.uuid4().hex).write_text(ray_driver.node())
        time.sleep(1)
        return super().load(path, meta)
"""

TUNE = """
import sys
from pathlib import Path
from tune import test_tuner
from prism.cluster import connected
from prism.tune.cluster import ClusterRunner

folder, address = Path(sys.argv[1]), sys.argv[2]
test_tuner.FAKE = folder / "slow.py"
run = test_tuner.tuner(
    "SlowTarget", records=folder / "trials.jsonl", finalists=2, compile_timeout_s=60.0
)
with connected(address) as cluster:
    run._runner = ClusterRunner(cluster, run._task)
    result = run.run()
best = dict(result.best.config.schedule)["delay_ms"]
(folder / "said").write_text("; ".join((str(best), result.stopped, *result.notes)))
"""


@pytest.fixture
def folder(tmp_path):
    for name in ("begun", "done"):
        (tmp_path / name).mkdir()
    return tmp_path


def write(folder, grid, seconds):
    program = SLOW_PROGRAM.replace("SECONDS", str(seconds))
    (folder / "mine.py").write_text(program, encoding="utf-8")
    return str(write_grid(folder, grid))


def nodes_begun(folder):
    return [path.read_text() for path in (folder / "begun").iterdir()]


def sweep_of(grid, folder, address):
    return ("-c", SWEEP, "sweep", grid, "--ray", address, "-o", str(folder / "run.jsonl"))


def test_a_killed_node_costs_a_sweep_its_running_cells_only(folder):
    grid = write(folder, GRID, 1)
    with LocalCluster(folder, nodes=2) as cluster:
        running = cluster.start(*sweep_of(grid, folder, cluster.address))
        wait_until(lambda: len(set(nodes_begun(folder))) == 2, 100, cluster.said)
        cluster.order("kill-node")
        status, _, said = cluster.ended(running)
    assert status == 0, said
    cells = read_cells([folder / "run.jsonl"])
    assert [(c.seed, c.outcome) for c in cells] == [(i, "ok") for i in range(4)]
    assert len((folder / "run.jsonl").read_text().splitlines()) == 4
    again = [c for c in cells if "begun again 1 times" in c.message]
    assert len(again) == 1
    assert len(nodes_begun(folder)) == 5


def test_a_sweep_whose_cluster_goes_away_says_so_and_goes_on_elsewhere(folder):
    grid = write(folder, GRID, 1)
    run = folder / "run.jsonl"
    with LocalCluster(folder) as cluster:
        running = cluster.start(*sweep_of(grid, folder, cluster.address))
        wait_until(lambda: run.exists() and run.read_bytes().count(b"\n") >= 1, 100, cluster.said)
        cluster.order("kill-head")
        status, _, said = cluster.ended(running)
    assert status == 2
    assert "the Ray cluster went away" in said
    assert re.search(r"[12] of 4 cells are in .*run.jsonl; run again to go on", said)
    before = run.read_text()
    loaded = load_grid(folder / "small.toml")
    result = sweep(loaded, loaded.cells, run, LocalPool(2))
    assert result.run == 4 - before.count("\n")
    assert run.read_text().startswith(before)
    assert {cell.outcome for cell in result.cells} == {"ok"}


def test_a_client_sweeps_and_tunes_and_a_gpu_is_held_by_one_cell_at_a_time(folder):
    grid = write(folder, GPU_GRID, 1)
    with LocalCluster(folder, cpus=2, gpus=1) as cluster:
        client = f"ray://127.0.0.1:{cluster.port}"
        status, _, said = cluster.ended(cluster.start(*sweep_of(grid, folder, client)))
        assert status == 1, said  # there is no GPU in truth
        sizes = ("--sizes", "n=4,d=16,h=8", "--budget", "20", "--no-cache", "--json")
        tuned = cluster.start("-m", "prism", "optimize", "matmul", *sizes, "--ray", client)
        status, out, said = cluster.ended(tuned)
        assert status == 0, said
    spans = [path.read_text().split() for path in (folder / "done").iterdir()]
    (_, end, gpu), (begin, _, other_gpu) = sorted(spans)
    assert float(begin) > float(end)
    assert gpu == other_gpu == "0"
    answer = json.loads(out)
    assert answer["best"]["median_s"] > 0
    assert any("a whole node each, up to 1 at once" in note for note in answer["notes"])


def test_a_killed_node_costs_a_tuning_run_its_running_trial_only(folder):
    (folder / "slow.py").write_text(SLOW_TARGET, encoding="utf-8")
    with LocalCluster(folder, nodes=2) as cluster:
        running = cluster.start("-c", TUNE, str(folder), cluster.address)
        wait_until(lambda: len(set(nodes_begun(folder))) == 2, 100, cluster.said)
        cluster.order("kill-node")
        status, _, said = cluster.ended(running)
    assert status == 0, said
    out = (folder / "said").read_text()
    assert out.startswith("1; strategy; ")
    assert "1 begun again: a machine was lost" in out
    trials = RecordFile(folder / "trials.jsonl").read()
    assert [trial.outcome for trial in trials] == [Outcome.OK] * 6
    assert all(trial.host for trial in trials)
    # the trials, one perhaps twice (its node may die before it begins), the finals
    assert len(nodes_begun(folder)) in (6 + 2, 6 + 1 + 2)
