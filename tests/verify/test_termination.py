"""The parallel rules end: on every small term, whatever is nested in what.

A term is made of two inputs by constructors of one operand, over two data and two parallel
dimensions, as deep as `DEPTH`; all that fit together are tried, in batches that are halved where
one does not settle, so that a term that grows for ever is named. Of terms of two operands some are
drawn. The algebra does not end: there no iteration is begun that would make too much.
"""

from __future__ import annotations

import dataclasses
import random

import pytest
from verify.mutants_store import load

from prism.egraph import PAR_RULES, Limits, Session, TermBank, load_axioms
from prism.egraph.bank import MAX_DATA_DIMS
from prism.egraph.session import noting
from prism.errors import GraphError
from prism.verify import Verdict, VerifyLimits, verify_graphs

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


OF_TWO = {"Add": (), "Mul": (), "Div": (), "Maximum": (), "Matmul": (0,)}
DRAWN = 600
"""Terms of two operands, each a term of depth two or less, under one constructor more."""


def drawn_pairs(bank, count, seed):
    """Terms of two operands by random, and what one more constructor makes of each."""
    rng = random.Random(seed)
    inner = small_terms(bank, 2)
    outer = [(head, a) for head, choices in ATTRIBUTES.items() for a in choices]
    found = []
    while len(found) < count:
        head = rng.choice(sorted(OF_TWO))
        try:
            pair = bank.make(head, (rng.choice(inner), rng.choice(inner)), OF_TWO[head])
            found.append(bank.make(*((over := rng.choice(outer))[0], (pair,), over[1])))
        except GraphError:
            continue  # it does not fit together
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 4))])
def test_terms_of_two_operands_settle(seed, axioms):
    bank = TermBank(("a", "b"), is_strict=False)
    terms = drawn_pairs(bank, DRAWN, seed)
    assert len(terms) > DRAWN / 2
    assert {bank.node(bank.node(t).children[0]).head for t in terms} == set(OF_TWO)
    for start in range(0, len(terms), BATCH // 4):
        assert endless(axioms, bank, terms[start : start + BATCH // 4]) == []


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


# --- one iteration of the algebra ---------------------------------------------------------------

EXPLOSIVE = (("lora", "6.1"), ("attention_paper", "8.1"), ("residual_rmsnorm", "4.2"))
"""Stored mutants of which a single iteration made more than 100,000 e-nodes of less than 8,000."""


@pytest.mark.parametrize(("family", "name"), EXPLOSIVE)
def test_an_iteration_that_would_explode_is_not_begun(family, name, axioms):
    (mutant,) = (m for m in load(family).mutants if m.name == name)
    limits = VerifyLimits()
    with noting() as noted:
        verdict = verify_graphs(mutant.graph.program, [mutant.graph], axioms, limits)
    assert verdict == (Verdict.GAVE_UP,)
    assert noted.nodes < 3 * limits.algebra_nodes
