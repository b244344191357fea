"""`prism tune`, `optimize` and `bench`, on a target without a compiler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_checks import assert_refused
from click.testing import CliRunner

from prism.cli import main
from prism.cli.answer import Status
from prism.optimized_shapes import OptimizedShapes

TINY = "n=4,d=6,h=5"


def test_tune_reports_the_best_kernel_and_resumes(
    prism, prism_json, artifact, fake_target, tmp_path
):
    records, kernel = tmp_path / "trials.jsonl", tmp_path / "kernel.py"
    args = ["tune", artifact, "--sizes", TINY, "--target", fake_target, "--trials", "3"]
    data = prism_json(*args, "--records", records, "-o", kernel, "--seed", "5")
    assert (data["schema"], data["seed"]) == ("prism.cli.tune/1", 5)
    assert data["sizes"] == {"n": 4, "d": 6, "h": 5}
    assert sum(data["trials"].values()) == 3
    best = data["best"]
    assert best["kernel"] == str(kernel)
    assert kernel.read_text().startswith("# fake kernel")
    assert 0 < best["min_s"] <= best["median_s"]
    assert best["max_error"] < 1e-5
    assert set(best) >= {"graph", "par_sizes", "schedule"}
    assert best["predicted"] is False
    assert len(records.read_text().splitlines()) == 3
    again = prism_json(*args, "--records", records, "--seed", "5")
    assert (again["resumed"], len(records.read_text().splitlines())) == (3, 3)


def test_tune_for_a_machine_that_is_not_here_says_predicted(
    prism, prism_json, artifact, fake_target
):
    target = fake_target.replace("FakeTarget", "OfflineTarget")
    args = ["tune", artifact, "--sizes", TINY, "--target", target, "--trials", "3"]
    best = prism_json(*args)["best"]
    assert (best["predicted"], best["median_s"], best["max_error"]) == (True, None, None)
    assert best["predicted_s"] > 0
    assert (best["registers"], best["shared_bytes"]) == (40, 1024)
    assert best["spills"] in {0, 8}
    shown = prism(*args).stdout
    assert "predicted" in shown
    assert "compiled, neither checked nor run" in shown
    assert "40 registers a thread" in shown
    assert not {"median", "minimum", "max error"} & set(shown.split())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_are_tuned(prism_json, artifact, fake_target, dtype):
    args = ["tune", artifact, "--sizes", TINY, "--target", fake_target, "--trials", "1"]
    assert prism_json(*args, "--dtype", dtype)["trials"] == {"ok": 1}


def test_tune_without_a_right_kernel_is_a_negative_answer(prism_json, artifact, fake_target):
    target = fake_target.replace("FakeTarget", "BrokenTarget")
    args = ["tune", artifact, "--sizes", TINY, "--target", target, "--trials", "2"]
    data = prism_json(*args, status=Status.NO)
    assert (data["best"], data["trials"]) == (None, {"wrong": 2})


def test_an_interrupted_tuning_answers_with_what_it_has(artifact, fake_target, tmp_path):
    records = tmp_path / "trials.jsonl"
    command = [sys.executable, "-m", "prism", "tune", artifact, "--sizes", TINY, "--json"]
    command += ["--target", fake_target, "--records", records, "--budget", "600"]
    env = {**os.environ, "PRISM_CACHE_DIR": str(tmp_path / "cache")}
    with subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # where the tests run in the background, children would ignore it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as process:
        deadline = time.monotonic() + 100
        while not records.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=100)
    assert process.returncode == Status.INTERRUPTED, stderr
    data = json.loads(stdout)
    assert data["stopped"] == "interrupted"
    assert sum(data["trials"].values()) == len(records.read_text().splitlines()) > 0


@pytest.fixture(scope="session")
def optimized(tmp_path_factory, fake_target):
    """What `prism optimize --json` said, and the folder it saved the kernel in."""
    folder = tmp_path_factory.mktemp("optimized")
    env = {"PRISM_CACHE_DIR": str(folder / "cache"), "PRISM_DEBUG": "1"}
    args = ["optimize", "matmul", "--sizes", TINY, "--target", fake_target, "--budget", "0.5"]
    args += ["--grid-dims", "1", "--save", str(folder / "kernel"), "-o", str(folder / "k.py")]
    result = CliRunner().invoke(main, [*args, "--json"], env=env)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout), folder


def test_optimize_reports_search_and_best_kernel(optimized):
    data, folder = optimized
    assert data["schema"] == "prism.cli.optimize/1"
    assert (data["program"], data["is_fallback"]) == ("matmul", False)
    assert data["best"]["median_s"] > 0
    assert data["search"]["counters"]["proved"] > 0
    assert Path(data["best"]["kernel"]).read_text() == (folder / "k.py").read_text()


def test_optimize_takes_several_sizes_and_saves_them_together(
    prism, prism_json, fake_target, tmp_path
):
    options = ["--target", fake_target, "--budget", "0.5", "--grid-dims", "1"]
    sizes = ["--sizes", TINY, "--sizes", "n=3,d=8,h=5"]
    data = prism_json("optimize", "matmul", *sizes, *options, "--save", tmp_path / "shapes")
    assert data["schema"] == "prism.cli.optimize/1"
    assert [shape["sizes"] for shape in data["shapes"]][1] == {"n": 3, "d": 8, "h": 5}
    assert all(shape["best"]["median_s"] > 0 for shape in data["shapes"])
    loaded = OptimizedShapes.load(tmp_path / "shapes", target=fake_target)
    assert loaded.for_sizes({"n": 3, "d": 8, "h": 5}) is loaded.shapes[1]
    for more, words in (
        (["--sizes", TINY], "is there twice"),
        (["--sizes", "n=1"], "no size given"),
        (["-o", tmp_path / "k.py"], "--save FOLDER keeps several"),
    ):
        refused = prism("optimize", "matmul", *sizes, *options, *more)
        assert (refused.exit_code, words in refused.stderr) == (Status.BAD_INPUT, True)


def test_bench_compares_a_saved_kernel_with_numpy(prism_json, optimized, fake_target):
    _, folder = optimized
    data = prism_json(
        *("bench", "matmul", "--sizes", TINY, "--kernel", folder / "kernel"),
        *("--target", fake_target, "--rounds", "1", "--threads", "1", "--seed", "2"),
    )
    assert data["schema"] == "prism.cli.bench/1"
    ours, numpy = data["contestants"]
    assert (ours["name"], ours["ratio"], numpy["name"]) == ("prism", 1.0, "numpy")
    assert numpy["error"] < 1e-5
    for row in data["contestants"]:
        assert set(row) >= {"median_s", "min_s", "ratio", "bandwidth_fraction"}
        assert 0 < row["min_s"] <= row["median_s"]
    assert data["byte_count"] == 4 * (4 * 6 + 6 * 5 + 4 * 5)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--against", "torhc"], ["'torhc'", "numpy"]),
        (["--against", ""], ["--against"]),
        (["--against", "numpy,numpy"], ["--against", "once"]),
        (["--kernel", "nowhere"], ["nowhere"]),
        (["--rounds", "0"], ["--rounds", "0"]),
        (["--threads", "4096"], ["4096", "CPUs"]),
        (["--dtype", "float16"], ["float32", "dtype"]),
        (["--sizes", "n=4,d=6,h=6"], ["h=5"]),
        (["--target", "cpu"], ["fake_target.py", "target"]),
        (["--target", "lockstep"], ["lockstep", "simulator"]),
    ],
)
def test_a_bad_bench_option_is_one_message(prism, optimized, fake_target, options, parts):
    args = ["bench", "matmul", "--sizes", TINY, "--kernel", optimized[1] / "kernel"]
    args += ["--target", fake_target]
    assert_refused(prism(*args, *options, "--json"), *parts)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--dtype", "float31"], ["float31", "float32"]),
        (["--target", "tpu"], ["'tpu'", "cpu"]),
        (["--encoding", "bolean"], ["'bolean'", "boolean"]),
        (["--save", "{file}"], ["cannot write", "{file}"]),
        (["-o", "{folder}"], ["cannot write", "{folder}"]),
    ],
)
def test_a_bad_optimize_option_is_one_message(prism, tmp_path, options, parts):
    names = {"folder": str(tmp_path), "file": str(tmp_path / "file")}
    (tmp_path / "file").write_text("")
    args = ["optimize", "matmul", "--sizes", TINY, "--budget", "1"]
    options = [o.format(**names) for o in options]
    assert_refused(prism(*args, *options, "--json"), *(p.format(**names) for p in parts))
