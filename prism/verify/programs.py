"""Is this program (or sGraph) equal to that one, for all sizes? What `prism verify` answers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from prism.egraph import AxiomSet, GraphTerms, TermBank, build_program, declare_sizes
from prism.egraph.session import OutOfTimeError, deadline, noting
from prism.errors import GraphError
from prism.ir import Program, SGraph, check_program, check_sgraph
from prism.verdict import Verdict
from prism.verify.alignment import MismatchError, Pairing, named_alike, pairings
from prism.verify.counterexample import ATTEMPTS, Counterexample, find_counterexample
from prism.verify.equivalence import LIMITS, Judge, Terms, VerifyLimits
from prism.verify.hard_stop import TooLongError, within
from prism.verify.threads import ThreadProofs
from prism.verify.used import Prove, UsedAxioms, used_axioms

_REFUTED = (
    "the axioms lead from one to the other, but random inputs show a difference: an axiom may be "
    "unsound"
)
_OPEN = (
    f"{ATTEMPTS} draws of sizes and inputs, and small ones without rounding, show no difference "
    "either: the axioms may be too weak; give the equation that is missing as a rule, with "
    "--axioms FILE.egg"
)
REFUTED_S = 0.3
"""How long to look for a proof of what numbers without rounding refute: to blame the axioms."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict, with what shows it: the axioms of a proof or a counterexample.

    `reason` is what is to be said about it.
    """

    verdict: Verdict
    counterexample: Counterexample | None = None
    reason: str = ""
    used: UsedAxioms | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the axioms say. `ask` asks the question that was answered, of other axioms."""

    verdict: Verdict
    reason: str = ""
    ask: Prove | None = None


def verify_programs(  # noqa: PLR0913 - three of them are switches
    reference: Program,
    candidate: Program | SGraph,
    axioms: AxiomSet,
    limits: VerifyLimits = LIMITS,
    *,
    seed: int = 0,
    explain_s: float = 0.0,
    hard_stop_s: float | None = None,
) -> Verification:
    """Whether `candidate` computes `reference` for all sizes.

    Arguments pair up by position, dimensions by the axes of the arguments; names do not matter.
    Whatever the axioms say is tried on random inputs too: a proof that a number refutes is none.
    `explain_s`: how long to look for the fewest axioms that prove it; not at all if 0.
    `hard_stop_s`: when the answer is no longer waited for, and given up; it is then worked out in a
    thread of its own. None: here, for as long as one iteration of the e-graph may take.

    Raises:
        GraphError: the candidate is no well-formed program or sGraph.
    """

    def verify() -> Verification:
        return _verified(reference, candidate, axioms, limits, seed, explain_s)

    if hard_stop_s is None:
        return verify()
    try:
        return within(hard_stop_s, verify)
    except TooLongError:
        reason = f"the e-graph had not answered after {hard_stop_s:g} s"
        return Verification(Verdict.GAVE_UP, None, reason)


def _verified(  # noqa: PLR0913, PLR0917 - those of `verify_programs`
    reference: Program,
    candidate: Program | SGraph,
    axioms: AxiomSet,
    limits: VerifyLimits,
    seed: int,
    explain_s: float,
) -> Verification:
    """The same, however long it takes."""
    if isinstance(candidate, SGraph):
        check_sgraph(candidate)
    else:
        check_program(candidate)
    apart = _told_apart(reference, candidate)
    try:
        next(_ways(*apart), None)
    except MismatchError as error:
        return Verification(Verdict.NOT_PROVED, None, f"{error}: they are different functions")
    sure = find_counterexample(reference, candidate, seed=seed, is_proved=True)
    is_refuted = sure is not None and sure.is_exact
    with noting() as noted, deadline(time.monotonic() + REFUTED_S if is_refuted else math.inf):
        try:
            answer = _answer(*apart, axioms, limits)
        except OutOfTimeError:
            answer = _Answer(Verdict.NOT_PROVED)
    if answer.verdict is not Verdict.PROVED:
        return _unproved(answer, sure or find_counterexample(reference, candidate, seed=seed))
    if sure is not None:
        return Verification(Verdict.NOT_PROVED, sure, _REFUTED)
    if not explain_s or answer.ask is None:
        return Verification(answer.verdict)
    used = used_axioms(answer.ask, axioms, noted, seconds=explain_s)
    return Verification(answer.verdict, used=used)


def _unproved(answer: _Answer, found: Counterexample | None) -> Verification:
    if found is not None:
        return Verification(Verdict.NOT_PROVED, found, answer.reason)
    return Verification(answer.verdict, None, f"{answer.reason}; {_OPEN}")


def _answer(
    reference: Program, candidate: Program | SGraph, axioms: AxiomSet, limits: VerifyLimits
) -> _Answer:
    """The verdict of the axioms, on the programs as they are or with fewer names."""
    answer = _prove(reference, candidate, axioms, limits)
    if answer.verdict is not Verdict.PROVED:
        alike = _named_alike(reference, candidate)
        other = None if alike is None else _prove(*alike, axioms, limits)
        if other is not None and other.verdict is Verdict.PROVED:
            answer = other
    if not isinstance(candidate, SGraph) or answer.verdict is not Verdict.PROVED:
        return answer
    (fault,) = ThreadProofs(axioms).faults([candidate])
    if fault is not None:
        return _Answer(Verdict.NOT_PROVED, fault)
    whole = answer.ask
    assert whole is not None

    def ask(fewer: AxiomSet, nodes: int) -> Verdict:
        verdict = whole(fewer, nodes)
        if verdict is Verdict.PROVED and ThreadProofs(fewer).faults([candidate])[0] is not None:
            return Verdict.NOT_PROVED
        return verdict

    return _Answer(Verdict.PROVED, ask=ask)


def _told_apart(
    reference: Program, candidate: Program | SGraph
) -> tuple[Program, Program | SGraph]:
    """Both under names that tell which is which in a message."""
    program = candidate.program if isinstance(candidate, SGraph) else candidate
    if reference.name != program.name:
        return reference, candidate
    renamed = replace(program, name=f"{program.name} (candidate)")
    other = replace(candidate, program=renamed) if isinstance(candidate, SGraph) else renamed
    return replace(reference, name=f"{reference.name} (reference)"), other


def _named_alike(
    reference: Program, candidate: Program | SGraph
) -> tuple[Program, Program | SGraph] | None:
    """Both with fewer names for reduced dimensions (a graph keeps its own), or None if the same."""
    renamed = candidate if isinstance(candidate, SGraph) else named_alike(candidate)
    alike = (named_alike(reference), renamed)
    return None if alike == (reference, candidate) else alike


def _ways(reference: Program, candidate: Program | SGraph) -> Iterator[Pairing]:
    """The ways to line the two up; a graph's own names stay."""
    if isinstance(candidate, SGraph):
        return pairings(candidate.program, reference, is_exact=True)
    return pairings(reference, candidate)


def _prove(
    reference: Program, candidate: Program | SGraph, axioms: AxiomSet, limits: VerifyLimits
) -> _Answer:
    """The verdict of the axioms and why it is not PROVED."""
    base = candidate.program if isinstance(candidate, SGraph) else reference
    ways = list(_ways(reference, candidate))
    if not ways:
        return _Answer(Verdict.GAVE_UP, "the dimensions of the two cannot be lined up")
    bank = TermBank(d.name for d in (*base.dims, *ways[0].dims))
    declare_sizes(bank, (*base.dims, *ways[0].dims))
    try:
        fixed = (
            GraphTerms(bank, base).build(candidate.kernels)
            if isinstance(candidate, SGraph)
            else build_program(bank, reference)
        )
    except GraphError as error:
        return _Answer(Verdict.NOT_PROVED, str(error))
    others: dict[int, Terms] = {i: build_program(bank, way.program) for i, way in enumerate(ways)}
    judge = Judge(bank, fixed, axioms, limits)
    verdicts = judge.verdicts(others)
    for i, verdict in verdicts.items():
        if verdict is Verdict.PROVED:
            return _Answer(verdict, ask=_asking(bank, fixed, others[i], limits))
    if Verdict.GAVE_UP in verdicts.values():
        reason = f"the limit of {judge.reached} was reached before the axioms were exhausted"
        return _Answer(Verdict.GAVE_UP, reason)
    return _Answer(Verdict.NOT_PROVED, "no chain of axioms leads from one to the other")


def _asking(bank: TermBank, fixed: Terms, other: Terms, limits: VerifyLimits) -> Prove:
    """Asks whether these terms are equal."""

    def ask(axioms: AxiomSet, nodes: int) -> Verdict:
        own = replace(
            limits, algebra_nodes=min(nodes or limits.algebra_nodes, limits.algebra_nodes)
        )
        return Judge(bank, fixed, axioms, own).verdicts({0: other})[0]

    return ask
