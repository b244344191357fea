"""Cells on a cluster, with a stand-in for Ray: tests/test_ray.py has the real one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stand_in_cluster import StandIn
from sweep_grids import grid_of

from prism.cluster import LOST_RETRIES, Needs, Node
from prism.errors import ClusterLostError, UsageError
from prism.sweep import cluster as sweep_cluster
from prism.sweep import read_cells, sweep
from prism.sweep.cluster import ClusterPool

VERIFY = """
[settings]
do = "verify"
candidate = "matmul"
program = "matmul"
[axes]
seed = [0, 1, 2, 3]
"""

TIMED = """
[settings]
do = "optimize"
sizes = "n=2,d=4,h=2"
program = "matmul"
[axes]
target = ["cpu", "cuda"]
seed = [0, 1]
"""

UNEQUAL = (Node("1", "small", 2, 0), Node("2", "large", 8, 1))


@pytest.fixture(autouse=True)
def instant(monkeypatch):
    """Every cell is answered at once."""

    def answered(job):
        return replace(job.cell, outcome="ok", message="as it was")

    answered.__name__ = "run_job"
    monkeypatch.setattr(sweep_cluster, "run_job", answered)


def swept(folder, cluster, text=VERIFY, progress=lambda *_: None):
    grid = grid_of(folder, text)
    return sweep(grid, grid.cells, folder / "run.jsonl", ClusterPool(cluster), progress)


def test_every_cell_is_answered_once(tmp_path):
    result = swept(tmp_path, StandIn())
    assert [cell.outcome for cell in result.cells] == ["ok"] * 4
    assert [cell.message for cell in result.cells] == ["as it was"] * 4
    assert ClusterPool(StandIn()).width == 4


def test_lost_cells_are_begun_again_and_their_lines_say_how_often(tmp_path):
    cluster = StandIn().lose("run_job", 0, 4, 2)
    result = swept(tmp_path, cluster)
    messages = [cell.message.partition(":")[0] for cell in result.cells]
    assert messages == ["begun again 2 times", "as it was", "begun again 1 times", "as it was"]
    assert {cell.outcome for cell in result.cells} == {"ok"}
    assert cluster.calls["run_job"] == 7


def test_a_cell_that_is_lost_again_and_again_has_failed_and_the_rest_go_on(tmp_path):
    grid = grid_of(tmp_path, VERIFY.replace("[0, 1, 2, 3]", "[0]"))
    cluster = StandIn().lose("run_job", *range(LOST_RETRIES + 1))
    result = sweep(grid, grid.cells, tmp_path / "run.jsonl", ClusterPool(cluster))
    assert [cell.outcome for cell in result.cells] == ["failed"]
    assert result.cells[0].message == "lost on the cluster 4 times: the machine is gone"


def test_what_times_kernels_has_a_whole_node_and_what_is_for_a_gpu_one_of_its_own(tmp_path):
    cluster = StandIn(UNEQUAL)
    swept(tmp_path, cluster, TIMED)
    assert cluster.submitted[:2] == [Needs(1, 1), Needs(1, 1)]
    assert cluster.submitted[2:] == [Needs(2, 0, "1"), Needs(8, 0, "2")]


@pytest.mark.parametrize(
    ("settings", "needs"),
    [('do = "verify"', Needs(1)), ('do = "verify"\ncpus = 2', Needs(2))],
)
def test_another_cell_takes_one_cpu_or_what_it_says(settings, needs, tmp_path):
    cluster = StandIn(UNEQUAL)
    swept(tmp_path, cluster, VERIFY.replace('do = "verify"', settings))
    assert cluster.submitted == [needs] * 4


def test_whole_nodes_have_one_cell_at_a_time_and_a_lost_one_goes_on_elsewhere(tmp_path):
    cluster = StandIn((Node("1", "one", 2, 1),)).lose("run_job", 2)
    result = swept(tmp_path, cluster, TIMED)
    assert {cell.outcome for cell in result.cells} == {"ok"}
    assert cluster.submitted[2:] == [Needs(2, 0, "1")] * 3


@pytest.mark.parametrize(
    ("setting", "machines", "message"),
    [
        ('target = "cuda"', (Node("1", "one", 2, 0),), "no machine of the cluster has a GPU"),
        ("cpus = 3", (Node("1", "one", 2, 0),), "needs 3 CPUs, and the largest .* has 2"),
        ("cpus = 1", (), "the largest machine of the cluster has 0"),
    ],
)
def test_what_fits_on_no_machine_is_refused_before_anything_runs(
    setting, machines, message, tmp_path
):
    text = TIMED.replace("[axes]", f"{setting}\n[axes]").replace('target = ["cpu", "cuda"]\n', "")
    with pytest.raises(UsageError, match=message):
        swept(tmp_path, StandIn(machines), text)


def test_a_cluster_that_goes_away_leaves_its_lines_and_says_how_to_go_on(tmp_path):
    cluster = StandIn()

    def go_away(done, total, what):
        cluster.is_gone = done == 2

    with pytest.raises(ClusterLostError, match=r"2 of 4 cells are in .*; run again to go on"):
        swept(tmp_path, cluster, progress=go_away)
    assert len(cluster.cancelled) == 2
    before = read_cells([tmp_path / "run.jsonl"])
    result = swept(tmp_path, StandIn())
    assert (len(before), result.before, result.run) == (2, 2, 2)
