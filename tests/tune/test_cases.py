"""Cases that show what cancels, or leaves the range, where the program itself does not."""

from __future__ import annotations

import numpy as np
import pytest

from prism.ir import evaluate, parse_program
from prism.record import Outcome
from prism.tune.cases import CASES, DRAWN_PART, FRESH, prepare
from prism.tune.check import Inputs, check

F32 = np.float32

VARIANCE = """
program variance
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = mean[d](x)
  {steps}
  return %{last}[n]
"""
CENTRED = parse_program(VARIANCE.format(
    steps="%2 = sub(x, %1)\n  %3 = square(%2)\n  %4 = mean[d](%3)", last=4
))  # fmt: skip
MOMENTS = parse_program(VARIANCE.format(
    steps="%2 = square(x)\n  %3 = mean[d](%2)\n  %4 = square(%1)\n  %5 = sub(%3, %4)", last=5
))  # fmt: skip

SCALED_ROWS = parse_program("""
program scaled_rows
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = max[d](x)
  %2 = neg(x)
  %3 = max[d](%2)
  %4 = neg(%3)
  %5 = sub(x, %4)
  %6 = sub(%1, %4)
  %7 = 1e-06
  %8 = add(%6, %7)
  %9 = div(%5, %8)
  return %9[n, d]
""")


def kernel(compute):
    """A kernel that computes its first output from its first argument, in float32."""

    class Kernel:
        def run_into(self, arrays, outputs):
            with np.errstate(all="ignore"):
                outputs[0][...] = compute(arrays[0].astype(F32))

    return Kernel()


def in_float32(program):
    """The program as it stands, each step rounded to float32."""
    return kernel(lambda x: evaluate(program, {"x": x}, F32)[0])


def cases(program, tmp_path, dtype="float32", sizes=None):
    return prepare(program, sizes or {"n": 5, "d": 64}, dtype, 0, tmp_path)


def test_a_variance_by_moments_is_caught_where_the_program_centres_first(tmp_path):
    data = cases(CENTRED, tmp_path)
    assert check(in_float32(CENTRED), data).outcome is Outcome.OK
    result = check(in_float32(MOMENTS), data)
    assert result.outcome in {Outcome.INACCURATE, Outcome.WRONG}
    assert "on raised by 1000 inputs" in result.detail


def test_a_program_may_cancel_where_it_says_so_itself(tmp_path):
    data = cases(MOMENTS, tmp_path)
    assert check(in_float32(MOMENTS), data).outcome is Outcome.OK
    assert check(in_float32(CENTRED), data).outcome is Outcome.OK


def eps_first(x):
    low = x.min(1, keepdims=True)
    return (x - low) / (x.max(1, keepdims=True) + (F32(1e-6) - low))


def test_an_eps_that_a_large_value_swallows_is_caught_on_equal_inputs(tmp_path):
    data = cases(SCALED_ROWS, tmp_path)
    (equal,) = (c for c in data.cases if c.name == "equal to 100")
    assert not equal.tells_digits  # rounding the inputs alone makes noise of equal ones
    assert check(in_float32(SCALED_ROWS), data).outcome is Outcome.OK
    result = check(kernel(eps_first), data)
    assert result.outcome is Outcome.WRONG
    assert (
        "on equal to 100 inputs: out0: 320 of 320 elements are or are not finite" in result.detail
    )


def test_a_kernel_need_not_be_finite_where_a_step_of_the_program_is_not(tmp_path):
    reciprocal = parse_program("""
program reciprocal
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = max[d](x)
  %2 = sub(%1, x)
  %3 = exp(%2)
  %4 = div(x, %2)
  %5 = mul(%4, %3)
  %6 = max[d](%5)
  return %6[n]
""")
    data = cases(reciprocal, tmp_path)
    assert not any(c.name.startswith("equal") for c in data.cases)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("program", [CENTRED, MOMENTS, SCALED_ROWS], ids=lambda p: p.name)
def test_the_program_as_it_stands_passes_its_own_cases(program, dtype, tmp_path):
    data = cases(program, tmp_path, dtype)

    class AsItStands:
        def run_into(self, arrays, outputs):
            precision = np.float64 if dtype == "float64" else F32
            outputs[0][...] = evaluate(program, {"x": arrays[0]}, precision)[0]

    assert check(AsItStands(), data).outcome is Outcome.OK


def test_what_the_program_loses_in_its_own_arithmetic_a_kernel_may_lose_too(tmp_path):
    exact = prepare(MOMENTS, {"n": 5, "d": 64}, "float64", 0, tmp_path)
    (raised,) = (c for c in exact.cases if c.name == "raised by 1000")
    assert raised.allowed > 1e-12


TALL = parse_program("""
program tall
  dims d, h
  args x[d], w[d, h]
  x = input x[d]
  w = input w[d, h]
  %1 = matmul[d](x, w)
  return %1[h]
""")
TALL_SIZES = {"d": 3001, "h": 1400}


def test_a_large_argument_has_the_references_of_every_case(tmp_path):
    data = prepare(TALL, TALL_SIZES, "float32", 0, tmp_path)
    assert [case.name for case in data.cases] == ["drawn", "large", "negative", "zeros"]
    for case in data.cases:
        x, w = (CASES[case.name](array).astype(np.float64) for array in data.inputs())
        np.testing.assert_allclose(data.references(case.name)[0], x @ w, rtol=1e-9, atol=1e-9)
    assert data.cases[0].allowed == 1e-5  # rounding noise of a long sum is small


def test_parts_of_a_very_large_argument_are_no_copies_of_each_other(tmp_path):
    program = parse_program("""
program longest
  dims n
  args x[n]
  x = input x[n]
  %1 = sum[n](x)
  return %1[]
""")
    size = (FRESH + 3) * DRAWN_PART + 7
    (x,) = prepare(program, {"n": size}, "float32", 0, tmp_path, names=()).inputs()
    tiles = x[: size // 1024 * 1024].reshape(-1, 1024)[:, :2]
    assert len(np.unique(tiles, axis=0)) > 0.999 * len(tiles)
    assert abs(float(x.mean())) < 1e-3
    assert abs(float(x.std()) - 1) < 1e-2


def test_inputs_used_again_are_those_of_their_case(tmp_path):
    data = cases(SCALED_ROWS, tmp_path)
    inputs = Inputs(data)
    for case in data.cases:
        inputs.arrays[0][...] = np.nan
        (array,) = inputs.fill(case.name)
        np.testing.assert_array_equal(array, CASES[case.name](data.inputs()[0]))
