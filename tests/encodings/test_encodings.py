"""Every installed encoding returns the same set on every problem, the one brute force finds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from mapping_problems import NAMED, brute_force, mapping_problems, problem

from prism.plugins import Group, installed, load
from prism_constraints.boolean import BooleanEncoding, build_model

ENCODINGS = {name: load(Group.ENCODING, name)() for name in installed(Group.ENCODING)}
every_encoding = pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=ENCODINGS)


@every_encoding
@given(p=mapping_problems())
@settings(max_examples=60)
def test_an_encoding_finds_what_brute_force_finds(encoding, p):
    result = encoding.enumerate(p)
    assert result.complete
    assert set(result.assignments) == set(brute_force(p))
    assert len(result.assignments) == len(set(result.assignments))


@pytest.mark.parametrize("name", NAMED)
def test_encodings_agree_on_the_workloads_in_set_and_order(name):
    results = [encoding.enumerate(NAMED[name]) for encoding in ENCODINGS.values()]
    assert all(r == results[0] for r in results)
    assert results[0].complete


def test_rmsnorm_has_the_mappings_counted_by_hand():
    # grid x takes one of n, d, h; the loop takes none, n, d, h, or n and h (of X and of W)
    found = BooleanEncoding().enumerate(NAMED["rmsnorm-1-loop"]).assignments
    assert len(found) == 3 * 5
    assert "m[W,d,i] m[X,d,i] m[X,n,x] m[out0,n,x]" in {str(a) for a in found}


@every_encoding
@pytest.mark.parametrize("limit", [0, 1, 7, 10_000])
def test_a_limit_is_kept_and_reported(encoding, limit):
    everything = encoding.enumerate(NAMED["attention-2-loop"])
    some = encoding.enumerate(NAMED["attention-2-loop"], limit=limit)
    assert len(some.assignments) == min(limit, len(everything.assignments))
    assert set(some.assignments) <= set(everything.assignments)
    assert some.complete == (limit >= len(everything.assignments))


@every_encoding
def test_a_limit_that_is_just_enough_is_complete(encoding):
    everything = encoding.enumerate(NAMED["gated-2-loop"])
    assert encoding.enumerate(NAMED["gated-2-loop"], limit=len(everything.assignments)).complete


@every_encoding
def test_a_problem_without_variables_has_the_empty_mapping(encoding):
    result = encoding.enumerate(problem({"s": ""}, [], grid=0))
    assert [a.true for a in result.assignments] == [frozenset()]
    assert result.complete


@every_encoding
def test_a_grid_dim_that_can_partition_nothing_has_no_mapping(encoding):
    result = encoding.enumerate(problem({"s": ""}, [], grid=1))
    assert result.assignments == ()
    assert result.complete


@every_encoding
def test_the_same_problem_gives_the_same_answer_twice(encoding):
    p = NAMED["attention-3-loop"]
    assert encoding.enumerate(p) == encoding.enumerate(p)


@pytest.mark.parametrize("name", ["rmsnorm-2-loop", "gated-1-loop", "attention-3-noloop"])
def test_the_model_reads_as_the_paper_prints_it(name, golden):
    model, _ = build_model(NAMED[name])
    golden(f"encodings/boolean-{name}", str(model.proto))


@pytest.mark.parametrize("rows", [21, 70])
def test_wide_tensors_break_symmetry_by_clauses(rows):
    # 3 tensors of `rows` dims in all; 70 places do not fit one linear constraint
    names = [f"d{i}" for i in range(rows)]
    p = problem({"A": names[:-2], "B": names[-2:]}, [], grid=2, loop=False)
    wide, reference = (ENCODINGS[n].enumerate(p) for n in ("boolean", "backtracking"))
    assert wide == reference
