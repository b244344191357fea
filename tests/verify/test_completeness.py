"""Right candidates are proved or instances of known gaps (`completeness`); the gaps are gaps.

Counting fails with the first right candidate that is neither.
"""

from __future__ import annotations

from textwrap import dedent, indent

import pytest
from verify.completeness import (
    PROVED,
    SAMPLES,
    axioms,
    drawn,
    extended,
    fits,
    is_equal,
    judged_dags,
    judged_kernels,
    judged_plans,
)
from verify.known_gaps import GAPS
from verify.mutants_store import is_right

from prism import frontend as pr
from prism.ir import Program, SGraph, format_program, parse_sgraph
from prism.verify import Verdict, verify_programs

FEW = {
    "op DAGs": (judged_dags, range(20), 10),
    "op DAGs of others": (judged_dags, [50, 52, 55, 57, 59], 5),
    "kernels": (judged_kernels, [41, 44, 45, 47], 20),
    "kernels where gaps are": (judged_kernels, [26], 5),
    "pairs of kernels": (judged_plans, [26, 41, 44, 45, 50], 20),
}


@pytest.mark.parametrize("name", FEW)
def test_right_candidates_are_proved_or_known_gaps(name):
    judged, seeds, least = FEW[name]
    found = [judged(program) for program in drawn(seeds)]
    assert sum(counts[PROVED] for counts in found) >= least


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_nearly_all_are_proved(sample):
    found = sample.counts()
    assert found[PROVED] >= sample.least * found.total() > 20, found


# --- the gaps -----------------------------------------------------------------------------------


def traced(text: str) -> Program:
    """The program with this body."""
    names = {"pr": pr}
    body = f'def fn(x: "n d", y: "n d", s: "n", q: "k", w: "d h"):\n    return {text}\n'
    exec(body, names)
    return pr.trace(names["fn"])


def candidate_of(program: Program, text: str) -> Program | SGraph:
    if "load" not in text:
        return traced(text)
    kernel = indent(dedent(text).strip(), "  ")
    return parse_sgraph(f"sgraph\n{format_program(program)}kernel 0\n{kernel}\n")


def test_gaps_have_names_of_their_own():
    assert len({gap.name for gap in GAPS}) == len(GAPS)


@pytest.mark.parametrize("gap", GAPS, ids=lambda gap: gap.name)
def test_a_gap_is_one(gap):
    """Its example is right, and not proved without rules that are not among the axioms."""
    reference = traced(gap.example[0])
    candidate = candidate_of(reference, gap.example[1])
    if isinstance(candidate, SGraph):
        assert is_right(candidate)
        assert fits(candidate) is bool(gap.rules)
    else:
        assert is_equal(reference, candidate)
    now = verify_programs(reference, candidate, axioms()).verdict
    assert now is not Verdict.PROVED, "closed: take it out of known_gaps.GAPS"
    if gap.rules:
        assert verify_programs(reference, candidate, extended(gap)).verdict is Verdict.PROVED
