"""`prism axioms list`: the axiom files that verification reads, and how many rules each holds."""

from __future__ import annotations

from typing import Any

import click

from prism.cli.answer import Answer
from prism.cli.params import axiom_specs
from prism.cli.render import table
from prism.cli.run import Run, answering
from prism.egraph import AxiomFile, AxiomSet, load_axioms
from prism.egraph.soundness import faults_of
from prism.plugins import Group, installed


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
@answering("axioms")
def list_command(run: Run, axioms: tuple[str, ...]) -> Answer:
    """List axiom files with their rules."""
    found = load_axioms(axioms)
    unsound = faults_of(found, own_files(found, axioms), seed=run.seed)
    files = file_rules(found)
    directed = sum(2 if axiom.is_bidirectional else 1 for axiom in found.axioms)
    rows = [(f["name"], f["source"], str(f["rules"])) for f in files]
    return Answer(
        {
            "axioms": files,
            "rules": len(found.axioms),
            "directed_rules": directed,
            "fingerprint": found.fingerprint,
            "unsound": unsound,
        },
        (
            table(("file", "source", ">rules"), rows),
            f"{len(found.axioms)} rules, {directed} counted by direction",
            *(f"{rule} is unsound: {why}" for rule, why in unsound.items()),
        ),
    )


def own_files(found: AxiomSet, specs: tuple[str, ...]) -> tuple[AxiomFile, ...]:
    """The files of a set that no installed plug-in brings: `specs` are what it was loaded from."""
    sets = installed(Group.AXIOMS)
    known = load_axioms([spec for spec in specs if spec in sets]).files
    return tuple(file for file in found.files if file not in known)


def file_rules(found: AxiomSet) -> list[dict[str, Any]]:
    """Each axiom file: its name, where it comes from, the number and names of its rules."""
    sets = installed(Group.AXIOMS)
    out: list[dict[str, Any]] = []
    for file in found.files:
        owner = sets.get(file.name.partition("/")[0])
        rules = [axiom.name for axiom in found.axioms if axiom.family == file.family]
        out.append(
            {
                "name": file.family,
                "source": owner.source if owner is not None else file.name,
                "rules": len(rules),
                "rule_names": rules,
            }
        )
    return out
