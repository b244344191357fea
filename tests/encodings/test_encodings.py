"""Every installed encoding returns the same set on every problem, the one brute force finds.

A stronger encoding returns that set filtered by the check it declares.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mapping_problems import (
    NAMED,
    WITH_FACTS,
    brute_force,
    is_legal,
    legality,
    mapping_problems,
    problem,
)

from prism.ir import Enumeration
from prism.plugins import Group, installed, make
from prism.protocols import Encoding, StrongerEncoding
from prism_constraints import boolean, cpsat, factorised, integer, z3_allsat
from prism_constraints.backtracking import BacktrackingEncoding

ENCODINGS = {name: make(Group.ENCODING, name) for name in installed(Group.ENCODING)}
STRONGER = {n: e for n, e in ENCODINGS.items() if isinstance(e, StrongerEncoding)}
every_encoding = pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=ENCODINGS)
every_stronger_one = pytest.mark.parametrize("encoding", STRONGER.values(), ids=STRONGER)
MAX_LIMIT = 10_000


def reference(p, limit=None):
    return BacktrackingEncoding().enumerate(p, limit=limit)


def test_ours_are_all_here_and_declare_their_strength():
    ours = {"boolean", "integer", "placement", "z3", "factorised", "backtracking"}
    assert ours <= set(ENCODINGS)
    assert ours & set(STRONGER) == {"placement"}
    for name, encoding in ENCODINGS.items():
        assert isinstance(encoding, Encoding)
        assert encoding.name == name


@every_encoding
@given(p=mapping_problems())
@settings(max_examples=60)
def test_an_encoding_finds_what_brute_force_finds(encoding, p):
    wanted = brute_force(p)
    if isinstance(encoding, StrongerEncoding):
        wanted = [a for a in wanted if encoding.keeps(p, a)]
    assert encoding.enumerate(p) == Enumeration(tuple(wanted), complete=True)


@every_encoding
@given(p=mapping_problems(), limit=st.integers(0, 12))
@settings(max_examples=40)
def test_a_limit_gives_the_first_ones_and_says_that_there_are_more(encoding, p, limit):
    every = encoding.enumerate(p).assignments
    some = encoding.enumerate(p, limit=limit)
    assert some == Enumeration(every[:limit], complete=len(every) <= limit)


@every_stronger_one
@given(p=mapping_problems())
@settings(max_examples=60)
def test_a_check_is_no_weaker_and_no_stronger_than_the_facts(encoding, p):
    if encoding.check == "placement":
        for assignment in brute_force(p):
            assert encoding.keeps(p, assignment) == is_legal(p, assignment)


@every_stronger_one
@pytest.mark.parametrize("name", WITH_FACTS)
def test_a_stronger_encoding_returns_the_others_answer_filtered(encoding, name):
    p = WITH_FACTS[name]
    base = reference(p).assignments
    kept = encoding.enumerate(p)
    assert kept == Enumeration(tuple(a for a in base if encoding.keeps(p, a)), complete=True)
    assert 0 < len(kept.assignments) < len(base)


@pytest.mark.parametrize("name", sorted(set(ENCODINGS) - set(STRONGER)))
@given(data=st.data(), p=mapping_problems())
@settings(max_examples=10)
def test_facts_change_nothing_for_the_others(name, data, p):
    told = replace(p, legal=data.draw(legality(p)))
    assert ENCODINGS[name].enumerate(told) == ENCODINGS[name].enumerate(p)


@pytest.mark.parametrize("name", NAMED)
def test_encodings_agree_on_the_workloads_in_set_and_order(name):
    results = [encoding.enumerate(NAMED[name]) for encoding in ENCODINGS.values()]
    assert all(r == results[0] for r in results)
    assert results[0].complete


def test_rmsnorm_has_the_mappings_counted_by_hand():
    # grid x takes one of n, d, h; the loop takes none, n, d, h, or n and h (of X and of W)
    found = reference(NAMED["rmsnorm-1-loop"]).assignments
    assert len(found) == 3 * 5
    assert "m[W,d,i] m[X,d,i] m[X,n,x] m[out0,n,x]" in {str(a) for a in found}


def test_rmsnorm_has_the_legal_mappings_counted_by_hand():
    # the grid takes n and h, in this order; the loop takes none, d, n or h
    found = ENCODINGS["placement"].enumerate(WITH_FACTS["rmsnorm-2-loop"]).assignments
    assert len(found) == 4
    assert len(reference(WITH_FACTS["rmsnorm-2-loop"]).assignments) == 3 * 5


@every_encoding
@pytest.mark.parametrize("limit", [0, 1, 7, MAX_LIMIT])
def test_a_limit_is_kept_and_reported(encoding, limit):
    every = reference(NAMED["attention-2-loop"]).assignments
    some = encoding.enumerate(NAMED["attention-2-loop"], limit=limit)
    assert some == Enumeration(every[:limit], complete=limit >= len(every))


@every_encoding
def test_a_limit_that_is_just_enough_is_complete(encoding):
    every = reference(NAMED["gated-2-loop"])
    assert encoding.enumerate(NAMED["gated-2-loop"], limit=len(every.assignments)) == every


@every_encoding
def test_a_problem_too_large_to_list_gives_its_first_assignments(encoding):
    # 70 places to choose from at will: more than 2 ** 70 mappings
    names = [f"d{i}" for i in range(70)]
    p = problem({name: [name] for name in names}, [], grid=2)
    some = encoding.enumerate(p, limit=40)
    assert some == reference(p, 40)
    assert not some.complete


@every_encoding
def test_a_problem_without_variables_has_the_empty_mapping(encoding):
    result = encoding.enumerate(problem({"s": ""}, [], grid=0))
    assert [a.true for a in result.assignments] == [frozenset()]
    assert result.complete


@every_encoding
def test_a_grid_dim_that_can_partition_nothing_has_no_mapping(encoding):
    result = encoding.enumerate(problem({"s": ""}, [], grid=1))
    assert result == Enumeration((), complete=True)


@every_encoding
def test_two_loops_are_mapped_each_for_itself(encoding):
    p = NAMED["rmsnorm-1-loop"]
    twice = replace(p, loops=(*p.loops, replace(p.loops[0], name="j")))
    result = encoding.enumerate(twice)
    assert result == reference(twice)
    assert len(result.assignments) == 3 * 5 * 5


@every_encoding
def test_the_same_problem_gives_the_same_answer_twice(encoding):
    p = NAMED["rmsnorm-3-loop"] if encoding.name == "z3" else NAMED["attention-3-loop"]
    assert encoding.enumerate(p) == encoding.enumerate(p)


def test_no_column_is_legal_where_facts_say_so():
    p = problem({"X": "nd", "out0": "n"}, ["X.n out0.n"], grid=1, legal={"grid": [], "loop": []})
    assert ENCODINGS["placement"].enumerate(p) == Enumeration((), complete=True)
    idle = replace(p, must_partition=False)
    (only,) = ENCODINGS["placement"].enumerate(idle).assignments
    assert only.true == frozenset()


WAYS = {
    "boolean": (boolean, {"_MAX_BITS": 0}),
    "integer": (integer, {"_MAX_NUMBER": 0}),
    "factorised-columns": (factorised, {"_MAX_COLUMNS": 1}),
    "factorised-sorted": (factorised, {"_MAX_SORTED": 0}),
}
"""What an encoding does otherwise on large problems, and the numbers that decide it."""


@pytest.mark.parametrize("way", WAYS)
@given(p=mapping_problems(), limit=st.integers(0, 200))
@settings(max_examples=30)
def test_large_problems_are_solved_as_small_ones_are(way, p, limit):
    module, numbers = WAYS[way]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in numbers.items():
            patch.setattr(module, name, value)
        found = ENCODINGS[way.split("-")[0]].enumerate(p, limit=limit)
    assert found == reference(p, limit)


@pytest.mark.parametrize("name", ["boolean", "integer", "placement"])
def test_a_solver_that_stops_is_not_complete(name, monkeypatch):
    usual = cpsat._solver

    def stopped():
        solver = usual()
        solver.parameters.max_deterministic_time = 1e-6
        return solver

    monkeypatch.setattr(cpsat, "_solver", stopped)
    assert not ENCODINGS[name].enumerate(NAMED["attention-3-loop"]).complete


def test_z3_that_gives_up_is_not_complete(monkeypatch):
    usual = z3_allsat.build_model

    def stopped(p):
        solver, variables = usual(p)
        solver.set("rlimit", 1)
        return solver, variables

    monkeypatch.setattr(z3_allsat, "build_model", stopped)
    assert not ENCODINGS["z3"].enumerate(NAMED["rmsnorm-2-loop"]).complete
