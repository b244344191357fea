"""Is this program (or sGraph) equal to that one, for all sizes? What `prism verify` answers."""

from __future__ import annotations

from dataclasses import dataclass

from prism.egraph import AxiomSet, GraphTerms, TermBank, build_program, declare_sizes
from prism.errors import GraphError
from prism.ir import Program, SGraph, check_program, check_sgraph
from prism.verdict import Verdict
from prism.verify.alignment import MismatchError, named_alike, pairings
from prism.verify.counterexample import find_counterexample
from prism.verify.equivalence import LIMITS, Judge, Terms, VerifyLimits
from prism.verify.threads import ThreadProofs

_REFUTED = (
    "the axioms lead from one to the other, but random inputs show a difference: an axiom may be "
    "unsound"
)


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict; a counterexample if random inputs showed one; what is to be said about it."""

    verdict: Verdict
    counterexample: str | None = None
    reason: str = ""


def verify_programs(
    reference: Program,
    candidate: Program | SGraph,
    axioms: AxiomSet,
    limits: VerifyLimits = LIMITS,
    *,
    seed: int = 0,
) -> Verification:
    """Whether `candidate` computes `reference` for all sizes.

    Arguments pair up by position, dimensions by the axes of the arguments; names do not matter.
    Whatever the axioms say is tried on random inputs too: a proof that a number refutes is none.

    Raises:
        GraphError: the candidate is no well-formed program or sGraph.
    """
    if isinstance(candidate, SGraph):
        check_sgraph(candidate)
    else:
        check_program(candidate)
    try:
        verdict, reason = _prove(reference, candidate, axioms, limits)
        if verdict is not Verdict.PROVED:
            alike = _named_alike(reference, candidate)
            if alike is not None and _prove(*alike, axioms, limits)[0] is Verdict.PROVED:
                verdict = Verdict.PROVED
    except MismatchError as error:
        return Verification(Verdict.NOT_PROVED, None, f"{error}: they are different functions")
    if verdict is Verdict.PROVED and isinstance(candidate, SGraph):
        (fault,) = ThreadProofs(axioms).faults([candidate])
        if fault is not None:
            return Verification(Verdict.NOT_PROVED, None, fault)
    if verdict is Verdict.PROVED:
        found = find_counterexample(reference, candidate, seed=seed, is_proved=True)
        if found is None:
            return Verification(verdict)
        return Verification(Verdict.NOT_PROVED, str(found), _REFUTED)
    found = find_counterexample(reference, candidate, seed=seed)
    if found is not None:
        return Verification(Verdict.NOT_PROVED, str(found), reason)
    return Verification(
        verdict, None, f"{reason}; random inputs show no difference: the axioms may be too weak"
    )


def _named_alike(
    reference: Program, candidate: Program | SGraph
) -> tuple[Program, Program | SGraph] | None:
    """Both with fewer names for reduced dimensions (a graph keeps its own), or None if the same."""
    renamed = candidate if isinstance(candidate, SGraph) else named_alike(candidate)
    alike = (named_alike(reference), renamed)
    return None if alike == (reference, candidate) else alike


def _prove(
    reference: Program, candidate: Program | SGraph, axioms: AxiomSet, limits: VerifyLimits
) -> tuple[Verdict, str]:
    """The verdict of the axioms and why it is not PROVED."""
    is_graph = isinstance(candidate, SGraph)
    base = candidate.program if isinstance(candidate, SGraph) else reference
    other = reference if is_graph else candidate
    assert isinstance(other, Program)
    ways = list(pairings(base, other, is_exact=is_graph))
    if not ways:
        return Verdict.GAVE_UP, "the dimensions of the two cannot be lined up"
    bank = TermBank(d.name for d in (*base.dims, *ways[0].dims))
    declare_sizes(bank, (*base.dims, *ways[0].dims))
    try:
        fixed = (
            GraphTerms(bank, base).build(candidate.kernels)
            if isinstance(candidate, SGraph)
            else build_program(bank, reference)
        )
    except GraphError as error:
        return Verdict.NOT_PROVED, str(error)
    others: dict[int, Terms] = {i: build_program(bank, way.program) for i, way in enumerate(ways)}
    verdicts = Judge(bank, fixed, axioms, limits).verdicts(others).values()
    if Verdict.PROVED in verdicts:
        return Verdict.PROVED, ""
    if Verdict.GAVE_UP in verdicts:
        return Verdict.GAVE_UP, "a limit was reached before the axioms were exhausted"
    return Verdict.NOT_PROVED, "no chain of axioms leads from one to the other"
