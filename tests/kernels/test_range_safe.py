"""exp in emitted kernels: no overflow the result does not have, whatever the algebraic form."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.legal import mugraph
from kernels.programs import (
    ATTENTION,
    SOFTMAX,
    SOFTMAX_MATMUL,
    STABLE_SOFTMAX,
    TOLERANCE,
    random_arguments,
    relative_error,
    run_filled,
)

from prism.dtypes import TOLERANCES, dtype_of
from prism.ir import parse_program
from prism_kernels.lower import lower, tile_programs
from prism_kernels.tile import Accumulate, Map, Reduce, Running

SIZES = {"n": 6, "d": 100, "h": 20}
FORMS = {
    "no loop": (None, True),
    "loop over the summed dim": ("d", True),
    "loop that only collects": ("d", False),
    "loop over the rows": ("n", True),
}


def softmax(x, axis=-1):
    x = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)


def graph(program, form, sizes=SIZES, counts=None):
    loop, in_body = FORMS[form]
    grid = {"x": "n"} if "n" in sizes else {}
    counts = counts or {"x": 2, "i": 3}
    return mugraph(program, sizes, grid, loop, counts, in_body=lambda i: in_body)


def tiles(mu):
    return lower(mu).programs


def nodes_of(program, kind):
    return [n for n in program.nodes if isinstance(n, kind)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("program", [SOFTMAX, STABLE_SOFTMAX], ids=["plain", "stable"])
@pytest.mark.parametrize("scale", [1.0, 2000.0])
def test_softmax_is_right_for_logits_of_any_size(compiled, rng, form, program, scale):
    (x,) = random_arguments(program, SIZES, rng, scale=scale)
    (out,) = run_filled(compiled(graph(program, form)), (x,))
    assert relative_error(out, softmax(x)) <= TOLERANCE["float32"]


@pytest.mark.parametrize("form", FORMS)
def test_masks_of_minus_infinity_give_exact_zeros_and_nan_where_all_is_masked(compiled, rng, form):
    (x,) = random_arguments(SOFTMAX, SIZES, rng, scale=30.0)
    x[0] = -np.inf
    x[1, :50] = x[2, 50:] = x[3, ::2] = -np.inf
    x[4, 7] = np.nan
    (out,) = compiled(graph(SOFTMAX, form))(x)
    expected = softmax(x)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    assert np.isnan(out[[0, 4]]).all()
    assert (out[np.isneginf(x) & ~np.isnan(expected)] == 0.0).all()
    assert np.nanmax(np.abs(out - expected)) < 1e-6


@pytest.mark.parametrize("in_body", [True, False])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_attention_in_a_loop_is_online_softmax(compiled, rng, in_body, scale):
    sizes = {"b": 2, "g": 3, "l": 101, "d": 20, "e": 36}
    mu = mugraph(ATTENTION, sizes, {"x": "b"}, "l", {"x": 2, "i": 6}, in_body=lambda i: in_body)
    q, k, v = random_arguments(ATTENTION, sizes, rng)
    q *= np.float32(scale)
    (out,) = run_filled(compiled(mu), (q, k, v))
    scores = 0.125 * np.einsum("bgd,bld->bgl", q.astype(np.float64), k.astype(np.float64))
    expected = np.einsum("bgl,ble->bge", softmax(scores), v.astype(np.float64))
    assert relative_error(out, expected) <= TOLERANCE["float32"]


@pytest.mark.parametrize("loop", [None, "d", "h"])
def test_softmax_matmul_divided_last_is_right_for_large_logits(compiled, rng, loop):
    sizes = {"n": 5, "d": 60, "h": 33}
    x, w = random_arguments(SOFTMAX_MATMUL, sizes, rng)
    x *= np.float32(300.0)
    mu = mugraph(SOFTMAX_MATMUL, sizes, {"x": "n"}, loop, {"x": 2, "i": 4})
    (out,) = run_filled(compiled(mu), (x, w))
    assert relative_error(out, softmax(x) @ w.astype(np.float64)) <= TOLERANCE["float32"]


POWERS = """
program powers
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = exp(x)
  %2 = sum[d](%1)
  %3 = square(%1)
  %4 = sum[d](%3)
  %5 = square(%2)
  %6 = div(%4, %5)
  %7 = sqrt(%4)
  %8 = div(%7, %2)
  %9 = log(%2)
  %10 = reciprocal(%2)
  %11 = mul(%10, %1)
  %12 = mul(%11, %11)
  %13 = sum[d](%12)
  return %6[n]
  return %8[n]
  return %9[n]
  return %13[n]
"""


@pytest.mark.parametrize("loop", [None, "d"])
def test_powers_roots_and_logs_of_sums_of_exp_do_not_overflow(compiled, rng, loop):
    program = parse_program(POWERS)
    (x,) = random_arguments(program, {"n": 4, "d": 50}, rng, scale=400.0)
    mu = mugraph(program, {"n": 4, "d": 50}, {}, loop, {"i": 4})
    ratio, root, log, square = run_filled(compiled(mu), (x,))
    p = softmax(x)
    x = x.astype(np.float64)
    top = x.max(1)
    expected = np.square(p).sum(1)
    assert relative_error(ratio, expected) <= 1e-5
    assert relative_error(root, np.sqrt(expected)) <= 1e-5
    assert relative_error(log, top + np.log(np.exp(x - top[:, None]).sum(1))) <= 1e-5
    assert relative_error(square, expected) <= 1e-5


MATERIALISED = """
program materialised
  dims n, d
  args x[n, d], y[n, d]
  x = input x[n, d]
  y = input y[n, d]
  %2 = exp(x)
  %3 = sum[d](%2)
  %4 = 1.0
  %5 = add(%4, %3)
  %6 = div(%3, %5)
  %7 = silu(%3)
  %8 = reciprocal(%2)
  %9 = mul(%8, y)
  %10 = sum[d](%9)
  %11 = exp(y)
  %12 = add(%2, %11)
  %13 = sum[d](%12)
  return %6[n]
  return %7[n]
  return %10[n]
  return %13[n]
"""


@pytest.mark.parametrize("loop", [None, "d"])
def test_operators_without_a_rule_see_the_true_value(compiled, rng, loop):
    program = parse_program(MATERIALISED)
    sizes = {"n": 4, "d": 30}
    x, y = random_arguments(program, sizes, rng, scale=8.0)
    mu = mugraph(program, sizes, {}, loop, {"i": 3})
    outputs = run_filled(compiled(mu), (x, y))
    x, y = x.astype(np.float64), y.astype(np.float64)
    s = np.exp(x).sum(1)
    expected = (s / (1 + s), s / (1 + np.exp(-s)), (y / np.exp(x)).sum(1), s + np.exp(y).sum(1))
    for out, reference in zip(outputs, expected, strict=True):
        assert relative_error(out, reference) <= 1e-5


def test_a_loop_over_the_summed_dim_carries_a_running_reference():
    (program,) = tiles(graph(SOFTMAX_MATMUL, "loop over the summed dim"))
    (running,) = nodes_of(program, Running)
    scaled = [n for n in nodes_of(program, Accumulate) if n.scales]
    assert len(scaled) == 2
    assert {c for n in scaled for _, c in n.scales} == {1.0}
    assert isinstance(program.nodes[running.operand], Reduce)


def test_a_quotient_of_equal_references_never_computes_their_exponential():
    (program,) = tiles(graph(SOFTMAX, "no loop"))
    assert sum(n.op == "exp" for n in nodes_of(program, Map)) == 1


def test_a_softmax_that_is_stable_already_gets_no_second_maximum():
    (program,) = tiles(graph(STABLE_SOFTMAX, "no loop"))
    assert sum(n.op == "max" for n in nodes_of(program, Reduce)) == 1


def test_programs_without_exp_are_left_alone():
    program = parse_program(
        "program p\n  dims n\n  args x[n]\n  x = input x[n]\n  %1 = silu(x)\n  return %1[n]\n"
    )
    mu = mugraph(program, {"n": 3})
    assert lower(mu) == tile_programs(mu)


def test_an_exp_that_is_not_summed_stays_plain(compiled):
    program = parse_program(
        "program p\n  dims n\n  args x[n]\n  x = input x[n]\n  %1 = exp(x)\n  return %1[n]\n"
    )
    x = np.array([-200.0, -87.0, 0.0, 80.0, 100.0], np.float32)
    (out,) = compiled(mugraph(program, {"n": 5}))(x)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(out, np.exp(x), rtol=1e-6, atol=1e-37)


TWO_AXES = parse_program("""
program two_axes
  dims n, a, b
  args x[n, a, b]
  x = input x[n, a, b]
  %1 = exp(x)
  %2 = sum[a](%1)
  %3 = sum[b](%2)
  %4 = div(%1, %3)
  return %4[n, a, b]
""")

POOLED = parse_program("""
program pooled
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = exp(x)
  %2 = sum[d](%1)
  %3 = div(%1, %2)
  %4 = sum[n](%3)
  return %4[d]
""")


@pytest.mark.parametrize("loop", [None, "a", "b"])
@pytest.mark.parametrize("in_body", [True, False])
@pytest.mark.parametrize("scale", [1.0, 2000.0])
def test_a_softmax_over_two_axes_has_one_reference_for_both(compiled, rng, loop, in_body, scale):
    sizes = {"n": 3, "a": 13, "b": 18}
    (x,) = random_arguments(TWO_AXES, sizes, rng, scale=scale)
    counts = {"x": 3, **({"i": 4} if loop else {})}
    mu = mugraph(TWO_AXES, sizes, {"x": "n"}, loop, counts, in_body=lambda i: in_body)
    (out,) = run_filled(compiled(mu), (x,))
    assert relative_error(out, softmax(x, (1, 2))) <= TOLERANCE["float32"]


@pytest.mark.parametrize("loop", [None, "n", "d"])
def test_rows_far_apart_keep_a_reference_each_where_each_is_divided_by_its_sum(compiled, rng, loop):
    sizes = {"n": 4, "d": 30}
    (x,) = random_arguments(POOLED, sizes, rng)
    x += np.float32([[0], [-300], [300], [-50]])
    counts = {"x": 1, **({"i": 2} if loop else {})}
    (out,) = run_filled(compiled(mugraph(POOLED, sizes, {}, loop, counts)), (x,))
    assert relative_error(out, softmax(x).sum(0)) <= TOLERANCE["float32"]


@pytest.mark.parametrize(
    ("dtype", "largest"), [("float32", 1e4), ("float16", 100), ("bfloat16", 1e4)]
)
@pytest.mark.parametrize("loop", [None, "l"])
def test_logits_as_large_as_a_dtype_takes_give_what_stable_softmax_gives(
    compiled, rng, dtype, largest, loop
):
    sizes = {"b": 2, "g": 3, "l": 53, "d": 12, "e": 18}
    counts = {"x": 2, **({"i": 4} if loop else {})}
    kernel = compiled(mugraph(ATTENTION, sizes, {"x": "b"}, loop, counts), dtype)
    arrays = random_arguments(ATTENTION, sizes, rng)
    scores = 0.125 * np.einsum("bgd,bld->bgl", *(a.astype(np.float64) for a in arrays[:2]))
    arrays = (arrays[0] * np.float32(largest / np.abs(scores).max()), *arrays[1:])
    q, k, v = (a.astype(dtype_of(dtype)) for a in arrays)
    (out,) = run_filled(kernel, (q, k, v))
    exact = (a.astype(np.float64) for a in (q, k))
    scores = 0.125 * np.einsum("bgd,bld->bgl", *exact)
    assert np.abs(scores).max() > 0.99 * largest
    expected = np.einsum("bgl,ble->bge", softmax(scores), v.astype(np.float64))
    assert np.isfinite(out.astype(np.float64)).all()
    # scores are sums in float32: of 1e4, eight digits leave four behind the point
    assert relative_error(out.astype(np.float64), expected) <= max(
        TOLERANCES[dtype], 1e-7 * largest
    )
