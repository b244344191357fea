"""Which axioms a proof needs: a set that suffices and, given time, none of it can be left out."""

from __future__ import annotations

import pytest
from verify.pairs_of_programs import PAIRS
from verify.table import CASES, PROGRAMS

from prism.egraph import load_axioms
from prism.verify import Verdict, only, verify_programs

NAMES = ("softmax-unsafe", "lora", "rmsnorm-scale-moved", "log-softmax", "matmul-chain")
SOME = [pair for pair in PAIRS if pair.name in NAMES]


def ask(pair, axioms, explain_s=0.0):
    sides = pair.program("reference"), pair.program("candidate")
    return verify_programs(*sides, axioms, explain_s=explain_s)


@pytest.mark.parametrize("pair", SOME, ids=lambda pair: pair.name)
def test_without_any_axiom_of_a_minimal_set_there_is_no_proof(pair):
    axioms = load_axioms()
    used = ask(pair, axioms, explain_s=100.0).used
    assert used.is_minimal
    assert used.axioms
    for axiom in used.axioms:
        fewer = only(axioms, [other for other in used.axioms if other is not axiom])
        assert ask(pair, fewer).verdict is not Verdict.PROVED, axiom.name


def test_the_same_question_names_the_same_axioms():
    (pair,) = (pair for pair in SOME if pair.name == "lora")
    one, two = (ask(pair, load_axioms(), explain_s=100.0).used for _ in range(2))
    assert one == two


def test_out_of_time_the_set_still_suffices():
    (pair,) = (pair for pair in SOME if pair.name == "rmsnorm-scale-moved")
    axioms = load_axioms()
    used = ask(pair, axioms, explain_s=1e-9).used
    assert not used.is_minimal
    assert ask(pair, only(axioms, used.axioms)).verdict is Verdict.PROVED


def test_a_program_equals_itself_without_axioms():
    used = ask(SOME[0], load_axioms(), explain_s=100.0).used
    same = verify_programs(
        SOME[0].program("reference"),
        SOME[0].program("reference"),
        load_axioms(),
        explain_s=100.0,
    ).used
    assert used.axioms
    assert same.axioms == ()
    assert same.is_minimal


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.is_right][:3], ids=lambda c: c.name
)
def test_the_axioms_of_a_graph_prove_it(case):
    program, axioms = PROGRAMS[case.program], load_axioms()
    used = verify_programs(program, case.graph, axioms, explain_s=100.0).used
    assert "part" in "".join(axiom.name for axiom in used.axioms)
    fewer = only(axioms, used.axioms)
    assert verify_programs(program, case.graph, fewer).verdict is Verdict.PROVED
