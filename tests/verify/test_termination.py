"""The parallel rules end: on every small term, whatever is nested in what.

A term is made of two inputs by constructors of one operand, over two data and two parallel
dimensions, as deep as `DEPTH`; all that fit together are tried, in batches that are halved where
one does not settle, so that a term that grows for ever is named.
"""

from __future__ import annotations

import dataclasses

import pytest

from prism.egraph import PAR_RULES, Limits, Session, TermBank, load_axioms
from prism.egraph.bank import MAX_DATA_DIMS
from prism.errors import GraphError

DEPTH = 3
PARS = (MAX_DATA_DIMS, MAX_DATA_DIMS + 1)
OF_A_PAR = ("Repl", "Red", "RedMax", "Pick", "Scale", "Unscale")
NODES_PER_TERM, ITERATIONS, BATCH = 200, 25, 500

ATTRIBUTES = {
    **{head: [(p,) for p in PARS] for head in OF_A_PAR},
    "Part": [(0, p) for p in PARS],
    "Comb": [(0, p) for p in PARS],
    "Stack": [(1, p) for p in PARS],
    "Sum": [(0,)],
    "Recip": [()],
}


def small_terms(bank, depth):
    """Every term so deep over the two inputs."""
    terms = [bank.input("x", ("a", "b")), bank.input("y", ("a",))]
    last = terms
    for _ in range(depth):
        made = []
        for term in last:
            for head, choices in ATTRIBUTES.items():
                for attributes in choices:
                    try:
                        made.append(bank.make(head, (term,), attributes))
                    except GraphError:
                        continue  # it does not fit together
        last = list(dict.fromkeys(made))
        terms = [*terms, *last]
    return terms


def endless(axioms, bank, terms):
    """The terms that reach a limit."""
    session = Session(axioms, {PAR_RULES}, bank.heads)
    session.insert(bank, list(enumerate(terms)))
    most = session.node_count() + NODES_PER_TERM * len(terms)
    if session.settle(Limits(most, ITERATIONS, 60.0), PAR_RULES):
        return []
    if len(terms) == 1:
        return [bank.text(terms[0])]
    middle = len(terms) // 2
    return [*endless(axioms, bank, terms[:middle]), *endless(axioms, bank, terms[middle:])]


@pytest.fixture(scope="module")
def axioms():
    return load_axioms()


def test_every_small_term_settles(axioms):
    bank = TermBank(("a", "b"), is_strict=False)
    terms = small_terms(bank, DEPTH)
    assert len(terms) > 2_000
    for start in range(0, len(terms), BATCH):
        assert endless(axioms, bank, terms[start : start + BATCH]) == []


@pytest.mark.parametrize("outer", ["Unscale", "Scale"])
def test_a_sum_of_copies_divided_by_their_number_is_the_value(axioms, outer):
    """It grew by five nodes an iteration for ever."""
    bank = TermBank(("a",))
    x = bank.input("x", ("a",))
    (p,) = PARS[:1]
    inner = x if outer == "Unscale" else bank.make("Unscale", (x,), (p,))
    copies = bank.make("Red", (bank.make("Repl", (inner,), (p,)),), (p,))
    term = bank.make("Unscale", (copies,), (p,)) if outer == "Unscale" else copies
    session = Session(axioms, {PAR_RULES}, bank.heads)
    session.insert(bank, [(0, x), (1, term)])
    assert session.settle(Limits(100, ITERATIONS, 60.0), PAR_RULES)
    classes = session.roots()
    assert classes[0] == classes[1]


def test_the_search_for_endless_terms_finds_the_known_one(axioms):
    """Without the condition that cured it, the copies of a quotient never end."""
    rules = tuple(
        dataclasses.replace(rule, text=rule.text.replace("(!= p q)", "(= 1 1)"))
        if rule.name in {"repl-scale", "repl-unscale"}
        else rule
        for rule in axioms.rules
    )
    bank = TermBank(("a",))
    x = bank.input("x", ("a",))
    p = PARS[:1]
    copies = bank.make("Red", (bank.make("Repl", (x,), p),), p)
    terms = [x, bank.make("Unscale", (copies,), p)]
    grown = endless(dataclasses.replace(axioms, rules=rules), bank, terms)
    assert grown == [bank.text(terms[1])]
