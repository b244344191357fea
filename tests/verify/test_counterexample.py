"""`find_counterexample`: small, readable, real differences."""

from __future__ import annotations

import numpy as np
import pytest
from program_texts import traced
from verify.table import CASES

from prism.verify import find_counterexample
from prism.verify.instances import KIND_COUNT, Draw


def found(reference, candidate, arguments='x: "n d", y: "n d"', **options):
    return find_counterexample(
        traced(reference, arguments), traced(candidate, arguments), **options
    )


def test_sizes_and_values_are_as_small_as_they_can_be():
    shown = found("x - y", "y - x")
    assert dict(shown.sizes) == {"n": 1, "d": 1}
    assert [str(values) for values in shown.inputs] == [
        "x = np.array([[0.]])",
        "y = np.array([[1.]])",
    ]


def test_a_dimension_keeps_the_size_that_a_difference_needs():
    assert dict(found("pr.mean(x, axis=-1)", "pr.sum(x, axis=-1)").sizes) == {"n": 1, "d": 2}


def test_rounding_is_no_difference():
    assert found("(x + 1e20) - 1e20", "x") is None
    assert found("pr.log(pr.exp(x * 1000))", "x * 1000") is None


def test_a_difference_below_the_precision_of_a_float_is_one():
    shown = found("x + 1e-12", "x + 1e-13")
    assert shown is not None
    assert shown.reference - shown.candidate == pytest.approx(9e-13, rel=1e-3)
    assert f"{shown.reference:.6g} and" not in str(shown)


def test_where_the_reference_is_undefined_nothing_is_compared():
    assert found("pr.sqrt(-1 - x * x)", "y") is None
    assert found("pr.exp(pr.log(x))", "x") is None


def test_a_candidate_that_is_undefined_differs():
    shown = found("x", "pr.exp(pr.log(x))")
    assert np.isnan(shown.candidate)
    assert "gives nan" in str(shown)


def test_an_output_is_named_by_its_place():
    shown = found("x, x + y", "x, x - y")
    assert shown.output == 1
    assert "out1[0, 0]" in str(shown)


def test_scalars_are_inputs_too():
    shown = found("s * x", "x", 'x: "n", s: ""')
    assert [values.name for values in shown.inputs] == ["x", "s"]
    assert shown.inputs[1].shape == ()
    assert str(shown.inputs[1]).startswith("s = np.array(")


def test_a_large_input_is_given_by_how_to_draw_it():
    shown = found("pr.sum(x, axis=-1)", "pr.mean(x, axis=-1)", 'x: "n 600"')
    (values,) = shown.inputs
    assert values.values is None
    names = {"np": np}
    exec(str(values), names)
    assert names["x"].shape == values.shape
    total = names["x"].sum(axis=-1)[shown.entry]
    assert total == pytest.approx(shown.reference)


def test_the_same_seed_shows_the_same():
    one, two = (found("x / y", "y / x", seed=3) for _ in range(2))
    assert one == two


@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.is_right][:8], ids=lambda c: c.name
)
def test_a_counterexample_to_a_graph_has_its_chunks(case):
    shown = find_counterexample(case.graph.program, case.graph)
    kernel = case.graph.kernels[0]
    assert shown.fault or set(shown.chunks) == {p.name for p in (*kernel.grid, *kernel.loops)}
    assert len(shown.inputs) == len(case.graph.program.arguments)


@pytest.mark.parametrize("kind", range(KIND_COUNT))
def test_values_of_every_kind_can_be_drawn_again(kind):
    one = traced("x + y", 'x: "n d", y: "n"')
    draw = Draw(one, one, seed=3)
    for drawn in draw.values(draw.instance(5), 5, kind).inputs:
        assert np.array_equal(eval(drawn.source, {"np": np}), drawn.array)
