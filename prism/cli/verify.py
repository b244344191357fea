"""`prism verify REF CAND`: is the candidate equal to the reference, for all sizes?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from prism.artifact import load_artifact
from prism.cli.answer import Answer, Status
from prism.cli.inputs import find_graph
from prism.cli.params import axiom_specs
from prism.cli.run import Run, answering
from prism.egraph.soundness import load_sound, own_files
from prism.errors import ParseError
from prism.files import MAX_TEXT_BYTES, read_regular_text
from prism.frontend import load_program
from prism.ir import Program, SGraph, parse_sgraph
from prism.verdict import Verdict
from prism.verify import EXPLAIN_S, Counterexample, UsedAxioms, VerifyLimits, verify_programs

HARD_STOP_S = 120.0
"""When an answer is no longer waited for. Between iterations of an e-graph other limits hold."""

STATUS = {
    Verdict.PROVED: Status.YES,
    Verdict.ADMITTED: Status.YES,
    Verdict.NOT_PROVED: Status.NO,
    Verdict.GAVE_UP: Status.GAVE_UP,
}

LONG_EXPLAIN_S = 20.0
"""How long to look for the fewest axioms of a proof where they are asked for."""


@click.command("verify")
@click.argument("reference", metavar="REF")
@click.argument("candidate", metavar="CAND")
@click.option(
    "--axioms",
    multiple=True,
    callback=axiom_specs,
    metavar="NAME|FILE.egg",
    help="Axioms to prove with; repeatable. Files are added to the set `prism`.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Show the axioms of a proof, not only their names, and take time to find the fewest.",
)
@click.option(
    "--patience",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=1,
    show_default=True,
    help="Multiply the limits of the e-graph (e-nodes, iterations, seconds), after `gave up`.",
)
@answering("verify")
def command(  # noqa: PLR0913 - an option each
    run: Run,
    reference: str,
    candidate: str,
    axioms: tuple[str, ...],
    *,
    explain: bool,
    patience: int,
) -> Answer:
    """Does CAND compute the same as REF for all sizes?

    REF is a workload's name or FILE.py:FUNCTION; CAND is one too, or a saved graph: ART.json:ID, or
    a file FILE.sgraph with what `prism show ART.json --graph ID` prints. A proof is given with the
    axioms it needs, a difference with small inputs that show it. Exit status 0: proved; 1: not
    proved; 3: gave up at a limit.
    """
    # first: programs may call the operators that they define
    axiom_set = load_sound(axioms, seed=run.seed)
    _, wanted = load_program(reference)
    given = load_candidate(candidate)
    own = own_files(axiom_set, axioms)
    explain_s = LONG_EXPLAIN_S if explain else EXPLAIN_S
    answer = verify_programs(
        wanted,
        given,
        axiom_set,
        VerifyLimits().times(patience),
        seed=run.seed,
        explain_s=explain_s,
        hard_stop_s=patience * HARD_STOP_S,
    )
    verdict = answer.verdict.value
    used = None if answer.used is None else answer.used.axioms
    return Answer(
        {
            "reference": reference,
            "candidate": candidate,
            "verdict": verdict,
            "axioms_used": None if used is None else [axiom.name for axiom in used],
            "axioms_used_minimal": None if answer.used is None else answer.used.is_minimal,
            "axiom_files": [file.name for file in axiom_set.files],
            "own_axioms": [file.name for file in own],
            "axioms_fingerprint": axiom_set.fingerprint,
            "counterexample": _counterexample_fields(answer.counterexample),
            "reason": answer.reason,
        },
        [
            f"{verdict}: {candidate} = {reference}",
            *([f"with the axioms of {', '.join(file.name for file in own)}"] if own else []),
            *([] if answer.used is None else _used_lines(answer.used, is_long=explain)),
            *([answer.reason] if answer.reason else []),
            *_counterexample_lines(answer.counterexample),
        ],
        STATUS[answer.verdict],
    )


def _used_lines(used: UsedAxioms, *, is_long: bool) -> list[str]:
    """The axioms of a proof for people."""
    if not used.axioms:
        return ["without any axiom: both are the same term"]
    rest = (
        "none can be left out"
        if used.is_minimal
        else "fewer might do; --explain takes the time to see"
    )
    if not is_long:
        return [f"with {', '.join(axiom.name for axiom in used.axioms)} ({rest})"]
    return [
        f"with these axioms ({rest}):",
        *(f"  {a.name}: {a.sentence} ({a.place})" for a in used.axioms),
    ]


def _counterexample_lines(found: Counterexample | None) -> list[str]:
    """A counterexample for people: what differs, and lines to paste."""
    if found is None:
        return []
    return [f"counterexample: {found}", *(f"  {values}" for values in found.inputs)]


def _counterexample_fields(found: Counterexample | None) -> dict[str, Any] | None:
    """A counterexample as numbers."""
    if found is None:
        return None
    return {
        "text": str(found),
        "sizes": dict(found.sizes),
        "chunks": dict(found.chunks or {}),
        "inputs": {values.name: values.plain() for values in found.inputs},
        "output": found.output,
        "index": list(found.entry),
        "reference": None if found.fault else found.reference,
        "candidate": found.candidate,
        "fault": found.fault,
    }


def load_candidate(spec: str) -> Program | SGraph:
    """A program by name, or a saved graph.

    Raises:
        PrismError: there is no such program, artifact or graph, or it does not parse.
    """
    if spec.endswith(".sgraph"):
        try:
            text = read_regular_text(Path(spec), MAX_TEXT_BYTES)
        except UnicodeDecodeError as error:
            raise ParseError(f"{spec} is not text: {error}") from error
        return parse_sgraph(text)
    file, colon, wanted = spec.rpartition(":")
    if colon and file.endswith(".json"):
        return find_graph(load_artifact(file), file, wanted).graph
    return load_program(spec)[1]
