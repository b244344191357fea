"""Verification: is this sGraph, or this other program, equal to the program for all sizes?"""

from __future__ import annotations

from prism.verdict import Verdict
from prism.verify.admission import Admission, Guess
from prism.verify.counterexample import Counterexample, InputValues, find_counterexample
from prism.verify.equivalence import Block, Verifier, VerifyLimits, in_blocks, verify_graphs
from prism.verify.lemmas import Lemmas, Step
from prism.verify.parallel import ParallelVerifier, core_count
from prism.verify.programs import Verification, verify_programs
from prism.verify.threads import ThreadClaim, ThreadProofs, claim_of
from prism.verify.used import EXPLAIN_S, UsedAxioms, only, used_axioms

__all__ = [
    "EXPLAIN_S",
    "Admission",
    "Block",
    "Counterexample",
    "Guess",
    "InputValues",
    "Lemmas",
    "ParallelVerifier",
    "Step",
    "ThreadClaim",
    "ThreadProofs",
    "UsedAxioms",
    "Verdict",
    "Verification",
    "Verifier",
    "VerifyLimits",
    "claim_of",
    "core_count",
    "find_counterexample",
    "in_blocks",
    "only",
    "used_axioms",
    "verify_graphs",
    "verify_programs",
]
