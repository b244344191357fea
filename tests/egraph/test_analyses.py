"""What the e-graph knows of entries is true, and constants are numbers without rounding."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from prism.egraph import (
    ALGEBRA,
    ALGEBRA_VERIFY,
    AxiomFile,
    Session,
    TermBank,
    constructors,
    make_axiom_set,
)
from prism.egraph.analyses import KNOWN, VALUES, Known
from prism.egraph.exact import PRECISE, RATIONAL, Number, exact
from prism.egraph.signature import Effect, operator_constructors, simple_operators
from prism.ir import OPS

INFINITE = Number(Fraction(0)).__rtruediv__(1)
ENTRIES = [Number(Fraction(n, 2)) for n in (-3, -2, 0, 1, 2, 5)] + [INFINITE, Number(None)]
BITS = [Known(*bits) for bits in itertools.product((0, 1), repeat=3)]


def holds(known, entries):
    finite = [e.value for e in entries if isinstance(e.value, Fraction)]
    return (
        (not known.nonneg or all(v >= 0 for v in finite))
        and (not known.nonzero or all(v != 0 for v in finite))
        and (not known.defined or len(finite) == len(entries))
    )


def truths(entries):
    return [bits for bits in BITS if holds(bits, entries)]


def result(head, *operands):
    """The entries of a constructor of the table applied to columns of entries."""
    spec = OPS[simple_operators()[head]]
    arrays = [np.array(column, dtype=object) for column in operands]
    if operator_constructors()[head].effect is Effect.DROP_DATA:
        whole = arrays[0] if len(arrays) == 1 else spec.numpy(*arrays)
        reduce = spec.numpy if len(arrays) == 1 else np.sum
        return [reduce(whole, axis=0)]
    return list(exact(spec.numpy(*arrays)))


ELEMENTWISE = sorted(
    head
    for head, c in operator_constructors().items()
    if head in PRECISE and c.effect is Effect.NONE
)
REDUCING = sorted(h for h, c in operator_constructors().items() if c.effect is Effect.DROP_DATA)


@pytest.mark.parametrize("head", ELEMENTWISE)
def test_what_is_known_of_a_result_holds_entry_by_entry(head):
    for operands in itertools.product(ENTRIES, repeat=constructors()[head].term_count):
        entries = result(head, *([operand] for operand in operands))
        for known in itertools.product(*(truths([operand]) for operand in operands)):
            assert holds(KNOWN[head](*known), entries), (operands, known)


@pytest.mark.parametrize("head", REDUCING)
def test_what_is_known_of_a_reduction_holds(head):
    count = constructors()[head].term_count
    columns = list(itertools.product(ENTRIES[:-1], repeat=2))[:: 1 if count == 1 else 3]
    for operands in itertools.product(columns, repeat=count):
        entries = result(head, *operands)
        for known in itertools.product(*(truths(column) for column in operands)):
            assert holds(KNOWN[head](*known), entries), (operands, known)


def test_every_operator_has_its_row():
    assert KNOWN.keys() == operator_constructors().keys() | {"Input", "Size"}
    assert VALUES.keys() <= RATIONAL


AXIOMS = """
(rewrite (Mul a (Recip a)) (Const "1.0") :when ((nonzero a) (defined a))
  :ruleset algebra-verify :name "cancel")
(rewrite (Abs a) a :when ((nonneg a)) :ruleset algebra-verify :name "abs-nonneg")
(rewrite (Sum a k) a :when ((single k)) :ruleset algebra-verify :name "sum-single")
(rewrite (Mul (Const "1.0") a) a :ruleset algebra :name "one")
"""


class Terms:
    """Terms in an e-graph under `AXIOMS`, made by constructor."""

    def __init__(self):
        self.bank = TermBank(("n", "one"))
        self.bank.declare_size("one", 1.0)
        self.x = self.bank.input("x", ("n", "one"))

    def make(self, head, *children, dims=()):
        return self.bank.make(head, children, dims)

    def const(self, value):
        return self.bank.const(value)

    def are_equal(self, a, b):
        axioms = make_axiom_set((AxiomFile("mine.egg", AXIOMS),))
        session = Session(axioms, {ALGEBRA, ALGEBRA_VERIFY}, self.bank.heads | {"Abs", "Mul"})
        session.insert(self.bank, [(0, a), (1, b)])
        for _ in range(6):
            session.iterate(ALGEBRA, ALGEBRA_VERIFY)
        roots = session.roots()
        return roots[0] == roots[1]


@pytest.mark.parametrize(
    ("is_cancelled", "head"),
    [(True, "Exp"), (True, "Sigmoid"), (False, "Square"), (False, "Neg"), (False, "Log")],
)
def test_a_value_cancels_only_if_it_is_never_zero(is_cancelled, head):
    t = Terms()
    value = t.make(head, t.x)
    one = t.make("Mul", value, t.make("Recip", value))
    assert t.are_equal(one, t.const(1.0)) is is_cancelled


def test_what_may_be_undefined_does_not_cancel():
    t = Terms()
    value = t.make("Exp", t.make("Sqrt", t.x))
    one = t.make("Mul", value, t.make("Recip", value))
    assert not t.are_equal(one, t.const(1.0))
    value = t.make("Exp", t.make("Sqrt", t.make("Square", t.x)))
    one = t.make("Mul", value, t.make("Recip", value))
    assert t.are_equal(one, t.const(1.0))


def test_a_product_with_itself_is_not_negative():
    t = Terms()
    y = t.make("Exp", t.x)
    assert t.are_equal(t.make("Abs", t.make("Mul", t.x, t.x)), t.make("Mul", t.x, t.x))
    assert t.are_equal(t.make("Abs", t.make("Mul", y, y)), t.make("Mul", y, y))
    assert not t.are_equal(t.make("Abs", t.make("Mul", t.x, y)), t.make("Mul", t.x, y))


def test_a_reciprocal_is_not_zero_only_where_the_value_is_defined():
    t = Terms()
    again = t.make("Recip", t.make("Recip", t.x))
    assert not t.are_equal(t.make("Mul", again, t.make("Recip", again)), t.const(1.0))


@pytest.mark.parametrize(
    ("head", "numbers", "expected"),
    [
        ("Add", (0.1, 0.2), 0.3),
        ("Sub", (1.0, 0.9), 0.1),
        ("Mul", (1e200, 1e-200), 1.0),
        ("Div", (1.0, 8.0), 0.125),
        ("Recip", (0.5,), 2.0),
        ("Neg", (-0.0,), 0.0),
        ("Square", (0.1,), 0.01),
        ("Abs", (-3.5,), 3.5),
        ("Maximum", (-1.0, 2.0), 2.0),
        ("Minimum", (-1.0, 2.0), -1.0),
    ],
)
def test_constants_are_numbers_without_rounding(head, numbers, expected):
    t = Terms()
    term = t.make(head, *map(t.const, numbers))
    assert t.are_equal(term, t.const(expected))
    assert not t.are_equal(term, t.const(expected + 1e-9))


def test_every_value_row_is_tried_above():
    marks = test_constants_are_numbers_without_rounding.pytestmark[0].args[1]
    assert {head for head, _, _ in marks} == VALUES.keys()


def test_a_number_divided_by_zero_is_none():
    t = Terms()
    term = t.make("Div", t.const(1.0), t.const(0.0))
    assert not any(t.are_equal(term, t.const(value)) for value in (0.0, 1.0))


def test_a_constant_that_comes_of_arithmetic_meets_rules_about_it():
    t = Terms()
    half = t.make("Mul", t.make("Mul", t.const(0.5), t.const(2.0)), t.x)
    assert t.are_equal(half, t.x)


def test_a_sum_over_one_place_is_that_place():
    t = Terms()
    assert t.are_equal(t.make("Sum", t.x, dims=(1,)), t.x)
    assert not t.are_equal(t.make("Sum", t.x, dims=(0,)), t.x)
