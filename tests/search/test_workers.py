"""What a search finds depends on its options alone: not on workers, hash seeds or how it is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import search_programs as programs

from prism.cli.search import search_json
from prism.errors import UsageError
from prism.search import SearchOptions, search
from prism.verify import parallel

SEARCH = sys.modules[search.__module__]
PROGRAM = programs.trace(programs.rmsnorm)
FULL = SearchOptions(budget_s=None, max_graphs=60)


def told(result):
    """Everything a search says but how long it took, and by how many."""

    def timeless(value):
        match value:
            case dict():
                return {
                    k: timeless(v) for k, v in value.items() if not k.endswith(("_s", "seconds"))
                }
            case list() | tuple():
                return [timeless(v) for v in value]
            case _:
                return value

    return timeless(search_json(result))


@pytest.fixture
def started(monkeypatch):
    """Workers start at once, for small blocks; how many did."""
    monkeypatch.setattr(parallel, "WORTH_S", 0.0)
    monkeypatch.setattr(SEARCH, "MAX_SQUARES", 10 * len(PROGRAM.nodes) ** 2)
    children = []

    class Counted(parallel.Child):
        def __init__(self, module):
            super().__init__(module)
            children.append(self)

    monkeypatch.setattr(parallel, "Child", Counted)
    yield children
    assert not any(child.is_running for child in children)


@pytest.mark.parametrize("options", [FULL, replace(FULL, without=("placement",), max_graphs=30)])
def test_the_result_is_the_same_for_any_number_of_workers(started, options):
    results = []
    for count in (1, 2, 3):
        before = len(started)
        results.append(told(search(PROGRAM, replace(options, workers=count))))
        assert (len(started) > before) is (count > 1)
    assert results[0]["counters"]["proved"] > 0
    assert results[0] == results[1] == results[2]


def test_the_number_of_workers_is_checked():
    with pytest.raises(UsageError, match="workers must be at least 0, not -1"):
        search(PROGRAM, SearchOptions(workers=-1))


def test_a_script_without_a_guard_starts_workers_that_do_not_run_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    command = [sys.executable, str(script)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "begin\nTrue True\n"


UNGUARDED = """
import sys

import prism
from prism.search import SearchOptions, search
from prism.verify import parallel

print("begin", flush=True)
sys.modules[search.__module__].MAX_SQUARES = 400
parallel.WORTH_S, started = 0.0, []
start = parallel.ParallelVerifier._start
parallel.ParallelVerifier._start = lambda self, n: (started.append(n), start(self, n))

def product(x: "n d", w: "d h"):
    return (x / (x * x).sum(-1, keepdims=True)) @ w

options = SearchOptions(budget_s=None, max_graphs=None, verify="full", workers=2)
result = search(prism.trace(product), options)
print(result.complete, bool(started))
"""


HASHED = """
import json, sys
sys.path[:0] = sys.argv[1:]
import search_programs as programs
from test_workers import OPTIONS, told
from prism.search import SearchOptions, search

found = [
    told(search(programs.trace(getattr(programs, name)), SearchOptions(budget_s=None, **options)))
    for name, options in OPTIONS
]
print(json.dumps(found))
"""

OPTIONS = (
    ("rmsnorm", {"mode": "tune", "max_kernels": 2}),
    ("softmax_matmul", {"max_graphs": 30}),
    ("two_outputs", {"max_kernels": 2, "max_graphs": 30, "max_ops": 6}),
    ("matmul", {"generator": "forward"}),
)


def test_the_result_is_the_same_for_any_hash_seed():
    here = Path(__file__).parent
    command = [sys.executable, "-c", HASHED, str(here), str(here.parent)]
    running = [
        subprocess.Popen(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True
        )
        for seed in ("1", "2")
    ]
    answers = [json.loads(process.communicate(timeout=100)[0]) for process in running]
    for (name, options), *results in zip(OPTIONS, *answers, strict=True):
        assert results[0] == results[1], (name, options)
        assert len(results[0]["graphs"]) > 1
