"""A candidate whose terms grow for ever costs itself its proof, and no other."""

from __future__ import annotations

import math

import pytest

from prism.egraph import AxiomFile, TermBank, load_axioms, make_axiom_set
from prism.egraph.bank import MAX_DATA_DIMS
from prism.verdict import Verdict
from prism.verify import equivalence
from prism.verify.equivalence import Judge, VerifyLimits
from prism.verify.pairs import PairJudge

P = MAX_DATA_DIMS
ENDLESS = AxiomFile(
    "endless.egg",
    "(rewrite (Repl (Abs x) p) (Repl (Abs (Abs (Neg x))) p) :ruleset parallel"
    ' :name "abs-and-so-on")',
)
COUNT, CULPRIT = 40, 17


@pytest.fixture(scope="module")
def axioms():
    return make_axiom_set((*load_axioms().files, ENDLESS))


def copies(bank, head):
    """An operator of a copy: equal to the operator, if the copy is looked through."""
    x = bank.input("x", ("a",))
    copy = bank.make("Repl", (bank.make(head, (x,)),), (P,))
    return bank.make("Pick", (copy,), (P,))


def candidates(bank):
    """Different right candidates for exp(x), and in their midst one that never settles."""
    x = bank.input("x", ("a",))
    out = []
    for n in range(COUNT):
        wanted = bank.make("Exp", (x,))
        for _ in range(n % 7):
            wanted = bank.make(
                "Pick", (bank.make("Repl", (wanted,), (P + 1 + n // 7,)),), (P + 1 + n // 7,)
            )
        out.append((wanted,))
    out[CULPRIT] = (copies(bank, "Abs"),)
    return out


class Counted(equivalence.Session):
    made = 0

    def __init__(self, *args):
        type(self).made += 1
        super().__init__(*args)


def test_one_of_forty_gives_up_and_the_others_are_proved(axioms, monkeypatch):
    monkeypatch.setattr(equivalence, "Session", Counted)
    Counted.made = 0
    bank = TermBank(("a",))
    asked = candidates(bank)
    target = (bank.make("Exp", (bank.input("x", ("a",)),)),)
    judge = Judge(bank, target, axioms, VerifyLimits(parallel_nodes=100))
    found = judge.verdicts(dict(enumerate(asked)))
    assert [i for i, v in found.items() if v is not Verdict.PROVED] == [CULPRIT]
    assert found[CULPRIT] is Verdict.GAVE_UP
    assert Counted.made <= 2 * math.ceil(math.log2(COUNT)) + 2  # halved until it is alone
    assert judge.late == 0


def test_a_verdict_that_the_clock_ended_is_counted_as_such(axioms):
    bank = TermBank(("a",))
    asked = candidates(bank)[CULPRIT]
    target = (bank.make("Exp", (bank.input("x", ("a",)),)),)
    judge = Judge(bank, target, axioms, VerifyLimits(seconds=0.0))
    assert judge.verdicts({0: asked}) == {0: Verdict.GAVE_UP}
    assert judge.late == 1


def test_terms_that_grow_for_ever_cost_no_other_pair_its_proof(axioms, monkeypatch):
    monkeypatch.setattr("prism.verify.pairs.NODES_PER_PAIR", 30)
    bank = TermBank(("a",))
    x = bank.input("x", ("a",))
    pairs = {n: (terms[0], bank.make("Exp", (x,))) for n, terms in enumerate(candidates(bank))}
    pairs[CULPRIT] = (copies(bank, "Abs"), bank.make("Sqrt", (x,)))
    judge = PairJudge(bank, axioms)
    found = judge.equal(pairs)
    assert [n for n, is_equal in found.items() if not is_equal] == [CULPRIT]
    later = {0: (copies(bank, "Exp"), bank.make("Exp", (x,)))}
    assert judge.equal(later) == {0: True}
