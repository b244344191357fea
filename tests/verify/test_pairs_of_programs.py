"""Verdicts on the table of pairs; proofs hold by the axioms named, counterexamples by NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from verify.pairs_of_programs import PAIRS

from prism.egraph import load_axioms
from prism.ir import evaluate
from prism.verify import Verdict, only, verify_programs

EXPLAIN_S = 0.5


def answer(pair):
    sides = pair.program("reference"), pair.program("candidate")
    return verify_programs(*sides, load_axioms(), explain_s=EXPLAIN_S)


def pairs(*expected):
    return pytest.mark.parametrize(
        "pair", [pair for pair in PAIRS if pair.expected in expected], ids=lambda pair: pair.name
    )


def test_names_are_unique():
    assert len({pair.name for pair in PAIRS}) == len(PAIRS) >= 40


@pairs("proved")
def test_a_proof_needs_no_axiom_but_those_named(pair):
    found = answer(pair)
    assert found.verdict is Verdict.PROVED, found.reason
    assert found.counterexample is None
    again = verify_programs(
        pair.program("reference"),
        pair.program("candidate"),
        only(load_axioms(), found.used.axioms),
    )
    assert again.verdict is Verdict.PROVED


@pairs("refuted")
def test_a_counterexample_can_be_pasted(pair):
    found = answer(pair)
    assert found.verdict is Verdict.NOT_PROVED
    shown = found.counterexample
    assert shown is not None, found.reason
    names = {"np": np}
    for line in shown.inputs:
        exec(str(line), names)
    arrays = {values.name: names[values.name] for values in shown.inputs}
    for side, value in (("reference", shown.reference), ("candidate", shown.candidate)):
        outputs = evaluate(pair.program(side), arrays)
        assert outputs[shown.output][shown.entry] == pytest.approx(value, rel=1e-9, abs=1e-12)
    assert shown.reference != shown.candidate


@pairs("open")
def test_what_is_open_has_no_counterexample(pair):
    found = answer(pair)
    assert found.counterexample is None
    assert found.verdict is Verdict.PROVED or "--axioms FILE.egg" in found.reason


@pairs("refuted")
def test_a_counterexample_is_small(pair):
    shown = answer(pair).counterexample
    assert max(shown.sizes.values(), default=1) <= 2
    assert sum(np.prod(values.shape) for values in shown.inputs) <= 16
