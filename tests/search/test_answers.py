"""An encoding's mistakes are found, and said in a way that helps."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path

import pytest
import search_programs as programs
from hypothesis import given
from mapping_problems import NAMED, brute_force, mapping_problems

from prism.errors import PluginError
from prism.ir import Assignment, Enumeration, MapVar
from prism.search import SearchOptions, search
from prism.search.answers import checked_answer, load_encoding
from prism_constraints.backtracking import BacktrackingEncoding
from prism_constraints.symmetry import ordered

README = Path(__file__).parents[2] / "constraints" / "README.md"
PROBLEM = NAMED["rmsnorm-2-loop"]
RIGHT = BacktrackingEncoding().enumerate(PROBLEM).assignments


class Says:
    """An encoding with a fixed answer."""

    name = "says"

    def __init__(self, answer):
        self.answer = answer

    def enumerate(self, problem, *, limit=None):
        return self.answer() if callable(self.answer) else self.answer


def answer(*assignments, complete=True):
    return Enumeration(assignments, complete)


def these(*variables):
    return Assignment(frozenset(MapVar(*text.split()) for text in variables))


def renamed(assignment):
    other = {"x": "y", "y": "x"}
    return Assignment(
        frozenset(MapVar(v.tensor, v.dim, other.get(v.par, v.par)) for v in assignment.true)
    )


GRID = ("X n x", "out0 n x", "W h y", "out0 h y")

WRONG = {
    "none": (None, "None, not a prism.ir.Enumeration"),
    "list": (Enumeration(list(RIGHT), complete=True), "type list, not a tuple"),
    "complete": (Enumeration(RIGHT, 1), "`complete` is a value of type int"),
    "many": (answer(*RIGHT * 200), "more than the `limit` of 1000"),
    "no mapping": (answer(frozenset()), "type frozenset, not a prism.ir.Mapping"),
    "tuple": (answer(Assignment(())), "type tuple, not a frozenset"),
    "no variable": (answer(Assignment(frozenset({3}))), "3 is no variable of the problem"),
    "mixed": (answer(Assignment(frozenset({3, *RIGHT[0].true}))), "3 is no variable"),
    "nothing": (answer(Assignment(None)), "None, not a frozenset"),
    "unknown": (answer(these(*GRID, "X q x")), r"m\[X,q,x\] is no variable"),
    "loop of output": (answer(these(*GRID, "out0 n i")), r"m\[out0,n,i\] is no variable"),
    "two dims": (answer(these(*GRID, "X d x")), r"rule \(1\): x partitions 2 dims of X"),
    "two loops": (answer(these(*GRID, "X n i", "X d i")), r"rule \(1\): i partitions 2 dims of X"),
    "two grid dims": (answer(these(*GRID[:2], "X n y")), r"rule \(2\): 2 grid dims partition n"),
    "untied": (answer(these(*GRID, "X d i")), r"rule \(3\): m\[X,d,i\] and m\[W,d,i\] are tied"),
    "unused": (answer(these(*GRID[:2])), "rule must_partition: grid dim y partitions nothing"),
    "renamed": (answer(renamed(these(*GRID))), r"rule \(4\): .* in the order y x, not x y"),
    "twice": (answer(RIGHT[0], RIGHT[0]), "assignment 1 .* it is there twice"),
    "order": (answer(RIGHT[1], RIGHT[0]), "it is out of order"),
    "raises": (lambda: 1 / 0, "fails: ZeroDivisionError: division by zero; correct its"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_refused_with_the_rule_it_breaks(name):
    given_, message = WRONG[name]
    with pytest.raises(PluginError, match=message) as caught:
        checked_answer(Says(given_), PROBLEM, 1000)
    assert str(caught.value).startswith("encoding 'says' on X[n,d] W[d,h] out0[n,h] over x y i")


@pytest.mark.parametrize("name", NAMED)
def test_right_answers_pass(name):
    every = BacktrackingEncoding().enumerate(NAMED[name])
    assert checked_answer(BacktrackingEncoding(), NAMED[name], 10_000) == every
    few = Enumeration(every.assignments[::2], complete=True)
    assert checked_answer(Says(few), NAMED[name], 10_000) is few


@given(p=mapping_problems())
def test_the_check_accepts_what_brute_force_finds_and_no_renaming_of_it(p):
    right = ordered(p, {a.true for a in brute_force(p)})
    checked_answer(Says(answer(*right)), p, 10_000)
    names = [g.name for g in p.grid]
    for assignment in right[:5]:
        for order in permutations(names):
            new = dict(zip(names, order, strict=True))
            other = Assignment(
                frozenset(MapVar(v.tensor, v.dim, new.get(v.par, v.par)) for v in assignment.true)
            )
            if other != assignment:
                with pytest.raises(PluginError, match=r"rule \(4\)"):
                    checked_answer(Says(answer(other)), p, 10_000)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("C = 3", "a value of type int, not a class"),
        ("class C:\n    def __init__(self, n): pass", "its class must need no arguments"),
        ("class C:\n    def enumerate(self, p, *, limit=None): pass", "has no name"),
        ("class C:\n    name = 'c'", "has no method `enumerate"),
    ],
)
def test_what_is_no_encoding_is_refused(tmp_path, body, message):
    file = tmp_path / "c.py"
    file.write_text(body)
    with pytest.raises(PluginError, match=message):
        load_encoding(f"{file}:C")


def test_the_template_of_the_readme_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    file = tmp_path / "my_encoding.py"
    file.write_text(code)
    program = programs.trace(programs.matmul)
    result = search(program, SearchOptions(encoding=f"{file}:MyEncoding", budget_s=None))
    usual = search(program, SearchOptions(budget_s=None))
    looped = [g.id for g in usual.graphs if g.is_fallback or g.graph.kernels[0].loops]
    assert [g.id for g in result.graphs] == looped
    assert len(looped) > 1
    assert result.complete


def test_a_wrong_encoding_stops_the_search(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text(
        "from prism.ir import Enumeration, Mapping\n"
        "class Wrong:\n"
        "    name = 'wrong'\n"
        "    def enumerate(self, problem, *, limit=None):\n"
        "        return Enumeration((Mapping(frozenset(problem.variables())),), True)\n"
    )
    with pytest.raises(PluginError, match=r"encoding 'wrong' on x\[n,d\].*rule \(1\)"):
        search(programs.trace(programs.matmul), SearchOptions(encoding=f"{file}:Wrong"))
