"""The tutorial of experiments/README.md: its files and commands do what it says, word for word.

The page is the test: its code blocks are written into a folder, its commands run there, and the
lines it shows must be among those that come, but for times and for what it leaves out (`...`).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from mapping_problems import NAMED, mapping_problems

from prism.plugins import load_attribute
from prism_constraints.backtracking import BacktrackingEncoding

README = Path(__file__).parent.parent / "experiments" / "README.md"
FILES = ("squared_relu.py", "squared_relu.egg", "precedence.py", "grid.toml")
TIME = re.compile(r"\b\d+(\.\d+)? ?(ns|us|ms|s|min|h)\b")


BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def written(folder):
    """Save the tutorial's files, each named in the prose before it; its console blocks."""
    text = README.read_text(encoding="utf-8")
    part = text.split("## Your own program, axiom and encoding")[1].split("\n## ")[0]
    names, consoles, end = iter(FILES), [], 0
    for block in BLOCK.finditer(part):
        if block[1] == "console":
            consoles.append(block[2])
        else:
            name = next(names)
            assert f"`{name}`" in part[end : block.start()]
            (folder / name).write_text(block[2], encoding="utf-8")
        end = block.end()
    assert next(names, None) is None
    return consoles


def commands(block):
    """(command, the lines shown below it) of a console block."""
    for text in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *shown = text.splitlines()
        yield command, shown


def plain(text):
    """A line without its times and spaces."""
    return " ".join(TIME.sub("TIME", text).split())


def run(command, folder):
    """What a command prints."""
    words = shlex.split(command)
    assert words[0] == "prism"
    done = subprocess.run(  # noqa: PLW1510 - some answer no
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "COLUMNS": "200"}, timeout=300,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return [plain(line) for line in done.stdout.splitlines()]


def appears(line, lines):
    """Whether a shown line is among those that came; `...` in it stands for anything."""
    pattern = ".*".join(map(re.escape, plain(line).split("...")))
    return any(re.fullmatch(pattern, one) for one in lines)


@pytest.mark.slow
def test_the_tutorial_works_as_it_is_written(tmp_path):
    blocks = written(tmp_path)
    asked = [pair for block in blocks for pair in commands(block)]
    assert [shlex.split(command)[1] for command, _ in asked] == [
        "verify", "axioms", "verify", "search", "sweep", "report",
    ]  # fmt: skip
    for command, shown in asked:
        lines = run(command, tmp_path)
        for line in shown:
            assert appears(line, lines), (command, line, lines)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "square-relu (none can be left out)" in page


@pytest.fixture(scope="module")
def encoding(tmp_path_factory):
    """The encoding of the tutorial."""
    folder = tmp_path_factory.mktemp("mine")
    written(folder)
    return load_attribute(f"{folder}/precedence.py:PrecedenceEncoding")()


@pytest.mark.parametrize("name", NAMED)
def test_its_encoding_finds_all_mappings_in_order(encoding, name):
    for limit in (None, 1, 7):
        wanted = BacktrackingEncoding().enumerate(NAMED[name], limit=limit)
        assert encoding.enumerate(NAMED[name], limit=limit) == wanted


@given(problem=mapping_problems())
def test_its_encoding_finds_what_the_reference_finds(encoding, problem):
    assert encoding.enumerate(problem) == BacktrackingEncoding().enumerate(problem)
