"""`prism verify REF CAND`: is the candidate equal to the reference, for all sizes?"""

from __future__ import annotations

from pathlib import Path

import click

from prism.artifact import load_artifact
from prism.cli.answer import Answer, Status
from prism.cli.axioms import own_files
from prism.cli.inputs import find_graph
from prism.cli.params import axiom_specs
from prism.cli.run import Run, answering
from prism.egraph import load_axioms
from prism.egraph.soundness import faults_of
from prism.errors import AxiomError, ParseError
from prism.files import MAX_TEXT_BYTES, read_regular_text
from prism.frontend import load_program
from prism.ir import Program, SGraph, parse_sgraph
from prism.verdict import Verdict
from prism.verify import verify_programs

STATUS = {
    Verdict.PROVED: Status.YES,
    Verdict.ADMITTED: Status.YES,
    Verdict.NOT_PROVED: Status.NO,
    Verdict.GAVE_UP: Status.GAVE_UP,
}


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
@answering("verify")
def command(run: Run, reference: str, candidate: str, axioms: tuple[str, ...]) -> Answer:
    """Does CAND compute the same as REF for all sizes?

    REF is a workload's name or FILE.py:FUNCTION; CAND is one too, or a saved graph: ART.json:ID, or
    a file FILE.sgraph with what `prism show ART.json --graph ID` prints. Exit status 0: proved; 1:
    not proved (a counterexample is given where random numbers find one); 3: gave up at a limit.
    """
    axiom_set = load_axioms(axioms)  # first: programs may call the operators they define
    _, wanted = load_program(reference)
    given = load_candidate(candidate)
    own = own_files(axiom_set, axioms)
    for rule, why in faults_of(axiom_set, own, seed=run.seed).items():
        raise AxiomError(f"{rule} is unsound, so nothing can be proved with it: {why}")
    answer = verify_programs(wanted, given, axiom_set, seed=run.seed)
    verdict = answer.verdict.value
    lines = [
        f"{verdict}: {candidate} = {reference}",
        *([f"with the axioms of {', '.join(file.name for file in own)}"] if own else []),
        *([answer.reason] if answer.reason else []),
        *([f"counterexample: {answer.counterexample}"] if answer.counterexample else []),
    ]
    return Answer(
        {
            "reference": reference,
            "candidate": candidate,
            "verdict": verdict,
            "axioms_used": [file.name for file in axiom_set.files],
            "own_axioms": [file.name for file in own],
            "axioms_fingerprint": axiom_set.fingerprint,
            "counterexample": answer.counterexample,
            "reason": answer.reason,
        },
        lines,
        STATUS[answer.verdict],
    )


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
