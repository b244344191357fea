"""Every installed axiom holds on random tensors; wrong ones are caught."""

from __future__ import annotations

import pytest

from prism.egraph import AxiomFile, load_axioms, make_axiom_set
from prism.egraph.soundness import check_rule
from prism.plugins import Group, installed

RULES = [
    pytest.param(rule, id=f"{rule.axiom.family}/{rule.name}")
    for name in installed(Group.AXIOMS)
    for rule in load_axioms((name,)).rules
]

WRONG = {
    "true up to a large number": ('(rewrite (Minimum x (Const "1000000000.0")) x :ruleset algebra'),
    "true from a negative number on": '(rewrite (Maximum (Const "-250.0") x) x :ruleset algebra',
    "comb-part along another dim": "(rewrite (Comb (Part x d p) e p) x :ruleset parallel",
    "red-repl loses the count": "(rewrite (Red (Repl x p) p) x :ruleset parallel",
    "sum-part over the split dim": (
        "(rewrite (Sum (Part x d p) k) (Part (Sum x k) d p) :ruleset parallel"
    ),
    "part-part of one dim": (
        "(rewrite (Part (Part x d p) e q) (Part (Part x e q) d p) :when ((< q p)) :ruleset parallel"
    ),
    "mul-part-repl of a whole operand": (
        "(rewrite (Mul (Part x d p) (Repl y p)) (Part (Mul x y) d p) :ruleset parallel"
    ),
    "red-div of the dividend": (
        "(rewrite (Red (Div (Repl y p) a) p) (Div y (Red a p)) :ruleset parallel"
    ),
    "red-exp": "(rewrite (Red (Exp a) p) (Exp (Red a p)) :ruleset parallel",
    "red-mul of two partial values": (
        "(rewrite (Red (Mul a b) p) (Mul (Red a p) (Red b p)) :ruleset parallel"
    ),
    "red-add of a copy": (
        "(rewrite (Red (Add a (Repl y p)) p) (Add (Red a p) y) :ruleset parallel"
    ),
    "red-max-neg": "(rewrite (RedMax (Neg a) p) (Neg (RedMax a p)) :ruleset parallel",
    "red-max of a sum over tiles": (
        "(rewrite (RedMax (Sum (Part x k p) k) p) (Sum x k) :ruleset parallel"
    ),
    "red-max-over of another dim": (
        "(rewrite (RedMax (MaxOver (Part x d p) k) p) (MaxOver x k) :ruleset parallel"
    ),
    "pick-part": "(rewrite (Pick (Part x d p) p) x :ruleset parallel",
    "sum-comb without the sum over p": (
        "(rewrite (Sum (Comb x k p) k) (Sum x k) :ruleset parallel"
    ),
    "maximum of one scaled value": (
        "(rewrite (Maximum (Scale x p) y) (Scale (Maximum x y) p) :ruleset parallel"
    ),
    "sum-constant on a tile": (
        "(rewrite (Sum a k) (Mul (Size k) a) :when ((= 0 (& (dims a) (<< 1 k)))) :ruleset parallel"
    ),
    "sum-mul without its condition": (
        "(rewrite (Sum (Mul a b) k) (Mul a (Sum b k)) :ruleset algebra"
    ),
    "max-over of a product with any sign": (
        "(rewrite (MaxOver (Mul a b) k) (Mul a (MaxOver b k))"
        " :when ((= 0 (& (dims a) (<< 1 k)))) :ruleset algebra"
    ),
    "sqrt-add": "(rewrite (Sqrt (Add a b)) (Add (Sqrt a) (Sqrt b)) :ruleset algebra",
    "sqrt-mul of negative factors": (
        "(rewrite (Sqrt (Mul a b)) (Mul (Sqrt a) (Sqrt b)) :ruleset algebra"
    ),
    "square-sqrt of a negative value": "(rewrite (Square (Sqrt a)) a :ruleset algebra",
    "sqrt-square without abs": "(rewrite (Sqrt (Square a)) a :ruleset algebra",
    "exp-log of a negative value": "(rewrite (Exp (Log a)) a :ruleset algebra",
    "log-mul of negative factors": (
        "(rewrite (Log (Mul a b)) (Add (Log a) (Log b)) :ruleset algebra"
    ),
    "a quotient cancels where it is zero": (
        "(rewrite (Mul (Recip a) (Mul a b)) b :ruleset algebra"
    ),
    "div-comm": "(rewrite (Div a b) (Div b a) :ruleset algebra",
    "sub-comm": "(rewrite (Sub a b) (Sub b a) :ruleset algebra",
    "exp-mul": "(rewrite (Exp (Mul a b)) (Mul (Exp a) (Exp b)) :ruleset algebra",
    "square of a sum": "(rewrite (Sum (Square a) k) (Square (Sum a k)) :ruleset algebra",
    "softmax-shift by a value with k": (
        "(rewrite (Div (Exp (Sub x m)) (Sum (Exp (Sub x m)) k)) (Div (Exp x) (Sum (Exp x) k))"
        " :ruleset algebra"
    ),
    "softmax-shift by a value that may be undefined": (
        "(rewrite (Div (Exp (Sub x m)) (Sum (Exp (Sub x m)) k)) (Div (Exp x) (Sum (Exp x) k))"
        " :when ((= 0 (& (dims m) (<< 1 k))) (= (dims x) (| (dims x) (dims m)))) :ruleset algebra"
    ),
    "a difference with itself": (
        "(rewrite (Add a (Sub b b)) a :when ((= (dims a) (dims b))) :ruleset algebra"
    ),
    "silu is not homogeneous": "(rewrite (Silu (Mul a b)) (Mul a (Silu b)) :ruleset algebra",
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_holds_on_random_tensors(rule):
    report = check_rule(rule)
    assert report.counterexample is None
    assert report.cases >= 20


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_rule_is_caught(text):
    (rule,) = make_axiom_set((AxiomFile("wrong.egg", f'{text} :name "wrong")'),)).rules
    assert check_rule(rule).counterexample is not None


def test_a_counterexample_says_with_which_tensors():
    text = '(rewrite (Sub a b) (Sub b a) :ruleset algebra :name "sub-comm")'
    (rule,) = make_axiom_set((AxiomFile("wrong.egg", text),)).rules
    found = check_rule(rule).counterexample or ""
    assert "the left side is" in found
    assert "a over (" in found


def test_the_same_seed_gives_the_same_tests():
    rule = load_axioms().rules[0]
    assert check_rule(rule, seed=3) == check_rule(rule, seed=3)


def test_there_is_an_axiom_for_every_way_an_operator_can_be_distributed():
    """Each operator passes through tiles and copies, so that no program is left unproved for it."""
    from prism.egraph.signature import Effect, operator_constructors  # noqa: PLC0415

    lefts = {str(rule.left) for rule in load_axioms().rules}
    for c in operator_constructors().values():
        if c.name == "Matmul":  # unfolded into Sum and Mul
            continue
        if c.effect is Effect.DROP_DATA:
            wanted = [f"({c.name} (Part x d p) k)", f"({c.name} (Repl x p) k)"]
        elif c.term_count == 1:
            wanted = [f"({c.name} (Part x d p))", f"({c.name} (Repl x p))"]
        else:
            wanted = [
                f"({c.name} {a} {b})"
                for a in ("(Part x d p)", "(Repl x p)")
                for b in ("(Part y d p)", "(Repl y p)")
            ]
        assert set(wanted) <= lefts, c.name
