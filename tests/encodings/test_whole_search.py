"""A whole search under every installed encoding: the same graphs, and no mapping from elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
import search_programs as programs

from prism.errors import PluginError
from prism.plugins import Group, installed
from prism.search import SearchOptions, search

NAMES = tuple(installed(Group.ENCODING))
OPTIONS = SearchOptions(max_ops=11, max_accumulators=3, grid_dims=2, budget_s=None, max_graphs=None)
FUNCTIONS = (programs.matmul, programs.softmax_matmul, programs.two_outputs)
LOST = {
    "grid and loop": "m[out0,n,x] m[w,d,i] m[x,d,i] m[x,n,x]",
    "grid": "m[out0,n,x] m[x,n,x]",
    "two grid dims": "m[out0,h,y] m[out0,n,x] m[w,d,i] m[w,h,y] m[x,d,i] m[x,n,x]",
}


def found(function, **options):
    return search(programs.trace(function), replace(OPTIONS, **options))


@pytest.fixture(scope="module")
def usual():
    """What the default encoding leads to."""
    return {f.__name__: found(f) for f in FUNCTIONS}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_every_encoding_leads_to_the_same_graphs(name, function, usual):
    result = found(function, encoding=name)
    base = usual[function.__name__]
    assert [(g.id, g.graph) for g in result.graphs] == [(g.id, g.graph) for g in base.graphs]
    assert result.complete
    assert len(result.graphs) > 5
    (counted,) = result.counters["encodings"]
    assert counted == name


def forgetful(tmp_path, name, lost):
    """An encoding that gives what `name` gives, but for one assignment."""
    file = tmp_path / "forgetful.py"
    file.write_text(
        "from prism.ir import Enumeration\n"
        "from prism.plugins import Group, load\n"
        f"class Forgetful(load(Group.ENCODING, {name!r})):\n"
        "    def enumerate(self, problem, *, limit=None):\n"
        "        every = super().enumerate(problem, limit=limit)\n"
        f"        kept = tuple(a for a in every.assignments if str(a) != {lost!r})\n"
        "        return Enumeration(kept, every.complete)\n"
    )
    return f"{file}:Forgetful"


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
@pytest.mark.parametrize("name", NAMES)
def test_an_encoding_that_drops_an_assignment_loses_exactly_its_graphs(tmp_path, name, lost, usual):
    result = found(programs.matmul, encoding=forgetful(tmp_path, name, lost))
    base = usual["matmul"]
    missing = {g.id for g in base.graphs} - {g.id for g in result.graphs}
    assert missing == {g.id for g in base.graphs if str(g.graph.kernels[0].mapping) == lost}
    assert missing
    assert {g.id for g in result.graphs} <= {g.id for g in base.graphs}


def test_placement_asks_for_what_can_be_used_alone(usual):
    counts = found(programs.softmax_matmul, encoding="placement").counters["encodings"]["placement"]
    base = usual["softmax_matmul"].counters["encodings"]["boolean"]
    assert 0 < counts["assignments"] < base["assignments"]
    assert counts["problems"] == base["problems"]


def test_without_the_placement_pruner_the_facts_say_nothing(usual):
    # matmul: without the pruner verification alone rejects what placement would
    options = {"without": ("placement",), "grid_dims": 1}
    told, base = (found(programs.matmul, encoding=e, **options) for e in ("placement", "boolean"))
    assert [g.id for g in told.graphs] == [g.id for g in base.graphs]
    assert told.counters["candidates"] == base.counters["candidates"]


CHECKING = """
from prism_constraints.backtracking import BacktrackingEncoding

class Checking(BacktrackingEncoding):
    name = "checking"
    check = "a loop over d"

    def keeps(self, problem, assignment):
        return not problem.loops or any(v.par == "i" and v.dim == "d" for v in assignment.true)
"""
FILTERING = """
    def enumerate(self, problem, *, limit=None):
        every = super().enumerate(problem, limit=limit)
        kept = tuple(a for a in every.assignments if self.keeps(problem, a))
        return type(every)(kept, every.complete)
"""


def test_an_encoding_of_ones_own_may_declare_a_check(tmp_path, usual):
    file = tmp_path / "checking.py"
    file.write_text(CHECKING + FILTERING)
    result = found(programs.matmul, encoding=f"{file}:Checking")
    over_d = [
        g.id
        for g in usual["matmul"].graphs
        if g.is_fallback or "m[w,d,i]" in str(g.graph.kernels[0].mapping)
    ]
    assert [g.id for g in result.graphs] == over_d
    assert len(over_d) > 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (CHECKING, r"assignment 0 .* fails the check .* declares, 'a loop over d'"),
        (CHECKING.replace("not problem.loops", "1 / 0"), r"ZeroDivisionError.*correct its `keeps`"),
    ],
)
def test_a_check_that_is_declared_and_not_made_is_refused(tmp_path, code, message):
    file = tmp_path / "checking.py"
    file.write_text(code)
    with pytest.raises(PluginError, match=rf"'checking' on .*{message}"):
        found(programs.matmul, encoding=f"{file}:Checking")
