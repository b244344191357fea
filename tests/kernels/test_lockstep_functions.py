"""The simulator's functions are right over the whole range of float32, against NumPy on float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from prism.ir import OPS
from prism_kernels.lockstep.functions import CONSTANTS, FUNCTIONS, ROUND, Kind

F32 = np.float32
LIMITS = np.finfo(F32)
OPERATORS = {
    "absolute": "abs",
    "divide": "div",
    **{name: name for name in FUNCTIONS if name in OPS},
}
"""Function of the dialect -> the operator that it is."""


def float32s():
    """From the smallest to the largest float32, both signs, with what is special among them."""
    bits = np.random.default_rng(0).integers(0, 2**32, 3000, dtype=np.uint32)
    sizes = 10.0 ** np.linspace(-45, 38.5, 400)
    special = [
        0.0, -0.0, LIMITS.tiny, LIMITS.max, -LIMITS.max, np.inf, -np.inf, np.nan, 0.625, 1.0, -1.0,
        87.3, 88.72, 88.73, -87.4, -104.0, 20.0, -20.0,
    ]  # fmt: skip
    ordinary = np.linspace(-30, 30, 600)
    with np.errstate(over="ignore"):
        return np.concatenate(
            [
                bits.view(F32),
                *(np.asarray(a).astype(F32) for a in (sizes, -sizes, special, ordinary)),
            ]
        )


def test_every_float_function_has_an_operator_but_bound():
    floats = {name for name, f in FUNCTIONS.items() if f.result is Kind.FLOAT}
    assert set(OPERATORS) == floats - {"bound"}


@pytest.mark.parametrize("name", OPERATORS)
def test_function_is_the_operator_rounded_to_float32(name):
    function, operator = FUNCTIONS[name], OPS[OPERATORS[name]]
    x = float32s()
    operands = [x, np.random.default_rng(1).permutation(x)][: operator.arity]
    with np.errstate(all="ignore"):
        exact = np.asarray(operator.numpy(*(a.astype(np.float64) for a in operands)), np.float64)
        got = np.array([function.call(*pair) for pair in zip(*operands, strict=True)])
        expected = exact.astype(F32)
    assert got.dtype == F32
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    number = np.isfinite(exact) & np.isfinite(expected)
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - exact)
        # half a last place, and what the reference itself loses where it cancels
        slack = np.abs(exact) * 2.0**-23 + 2.0**-149
        if name.startswith("gelu"):
            slack += 4e-16 * np.abs(x.astype(np.float64))
    assert (error <= slack)[number].all()
    infinite = ~np.isnan(expected) & ~number
    np.testing.assert_array_equal(got[infinite], expected[infinite])


def test_bound_limits_to_the_finite_numbers_and_keeps_nan():
    call = FUNCTIONS["bound"].call
    for x, y in ((np.inf, LIMITS.max), (-np.inf, -LIMITS.max), (3.5, 3.5), (-0.0, 0.0)):
        assert call(F32(x)) == F32(y)
    assert math.isnan(call(F32(np.nan)))
    assert type(call(F32(np.inf))) is F32


def test_gelu_does_not_cancel_far_below_zero():
    for name in ("gelu_erf", "gelu_tanh"):
        assert -1e-3 < FUNCTIONS[name].call(F32(-5.0)) < 0


def test_index_functions_are_those_of_unsigned_integers():
    for i in (0, 1, 7, 2**32 - 1):
        for j in (1, 3, 2**32 - 1):
            assert FUNCTIONS["quotient"].call(i, j) == np.uint32(i) // np.uint32(j)
            assert FUNCTIONS["remainder"].call(i, j) == np.uint32(i) % np.uint32(j)
            assert FUNCTIONS["smaller"].call(i, j) == min(i, j)


def test_float16_rounding_is_that_of_numpy():
    x = float32s()
    with np.errstate(all="ignore"):
        got = np.array([ROUND["float16"](value) for value in x])
        np.testing.assert_array_equal(got, x.astype(np.float16).astype(F32))


def test_bfloat16_rounding_takes_the_nearest_and_the_even_one_of_two():
    x = float32s()
    got = np.array([ROUND["bfloat16"](value) for value in x])
    np.testing.assert_array_equal(np.isnan(got), np.isnan(x))
    finite = np.isfinite(x) & np.isfinite(got)
    bits = got[finite].view(np.uint32)
    assert not (bits & 0xFFFF).any()
    exact = x[finite].astype(np.float64)
    size = np.maximum(np.abs(exact), float(LIMITS.tiny))
    half_step = 2.0 ** (np.floor(np.log2(size)) - 8)  # 7 bits after the first
    assert (np.abs(got[finite] - exact) <= half_step).all()
    tie = np.array([0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x00008000], np.uint32).view(F32)
    rounded = np.array([ROUND["bfloat16"](v) for v in tie]).view(np.uint32)
    np.testing.assert_array_equal(rounded, [0x3F800000, 0x3F820000, 0x7F800000, 0])


def test_constants_are_float32():
    assert all(type(c) is F32 for c in CONSTANTS.values())
    assert CONSTANTS["LOWEST"] == -LIMITS.max
