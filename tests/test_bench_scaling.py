"""`make bench-scaling`: cost against the size of programs and of the space, as table, CSV, plot."""

from __future__ import annotations

import csv
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from prism.ir import Apply, evaluate
from prism_experiments import bench_scaling
from prism_experiments.grown import FAMILIES, grown


@pytest.mark.parametrize("operators", [1, 4, 9, 16])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_grown_program_has_so_many_operators_all_of_them_needed(family, operators):
    program = grown(family, operators)
    applied = [node for node in program.nodes if isinstance(node, Apply)]
    read = {i for node in applied for i in node.operands}
    assert len(applied) == operators
    assert len(read) == len(program.nodes) - 1


def test_grown_programs_compute_what_their_families_say():
    rng = np.random.default_rng(3)
    x, w, v = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 5)), rng.normal(size=(5, 4))
    arrays = {"x": x, "w0": w, "v0": v}
    value = np.maximum(x @ w, 0) @ v
    (residual,) = evaluate(grown("residual", 4), arrays)
    np.testing.assert_allclose(residual, x + value)
    (layer,) = evaluate(grown("layers", 6), arrays)
    np.testing.assert_allclose(layer, value / np.sum(value**2, axis=2, keepdims=True))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What a run of a few small searches prints and writes, without matplotlib."""
    path = tmp_path_factory.mktemp("scaling") / "some" / "costs.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        patch.setattr(bench_scaling, "FAMILIES", ("residual",))
        result = CliRunner().invoke(
            bench_scaling.main, ["--smoke", "--budget", "300", "-o", str(path)]
        )
    assert result.exit_code == 0, result.output
    with path.open(newline="") as file:
        return result.stdout, list(csv.DictReader(file))


def test_operators_grid_dims_and_kernels_are_varied_in_both_modes(written):
    _, rows = written
    for mode in ("count", "tune"):
        varied = [(r["varied"], r[r["varied"]]) for r in rows if r["mode"] == mode]
        assert varied == [
            *(("operators", "2"), ("operators", "3")),
            *(("grid_dims", "1"), ("grid_dims", "2")),
            *(("kernels", "1"), ("kernels", "2")),
        ]


def test_every_search_finds_graphs_and_says_what_cut_it(written):
    stdout, rows = written
    for row in rows:
        assert int(row["graphs"]) > 0
        assert int(row["states"]) > 0
        assert (row["complete"] == "True") == (row["cut_by"] == "")
    assert "nothing: complete" in stdout


def test_without_matplotlib_there_is_no_picture_and_it_is_said_why(written):
    stdout, _ = written
    assert "No picture: matplotlib is not installed" in stdout


def test_with_matplotlib_there_is_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    point = bench_scaling.Point("operators", "layers", "tune", 4, 2, 1)
    cost = bench_scaling.measure(point, 1.0)
    path = tmp_path / "costs.svg"
    assert bench_scaling.plot([cost], path)
    assert "<svg" in path.read_text()
