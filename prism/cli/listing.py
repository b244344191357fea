"""`prism list KIND`: what is installed, and who brought it. Nothing of it is imported."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import click

from prism.cli.answer import Answer
from prism.cli.render import table
from prism.cli.run import Run, answering
from prism.plugins import Group, installed

KINDS: Mapping[str, Group] = MappingProxyType(
    {
        "workloads": Group.WORKLOAD,
        "encodings": Group.ENCODING,
        "axioms": Group.AXIOMS,
        "contestants": Group.CONTESTANT,
        "grids": Group.GRID,
        "published": Group.PUBLISHED,
        "provers": Group.PROVER,
        "pruners": Group.PRUNER,
        "strategies": Group.STRATEGY,
        "targets": Group.TARGET,
    }
)


@click.command("list", short_help="List what is installed.")
@click.argument("kind", type=click.Choice(list(KINDS)))
@answering("list")
def command(run: Run, kind: str) -> Answer:
    """List the installed plug-ins of a KIND by name, with where each comes from.

    Everywhere a name does, a path does too: FILE.py:NAME, or FILE.egg for axioms.
    """
    del run
    found = [{"name": p.name, "source": p.source} for p in installed(KINDS[kind]).values()]
    rows = [(entry["name"], entry["source"]) for entry in found]
    return Answer({kind: found}, (table((kind, "source"), rows),))
