"""`prism search PROGRAM`: verified symbolic graphs, for all sizes at once or for those given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.table import Table

from prism.artifact import FoundGraph, save_artifact
from prism.cli.answer import Answer, Status
from prism.cli.explaining import explained
from prism.cli.inputs import check_output
from prism.cli.params import budget_option, only, search_options, situation_options
from prism.cli.render import seconds, table
from prism.cli.run import Bar, Run, answering
from prism.describe import graph_json, graph_line, mapping_line
from prism.egraph import load_axioms
from prism.errors import UsageError
from prism.frontend import load_program
from prism.ir import format_program
from prism.plugins import Group, make
from prism.scope import Scope
from prism.search import MODES, VERIFY, SearchOptions, SearchResult, search
from prism.verdict import Verdict, proof_json

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
@situation_options
@search_options
@click.option(
    "--verify",
    callback=only(*VERIFY),
    metavar="HOW",
    help="full: prove every graph. sample: admit them by local lemmas and prove a sample; to count "
    "graphs, this is the default without -o.",
)
@click.option(
    "--explain",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Find the axioms that the proofs of the first N graphs need, at most 2 seconds each.",
)
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
    explain: int,
    **options: Any,  # noqa: ANN401 - the search's own
) -> Answer:
    """Find and verify symbolic graphs of PROGRAM, a workload's name or FILE.py:FUNCTION.

    With --sizes or --target the result is for these alone, and smaller: a graph that cannot run
    there, or that others beat there, is dropped.

    Exit status 1: no graph but the program itself. 3: none before a limit. 130: interrupted; what
    was proved until then, if anything, is the answer, and is saved.
    """
    axioms = load_axioms(options["axioms"])  # first: the program may call the operators they define
    _, traced = load_program(program)
    options["verify"] = how_to_verify(options["verify"], options["mode"], output)
    chosen = make_options(**options, budget=budget, seed=run.seed)
    check_output(output)
    with run.progress() as bar:
        result = search(traced, chosen, staged(bar))
        if explain and status_of(result) is not Status.INTERRUPTED:
            result = explained(result, axioms, explain, staged(bar))
    if status_of(result) is Status.INTERRUPTED and all(g.is_fallback for g in result.graphs):
        output = None  # nothing is worth replacing what may be there
    if output is not None:
        save_artifact(result, output)
    saved = None if output is None else str(output)
    return Answer(
        {**search_json(result), "artifact": saved}, search_view(result, saved), status_of(result)
    )


def how_to_verify(given: str | None, mode: str, output: Path | None) -> str:
    """What is saved is proved; to count graphs it is enough to admit them.

    Raises:
        UsageError: what is to be saved would not be proved.
    """
    if output is not None and given == "sample":
        raise UsageError("-o saves graphs to be run, so all are proved: leave out --verify sample")
    if given is not None:
        return given
    return "full" if output is not None or mode == "tune" else "sample"


def make_options(**given: Any) -> SearchOptions:  # noqa: ANN401 - values of command line options
    """Search options from what the command line gave; what it did not give stays the default.

    Raises:
        UsageError: an option out of range.
        PluginError: no such target.
        KernelError: the target cannot be used here.
    """
    names = {"budget": "budget_s", "target": "device"}
    chosen = {names.get(name, name): value for name, value in given.items() if value is not None}
    if "sizes" in chosen:
        chosen["sizes"] = tuple(chosen["sizes"].items())
    if "device" in chosen:
        chosen["device"] = make(Group.TARGET, chosen["device"]).device()
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
        "sizes": None if result.scope.sizes is None else dict(result.scope.sizes),
        "device": result.scope.device,
        "mode": result.options.mode,
        "verify": result.options.verify,
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
        **proof_json(found.proof),
    }


def search_view(result: SearchResult, saved: str | None) -> tuple[RenderableType, ...]:
    """A search for people: program, funnel, graphs, and what was cut."""
    found = [g for g in result.graphs if not g.is_fallback]
    extent = ", complete within the limits" if result.complete else "; there may be more:"
    proved = sum(g.verdict is Verdict.PROVED for g in found)
    admitted = "" if proved == len(found) else f" ({proved} proved, {len(found) - proved} admitted)"
    lines = [
        *([] if result.scope == Scope() else [f"searched {result.scope} alone"]),
        f"{len(found)} graphs verified in {seconds(result.search_s)}{admitted}{extent}",
        *(f"  {cut}" for cut in result.cuts),
    ]
    limits = ", ".join(f"{name} {value}" for name, value in result.limits.items())
    return (
        format_program(result.program).rstrip(),
        "",
        *funnel(result.counters),
        f"limits: {limits}",
        *lines,
        *(_graphs(found, saved) if found else _nothing(result)),
        *(f"{g.id} is proved {g.proof}" for g in found if g.proof is not None),
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
    verdicts = ("verified", "proved", "admitted", "not_proved", "gave_up")
    stages = ("states", "dags", "candidates", *verdicts)
    rows = [tuple(str(counters.get(name, "-")) for name in stages)]
    yield table(tuple(f">{name.replace('_', ' ')}" for name in stages), rows)
    yield from _clocked(counters)


def _clocked(counters: Mapping[str, Any]) -> Iterator[str]:
    """Verdicts that a faster machine might not give."""
    stops = {
        "late": "gave up because the time of one candidate was over",
        "hard_stops": "gave up because an iteration of the e-graph did not end",
    }
    for name, meaning in stops.items():
        if counters[name]:
            yield f"{counters[name]} {meaning}: another machine might say more"


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


def _graphs(found: Sequence[FoundGraph], saved: str | None) -> Iterator[RenderableType]:
    yield graphs_table(found[:SHOWN])
    if len(found) > SHOWN:
        how = "save them with -o FILE" if saved is None else f"see prism show {saved}"
        yield f"... and {len(found) - SHOWN} more; {how}"


def _nothing(result: SearchResult) -> Iterator[RenderableType]:
    """An empty result explains itself."""
    yield "no graph besides the program itself"
    for reason, nearest in result.nearest.items():
        verb = "dropped by" if reason in result.counters["pruners"] else "beyond"
        yield f"  {verb} {reason}: {nearest}"
    if result.rejected:
        rows = [(r.id, r.verdict.value, r.reason) for r in result.rejected]
        yield table(("rejected", "verdict", "reason"), rows)
