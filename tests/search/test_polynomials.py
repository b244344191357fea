"""Costs as polynomials: what `is_below` claims holds for all values of the variables."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from prism.search.fronts.polynomials import (
    MAX_EXPONENT,
    ZERO,
    add,
    below_all,
    divides,
    exponents,
    is_below,
    meet,
    power,
    scaled,
    total,
    without,
)

VARIABLES = 4

powers = st.lists(st.integers(0, 3), min_size=VARIABLES, max_size=VARIABLES)
monomials = powers.map(lambda p: sum(power(i, e) for i, e in enumerate(p)))
polynomials = st.dictionaries(monomials, st.integers(1, 6), max_size=5)
values = st.lists(st.integers(1, 9), min_size=VARIABLES, max_size=VARIABLES)


def value(polynomial, at):
    return sum(
        c * math.prod(at[i] ** e for i, e in enumerate(exponents(m))) for m, c in polynomial.items()
    )


@given(powers)
def test_exponents_come_back(given_powers):
    monomial = sum(power(i, e) for i, e in enumerate(given_powers))
    assert list(_padded(monomial)) == given_powers


def test_the_largest_exponent_has_room():
    left, right = power(1, MAX_EXPONENT), power(0, MAX_EXPONENT) + power(1, MAX_EXPONENT)
    assert divides(left, right)
    assert not divides(right, left)


@given(monomials, monomials)
def test_a_monomial_divides_what_has_no_smaller_exponent(left, right):
    pairs = zip(_padded(left), _padded(right), strict=True)
    assert divides(left, right) == all(a <= b for a, b in pairs)
    assert divides(meet(left, right), left)
    assert divides(meet(left, right), right)


def _padded(monomial):
    return (*exponents(monomial), *([0] * VARIABLES))[:VARIABLES]


@given(polynomials, polynomials, values)
def test_what_is_below_is_below_everywhere(left, right, at):
    if is_below(left, right):
        assert value(left, at) <= value(right, at)


@given(polynomials, polynomials)
def test_more_of_anything_is_above(left, right):
    assert is_below(left, add(left, right))
    assert is_below(left, scaled(left, 2))
    assert is_below(ZERO, left)
    assert not left or not is_below(add(left, left), left)


@given(polynomials, st.lists(monomials, min_size=5, max_size=5), polynomials)
def test_larger_exponents_are_above_whoever_pays_for_whom(polynomial, factors, shared):
    """Every monomial of the one has a larger one in the other; what both have besides is equal."""
    larger = total({m + f: c} for (m, c), f in zip(polynomial.items(), factors, strict=False))
    assert is_below(add(polynomial, shared), add(larger, shared))
    assert is_below(polynomial, larger)


@given(st.lists(polynomials, max_size=4), values)
def test_what_is_below_all_is_below_each(choices, at):
    below = below_all(choices)
    assert all(is_below(below, choice) for choice in choices)
    assert all(value(below, at) <= value(choice, at) for choice in choices)


@given(st.lists(polynomials, max_size=4), values)
def test_sums_add_up(parts, at):
    assert value(total(parts), at) == sum(value(part, at) for part in parts)


@given(polynomials, values)
def test_without_a_variable_it_is_one(polynomial, at):
    assert value(without(polynomial, 2), at) == value(polynomial, [*at[:2], 1, *at[3:]])
