"""Which axioms a proof needs: a smallest set, found by leaving rules out.

egglog keeps no proof that could be read, but it reports which rules matched. Among these, whole
families are left out first, then halves of them, then single axioms; each time the question is
proved anew, in e-graphs that know the axioms left and no others. So the set that is found is a
second proof. It is minimal when no axiom of it can be left out; not the only such set.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from prism.egraph import Axiom, AxiomSet
from prism.egraph.session import Noted, OutOfTimeError, deadline, noting, seconds_left
from prism.verdict import Verdict

EXPLAIN_S = 0.6
"""How long to look for a smaller set where an answer is wanted at once."""
SPARE, LEAST_NODES = 2, 200
"""How many times the e-nodes of the proof before it a shorter one may take; never fewer than so."""

Prove = Callable[[AxiomSet, int], Verdict]
"""Asks the question anew under some axioms, with at most so many e-nodes (0: as many as ever)."""


@dataclass(frozen=True, slots=True)
class UsedAxioms:
    """Axioms that suffice for a proof; `is_minimal`: without any of them there was none."""

    axioms: tuple[Axiom, ...]
    is_minimal: bool


def used_axioms(
    prove: Prove, axioms: AxiomSet, noted: Noted, *, seconds: float = EXPLAIN_S
) -> UsedAxioms:
    """The axioms that a proof needs of those whose rules matched in it.

    When time is over, what is left is only what sufficed so far: then it may not be minimal.
    """
    search = _Removal(prove, axioms, _matched(axioms, noted), noted.nodes)
    with deadline(time.monotonic() + seconds):
        try:
            is_minimal = search.run()
        except OutOfTimeError:
            is_minimal = False
    return UsedAxioms(tuple(search.kept), is_minimal)


def only(axioms: AxiomSet, kept: Sequence[Axiom]) -> AxiomSet:
    """The set with these axioms alone."""
    names = {axiom.name for axiom in kept}
    rules = tuple(rule for rule in axioms.rules if rule.axiom.name in names)
    return replace(axioms, axioms=tuple(kept), rules=rules)


def _matched(axioms: AxiomSet, noted: Noted) -> list[Axiom]:
    names = {rule.axiom.name for rule in axioms.rules if rule.name in noted.rules}
    return [axiom for axiom in axioms.axioms if axiom.name in names]


@dataclass(slots=True)
class _Removal:
    prove: Prove
    axioms: AxiomSet
    kept: list[Axiom]
    """Suffice, as far as is known."""
    nodes: int
    """How many e-nodes the proof took."""
    lacking: list[frozenset[str]] = field(default_factory=list)
    """Sets that do not suffice, and no part of them does."""
    doubtful: list[Axiom] = field(default_factory=list)
    """Without one of these a limit was reached."""

    def run(self) -> bool:
        """Leave out what can be left out; whether nothing more can be."""
        if self._ask(self.kept, 0) is not Verdict.PROVED:
            return False  # a limit that other axioms had kept away
        of_family = Counter(axiom.family for axiom in self.kept)
        # small ones first: without them the others are asked about faster
        for family in sorted(of_family, key=of_family.__getitem__):
            self._leave_out([axiom for axiom in self.kept if axiom.family == family])
        while self.doubtful:  # with more room, and fewer other axioms
            axiom = self.doubtful.pop()
            if axiom in self.kept:
                self._ask(self._without([axiom]), 0)
        return True

    def _leave_out(self, group: Sequence[Axiom]) -> None:
        """Leave out as much of a group as can be."""
        fewer = self._without(group)
        if len(fewer) == len(self.kept):
            return
        verdict = self._ask(fewer, max(LEAST_NODES, SPARE * self.nodes))
        if verdict is Verdict.PROVED:
            return
        if len(group) > 1:
            middle = len(group) // 2
            self._leave_out(group[:middle])
            self._leave_out(group[middle:])
        elif verdict is Verdict.GAVE_UP:
            self.doubtful += group

    def _without(self, group: Sequence[Axiom]) -> list[Axiom]:
        names = {axiom.name for axiom in group}
        return [axiom for axiom in self.kept if axiom.name not in names]

    def _ask(self, fewer: Sequence[Axiom], nodes: int) -> Verdict:
        """Whether there is a proof by these axioms; then those that match in it are kept."""
        names = frozenset(axiom.name for axiom in fewer)
        if any(names <= known for known in self.lacking):
            return Verdict.NOT_PROVED
        if seconds_left() <= 0:
            raise OutOfTimeError("no time to leave out more axioms")
        with noting() as noted:
            verdict = self.prove(only(self.axioms, fewer), nodes)
        if verdict is Verdict.PROVED:
            matched = {axiom.name for axiom in _matched(self.axioms, noted)}
            self.kept = [axiom for axiom in fewer if axiom.name in matched]
            self.nodes = noted.nodes
        elif verdict is Verdict.NOT_PROVED:
            self.lacking.append(names)
        return verdict
