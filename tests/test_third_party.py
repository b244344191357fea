"""A third party's distribution (tests/plugins/acme_prism) plugs in without a change to Prism."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ACME = Path(__file__).parent / "plugins" / "acme_prism"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prism(tmp_path_factory):
    """Runs `prism ... --json` where the plug-in is installed; returns its object."""
    where = tmp_path_factory.mktemp("acme")
    source = shutil.copytree(ACME, where / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    to = ["--no-build-isolation", "--target", where / "site", source]
    subprocess.run([*pip, *to], check=True, capture_output=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(where / "site"),
        "PRISM_CACHE_DIR": str(where / "cache"),
    }

    def run(*arguments, status=0):
        command = [sys.executable, "-m", "prism", *arguments, "--json"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout)

    return run


def test_its_encoding_is_listed_with_its_owner(prism):
    found = {e["name"]: e["source"] for e in prism("list", "encodings")["encodings"]}
    assert found["acme"] == "acme-prism: acme_prism.encoding:OneShortEncoding"


def test_an_encoding_that_loses_an_assignment_loses_exactly_its_graphs(prism):
    def ids(encoding):
        return {g["id"] for g in prism("search", "matmul", "--encoding", encoding)["graphs"]}

    full, short = ids("boolean"), ids("acme")
    assert ids("backtracking") == full
    assert short < full


def test_its_axioms_join_ours_and_prove_what_ours_do_not(prism, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import prism\n"
        "def a(x: 'n'):\n    return prism.sum(prism.square(prism.relu(x)))\n"
        "def b(x: 'n'):\n    return prism.sum(x * prism.relu(x))\n"
    )
    programs = [f"{tmp_path / 'mine.py'}:{name}" for name in "ab"]
    both = ("--axioms", "prism", "--axioms", "acme")
    assert prism("verify", *programs, *both)["verdict"] == "proved"
    assert prism("verify", *programs, status=1)["verdict"] == "not proved"
    listed = json.dumps(prism("axioms", "list", *both)["axioms"])
    assert "acme-square-relu" in listed
