"""Symmetry breaking keeps exactly one mapping of every orbit under renaming grid dims."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from mapping_problems import NAMED, mapping_problems

from prism.ir import Assignment, MapVar
from prism_constraints.backtracking import BacktrackingEncoding
from prism_constraints.symmetry import is_smallest, reading


def renamed(p, assignment, renaming):
    new = dict(zip((g.name for g in p.grid), renaming, strict=True))
    return Assignment(
        frozenset(MapVar(v.tensor, v.dim, new.get(v.par, v.par)) for v in assignment.true)
    )


def orbit(p, assignment):
    names = [g.name for g in p.grid]
    return {renamed(p, assignment, r) for r in permutations(names)}


@given(p=mapping_problems())
def test_every_orbit_keeps_exactly_one(p):
    for assignment in BacktrackingEncoding().enumerate(p).assignments:
        assert [a for a in orbit(p, assignment) if is_smallest(p, a)] == [assignment]


def test_orbits_of_different_answers_do_not_meet():
    p = NAMED["attention-3-loop"]
    answers = BacktrackingEncoding().enumerate(p).assignments
    assert sum(len(orbit(p, a)) for a in answers) == len({b for a in answers for b in orbit(p, a)})


def test_the_smallest_takes_up_grid_dims_in_order():
    p = NAMED["rmsnorm-2-noloop"]
    first, second = MapVar("X", "n", "x"), MapVar("W", "h", "y")
    out = {MapVar("out0", "n", "x"), MapVar("out0", "h", "y")}
    assignment = Assignment(frozenset({first, second, *out}))
    swapped = renamed(p, assignment, ("y", "x"))
    assert is_smallest(p, assignment)
    assert not is_smallest(p, swapped)
    assert reading(p, assignment) < reading(p, swapped)
