"""The PTX of the CUDA functions, interpreted with NumPy over the range of float32."""

from __future__ import annotations

import numpy as np
import pytest

from prism.ir import OPS
from prism_kernels.cuda.dialect import FUNCTIONS as DIALECT
from prism_kernels.cuda.functions import FUNCTIONS, LARGEST

F32 = np.float32
UNARY = {"absolute": "abs"} | {
    name: name
    for name in ("sqrt", "exp", "log", "tanh", "sigmoid", "silu", "gelu_tanh", "gelu_erf")
}
"""Function -> its operator."""
FINFO = np.finfo(F32)
ORDINARY = float(FINFO.tiny) * 2**30


def bits(value):
    return np.asarray(value).view(np.int32)


def rounded_down(value):
    nearest = value.astype(F32)
    return np.where(nearest > value, np.nextafter(nearest, F32(-np.inf)), nearest)


def exactly(function):
    """A function of float32 computed in float64 and rounded once."""
    return lambda *xs: function(*(np.asarray(x, np.float64) for x in xs)).astype(F32)


INSTRUCTIONS = {
    "abs.f32": np.abs,
    "neg.f32": np.negative,
    "add.rn.f32": np.add,
    "sub.rn.f32": np.subtract,
    "mul.rn.f32": np.multiply,
    "fma.rn.f32": exactly(lambda x, y, z: x * y + z),
    "fma.rm.f32": lambda x, y, z: rounded_down(x.astype(np.float64) * y + z),
    "sqrt.approx.f32": np.sqrt,
    "div.full.f32": np.divide,
    "max.NaN.f32": np.maximum,
    "min.NaN.f32": np.minimum,
    "copysign.f32": lambda sign, x: np.copysign(x, sign),
    "ex2.approx.ftz.f32": exactly(np.exp2),
    "rcp.approx.ftz.f32": exactly(lambda x: 1.0 / x),
    "setp.lt.f32": np.less,
    "setp.eq.f32": np.equal,
    "setp.ltu.f32": lambda x, y: ~(x >= y),
    "selp.f32": lambda yes, no, chosen: np.where(chosen, yes, no).astype(F32),
    "and.b32": lambda x, y: bits(x) & bits(y),
    "shl.b32": lambda x, count: (bits(x) << count).view(F32),
    "shr.s32": lambda x, count: bits(x) >> count,
    "sub.s32": lambda x, y: (bits(x) - bits(y)).view(F32),
    "cvt.rn.f32.s32": lambda x: bits(x).astype(F32),
}
APPROXIMATE = {
    "ex2.approx.ftz.f32": 2.0**-22,
    "rcp.approx.ftz.f32": 2.0**-23,
    "sqrt.approx.f32": 2.0**-23,
    "div.full.f32": 2.0**-22,
}
"""Instruction -> the relative error that it may have (PTX ISA)."""


def interpret(name, *arguments, error=0):
    """Run a function's PTX; approximate instructions err by `error` times what they may."""
    registers = {f"${i + 1}": argument for i, argument in enumerate(arguments)}

    def operand(text):
        if text.startswith("0f"):
            return np.uint32(int(text.removeprefix("0f"), 16)).view(F32)
        return registers[text] if text[0] in "$%" else np.int32(text)

    steps = FUNCTIONS[name].steps
    with np.errstate(all="ignore"):
        for step in steps:
            value = INSTRUCTIONS[step.name](*map(operand, step.operands))
            if step.name in APPROXIMATE:
                value = (value * (1.0 + error * APPROXIMATE[step.name])).astype(F32)
            registers[step.result] = value
    return registers[steps[-1].result]


def numbers():
    small, large = np.log10(FINFO.tiny) + 1, np.log10(FINFO.max) - 1
    sizes = np.concatenate(
        [
            10.0 ** np.linspace(small, large, 3001),
            np.linspace(0.01, 30, 5001),
            np.linspace(80, 110, 3001),
        ]
    )
    special = [0.0, 1e-40, FINFO.tiny, FINFO.max, np.inf, np.nan, 0.625, 1.0, 88.72283, 88.72284]
    near_one = np.nextafter(F32(1), [F32(0), F32(2)])
    values = np.concatenate([sizes, special, near_one])
    return np.concatenate([values, -values]).astype(F32)


@pytest.mark.parametrize("error", [-1, 0, 1])
@pytest.mark.parametrize("name", UNARY)
def test_function_is_right_over_the_whole_range_of_float32(name, error):
    x = numbers()
    out = interpret(name, x, error=error)
    with np.errstate(all="ignore"):
        exact = OPS[UNARY[name]].numpy(x.astype(np.float64))
        expected = exact.astype(F32)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(out[infinite], expected[infinite])
    with np.errstate(invalid="ignore"):
        ordinary = (np.abs(exact) > ORDINARY) & (np.abs(exact) < FINFO.max / 2)
        difference = np.abs(out[ordinary] - exact[ordinary])
    relative = difference / np.abs(exact[ordinary])
    slack = 6e-7 if error else 2e-7
    if name.startswith("gelu"):  # the reference cancels for negative x; ours does not
        slack = 5e-6  # far down the tail
        relative[difference <= 4e-16 * (np.abs(x[ordinary]) + 1)] = 0.0
    else:
        tiny = np.abs(exact) < FINFO.tiny / 2
        assert (np.abs(out[tiny]) <= ORDINARY).all()
    assert relative.max() <= slack


@pytest.mark.parametrize(("name", "meaning"), [("maximum", np.maximum), ("minimum", np.minimum)])
def test_extrema_hand_nan_on(name, meaning):
    x = numbers()
    y = np.random.default_rng(0).permutation(x)
    np.testing.assert_array_equal(interpret(name, x, y), meaning(x, y))


@pytest.mark.parametrize("error", [-1, 0, 1])
def test_division_is_right_to_two_units_at_every_size(error):
    x = numbers()
    y = np.random.default_rng(0).permutation(x)
    out = interpret("divide", x, y, error=error)
    with np.errstate(all="ignore"):
        expected = x / y
        ordinary = np.isfinite(expected) & (np.abs(expected) > ORDINARY)
        ordinary &= np.abs(expected) < FINFO.max / 2
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    assert (np.abs(out[ordinary] / expected[ordinary] - 1) <= 2.0**-21).all()


def test_bound_leaves_finite_numbers_and_nan_alone():
    x = numbers()
    expected = np.where(np.isinf(x), np.copysign(F32(LARGEST), x), x)
    np.testing.assert_array_equal(interpret("bound", x), expected)


def test_functions_are_those_of_the_dialect_that_take_numbers_alone():
    index = {"quotient", "remainder", "smaller"}
    numeric = {
        name: arity
        for name, arity in DIALECT.items()
        if not name.startswith(("load", "store", "atomic")) and name not in index
    }
    assert {name: function.arity for name, function in FUNCTIONS.items()} == numeric
