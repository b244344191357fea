"""`prism search PROGRAM`: verified symbolic graphs, for all sizes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.table import Table

from prism.artifact import FoundGraph, save_artifact
from prism.cli.answer import Answer, Status
from prism.cli.describe import graph_json, graph_line, mapping_line
from prism.cli.inputs import check_output
from prism.cli.params import budget_option, only, search_options
from prism.cli.render import seconds, table
from prism.cli.run import Bar, Run, answering
from prism.frontend import load_program
from prism.ir import format_program
from prism.search import MODES, SearchOptions, SearchResult, search

SHOWN = 12
"""Graphs in the table; `prism show` prints them all."""


@click.command("search")
@click.argument("program")
@click.option(
    "--mode",
    default="count",
    show_default=True,
    callback=only(*MODES),
    metavar="MODE",
    help="count: every graph within the limits; tune: those that may be the fastest.",
)
@search_options
@budget_option(SearchOptions().budget_s)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="ART.json",
    help="Save for prism tune.",
)
@answering("search")
def command(
    run: Run,
    program: str,
    budget: float | None,
    output: Path | None,
    **options: Any,  # noqa: ANN401 - the search's own
) -> Answer:
    """Find and verify symbolic graphs of PROGRAM, a workload's name or FILE.py:FUNCTION.

    Exit status 1: no graph but the program itself. 3: none before a limit.
    """
    _, traced = load_program(program)
    chosen = make_options(**options, budget=budget, seed=run.seed)
    check_output(output)
    with run.progress() as bar:
        result = search(traced, chosen, staged(bar))
    if output is not None:
        save_artifact(result, output)
    saved = None if output is None else str(output)
    return Answer(
        {**search_json(result), "artifact": saved}, search_view(result, saved), status_of(result)
    )


def make_options(**given: Any) -> SearchOptions:  # noqa: ANN401 - values of command line options
    """Search options from what the command line gave; what it did not give stays the default."""
    names = {"budget": "budget_s"}
    chosen = {names.get(name, name): value for name, value in given.items() if value is not None}
    options = SearchOptions(**chosen)
    options.check()
    return options


def staged(bar: Bar) -> Callable[[str, int, int | None], None]:
    """The search's progress on a bar."""

    def show(stage: str, done: int, total: int | None) -> None:
        bar(done, total or max(done, 1), stage)

    return show


def status_of(result: SearchResult) -> Status:
    """Positive when there is a graph besides the program itself."""
    if "interrupt" in result.counters["cut"]:
        return Status.INTERRUPTED
    if any(not g.is_fallback for g in result.graphs):
        return Status.YES
    return Status.NO if result.complete else Status.GAVE_UP


def search_json(result: SearchResult) -> dict[str, Any]:
    """A search as JSON-able data."""
    return {
        "program": result.program.name,
        "program_text": format_program(result.program),
        "mode": result.options.mode,
        "generator": result.options.generator,
        "concrete": list(result.options.concrete),
        "encoding": result.options.encoding,
        "axioms": list(result.options.axioms),
        "axioms_fingerprint": result.fingerprint,
        "without": list(result.options.without),
        "also": list(result.options.also),
        "limits": dict(result.limits),
        "search_s": result.search_s,
        "complete": result.complete,
        "cuts": list(result.cuts),
        "nearest": dict(result.nearest),
        "graphs": [listed_json(g) for g in result.graphs],
        "rejected": [
            {"id": r.id, "verdict": r.verdict.value, "reason": r.reason} for r in result.rejected
        ],
        "counters": dict(result.counters),
    }


def listed_json(found: FoundGraph) -> dict[str, Any]:
    """A graph with its counts as JSON-able data."""
    return {
        **graph_json(found.id, found.graph, found.verdict.value),
        "op_count": found.op_count,
        "accumulator_count": found.accumulator_count,
        "is_fallback": found.is_fallback,
    }


def search_view(result: SearchResult, saved: str | None) -> tuple[RenderableType, ...]:
    """A search for people: program, funnel, graphs, and what was cut."""
    found = [g for g in result.graphs if not g.is_fallback]
    extent = ", complete within the limits" if result.complete else "; there may be more:"
    lines = [
        f"{len(found)} graphs verified in {seconds(result.search_s)}{extent}",
        *(f"  {cut}" for cut in result.cuts),
    ]
    limits = ", ".join(f"{name} {value}" for name, value in result.limits.items())
    return (
        format_program(result.program).rstrip(),
        "",
        *funnel(result.counters),
        f"limits: {limits}",
        *lines,
        *(_graphs(found) if found else _nothing(result)),
        *([f"saved in {saved}"] if saved is not None else []),
    )


def funnel(counters: Mapping[str, Any]) -> Iterator[RenderableType]:
    """What each pruner dropped, what the encoding enumerated, what verification said."""
    pruners = [
        (name, str(c["seen"]), str(c["dropped"]), seconds(c["seconds"]), c.get("example") or "")
        for name, c in counters["pruners"].items()
    ]
    yield table(("pruner", ">seen", ">dropped", ">time", "for example"), pruners)
    encodings = [
        (name, str(c["models"]), str(c["assignments"]), seconds(c["seconds"]))
        for name, c in counters["encodings"].items()
    ]
    yield table(("encoding", ">models", ">assignments", ">time"), encodings)
    verdicts = ("verified", "proved", "not_proved", "gave_up")
    stages = ("states", "dags", "candidates", *verdicts)
    rows = [tuple(str(counters.get(name, "-")) for name in stages)]
    yield table(tuple(f">{name.replace('_', ' ')}" for name in stages), rows)


def graphs_table(graphs: Sequence[FoundGraph]) -> Table:
    """One row per graph: counts, mapping, operators by stage."""
    rows = [
        (
            g.id,
            g.verdict.value,
            str(g.op_count),
            str(g.accumulator_count),
            mapping_line(g.graph),
            graph_line(g.graph),
        )
        for g in graphs
    ]
    return table(("graph", "verdict", ">ops", ">acc", "mapping", "operators"), rows)


def _graphs(found: Sequence[FoundGraph]) -> Iterator[RenderableType]:
    yield graphs_table(found[:SHOWN])
    if len(found) > SHOWN:
        yield f"... and {len(found) - SHOWN} more; save them with -o and see prism show"


def _nothing(result: SearchResult) -> Iterator[RenderableType]:
    """An empty result explains itself."""
    yield "no graph besides the program itself"
    for reason, nearest in result.nearest.items():
        yield f"  beyond {reason}: {nearest}"
    if result.rejected:
        rows = [(r.id, r.verdict.value, r.reason) for r in result.rejected]
        yield table(("rejected", "verdict", "reason"), rows)
