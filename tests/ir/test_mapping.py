"""Two views of a mapping problem: places tied together, columns that the rules allow."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from mapping_problems import NAMED, brute_force, mapping_problems, problem

from prism.ir import Legality, ParKind


def places(text):
    return tuple(tuple(place.split(".")) for place in text.split())


def test_groups_are_what_is_tied_together_by_first_place():
    p = NAMED["gated-2-loop"]
    assert p.groups(ParKind.GRID) == (
        places("X.n out0.n"),
        places("X.d g.d V.d W.d"),
        places("V.h W.h out0.h"),
    )


def test_an_output_ties_nothing_together_along_the_loop():
    p = problem({"A": "n", "B": "n", "out0": "n"}, ["A.n out0.n", "B.n out0.n"])
    assert p.groups(ParKind.GRID) == (places("A.n B.n out0.n"),)
    assert p.groups(ParKind.LOOP) == (places("A.n"), places("B.n"))


def test_ties_to_places_that_are_not_there_tie_nothing():
    p = problem({"A": "n", "B": "n"}, ["A.n C.n", "B.n C.n"])
    assert p.groups(ParKind.GRID) == (places("A.n"), places("B.n"))


def test_columns_come_in_order_and_take_one_dim_of_a_tensor():
    p = NAMED["rmsnorm-1-loop"]
    assert [" ".join(sorted(".".join(place) for place in c)) for c in p.columns(ParKind.LOOP)] == [
        "",
        "W.h",
        "W.d X.d",
        "X.n",
        "W.h X.n",
    ]


def test_two_dims_of_one_tensor_that_are_tied_are_in_no_column():
    p = problem({"A": "nd"}, ["A.n A.d"])
    assert list(p.columns(ParKind.GRID)) == [frozenset()]


@given(p=mapping_problems())
def test_columns_are_those_of_all_mappings(p):
    # of one grid dim or loop alone, which may partition nothing
    for kind, grid, loops in ((ParKind.GRID, p.grid[:1], ()), (ParKind.LOOP, (), p.loops[:1])):
        alone = replace(p, grid=grid, loops=loops, must_partition=False, legal=Legality())
        if grid or loops:
            found = [{(v.tensor, v.dim) for v in a.true} for a in brute_force(alone)]
            assert found == list(p.columns(kind))


@given(p=mapping_problems())
def test_the_canonical_problem_has_the_same_answer(p):
    canonical = p.canonical()
    assert canonical.canonical() == canonical
    assert brute_force(canonical) == brute_force(p)


@given(p=mapping_problems(), data=st.data())
def test_the_same_ties_written_otherwise_are_one_problem(p, data):
    inputs = {t.name for t in p.tensors if not t.is_output}
    turned = {(b, a) if data.draw(st.booleans()) else (a, b) for a, b in sorted(p.equal)}
    through = {(a, c) for a, b in turned for e, c in turned if b == e and b[0] in inputs}
    other = replace(p, equal=frozenset(turned | through))
    assert other.canonical() == p.canonical()
