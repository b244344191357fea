"""What the prover proves holds; how far, it says."""

from __future__ import annotations

import random
import re

import pytest

from prism.egraph import AxiomFile, load_axioms, make_axiom_set
from prism.egraph.proving import Proof, best_proof, installed_provers
from prism.egraph.soundness import check_rule
from prism.errors import AxiomError

(PROVER,) = installed_provers()


def rule_of(text):
    return make_axiom_set((AxiomFile("mine.egg", f'{text} :name "mine")'),)).rules[0]


@pytest.mark.parametrize(
    "name",
    [
        "mul-assoc", "recip-mul", "sum-mul", "sum-sum", "sum-constant", "exp-sub", "log-div-exp",
        "softmax-shift", "log-sum-exp-shift", "max-over-maximum", "silu-sigmoid", "sqrt-recip",
        "comb-part", "red-sum-part", "sum-stack", "red-div-repl", "part-part", "red-max-scale",
    ],
)  # fmt: skip
def test_rules_of_ours_are_proved_for_all_sizes(name):
    (rule,) = (rule for rule in load_axioms().rules if rule.name == name)
    assert PROVER.prove(rule, seconds=100.0) is Proof.ALL_SIZES


BOUNDED = {
    "largest absolute value": (
        "(rewrite (MaxOver (Abs a) k) (Maximum (MaxOver a k) (MaxOver (Neg a) k)) :ruleset algebra"
    ),
    "largest of the smaller of a value and itself": (
        "(rewrite (RedMax (Minimum a a) p) (RedMax a p) :ruleset parallel"
    ),
}


@pytest.mark.parametrize("text", BOUNDED.values(), ids=BOUNDED.keys())
def test_what_sums_as_symbols_do_not_reach_is_unrolled(text):
    assert PROVER.prove(rule_of(text), seconds=100.0) in {Proof.SMALL_SIZES, Proof.ALL_SIZES}


@pytest.mark.parametrize(
    "text",
    [
        "(rewrite (Repl (Size k) p) (Repl (Neg (Neg (Size k))) p) :ruleset parallel",
        "(rewrite (Add a b) (Add b a) :when ((= 3 (dims a))) :ruleset algebra",
        "(rewrite (Add a b) (Add b a) :when ((= (pars a) (pars b))) :ruleset algebra",
    ],
)
def test_what_depends_on_dimensions_it_does_not_name_is_tested_only(text):
    assert PROVER.prove(rule_of(text), seconds=2.0) is Proof.NONE


def test_a_condition_on_unnamed_dimensions_is_read_with_them():
    unequal = "(!= (dims a) (dims b)) (= 0 (& (dims a) (<< 1 k)))"
    wrong = f"(rewrite (Sum (Add a b) k) (Sum b k) :when ({unequal}) :ruleset algebra"
    right = f"(rewrite (Sum (Add a b) k) (Sum (Add b a) k) :when ({unequal}) :ruleset algebra"
    assert PROVER.prove(rule_of(wrong), seconds=2.0) is Proof.NONE
    assert PROVER.prove(rule_of(right), seconds=100.0) is Proof.ALL_SIZES


def test_that_time_is_up_is_no_proof():
    assert PROVER.prove(rule_of(BOUNDED["largest absolute value"]), seconds=0.0) is Proof.NONE


def test_a_helper_has_no_meaning_to_prove():
    text = '(constructor Hug (E) E) (rewrite (Hug a) a :ruleset algebra :name "hug")'
    (rule,) = make_axiom_set((AxiomFile("mine.egg", text),)).rules
    assert PROVER.prove(rule, seconds=1.0) is Proof.NONE


def mutants(seed, count):
    """Rules of ours with one word of the right side replaced, their condition dropped at times."""
    rng = random.Random(seed)
    axioms = load_axioms().axioms
    heads = sorted({h for rule in load_axioms().rules for h in rule.needs} - {"Const"})
    for _ in range(count):
        axiom = rng.choice(axioms)
        words = re.findall(r"[()]|[^\s()]+", str(axiom.right))
        place = rng.choice([i for i, word in enumerate(words) if word not in "()"])
        own = re.findall(r"[^\s()]+", f"{axiom.left} {axiom.right}")
        words[place] = rng.choice([*own, *heads])
        when = "" if rng.random() < 0.3 else " ".join(map(str, axiom.conditions))
        text = f"(rewrite {axiom.left} {' '.join(words)} :when ({when}) :ruleset {axiom.ruleset}"
        try:
            yield rule_of(text)
        except AxiomError:
            continue


def test_nothing_is_proved_that_a_random_tensor_refutes():
    tried = proved = 0
    for rule in mutants(seed=1, count=400):
        tried += 1
        if PROVER.prove(rule, seconds=2.0) is not Proof.NONE:
            proved += 1
            report = check_rule(rule, cases=20, attempts=2_000)
            assert report.counterexample is None or not report.cases, rule.text
    assert proved >= 10
    assert tried - proved >= 20


def test_the_strongest_proof_counts():
    class Weak:
        name = "weak"

        def prove(self, rule, *, seconds):
            return Proof.SMALL_SIZES

    rule = load_axioms().rules[0]
    assert best_proof((), rule, 1.0) is Proof.NONE
    assert best_proof((Weak(),), rule, 1.0) is Proof.SMALL_SIZES
    assert best_proof((Weak(), PROVER), rule, 1.0) is Proof.ALL_SIZES
