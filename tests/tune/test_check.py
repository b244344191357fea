from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tune.graphs import MATMUL, SQUARED

from prism import frontend as pr
from prism.dtypes import TOLERANCES, dtype_of
from prism.ir import (
    Apply,
    Argument,
    Const,
    DimInfo,
    Input,
    Output,
    Program,
    evaluate,
    parse_program,
)
from prism.record import Outcome
from prism.tune.allowance import factors_of, measure
from prism.tune.cases import Case, Limits, prepare
from prism.tune.check import check, compare

SIZES = {"n": 5, "d": 48, "h": 33}


def unary(*ops: str) -> Program:
    """x -> a chain of elementwise operators."""
    nodes = (Input("x", "x", ("n",)), *(Apply(op, (i,)) for i, op in enumerate(ops)))
    argument = Argument("x", ("n",))
    return Program("chain", (DimInfo("n", "n"),), (argument,), nodes, (Output(len(ops), ("n",)),))


class NumpyKernel:
    """The program itself, spoilt by `spoil(arrays, outputs)`."""

    def __init__(self, program, spoil=None):
        self.program, self.spoil = program, spoil or (lambda *_: None)

    def run_into(self, arrays, outputs):
        names = [a.name for a in self.program.arguments]
        for out, result in zip(
            outputs, evaluate(self.program, dict(zip(names, arrays, strict=True))), strict=True
        ):
            out[...] = result
        self.spoil(arrays, outputs)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_the_program_itself_passes_in_every_dtype(dtype, tmp_path):
    data = prepare(MATMUL, SIZES, dtype, 0, tmp_path)
    result = check(NumpyKernel(MATMUL), data)
    assert result.outcome is Outcome.OK
    assert [c.name for c in data.cases] == ["drawn", "large", "negative", "zeros"]
    assert all(a.dtype == dtype for a in data.inputs())


def test_other_seeds_draw_other_inputs(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = prepare(MATMUL, SIZES, "float32", 0, tmp_path / "a").inputs()
    two = prepare(MATMUL, SIZES, "float32", 1, tmp_path / "b").inputs()
    assert not np.array_equal(one[0], two[0])


def set_nan(arrays, outputs):
    outputs[0][-1, -1] = np.nan


def skip_tile(arrays, outputs):
    outputs[0][:1, :8] = np.nan


def scale_one_element(arrays, outputs):
    small = np.argmin(np.abs(np.abs(outputs[0]) - np.abs(outputs[0]).mean()))
    outputs[0].flat[small] *= 1.01


def write_input(arrays, outputs):
    arrays[1][0, 0] += 1


def all_zero(arrays, outputs):
    outputs[0][...] = 0


def lose_digits(arrays, outputs):
    outputs[0][...] *= 1 + 1e-4


@pytest.mark.parametrize(
    ("spoil", "outcome", "words"),
    [
        (set_nan, Outcome.WRONG, "not finite"),
        (skip_tile, Outcome.WRONG, "8 of 165"),
        (scale_one_element, Outcome.INACCURATE, "norm error"),
        (write_input, Outcome.WRONG, "writes into its input w"),
        (all_zero, Outcome.WRONG, "norm error 1"),
        (lose_digits, Outcome.INACCURATE, "norm error 0.0001, allowed 1e-05"),
    ],
)
def test_a_spoilt_kernel_is_caught_and_the_fault_is_named(spoil, outcome, words, tmp_path):
    data = prepare(MATMUL, SIZES, "float32", 0, tmp_path)
    result = check(NumpyKernel(MATMUL, spoil), data)
    assert result.outcome is outcome
    assert words in result.detail


def test_one_wrong_element_of_many_does_not_drown_in_the_norm():
    reference = np.ones(10_000_000)
    output = reference.astype(np.float32)
    output[77] = 1.02
    result = compare((output,), (reference,), Limits(1e-5, 1e-3))
    assert result.outcome is Outcome.WRONG
    assert "first at (77,)" in result.detail


def test_an_element_may_be_off_as_far_as_the_programs_own_arithmetic_explains(tmp_path):
    # peaked logits: of many elements some are much further off than the norm says
    program = pr.trace(lambda q, k, v: pr.softmax(q @ k.T, axis=-1) @ v, q="n d", k="s d", v="s e")
    sizes = {"n": 512, "s": 16, "d": 97, "e": 512}
    data = prepare(program, sizes, "float32", 0, tmp_path, names=("large",))
    large = data.cases[-1]
    assert large.name == "large"
    assert check(NumpyKernel(program), data).outcome is Outcome.OK
    plain = data.limits(Case(large.name, large.allowed))
    assert plain.element < data.limits(large).element
    assert data.limits(Case(large.name, large.allowed, 1e9)).element == 10 * plain.element


def test_far_inputs_may_make_a_few_elements_of_very_many_jump():
    reference = np.ones(1_000_000)
    output = reference.astype(np.float32)
    output[5:15] = 1.5
    far, near = Limits(1e-2, 1e-1, 1e-5), Limits(1e-2, 1e-1)
    assert compare((output,), (reference,), far).outcome is Outcome.OK
    assert compare((output,), (reference,), near).outcome is Outcome.WRONG
    output[15] = 1.5
    assert compare((output,), (reference,), far).outcome is Outcome.WRONG


def test_nan_and_infinities_must_stand_where_the_reference_has_them():
    reference = np.array([1.0, np.nan, np.inf, -np.inf])
    assert (
        compare((reference.astype(np.float32),), (reference,), Limits(1e-5, 1e-3)).outcome
        is Outcome.OK
    )
    for wrong in ([1.0, 0.0, np.inf, -np.inf], [1.0, np.nan, -np.inf, -np.inf]):
        output = np.array(wrong, np.float32)
        assert compare((output,), (reference,), Limits(1e-5, 1e-3)).outcome is Outcome.WRONG


def test_inputs_are_positive_where_normal_ones_leave_the_domain(tmp_path):
    data = prepare(unary("log", "sqrt"), {"n": 100}, "float32", 0, tmp_path)
    assert data.inputs()[0].min() >= 0.5
    assert "drawn between 0.5 and 1.5" in data.notes[0]
    assert "drawn" in [c.name for c in data.cases]
    assert "negative" not in [c.name for c in data.cases]


def test_large_inputs_must_overflow_nowhere_that_float64_does_not(tmp_path):
    # exp(x) / exp(x) is one for every x; in float32, x = 100 gives inf / inf
    nodes = (
        Input("x", "x", ("n",)),
        Apply("exp", (0,)),
        Apply("div", (1, 1)),
        Const(2.0),
        Apply("mul", (2, 3)),
    )
    program = replace(SQUARED, nodes=nodes, outputs=(Output(4, ("n",)),))
    data = prepare(program, {"n": 10_000}, "float32", 0, tmp_path)

    class Naive:
        def run_into(self, arrays, outputs):
            with np.errstate(all="ignore"):
                outputs[0][...] = 2 * (np.exp(arrays[0]) / np.exp(arrays[0]))

    assert check(NumpyKernel(program), data).outcome is Outcome.OK
    result = check(Naive(), data)
    assert result.outcome is Outcome.WRONG
    assert "on large inputs" in result.detail


def test_what_rounding_the_inputs_moves_is_allowed(tmp_path):
    # exp(30 x) loses about log2(30 x) bits whoever computes it
    data = prepare(unary("exp", "log", "exp", "log"), {"n": 1000}, "float32", 0, tmp_path)
    assert check(NumpyKernel(unary("exp", "log", "exp", "log")), data).outcome is Outcome.OK


def test_a_case_that_overflows_the_dtype_is_left_out(tmp_path):
    data = prepare(unary("exp"), {"n": 10_000}, "float32", 0, tmp_path)
    told = [c.name for c in data.cases if c.tells_digits]
    assert told == ["drawn", "negative", "zeros"]
    assert "large" not in {c.name for c in data.cases}
    assert any("'large' left out" in note for note in data.notes)


def test_a_program_that_rounding_takes_out_of_its_domain_says_nothing_about_digits():
    nodes = (
        Const(1.0),
        Input("x", "x", ("n",)),
        Apply("sub", (0, 1)),
        Apply("sqrt", (2,)),
    )
    program = replace(SQUARED, nodes=nodes, outputs=(Output(3, ("n",)),))
    ones = {"x": np.ones(1000, np.float32)}  # half of them are above 1 when they are shaken
    shake = factors_of(program, "float32", 0)
    measured = measure(program, ones, "float32", lambda x: x, shake)
    assert measured.allowed == math.inf
    assert not measured.tells_digits("float32")


SOFTMAX = parse_program("""
program softmax
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = 0.1
  %2 = mul(x, %1)
  %3 = max[d](%2)
  %4 = sub(%2, %3)
  %5 = exp(%4)
  %6 = sum[d](%5)
  %7 = div(%5, %6)
  return %7[n, d]
""")


def softmax_in(kind, shift):
    """A softmax in one dtype throughout, of logits shifted by `shift(logits)`."""

    class Kernel:
        def run_into(self, arrays, outputs):
            logits = arrays[0].astype(kind) * kind(0.1)
            with np.errstate(all="ignore"):
                e = np.exp(logits - shift(logits))
                outputs[0][...] = e / e.sum(1, keepdims=True)

    return Kernel()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_exponential_without_its_maximum_is_caught(dtype, tmp_path):
    data = prepare(SOFTMAX, {"n": 6, "d": 7}, dtype, 0, tmp_path)
    kind = np.dtype(dtype).type
    names = {c.name for c in data.cases}
    assert names >= {"raised by 1000", "lowered by 1000", "spread by 1000"}
    stable = softmax_in(kind, lambda x: x.max(1, keepdims=True))
    assert check(stable, data).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("shift", "words"),
    [
        (lambda x: x * 0 - 60, "on raised by 1000 inputs"),
        (lambda x: x * 0 + 70, "on lowered by 1000 inputs"),
        (lambda x: x.max(), "on spread by 1000 inputs"),
    ],
)
def test_wrong_references_of_exponentials_show_on_shifted_inputs(shift, words, tmp_path):
    data = prepare(SOFTMAX, {"n": 6, "d": 7}, "float32", 0, tmp_path)
    result = check(softmax_in(np.float32, shift), data)
    assert result.outcome is Outcome.WRONG
    assert words in result.detail


def test_shifts_that_the_program_itself_does_not_stand_are_left_out(tmp_path):
    bare = parse_program("""
program bare
  dims n
  args x[n]
  x = input x[n]
  %1 = exp(x)
  %2 = sum[n](%1)
  %3 = div(%1, %2)
  return %3[n]
""")
    data = prepare(bare, {"n": 40}, "float32", 0, tmp_path)
    assert not any("by" in c.name for c in data.cases)
    assert sum("by 100'" in note for note in data.notes) == 3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_are_held_to_their_tolerance_on_every_case(dtype, tmp_path):
    data = prepare(MATMUL, SIZES, dtype, 0, tmp_path)
    assert all(case.allowed == TOLERANCES[dtype] for case in data.cases)
    assert data.inputs()[0].dtype == dtype_of(dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_exponentials_are_shifted_in_half_types_too(dtype, tmp_path):
    data = prepare(SOFTMAX, {"n": 6, "d": 7}, dtype, 0, tmp_path)
    assert {c.name for c in data.cases} >= {"large", "raised by 1000", "lowered by 1000"}
    stable = softmax_in(np.float32, lambda x: x.max(1, keepdims=True))
    assert check(stable, data).outcome is Outcome.OK
    unsafe = softmax_in(np.float32, lambda x: x * 0 + 70)
    assert check(unsafe, data).outcome is Outcome.WRONG


def test_a_case_whose_result_float16_cannot_hold_is_left_out(tmp_path):
    (tmp_path / "half").mkdir()
    (tmp_path / "brain").mkdir()
    program = unary("square", "square")
    half = prepare(program, {"n": 50}, "float16", 0, tmp_path / "half")
    assert [c.name for c in half.cases] == ["drawn", "negative", "zeros"]
    brain = prepare(program, {"n": 50}, "bfloat16", 0, tmp_path / "brain")
    assert "large" in [c.name for c in brain.cases]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_sum_accumulated_in_a_half_type_is_caught(dtype, tmp_path):
    program = parse_program("""
program total
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = sum[d](x)
  return %1[n]
""")

    class Careless:
        def run_into(self, arrays, outputs):
            outputs[0][...] = 0
            for column in arrays[0].T:
                outputs[0][...] += column

    data = prepare(program, {"n": 3, "d": 3000}, dtype, 0, tmp_path)
    result = check(Careless(), data)
    assert result.outcome in {Outcome.WRONG, Outcome.INACCURATE}
    assert check(NumpyKernel(program), data).outcome is Outcome.OK


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_one_missing_element_of_a_half_type_does_not_drown(dtype, tmp_path):
    data = prepare(MATMUL, {"n": 512, "d": 4, "h": 512}, dtype, 0, tmp_path)

    def lose_one(arrays, outputs):
        outputs[0].flat[np.argsort(np.abs(outputs[0].astype(float)).flat)[outputs[0].size // 2]] = 0

    result = check(NumpyKernel(MATMUL, lose_one), data)
    assert result.outcome is Outcome.WRONG
    assert "1 of 262144" in result.detail


def test_results_too_small_for_the_dtype_are_allowed_for(tmp_path):
    # a softmax over 60000 elements: in float16 most results are subnormal
    data = prepare(SOFTMAX, {"n": 1, "d": 60000}, "float16", 0, tmp_path, names=())
    assert TOLERANCES["float16"] <= data.cases[0].allowed < 10 * TOLERANCES["float16"]
    stable = softmax_in(np.float32, lambda x: x.max(1, keepdims=True))
    assert check(stable, data).outcome is Outcome.OK
