"""A user's operator from end to end: program, axioms and table in a folder of their own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_checks import assert_refused

import prism as prism_package
from prism.cli.answer import Status

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("operators")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The example of axioms/README.md, copied to where no code of ours is."""
    monkeypatch.chdir(shutil.copytree(ROOT / "experiments" / "examples", tmp_path / "mine"))
    return Path()


SMALL = ("--max-ops", "9", "--grid-dims", "1")
AMPLE = ("--budget", "300")
"""Seconds of a search that must be complete, on however busy a machine."""


def examples():
    """The commands of the README with what they print."""
    text = (ROOT / "axioms" / "README.md").read_text()
    (session,) = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    for part in session.split("$ prism ")[1:]:
        command, *output = part.splitlines()
        yield pytest.param(command.split(), output, id=command)


def without_numbers(line):
    return re.sub(r"[\d.]+ ?(us|ms|s)\b|[\d.]+", "#", line)


@pytest.mark.parametrize(("command", "output"), list(examples()))
def test_the_readme_shows_what_is_printed(prism, folder, command, output):
    given = (*command, *AMPLE) if command[0] == "search" else command
    printed = [without_numbers(line) for line in prism(*given).stdout.splitlines()]
    assert [line for line in printed if line in map(without_numbers, output)] == [
        without_numbers(line) for line in output
    ]


def test_axioms_of_a_file_unlock_graphs(prism_json, folder):
    args = ("search", "programs.py:gated", *SMALL, *AMPLE)
    before = prism_json(*args, "--axioms", "operators.toml")
    after = prism_json(*args, "--axioms", "operators.egg")
    assert {g["id"] for g in before["graphs"]} < {g["id"] for g in after["graphs"]}
    ops = {o for g in after["graphs"] for k in g["kernels"] for o in map(str, k["operators"])}
    assert any("silu" in op for op in ops)
    assert any("gelu_quick" in op for op in ops)


def test_without_the_file_it_is_named(prism, folder):
    for command in (("search", "programs.py:gated"), ("verify", *["programs.py:gated"] * 2)):
        assert_refused(prism(*command), "gelu_quick", "--axioms FILE.egg", "load_operators")


@pytest.mark.slow
def test_an_artifact_needs_no_file(prism, folder):
    options = ("--axioms", "operators.egg", *SMALL, "-o", "gated.json")
    assert prism("search", "programs.py:gated", *options).exit_code == Status.YES
    Path("operators.toml").unlink()
    tune = [sys.executable, "-m", "prism", "tune", "gated.json", "--sizes", "n=3,d=20,h=10"]
    done = subprocess.run(
        [*tune, *AMPLE, "--trials", "2", "--json", "-o", "kernel.py"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["trials"] == {"ok": 2}
    assert found["best"]["max_error"] < 1e-5


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("sigmoid(1.702 * x)", "tanh(1.702 * x)", "two operators under one name"),
        ("x * sigmoid(1.702 * x)", "x.__class__", "not allowed"),
        ("as GeluQuick(", "as Exp(", "taken"),
        ("operator gelu_quick as", "operator silu as", "own"),
    ],
)
def test_a_forged_definition_in_an_artifact_is_refused(prism, folder, old, new, why):
    options = ("--axioms", "operators.toml", "--max-ops", "7", "-o", "gated.json")
    prism("search", "programs.py:gated", *options)
    text = Path("gated.json").read_text()
    assert old in text
    Path("forged.json").write_text(text.replace(old, new))
    sizes = ("--sizes", "n=3,d=4,h=5")
    assert_refused(prism("tune", "forged.json", *sizes), "forged.json: program: line 1", why)
    if "two operators" in why:
        # by itself it would be another program; one graph of it that says otherwise is forged
        Path("forged.json").write_text(text.replace(old, new, 1))
        assert_refused(prism("tune", "forged.json", *sizes), "forged.json")


@pytest.mark.slow
def test_optimize_gives_a_right_kernel(prism_json, folder, rng):
    options = ("--axioms", "operators.egg", *SMALL, "--sizes", "n=3,d=20,h=10", "--budget", "6")
    found = prism_json("optimize", "programs.py:gated", *options, "--save", "saved")
    assert not found["is_fallback"]
    kernel = prism_package.Optimized.load("saved")
    x, w, v = (rng.normal(size=s).astype(np.float32) for s in ((3, 20), (20, 10), (20, 10)))
    h = x @ w
    assert np.allclose(kernel(x, w, v), h / (1 + np.exp(-1.702 * h)) * (x @ v), atol=1e-4)


def test_one_along_a_dim_is_refused_by_kernels_and_evaluated(prism, prism_json, folder):
    options = ("--axioms", "operators.egg", "--sizes", "n=3,h=4", "--budget", "3")
    found = prism_json("optimize", "programs.py:normed_query", *options, status=Status.NO)
    assert found["is_fallback"]
    assert any("rope mixes places along h" in note for note in found["notes"])
    found = prism_json(
        "search", "programs.py:normed_query", "--axioms", "operators.egg", status=Status.GAVE_UP
    )
    assert found["cuts"] == ["operators: no graphs with rope, along a dim"]


def test_a_choice_is_verified_and_refused_by_kernels(prism_json, folder):
    Path("step.toml").write_text(
        '[step]\nconstructor = "Step"\noperands = ["x"]\nnumpy = "where(x > 0, 1, 0)"\n'
    )
    Path("step.py").write_text(
        "import prism\n"
        "def one(x: 'n d'):\n    return prism.ops.step(x) * prism.ops.step(x)\n"
        "def two(x: 'n d'):\n    return prism.ops.step(x)\n"
    )
    Path("step.egg").write_text(
        "; A step has two values.\n"
        '(rewrite (Square (Step x)) (Step x) :ruleset algebra :name "step-square")\n'
    )
    options = ("--axioms", "step.egg")
    assert prism_json("verify", "step.py:one", "step.py:two", *options)["verdict"] == "proved"
    sizes = ("--sizes", "n=3,d=4", "--budget", "3")
    found = prism_json("optimize", "step.py:two", *options, *sizes, status=Status.NO)
    assert any("where" in note for note in found["notes"])


def test_it_is_listed_and_checked(prism_json, folder):
    listed = prism_json("axioms", "list", "--axioms", "operators.egg")
    assert "operators" in {a["name"] for a in listed["axioms"]}
    assert "operators.toml" in {t["name"] for t in listed["operator_tables"]}
    assert prism_json("axioms", "check", "operators.egg")["ok"]
    Path("operators.egg").write_text(
        '(rewrite (GeluQuick x) (Silu x) :ruleset algebra :name "quick-silu")\n'
    )
    (failure,) = prism_json("axioms", "check", "operators.egg", status=Status.NO)["failures"]
    assert (failure["rule"], failure["fault"]) == ("quick-silu", "unsound")
