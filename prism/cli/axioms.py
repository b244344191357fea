"""`prism axioms list`: which axiom files verification reads; `axioms check`: are they true?"""

from __future__ import annotations

from typing import Any

import click

from prism.cli.answer import Answer, Status
from prism.cli.params import axiom_specs
from prism.cli.render import table
from prism.cli.run import Run, answering
from prism.egraph import Axiom, AxiomSet, load_axioms
from prism.egraph.checking import CheckReport, check_axioms
from prism.egraph.proving import Proof, installed_provers
from prism.egraph.soundness import faults_of, own_files
from prism.errors import UsageError
from prism.frontend import load_program
from prism.operators import parse_table
from prism.plugins import SHIPPED_AXIOMS, Group, installed


@click.group("axioms")
def command() -> None:
    """The axiom files that verification uses."""


@command.command("list")
@click.option(
    "--axioms",
    "axioms",
    multiple=True,
    callback=axiom_specs,
    metavar="NAME|FILE.egg",
    help="A set, folder or file of axioms; repeatable. Files are added to the set `prism`.",
)
@click.option("--family", metavar="NAME", help="Show the rules of one family: each in words.")
@answering("axioms")
def list_command(run: Run, axioms: tuple[str, ...], family: str | None) -> Answer:
    """List the families of axioms (a file is a family) with their rules.

    A rule that is used both ways counts as two directed ones.
    """
    found = load_axioms(axioms)
    shown = None if family is None else of_family(found, family)
    unsound = faults_of(found, own_files(found, axioms), seed=run.seed)
    files = file_rules(found)
    directed = len(found.rules)
    rows = [(f["name"], f["source"], str(f["rules"]), str(f["directed_rules"])) for f in files]
    rows.append(("total", "", str(len(found.axioms)), str(directed)))
    tables = operator_tables(found)
    overview = table(("family", "source", ">rules", ">directed"), rows)
    return Answer(
        {
            "axioms": files,
            "operator_tables": tables,
            "rules": len(found.axioms),
            "directed_rules": directed,
            "fingerprint": found.fingerprint,
            "unsound": unsound,
        },
        (
            *((overview,) if shown is None else map(rule_text, shown)),
            *(f"{t['name']} defines the operators {', '.join(t['operators'])}" for t in tables),
            f"{len(found.axioms)} rules, {directed} counted by direction",
            *(f"{rule} is unsound: {why}" for rule, why in unsound.items()),
        ),
    )


@command.command("check")
@click.argument("specs", nargs=-1, metavar="[NAME|FILE.egg|FOLDER]...")
@answering("axioms-check")
def check_command(run: Run, specs: tuple[str, ...]) -> Answer:
    """Test axiom files: vetting, random tensors, proof, poison, growth.

    Without a file the shipped set. A file is tested together with the shipped set, with which it
    would be used. Exit status 1 if a rule fails.
    """
    programs = {name: load_program(name)[1] for name in installed(Group.WORKLOAD)}
    with run.progress() as bar:
        report = check_axioms(
            specs or (SHIPPED_AXIOMS,), programs, installed_provers(), seed=run.seed, progress=bar
        )
    return Answer(
        check_fields(report), check_view(report), Status.NO if report.failures else Status.YES
    )


def check_fields(report: CheckReport) -> dict[str, Any]:
    """The JSON fields of a check."""
    return {
        "files": list(report.files),
        "ok": not report.failures,
        "failures": [
            {"fault": f.fault.value, "place": f.place, "rule": f.rule, "why": f.why}
            for f in report.failures
        ],
        "proofs": {proof.value: count for proof, count in _proof_counts(report).items()},
        "rules": [
            {
                "rule": rule.rule,
                "place": rule.place,
                "cases": rule.cases,
                "exact_cases": rule.exact_cases,
                "proof": rule.proof.value,
                "rounding": rule.rounding,
            }
            for rule in report.rules
        ],
        "growth": [
            {
                "target": g.name,
                "nodes": g.nodes,
                "nodes_without": g.nodes_before,
                "iterations": g.iterations,
                "iterations_without": g.iterations_before,
                "complete": g.is_complete,
            }
            for g in report.growth
        ],
    }


def check_view(report: CheckReport) -> tuple[Any, ...]:
    """A check as people read it: what failed, else how far each rule is proved."""
    failures = tuple(
        f"{f.place}: {'' if f.rule is None else f'rule {f.rule!r}, '}{f.fault.value}: {f.why}"
        for f in report.failures
    )
    counts = ", ".join(f"{count} {proof.value}" for proof, count in _proof_counts(report).items())
    tested = (
        f"{len(report.rules)} directed rules hold on random tensors: {counts}"
        if report.rules
        else "no rule was found to hold"
    )
    unclear = tuple(
        f"{rule.place}: rule {rule.rule!r} speaks of a helper without a meaning: tested only "
        "together with the others"
        for rule in report.rules
        if not rule.cases
    )
    rounded = sum(rule.rounding is not None for rule in report.rules)
    notes = (f"of {rounded} the sides differ in float64, by rounding alone",) if rounded else ()
    grown = (_growth_text(report),) if report.growth else ()
    count = len(failures)
    if count:
        verdict = f"{count} {'rule fails' if count == 1 else 'rules fail'}"
    else:
        verdict = "all rules pass" if report.rules else "there is no rule in these files"
    return (*failures, *unclear, tested, *notes, *grown, verdict)


def _growth_text(report: CheckReport) -> str:
    nodes, before = (
        sum(getattr(g, field) for g in report.growth) for field in ("nodes", "nodes_before")
    )
    return (
        f"the e-graphs of {len(report.growth)} programs hold {nodes} nodes, "
        f"{before} without these files"
    )


def _proof_counts(report: CheckReport) -> dict[Proof, int]:
    return {proof: sum(r.proof is proof for r in report.rules) for proof in Proof}


def of_family(found: AxiomSet, family: str) -> list[Axiom]:
    """The axioms of a family, by its name with or without that of its set.

    Raises:
        UsageError: there is no such family.
    """
    names = [file.family for file in found.files if not file.is_table]
    chosen = [name for name in names if family in {name, name.rpartition("/")[2]}]
    if not chosen:
        raise UsageError(f"no family {family!r}; known: {', '.join(names)}")
    return [axiom for axiom in found.axioms if axiom.family in chosen]


def rule_text(axiom: Axiom) -> str:
    """A rule as people read it: its name, its sentence, its equation."""
    arrow = "<->" if axiom.is_bidirectional else "->"
    conditions = "".join(f" {condition}" for condition in axiom.conditions)
    when = f"  if{conditions}" if conditions else ""
    sentence = f"  {axiom.sentence}\n" if axiom.sentence else ""
    return f"{axiom.name} ({axiom.ruleset})\n{sentence}  {axiom.left} {arrow} {axiom.right}{when}\n"


def file_rules(found: AxiomSet) -> list[dict[str, Any]]:
    """Each axiom file: its name, where it comes from, the number and names of its rules."""
    sets = installed(Group.AXIOMS)
    out: list[dict[str, Any]] = []
    for file in found.files:
        if file.is_table:
            continue
        owner = sets.get(file.name.partition("/")[0])
        rules = [axiom for axiom in found.axioms if axiom.family == file.family]
        directed = [rule for rule in found.rules if rule.axiom.family == file.family]
        out.append(
            {
                "name": file.family,
                "source": owner.source if owner is not None else file.name,
                "rules": len(rules),
                "directed_rules": len(directed),
                "rule_names": [axiom.name for axiom in rules],
            }
        )
    return out


def operator_tables(found: AxiomSet) -> list[dict[str, Any]]:
    """Each table of operators among the files, and what it defines."""
    return [
        {
            "name": file.name,
            "operators": [d.name for d in parse_table(file.text, file.name)],
        }
        for file in found.files
        if file.is_table
    ]
