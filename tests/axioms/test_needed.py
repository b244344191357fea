"""Every shipped directed rule, but those in LEFT_OVER, fires in a proof that is lost without it."""

from __future__ import annotations

import pytest
from axioms.proofs import PROOFS, without

from prism.egraph import load_axioms

LEFT_OVER = {
    "exp-sub": "one step instead of three: sub-add, exp-add, exp-neg",
    "sum-comb": "every shipped operator brings tiles to the form that comb-part cancels",
    "max-over-comb": "the same for largest values",
}
"""Directed rules that no known proof needs, and what they are kept for."""


@pytest.mark.parametrize("proof", PROOFS, ids=lambda p: p.name)
def test_a_proof_is_lost_without_each_rule_it_needs(proof):
    axioms = load_axioms()
    assert proof.is_proved(axioms)
    assert proof.needs
    assert [name for name in proof.needs if proof.is_proved(without(axioms, name))] == []


def test_every_shipped_rule_is_needed_by_a_proof():
    needed = {name for proof in PROOFS for name in proof.needs}
    shipped = {rule.name for rule in load_axioms().rules}
    assert shipped - needed == LEFT_OVER.keys()
    assert len(needed & shipped) >= 110


def test_no_rule_is_named_that_does_not_exist():
    with pytest.raises(AssertionError, match="no rule 'mul-nothing'"):
        without(load_axioms(), "mul-nothing")
