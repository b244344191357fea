"""The functions of prism given NumPy arrays: computed at once, in the arrays' own dtype."""

from __future__ import annotations

import math

import numpy as np
import pytest

import prism.frontend as pr

UNARY = [
    pr.exp,
    pr.log,
    pr.sqrt,
    pr.rsqrt,
    pr.square,
    pr.abs,
    pr.negative,
    pr.reciprocal,
    pr.relu,
    pr.silu,
    pr.gelu,
    pr.sigmoid,
    pr.tanh,
    pr.softmax,
    pr.log_softmax,
    pr.logsumexp,
    pr.rms_norm,
    pr.layer_norm,
    pr.var,
    pr.sum,
    pr.mean,
    pr.max,
    pr.min,
    pr.transpose,
]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("fn", UNARY, ids=lambda f: f.__name__)
def test_the_dtype_stays(fn, dtype, rng):
    assert fn(rng.uniform(0.5, 1.5, (3, 4)).astype(dtype)).dtype == dtype


@pytest.mark.parametrize(
    "fn", [pr.add, pr.subtract, pr.multiply, pr.divide, pr.maximum, pr.minimum]
)
def test_numbers_do_not_widen_an_array(fn):
    x = np.ones(3, np.float32)
    assert fn(x, 2.0).dtype == np.float32
    assert fn(2, x).dtype == np.float32
    assert fn(x, x).dtype == np.float32


def test_a_function_of_a_number_is_a_number():
    """A NumPy float64 scalar would widen the float32 array it meets."""
    assert isinstance(pr.sqrt(2), float)
    x = np.ones((2, 3), np.float32)
    assert (x / pr.sqrt(x.shape[1])).dtype == np.float32
    assert (x * x.shape[1] ** -0.5).dtype == np.float32


def test_gelu_is_x_times_the_probability_below_x():
    x = np.linspace(-3, 3, 7)
    exact = [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x]
    assert np.allclose(pr.gelu(x), exact)
    assert np.allclose(pr.gelu(x, approximate="tanh"), exact, atol=2e-3)
    assert not np.allclose(pr.gelu(x, approximate="tanh"), exact, atol=1e-6)


def test_softmax_and_logsumexp_do_not_overflow():
    x = np.array([[1000.0, 1000.0], [-1000.0, 0.0]])
    with np.errstate(all="raise", under="ignore"):
        assert np.allclose(pr.softmax(x), [[0.5, 0.5], [0.0, 1.0]])
        assert np.allclose(pr.logsumexp(x, axis=1), [1000 + math.log(2), 0.0])
        assert np.allclose(pr.log_softmax(x)[0], -math.log(2))


def test_softmax_over_several_axes_sums_to_one(rng):
    x = rng.standard_normal((2, 3, 4))
    assert np.allclose(pr.softmax(x, axis=(0, 2)).sum(axis=(0, 2)), 1.0)


def test_a_weight_of_one_dimension_lies_along_the_normalised_axis(rng):
    x, g, b = rng.standard_normal((3, 5, 4)), rng.standard_normal(5), rng.standard_normal(5)
    for axis in (1, -2):
        normed = pr.rms_norm(x, g, axis=axis)
        assert np.allclose(normed, pr.rms_norm(x, axis=axis) * g[:, None])
        normed = pr.layer_norm(x, g, b, axis=axis)
        assert np.allclose(normed, pr.layer_norm(x, axis=axis) * g[:, None] + b[:, None])
    program = pr.trace(lambda x, g: pr.rms_norm(x, g, axis=0), x="n d", g="n")
    assert [a.axes for a in program.arguments] == [("n", "d"), ("n",)]
    assert {d.size for d in program.dims} == {"n", "d"}


def test_norms_normalize(rng):
    x = rng.standard_normal((3, 50))
    assert np.allclose((pr.rms_norm(x) ** 2).mean(axis=1), 1.0)
    normed = pr.layer_norm(x, weight=2.0, bias=1.0, eps=0.0)
    assert np.allclose(normed.mean(axis=1), 1.0)
    assert np.allclose(normed.std(axis=1), 2.0)
    assert np.allclose(pr.var(x, axis=1), x.var(axis=1))
