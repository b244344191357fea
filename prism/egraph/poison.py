"""Looks for poison: rules that together make different values equal.

Each rule may pass its own test and yet prove, with others, that -x = x or that 0 = 1: where an
operator has no meaning to test (a helper), or a test had a blind spot. So small e-graphs of generic
terms (inputs, constants, the rule's own left side over tiles, copies and whole values) run a few
iterations of everything, and each e-class is evaluated: two e-nodes of one class that differ on
random inputs are poison. The rules to blame are found by removal.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from prism.egraph.axioms import AxiomSet, DirectedRule
from prism.egraph.bank import TermId, TermNode, TermType
from prism.egraph.meaning import Array, Meaning
from prism.egraph.poison_terms import INPUTS, SIZES, Terms, generic_bank
from prism.egraph.session import Limits, Row, Session, Table
from prism.egraph.sides import check_contraction, dim_text
from prism.egraph.signature import ALGEBRA, ALGEBRA_VERIFY, PAR_RULES
from prism.errors import GraphError, SizeError

POISON_LIMITS = Limits(nodes=1_500, iterations=6, seconds=3.0, guarded=50_000)
MEETING_NODES = 4_000
"""So many more for the terms on which rules about one helper may meet."""
MOST_COMPANY = 8
"""Other rules about the same helper whose terms are put beside those of a rule."""


@dataclass(frozen=True, slots=True)
class Poison:
    """`claim`: what was proved and is false; `rules`: a smallest set of rules that proves it."""

    claim: str
    rules: tuple[str, ...]


def find_poison(
    axioms: AxiomSet, suspects: Sequence[DirectedRule], *, limits: Limits = POISON_LIMITS
) -> Iterator[tuple[DirectedRule, Poison | None]]:
    """For each suspect, the poison that shows on terms it applies to, if any.

    Rules found to blame are left out from there on; poison of the other axioms is not reported.
    """
    for rule in suspects:
        known = [s for s in suspects if s in axioms.rules]
        claim = _claim(axioms, rule, limits) if rule in known else None
        names = _smallest(axioms, rule, known, limits) if claim is not None else ()
        axioms = _only(axioms, [r for r in axioms.rules if r.name not in names])
        yield rule, Poison(claim, names) if claim is not None and names else None


def _smallest(
    axioms: AxiomSet, rule: DirectedRule, suspects: Sequence[DirectedRule], limits: Limits
) -> tuple[str, ...]:
    """Suspects of whom none can be left out if the terms of `rule` are to show poison.

    Empty if the poison is not theirs.
    """
    names = {s.text for s in suspects}
    others = [r for r in axioms.rules if r.text not in names]
    if _claim(_only(axioms, others), rule, limits) is not None:
        return ()
    kept = list(suspects)
    step = max(1, len(kept) // 2)
    while True:
        for start in range(0, len(kept), step):
            fewer = kept[:start] + kept[start + step :]
            if _claim(_only(axioms, [*others, *fewer]), rule, limits) is not None:
                kept = fewer
                break
        else:
            if step == 1:
                return tuple(r.name for r in kept)
            step = max(1, step // 2)


def _only(axioms: AxiomSet, rules: Iterable[DirectedRule]) -> AxiomSet:
    return replace(axioms, rules=tuple(rules))


def _claim(axioms: AxiomSet, rule: DirectedRule, limits: Limits) -> str | None:
    """Something false that the axioms prove about generic terms of a rule, or None."""
    helpers = {helper.name for helper in axioms.helpers}
    shared = helpers & (rule.needs | rule.makes)
    company = [r for r in axioms.rules if shared & (r.needs | r.makes) and r.name != rule.name]
    company = company[:MOST_COMPANY]
    for seed in range(2):
        terms = Terms()
        roots = terms.generic(rule, random.Random(seed))
        for other in company:
            roots += terms.plain(other)
        claim = _claim_about(axioms, rule, terms, roots, limits)
        if claim is not None:
            return claim
    if not shared:
        return None
    terms = Terms()
    roots = terms.meeting([rule, *company])
    more = replace(limits, nodes=limits.nodes + MEETING_NODES)
    return _claim_about(axioms, rule, terms, roots, more)


def _claim_about(
    axioms: AxiomSet, rule: DirectedRule, terms: Terms, roots: Sequence[TermId], limits: Limits
) -> str | None:
    """Something false that the axioms prove about these terms, or None."""
    heads = terms.bank.heads | rule.needs | {"Const", "Size"}
    session = Session(axioms, {PAR_RULES, ALGEBRA, ALGEBRA_VERIFY}, heads)
    session.insert(terms.bank, tuple(enumerate(roots)))
    session.settle_in_time(limits, PAR_RULES, ALGEBRA, ALGEBRA_VERIFY)
    return false_claim(session.table())


def false_claim(table: Table) -> str | None:
    """Two terms of one class whose values differ on random inputs, in words, or None."""
    reader = _Reader()
    todo = list(table.rows)
    while True:
        waiting: list[Row] = []
        for row in todo:
            if not all(child in reader.terms for child in row.children):
                waiting.append(row)
                continue
            claim = reader.read(row)
            if claim is not None:
                return claim
        if len(waiting) == len(todo):
            return None
        todo = waiting


class _Reader:
    """Evaluates e-nodes, the first of a class as its representative."""

    def __init__(self) -> None:
        self.bank = generic_bank()
        rng = np.random.default_rng(0)
        inputs: dict[str, Array] = {}
        self.meaning = Meaning(self.bank, SIZES, inputs)
        for name, dims in INPUTS.items():
            self.bank.input(name, [self.bank.dims[d] for d in dims])
            shape = self.meaning.shape(TermType(dict.fromkeys(dims, ()), frozenset()))
            inputs[name] = rng.uniform(0.3, 1.7, shape)
        self.terms: dict[int, TermId] = {}

    def read(self, row: Row) -> str | None:
        """Compute a row; the claim it makes if its class has another value."""
        try:
            children = tuple(self.terms[child] for child in row.children)
            if row.head == "Input":
                term = self.bank.input(
                    str(row.attributes[0]),
                    [self.bank.dims[d] for d in INPUTS[str(row.attributes[0])]],
                )
            else:
                check_contraction(self.bank, TermNode(row.head, children, row.attributes))
                term = self.bank.make(row.head, children, row.attributes)
            value = self.meaning.value(term)
        except (GraphError, SizeError, KeyError):
            return None  # a helper, or a term that only a rule's guard speaks about
        known = self.terms.setdefault(row.owner, term)
        if known == term or _agree(self.meaning.value(known), value):
            return None
        return f"{self.text(known)} = {self.text(term)}"

    def text(self, term: TermId) -> str:
        """A term as in an axiom file, named dimensions."""
        node = self.bank.node(term)
        if node.head in {"Input", "Const"}:
            return str(node.attributes[0])
        names = [dim_text(int(a)) for a in node.attributes]
        return f"({' '.join((node.head, *map(self.text, node.children), *names))})"


def _agree(a: Array, b: Array) -> bool:
    """Whether two values are equal wherever both are defined and not too large to tell."""
    try:
        a, b = np.broadcast_arrays(a, b)
    except ValueError:
        return False
    both = np.isfinite(a) & np.isfinite(b) & (np.abs(a) < 1e8) & (np.abs(b) < 1e8)
    return bool(np.allclose(a[both], b[both], rtol=1e-5, atol=1e-5))
