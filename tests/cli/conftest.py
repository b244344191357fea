"""What the tests of the command line share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from prism.cli import main

ENVELOPE = {"schema", "prism_version", "seed", "elapsed_s"}


@pytest.fixture
def prism(monkeypatch, tmp_path):
    """Runs the command line in this process; an internal error is raised, not reported.

    However busy the machine is, the fewest axioms of a proof are found.
    """
    monkeypatch.setattr("prism.cli.verify.EXPLAIN_S", 100.0)
    monkeypatch.setattr("prism.cli.explaining.EXPLAIN_S", 100.0)
    monkeypatch.setattr("prism.cli.explaining.HARD_STOP_S", 200.0)
    monkeypatch.setenv("PRISM_DEBUG", "1")
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path / "cache"))
    return lambda *args: CliRunner().invoke(main, [str(a) for a in args], prog_name="prism")


@pytest.fixture
def prism_json(prism):
    """The JSON object of a command that must succeed, with the envelope checked."""

    def run(*args, status=0):
        result = prism(*args, "--json")
        assert result.exit_code == status, result.stderr
        data = json.loads(result.stdout)
        assert set(data) >= ENVELOPE
        assert result.stdout.count("\n") == 1
        return data

    return run


@pytest.fixture(scope="session")
def artifact(tmp_path_factory):
    """A search artifact of matmul."""
    path = tmp_path_factory.mktemp("artifact") / "matmul.json"
    args = ["search", "matmul", "--grid-dims", "1", "-o", str(path)]
    assert CliRunner().invoke(main, args).exit_code == 0
    return path


@pytest.fixture(scope="session")
def fake_target():
    return f"{Path(__file__).parent.parent / 'tune' / 'fake_target.py'}:FakeTarget"


PAIRS = """
def reference(x: "n d", y: "n d", w: "d h"):
    return (x * y) @ w

def swapped(x: "n d", y: "n d", w: "d h"):
    return (y * x) @ w

def wrong(x: "n d", y: "n d", w: "d h"):
    return (x + y) @ w

def other(x: "n d", w: "d h"):
    return x @ w
"""


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.py"
    path.write_text(PAIRS)
    return path


GOOD = """
import prism

def doubled(x: "n d", w: "d h"):
    print("user code may print")
    return (x @ w) * 2.0

def unannotated(x, w):
    return x @ w

def half(x: "n d", w):
    return x @ w

def alien(x: "n d"):
    import numpy
    return numpy.linalg.inv(x)

def branchy(x: "n d"):
    return x if x[0, 0] > 0 else -x

def clash(x: "n 3", w: "4 h"):
    return x @ w

value = 7
"""


@pytest.fixture
def user_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(GOOD)
    return path
