"""`make bench-ablation`: what each pruner and symbolic maps save, on the forward generator.

At the limits of the paper's own search:

  generators  states and seconds of both on the paper's workloads, and whether they find the same
  maps        imap, fmap and omap enumerated during the search, alone and together; once with the
              pruners that the paper has, once with placement pruning as well

and with fewer operators, because without the cone there is no end:

  pruners     each one left out in turn, and a check without an e-graph in place of the cone

A state is one extension attempted (forward) or one step of the walk (cone). A search that its
budget cut has visited *at least* so many. Exit status 1 if the generators disagree.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import click
from rich.console import Console

from prism.cli.render import seconds, table, times
from prism.frontend import load_program
from prism.ir import Program
from prism.search import GENERATORS, SearchOptions, SearchResult, search

GENERATED = (
    "rmsnorm_paper",
    "swiglu_paper",
    "attention_paper",
    "qk_attention_paper",
    "rmsnorm_mlp_paper",
)
ABLATED = "rmsnorm_paper"

REFERENCE = SearchOptions(max_ops=11, max_accumulators=3, budget_s=None, max_graphs=None)
"""The paper's limits."""

FEW_OPS = 6
"""Block operators where pruners are left out: one more than the program itself needs."""

JUDGED = 30
"""Graphs verified for each row of the ablations: what is measured there is the generation."""

MAPS = ((), ("omap",), ("fmap",), ("imap",), ("imap", "fmap", "omap"))

PUBLISHED_S = {(): 0.3, ("omap",): 2.5, ("fmap",): 5.5, ("imap",): 20.5, MAPS[-1]: 312.0}
"""The paper's seconds for the same rows of rmsnorm."""


@dataclass(frozen=True, slots=True)
class Row:
    """One search."""

    label: str
    result: SearchResult

    @property
    def states(self) -> int:
        """How many states it visited."""
        return int(self.result.counters["states"])

    @property
    def is_cut(self) -> bool:
        """Whether the generation was cut short."""
        return any("the growth was stopped" in cut for cut in self.result.cuts)

    @property
    def generate_s(self) -> float:
        """Seconds until all candidates were listed."""
        return float(self.result.counters["seconds"].get("generate", 0.0))

    @property
    def found(self) -> frozenset[str]:
        """The graphs, by id."""
        return frozenset(g.id for g in self.result.graphs)

    def columns(self, base: Row) -> tuple[str, ...]:
        """States, in all and as a multiple of the base row's, seconds, candidates, graphs."""
        least = ">= " if self.is_cut else ""
        counters = self.result.counters
        return (
            f"{least}{self.states:,}",
            f"{least}{times(self.states / max(1, base.states))}",
            seconds(self.generate_s),
            f"{counters['candidates']:,}",
            f"{counters['proved']} of {counters['verified']}",
        )


STATES = (">states", ">of the first", ">generation", ">candidates", ">proved of judged")


@click.command()
@click.option("--workloads", default=",".join(GENERATED), show_default=True)
@click.option("--ablated", default=ABLATED, show_default=True, help="Of pruners and maps.")
@click.option("--budget", default=80.0, show_default=True, help="Seconds for each ablated search.")
def main(workloads: str, ablated: str, budget: float) -> None:
    """Measure and print the tables."""
    out = Console(markup=False, emoji=False, highlight=False)
    if not out.is_terminal:
        out.width = 160
    agreed = [both_generators(out, name) for name in filter(None, workloads.split(","))]
    _, program = load_program(ablated)
    forward = replace(REFERENCE, generator="forward", max_graphs=JUDGED, budget_s=budget)
    pruners(out, program, replace(forward, max_ops=FEW_OPS))
    # as many grid dims as the output has, as in the paper's search
    maps(out, program, replace(forward, grid_dims=2))
    if not all(agreed):
        click.echo("The generators list different graphs.", err=True)
        sys.exit(1)


def both_generators(out: Console, name: str) -> bool:
    """One workload by both; whether they agree."""
    _, program = load_program(name)
    rows = [_run(g, program, replace(REFERENCE, generator=g)) for g in GENERATORS]
    cone, forward = rows
    is_same = cone.found == forward.found and (
        cone.result.counters["candidates"] == forward.result.counters["candidates"]
    )
    out.print(
        table(
            (name, *STATES, "graphs"),
            [
                (cone.label, *cone.columns(cone), ""),
                (forward.label, *forward.columns(cone), "the same" if is_same else "OTHERS"),
            ],
        )
    )
    return is_same


def pruners(out: Console, program: Program, options: SearchOptions) -> None:
    """Each pruner left out in turn."""
    rows = [
        _run("all pruners", program, options),
        *(
            _run(f"without {name}", program, replace(options, without=(name,)))
            for name in ("dimension", "placement")
        ),
        _run(
            "dimension by Z3",
            program,
            replace(options, without=("dimension",), also=("dimension-z3",)),
        ),
        _run("syntactic for expression", program, _short(options, ("syntactic",), ("expression",))),
        _run("without expression", program, _short(options, (), ("expression",))),
        _run("without any", program, _short(options, (), ("dimension", "expression", "placement"))),
    ]
    title = f"pruners, {program.name}, {options.max_ops} operators"
    out.print(table((title, *STATES), [_listed(rows, row) for row in rows]))


def _short(
    options: SearchOptions, also: tuple[str, ...], without: tuple[str, ...]
) -> SearchOptions:
    """Without the cone a search has no end: a part of the budget shows as much."""
    budget = None if options.budget_s is None else options.budget_s / 2
    return replace(options, also=also, without=without, budget_s=budget)


def maps(out: Console, program: Program, options: SearchOptions) -> None:
    """Concrete maps, with the paper's pruners and with all."""
    for title, without in (("paper's pruners", ("placement",)), ("all pruners", ())):
        run = partial(_run_maps, program, replace(options, without=without))
        rows = [run(kinds) for kinds in MAPS]
        out.print(
            table(
                (f"concrete maps, {program.name}, {title}", *STATES, ">the paper's time"),
                [
                    (*_listed(rows, row), times(PUBLISHED_S[kinds] / PUBLISHED_S[()]))
                    for kinds, row in zip(MAPS, rows, strict=True)
                ],
            )
        )


def _run_maps(program: Program, options: SearchOptions, kinds: tuple[str, ...]) -> Row:
    return _run(", ".join(kinds) or "none", program, replace(options, concrete=kinds))


def _run(label: str, program: Program, options: SearchOptions) -> Row:
    click.echo(f"{program.name}: {label}", err=True)
    return Row(label, search(program, options))


def _listed(rows: Sequence[Row], row: Row) -> tuple[str, ...]:
    return (row.label, *row.columns(rows[0]))


if __name__ == "__main__":
    main()
