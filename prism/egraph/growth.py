"""Looks for growth: rules under which an e-graph that saturated grows without end.

Two e-graphs count. Of a program's outputs under `algebra`, which the search walks: it must saturate
within the search's own limits, as it does without the new rules. And of a rule's own left side
under `parallel`, which runs on every graph until nothing changes. The rule to blame is the one
without which it saturates.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from prism.egraph.axioms import AxiomSet, DirectedRule
from prism.egraph.poison_terms import Terms
from prism.egraph.saturate import GENERATION_LIMITS, saturate
from prism.egraph.session import Limits, Session
from prism.egraph.signature import ALGEBRA, PAR_RULES
from prism.ir import Program

PARALLEL_LIMITS = Limits(nodes=1_000, iterations=40, seconds=3.0)
CHECK_LIMITS = replace(GENERATION_LIMITS, nodes=10_000, seconds=5.0)
"""Tighter than the search's: what comes near its limits is too large already."""


@dataclass(frozen=True, slots=True)
class Growth:
    """One e-graph with and without the rules in question. `rules`: those to blame, if any."""

    name: str
    nodes: int
    nodes_before: int
    iterations: int
    iterations_before: int
    is_complete: bool
    rules: tuple[str, ...] = ()


def growth_of(
    axioms: AxiomSet,
    suspects: Sequence[DirectedRule],
    programs: Mapping[str, Program],
    limits: Limits = CHECK_LIMITS,
) -> Iterator[Growth]:
    """The e-graph of each program, with the suspects and without; one to blame counts once."""
    own = [rule for rule in suspects if rule.ruleset == ALGEBRA]
    before = _without(axioms, own)
    for name, program in programs.items():
        old, new = saturate(program, before, limits), saturate(program, axioms, limits)
        culprits: tuple[str, ...] = ()
        if not new.complete and own:
            tight = replace(limits, nodes=min(limits.nodes, 5 * len(new.nodes)))
            culprits = _culprits(axioms, own, program, tight)
            gone = [rule for rule in own if rule.name in culprits]
            axioms, own = _without(axioms, gone), [rule for rule in own if rule not in gone]
        yield Growth(
            name,
            len(new.nodes),
            len(old.nodes),
            new.iterations,
            old.iterations,
            new.complete,
            culprits,
        )


def _culprits(
    axioms: AxiomSet, suspects: Sequence[DirectedRule], program: Program, limits: Limits
) -> tuple[str, ...]:
    """The suspects without one of which it saturates; else each that alone keeps it from that."""
    alone = tuple(
        rule.name
        for rule in suspects
        if saturate(program, _without(axioms, [rule]), limits).complete
    )
    if alone:
        return alone
    base = _without(axioms, suspects)
    return tuple(
        rule.name
        for rule in suspects
        if not saturate(program, replace(base, rules=(*base.rules, rule)), limits).complete
    )


def endless_rules(
    axioms: AxiomSet, suspects: Sequence[DirectedRule], limits: Limits = PARALLEL_LIMITS
) -> Iterator[tuple[DirectedRule, int | None]]:
    """For each parallel suspect the nodes reached if it is to blame that its terms never settle."""
    for rule in suspects:
        if rule.ruleset != PAR_RULES:
            continue
        count, is_settled = _settle(axioms, rule, limits)
        if is_settled or not _settle(_without(axioms, [rule]), rule, limits)[1]:
            yield rule, None
        else:
            yield rule, count


def _settle(axioms: AxiomSet, rule: DirectedRule, limits: Limits) -> tuple[int, bool]:
    """The nodes of the rule's generic terms under `parallel`, and whether nothing changes."""
    terms = Terms()
    roots = terms.generic(rule, random.Random(0))
    session = Session(axioms, {PAR_RULES}, terms.bank.heads | rule.needs)
    session.insert(terms.bank, tuple(enumerate(roots)))
    _, is_settled = session.settle_in_time(limits, PAR_RULES)
    return session.node_count(), is_settled


def _without(axioms: AxiomSet, rules: Iterable[DirectedRule]) -> AxiomSet:
    gone = {rule.text for rule in rules}
    return replace(axioms, rules=tuple(rule for rule in axioms.rules if rule.text not in gone))
