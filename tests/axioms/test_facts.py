"""Named facts as side conditions: read, asked for, tested and proved alike."""

from __future__ import annotations

import pytest

from prism.egraph import AxiomFile, make_axiom_set
from prism.egraph.facts import FACTS
from prism.egraph.poison import find_poison
from prism.egraph.proving import Proof, installed_provers
from prism.egraph.sides import holds
from prism.egraph.soundness import check_rule
from prism.errors import AxiomError

(PROVER,) = installed_provers()


def rule_of(sides, when, ruleset="algebra"):
    text = f'(rewrite {sides} :when ({when}) :ruleset {ruleset} :name "mine")'
    return make_axiom_set((AxiomFile("mine.egg", text),)).rules[0]


RIGHT = {
    "root of a product": ("(Sqrt (Mul a b)) (Mul (Sqrt a) (Sqrt b))", "(nonneg a) (nonneg b)"),
    "square of a root": ("(Mul (Sqrt a) (Sqrt a)) a", "(nonneg a)"),
    "a quotient that cancels": (
        '(Mul a (Recip a)) (Const "1.0")', "(nonzero a) (defined a)",
    ),
    "absolute value": ("(Abs a) a", "(nonneg a)"),
    "relu": ('(Maximum a (Const "0.0")) a', "(positive a)"),
    "sum over one place": ("(Sum a k) a", "(single k)"),
    "softmax with any shift": (
        "(Div (Exp (Sub x c)) (Sum (Exp (Sub x c)) k)) (Div (Exp x) (Sum (Exp x) k))",
        "(lacks c k) (defined c)",
    ),
    "a factor that lacks k": ("(Sum (Mul a b) k) (Mul a (Sum b k))", "(lacks a k)"),
    "nothing of a narrower value": ('(Add (Mul (Const "0.0") b) a) a', "(defined b) (covers a b)"),
}  # fmt: skip
WRONG = {
    "one factor may be negative": (
        "(Sqrt (Mul a b)) (Mul (Sqrt a) (Sqrt b))", "(nonneg a)", "the right side is undefined",
    ),
    "zero over zero": ('(Mul a (Recip a)) (Const "1.0")', "(defined a)", "left side is undefined"),
    "undefined over undefined": (
        '(Mul a (Recip a)) (Const "1.0")', "(nonzero a)", "left side is undefined",
    ),
    "not negative is not positive": ('(Div a a) (Const "1.0")', "(nonneg a) (defined a)", None),
    "more than one place": ("(Sum a k) a", "(has a k)", None),
    "a shift with k": (
        "(Div (Exp (Sub x c)) (Sum (Exp (Sub x c)) k)) (Div (Exp x) (Sum (Exp x) k))",
        "(defined c)", None,
    ),
    "a factor that has k": ("(Sum (Mul a b) k) (Mul a (Sum b k))", "(has a k)", None),
    "covered by what is defined": ('(Add (Mul (Const "0.0") b) a) a', "(covers a b)", None),
    "any dimensions": ("(Sum (Mul a b) k) (Mul a (Sum b k))", "(same-dims a b)", None),
}  # fmt: skip


@pytest.mark.parametrize(("sides", "when"), RIGHT.values(), ids=RIGHT.keys())
def test_a_rule_that_needs_its_fact_passes_and_is_proved(sides, when):
    rule = rule_of(sides, when)
    report = check_rule(rule)
    assert report.counterexample is None
    assert report.cases == 50
    assert PROVER.prove(rule, seconds=100.0) is Proof.ALL_SIZES
    ((_, poison),) = find_poison(make_axiom_set((AxiomFile("mine.egg", _text(rule)),)), [rule])
    assert poison is None


def _text(rule):
    axiom = rule.axiom
    when = " ".join(map(str, axiom.conditions))
    return f'(rewrite {axiom.left} {axiom.right} :when ({when}) :ruleset algebra :name "mine")'


@pytest.mark.parametrize(("sides", "when", "why"), WRONG.values(), ids=WRONG.keys())
def test_a_rule_with_too_weak_a_fact_fails(sides, when, why):
    rule = rule_of(sides, when)
    report = check_rule(rule)
    assert report.counterexample is not None
    assert why is None or why in report.counterexample
    assert PROVER.prove(rule, seconds=2.0) is Proof.NONE


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("(nonneg k)", "(nonneg <term>)"),
        ("(nonneg (Exp a))", "(nonneg <term>)"),
        ("(nonneg c)", "(nonneg <term>)"),
        ("(lacks k a)", "(lacks <term> <data dimension>)"),
        ("(lacks a)", "(lacks <term> <data dimension>)"),
        ("(single a)", "(single <data dimension>)"),
        ("(negative a)", "one is a fact (lacks, has, same-dims, covers, single"),
    ],
)
def test_a_fact_about_something_else_is_refused(when, message):
    with pytest.raises(AxiomError) as caught:
        rule_of("(Sum (Mul a b) k) (Mul a (Sum b k))", when)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ['"2"', '"two"', '"inf"', '"nan"', '"1e400"', '"1_0.0"'])
def test_a_constant_is_a_finite_number(text):
    with pytest.raises(AxiomError, match="is no number"):
        rule_of(f"(Add a a) (Mul (Const {text}) a)", "")


def test_facts_about_dimensions_say_what_they_replace():
    replaced = {
        "lacks": "(= 0 (& (dims a) (<< 1 k)))",
        "has": "(!= 0 (& (dims a) (<< 1 k)))",
        "same-dims": "(= (dims a) (dims b))",
        "covers": "(= (dims a) (| (dims a) (dims b)))",
    }
    for name, raw in replaced.items():
        words = "a b" if name in {"same-dims", "covers"} else "a k"
        sides = "(Sum (Mul a b) k) (Mul a (Sum b k))"
        assert rule_of(sides, f"({name} {words})").text == rule_of(sides, raw).text
        assert FACTS[name].holds is not None


def test_an_analysis_is_declared_only_with_a_rule_that_asks_for_it():
    sides = "(Abs a) a"
    plain, asking = (
        make_axiom_set((AxiomFile("mine.egg", _text(rule_of(sides, when))),))
        for when in ("", "(nonneg a)")
    )
    assert "(function known" not in plain.commands({"algebra"}, {"Abs"})[0]
    assert "(function known" in asking.commands({"algebra"}, {"Abs"})[0]
    assert "(function known" not in asking.commands({"algebra"}, {"Exp"})[0]
    assert "(function value" not in asking.commands({"algebra"}, {"Abs"})[0]
    assert "(function value" in asking.commands({"algebra-verify"}, {"Abs"})[0]


def test_facts_about_entries_are_not_decided_by_dimensions():
    rule = rule_of("(Abs a) a", "(nonneg a)")
    assert holds(rule.axiom.conditions[0], {}, {})
