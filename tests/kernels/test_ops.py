"""Every operator of the table is emitted for every kind of machine, and right over a wide range."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.legal import mugraph
from kernels.simulated import SHARED_LIMIT, launched

from prism.ir import OPS, Apply, Argument, DimInfo, Input, OpKind, Output, Program
from prism_kernels.cuda.emit import emit
from prism_kernels.expressions import EXPRESSIONS

ELEMENTWISE = [name for name, spec in OPS.items() if spec.kind is OpKind.ELEMENTWISE]
POSITIVE = {"log", "sqrt", "rsqrt"}
DTYPES = ("float32", "float64")


def elementwise_program(op):
    names = ("x", "y")[: OPS[op].arity]
    return Program(
        op,
        (DimInfo("n", "n"),),
        tuple(Argument(name, ("n",)) for name in names),
        (*(Input(name, name, ("n",)) for name in names), Apply(op, tuple(range(len(names))))),
        (Output(len(names), ("n",)),),
    )


def numbers(dtype, *, positive):
    """From far below 1 to far above, both signs, with what is special in the format."""
    limits = np.finfo(dtype)
    small, large = np.log10(limits.tiny) + 1, np.log10(limits.max) - 1
    sizes = np.concatenate([10.0 ** np.linspace(small, large, 301), np.linspace(0.01, 30, 501)])
    special = [0.0, limits.tiny, limits.max, np.inf, np.nan, 0.625, 87.0, 88.7, 709.0, 1.0]
    values = np.concatenate([sizes, special, *(() if positive else (-sizes, [-np.inf, -1.0]))])
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def arguments_of(op, dtype):
    values = numbers(dtype, positive=op in POSITIVE)
    if OPS[op].arity == 1:
        return (values,)
    shuffled = np.random.default_rng(1).permutation(values)
    return values, shuffled


def test_every_elementwise_operator_has_an_expression():
    assert set(EXPRESSIONS) == set(ELEMENTWISE) | {"bound"}


@pytest.mark.parametrize("op", ELEMENTWISE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_operator_is_right_over_the_whole_range_of_the_format(compiled, op, dtype):
    arguments = arguments_of(op, dtype)
    program = elementwise_program(op)
    kernel = compiled(mugraph(program, {"n": arguments[0].size}), dtype)
    (out,) = kernel(*arguments)
    assert_right(op, arguments, out)


@pytest.mark.parametrize("op", ELEMENTWISE)
def test_operator_is_right_in_a_simulated_cuda_kernel(op):
    arguments = arguments_of(op, "float32")
    mu = mugraph(elementwise_program(op), {"n": arguments[0].size})
    source = emit(mu, "float32", SHARED_LIMIT, "lockstep")
    (out,) = launched(source.text, source.meta, arguments)
    assert_right(op, arguments, out.astype(np.float32))


def assert_right(op, arguments, out):
    """What the operator gives, NaN and infinities included, to a few units in the last place."""
    dtype = arguments[0].dtype.name
    with np.errstate(all="ignore"):
        exact = OPS[op].numpy(*(a.astype(np.float64) for a in arguments))
        expected = exact.astype(dtype)
    limits = np.finfo(dtype)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    with np.errstate(invalid="ignore"):
        ordinary = (np.abs(exact) > limits.tiny * 2**30) & (np.abs(exact) < limits.max / 2)
        error = np.abs(out[ordinary] - exact[ordinary]) / np.abs(exact[ordinary])
    slack = 1e-14 if dtype == "float64" else 5e-7
    if op.startswith("gelu"):  # the reference cancels for negative x; ours does not
        slack = max(slack, 5e-6 if dtype == "float32" else 0.0)  # far down the tail
        ordinary_size = np.abs(arguments[0].astype(np.float64))[ordinary]
        close = np.abs(out[ordinary] - exact[ordinary]) <= 4e-16 * (ordinary_size + 1)
        error = np.where(close, 0.0, error)
    else:
        tiny = np.abs(exact) < limits.tiny / 2
        assert (np.abs(out[tiny]) <= limits.tiny * 2**30).all()
    assert error.max() <= slack
    infinite = np.isinf(exact)
    np.testing.assert_array_equal(out[infinite], expected[infinite])


@pytest.mark.parametrize("dtype", DTYPES)
def test_exp_is_right_up_to_the_largest_number_and_infinite_past_it(compiled, dtype):
    limit = np.log(np.finfo(dtype).max.astype(np.longdouble)).astype(dtype)
    step = np.spacing(limit)
    x = np.array([limit - step, limit + step, -np.inf, np.inf, np.nan, 0.0], dtype)
    (out,) = compiled(mugraph(elementwise_program("exp"), {"n": x.size}), dtype)(x)
    exact = np.exp(x[0].astype(np.longdouble))
    assert abs(out[0] / exact - 1) <= 2 * np.finfo(dtype).eps
    np.testing.assert_array_equal(out[1:], np.array([np.inf, 0.0, np.inf, np.nan, 1.0], dtype))


@pytest.mark.parametrize("op", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", ["n", "d"])
def test_reduction_is_right_along_either_axis(compiled, rng, op, dtype, dim):
    program = Program(
        op,
        (DimInfo("n", "n"), DimInfo("d", "d")),
        (Argument("x", ("n", "d")),),
        (Input("x", "x", ("n", "d")), Apply(op, (0,), dim)),
        (Output(1, ("n" if dim == "d" else "d",)),),
    )
    kernel = compiled(mugraph(program, {"n": 13, "d": 37}), dtype)
    x = rng.standard_normal((13, 37)).astype(dtype)
    x[3, 5] = -np.inf if op == "max" else 0.0
    (out,) = kernel(x)
    expected = OPS[op].numpy(x.astype(np.float64), axis=1 if dim == "d" else 0)
    tolerance = 1e-14 if dtype == "float64" else 1e-6
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("dim", ["n", "d"])
def test_max_hands_on_nan_and_a_row_of_minus_infinity(compiled, dim):
    program = Program(
        "max",
        (DimInfo("n", "n"), DimInfo("d", "d")),
        (Argument("x", ("n", "d")),),
        (Input("x", "x", ("n", "d")), Apply("max", (0,), dim)),
        (Output(1, ("n" if dim == "d" else "d",)),),
    )
    kernel = compiled(mugraph(program, {"n": 40, "d": 40}))
    x = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)
    x[7, 7] = np.nan
    x[11, :] = x[:, 11] = -np.inf
    (out,) = kernel(x)
    np.testing.assert_array_equal(out, x.max(axis=1 if dim == "d" else 0))
