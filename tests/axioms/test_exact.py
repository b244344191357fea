"""Numbers without rounding mean what floats mean, and nothing where those are undefined."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from prism.egraph import TermBank
from prism.egraph.exact import (
    PRECISE,
    RATIONAL,
    ExactMeaning,
    Number,
    TooLargeError,
    exact,
    finite,
)
from prism.egraph.meaning import Sizes
from prism.egraph.signature import PARALLEL, operator_constructors, simple_operators
from prism.ir import OPS, OpKind

VALUES = np.array([1.5, -2.0, 0.25, 7.0, -0.5])
OTHERS = np.array([2.0, -2.0, 3.0, -1.0, 0.5])


def floats(numbers):
    return [float(number.value) for number in exact(numbers).ravel()]


ELEMENTWISE = {
    c: OPS[simple_operators()[c]]
    for c in operator_constructors()
    if OPS[simple_operators()[c]].kind is OpKind.ELEMENTWISE
}


@pytest.mark.parametrize("name", sorted(PRECISE & ELEMENTWISE.keys()))
def test_an_operator_means_the_same_as_over_floats(name):
    spec = ELEMENTWISE[name]
    operands = (VALUES, OTHERS)[: spec.arity]
    with np.errstate(all="ignore"):
        want = np.broadcast_to(spec.numpy(*operands), VALUES.shape)
    got = exact(spec.numpy(*map(exact, operands)))
    assert np.array_equal(finite(got), np.isfinite(want))
    assert floats(got[finite(got)]) == pytest.approx(want[np.isfinite(want)], rel=1e-12)


def test_every_operator_is_exact_or_known_not_to_be():
    known = {c.name for c in PARALLEL} | operator_constructors().keys()
    assert PRECISE - {"Input", "Const", "Size"} <= known
    assert known - PRECISE == {"GeluErf"}
    assert RATIONAL < PRECISE


@pytest.mark.parametrize("name", ["Add", "Mul", "Maximum", "Minimum", "Sub", "Div"])
def test_an_undefined_operand_makes_the_result_undefined(name):
    spec = ELEMENTWISE[name]
    undefined, one = exact(np.array([np.nan])), exact(np.array([1.0]))
    for operands in ((undefined, one), (one, undefined)):
        assert not finite(spec.numpy(*operands)).any()


def test_one_over_zero_is_one_infinity_whose_reciprocal_is_zero():
    zero = exact(np.array([0.0]))
    infinite = 1 / zero
    assert not finite(infinite).any()
    assert floats(1 / infinite) == [0.0]
    assert not finite(infinite + infinite).any()
    assert not finite(1 / (infinite * zero)).any()


def test_a_third_is_a_third():
    bank = TermBank(("d",))
    term = bank.make("Mul", (bank.make("Recip", (bank.const(3.0),)), bank.const(3.0)))
    (value,) = ExactMeaning(bank, Sizes({0: 1}, {}), {}).value(term).ravel()
    assert value.value == Fraction(1)


def test_constants_are_what_is_written():
    bank = TermBank(("d",))
    tenth = bank.const(0.1)
    term = bank.make("Add", (tenth, bank.make("Add", (tenth, tenth))))
    (value,) = ExactMeaning(bank, Sizes({0: 1}, {}), {}).value(term).ravel()
    assert value.value == Fraction(3, 10)


def test_huge_exponentials_are_not_computed():
    with pytest.raises(TooLargeError):
        np.exp(exact(np.array([1e9])))


def squared(number, times):
    for _ in range(times):
        number = number * number
    return number


def test_numbers_of_too_many_digits_are_not_worth_them():
    number = Number(Fraction(3, 7))
    assert squared(number, 8).value == Fraction(3, 7) ** 256
    with pytest.raises(TooLargeError):
        squared(number, 32)
