from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from driver.found import FAKE, SMALL
from tune.graphs import MATMUL

import prism
from prism import frontend
from prism.artifact import FoundGraph, save_artifact
from prism.optimized import Optimized
from prism.scope import Scope
from prism.verdict import Verdict

WITHOUT_SEARCH = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"egglog", "ortools", "z3"}:
            raise ModuleNotFoundError(f"{name} is blocked in this test", name=name)

sys.meta_path.insert(0, Block())
from prism.driver import tune
result = tune(sys.argv[1], {"n": 4, "d": 12, "h": 10}, target=sys.argv[2])
print(sorted(result.outcomes.items()), result.best.config)
"""


def test_an_artifact_is_tuned_where_the_solvers_are_missing(tmp_path):
    artifact = saved_artifact(tmp_path)
    command = [sys.executable, "-c", WITHOUT_SEARCH, str(artifact), FAKE]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("[('ok', 3)]")


def test_optimize_says_what_it_lacks_where_the_solvers_are_missing():
    code = (
        WITHOUT_SEARCH.partition("from prism.driver")[0]
        + """
import prism
try:
    prism.optimize(lambda x: x, sizes={"n": 4}, target=sys.argv[1], x="n")
except prism.PrismError as error:
    print(error)
"""
    )
    command = [sys.executable, "-c", code, FAKE]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "needs egglog" in done.stdout


def saved_artifact(folder: Path) -> Path:
    """SMALL as a search would have left it."""

    @dataclass(frozen=True)
    class Options:
        encoding: str = "boolean"
        seed: int = 0

    @dataclass(frozen=True)
    class Result:
        program: object
        graphs: tuple
        complete: bool = True
        cuts: tuple = ()
        search_s: float = 0.1
        counters: object = None
        options: Options = Options()
        fingerprint: str = "0" * 16
        scope: Scope = field(default_factory=Scope)

    own, stages = SMALL.graphs[0].graph, ("once once once once",)
    graphs = (FoundGraph("program", own, Verdict.PROVED, 3, 0, stages, is_fallback=True),)
    save_artifact(Result(MATMUL, graphs, counters={}), folder / "found.json")
    return folder / "found.json"


LIGHT = """
import sys
import prism
heavy = {"numpy", "numba", "egglog", "ortools", "z3", "rich", "click"} & set(sys.modules)
assert not heavy, heavy
assert not set(prism.__all__) - set(dir(prism))
for name in prism.__all__:
    getattr(prism, name)
assert not {"egglog", "ortools", "z3", "numba"} & set(sys.modules)
"""


def test_import_prism_is_light_and_every_public_name_is_there():
    subprocess.run([sys.executable, "-c", LIGHT], check=True)


def test_public_names_are_those_of_the_front_end_and_the_driver():
    ours = {"Optimized", "OptimizedShapes", "PrismError", "__version__", "errors"}
    ours |= {"load_operators", "ops", "optimize"}
    assert set(prism.__all__) == ours | set(frontend.__all__) - {"load_program"}
    assert prism.Optimized is Optimized
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(prism, "nonsense")  # noqa: B009 - the attribute is missing on purpose
