"""The chain of one cell: program, sGraph, proof, parameters, kernel, trials, how to repeat it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence

from prism.report_page.drawing import draw
from prism.report_page.markup import Markup, details, join, table, tag
from prism.report_page.measures import title
from prism.report_page.shapes import GraphShape
from prism.report_page.tables import trials_table
from prism.report_page.views import Searched, Tuned, View
from prism.units import counted, seconds
from prism.verdict import ProofAxioms, Verdict

MOST_TRIALS = 50
MOST_LISTED = 40
"""Graphs that are listed by their operators and maps; the run file has all."""


def chain(view: View, names: Sequence[str], graph_count: int) -> Markup:
    """A cell from its program to its trials; at most `graph_count` of its graphs are drawn."""
    head = f"{title(view, names)}: {view.cell.outcome}"
    if view.kernel_s is not None:
        head = f"{head}, kernel {seconds(view.kernel_s)}"
    elif view.search is not None and view.search.search_s is not None:
        head = (
            f"{head}, {counted(view.search.graph_count)} graphs in {seconds(view.search.search_s)}"
        )
    return details(head, [part for step in _steps(view, graph_count) for part in step])


def _steps(view: View, graph_count: int) -> Iterator[Sequence[Markup]]:
    yield _failure(view)
    if view.program_text:
        yield tag("h4", "Program"), tag("pre", view.program_text)
    yield _graphs(view, graph_count)
    yield _proof(view)
    if view.search is not None:
        yield _pruners(view.search)
    if view.tuned is not None:
        yield _parameters(view.tuned)
    if view.source:
        lines = view.source.count("\n")
        source = details(f"{lines} lines", tag("pre", tag("code", view.source)))
        yield tag("h4", "Kernel source"), source
    if view.trials:
        found = trials_table(view, MOST_TRIALS)
        yield tag("h4", "Trials"), table(found.columns, found.rows, caption=found.caption)
    yield _repeat(view)


def _failure(view: View) -> Sequence[Markup]:
    parts = [tag("p", f"Note: {note}", class_="note") for note in view.notes]
    if view.cell.message:
        parts.insert(0, tag("pre", view.cell.message, class_="note"))
    return parts


def chosen_graphs(view: View, most: int) -> tuple[GraphShape, ...]:
    """The graphs to draw: the one that won, else the first ones that a search found."""
    graphs = view.search.graphs if view.search is not None else ()
    best = view.tuned.graph if view.tuned is not None else ""
    if view.winner is not None:
        return (view.winner,)
    if own := [graph for graph in graphs if graph.id == best]:
        return tuple(own)
    found = [graph for graph in graphs if not graph.is_fallback]
    return tuple((found or list(graphs))[:most])


def _graphs(view: View, most: int) -> Sequence[Markup]:
    parts: list[Markup] = []
    for graph in chosen_graphs(view, most):
        if not graph.kernels:
            continue
        name = f"{graph.id} ({graph.verdict})" if graph.verdict else graph.id
        maps = " ; ".join(kernel.maps or "replicated" for kernel in graph.kernels)
        parts.append(
            tag(
                "figure",
                [
                    tag("div", draw(graph), class_="scroll", tabindex="0", role="region",
                        aria_label=f"drawing of {graph.id}"),
                    tag("figcaption", [f"sGraph {name}; ", tag("code", maps)]),
                ],
            )
        )  # fmt: skip
    if parts:
        parts = [tag("h4", "sGraph"), tag("div", parts, class_="figures")]
    if view.search is not None and len(view.search.graphs) > 1:
        parts.append(_listed(view.search))
    return parts


def _listed(found: Searched) -> Markup:
    """The graphs of a search, as many as its line describes and the page has room for."""
    shown = found.graphs[:MOST_LISTED]
    rows = [
        (
            graph.id,
            graph.verdict,
            str(len(graph.kernels)),
            " ; ".join(kernel.maps or "replicated" for kernel in graph.kernels),
            " ; ".join(_operators(graph)),
        )
        for graph in shown
    ]
    listed = table(("graph", "verdict", ">kernels", "maps", "operators"), rows, caption="Graphs")
    count = sum(not graph.is_fallback for graph in shown)
    also = " and the program itself" if count < len(shown) else ""
    is_all = count == found.graph_count
    first = "all graphs" if is_all else f"the first {count} of {counted(found.graph_count)} graphs"
    return details(f"{first} of the search{also}", listed)


def _operators(graph: GraphShape) -> Iterator[str]:
    for kernel in graph.kernels:
        stages: dict[str, list[str]] = {}
        for op in kernel.ops:
            if op.op not in ("load", "save", "const", "size"):
                stages.setdefault(op.stage, []).append(op.op)
        yield " | ".join(f"{stage}: {' '.join(ops)}" for stage, ops in stages.items()) or "copy"


def _proof(view: View) -> Sequence[Markup]:
    """What was proved, with which axioms."""
    rows = list(_verdicts(view))
    if view.search is not None:
        stages = dict(view.search.stages)
        told = [f"{counted(stages[s])} {s.replace('_', ' ')}" for s in _VERDICTS if s in stages]
        rows += [("verdicts of the search", ", ".join(told))] if told else []
        extent = {True: "yes, within the limits", False: "no: there may be more graphs"}
        if view.search.complete is not None:
            rows.append(("complete", "; ".join((extent[view.search.complete], *view.search.cuts))))
        rows += view.search.facts
    return () if not rows else (tag("h4", "Proof"), _facts(rows))


def _verdicts(view: View) -> Iterator[tuple[str, str]]:
    """What is said of the graphs that are drawn, or of the candidate, with the axioms needed."""
    if view.winner is None and view.tuned is None:
        if view.verdict:
            yield "verdict", " ".join(filter(None, (view.verdict, _needs(view.proof))))
        for graph in chosen_graphs(view, MOST_PROOFS):
            if graph.verdict:
                yield f"graph {graph.id}", _said(graph)
        return
    for graph in chosen_graphs(view, 1):  # the one that won
        if view.verdict:
            said = " ".join(filter(None, (view.verdict, _needs(view.proof))))
            yield f"graph {graph.id}", f"by prism verify, after all was measured: {said}"
        else:
            yield f"graph {graph.id}", _said(graph)


def _said(graph: GraphShape) -> str:
    """The search's verdict; a graph that it only admitted is proved where axioms were asked for."""
    if graph.is_fallback:
        return "the program as it stands"
    if graph.proof is None:
        return f"{graph.verdict} ({_NOT_ASKED})"
    if graph.verdict == Verdict.PROVED.value:
        return f"proved {graph.proof}"
    return f"{graph.verdict} by the search; then proved {graph.proof}"


def _needs(proof: ProofAxioms | None) -> str:
    return "" if proof is None else str(proof)


MOST_PROOFS = 3
_NOT_ASKED = "which axioms that takes was not asked, or time was over"
_VERDICTS = ("proved", "admitted", "not_proved", "gave_up")


def _pruners(found: Searched) -> Sequence[Markup]:
    if not found.pruners:
        return ()
    rows = [
        (p.name, counted(p.seen), counted(p.dropped), seconds(p.seconds), p.example)
        for p in found.pruners
    ]
    columns = ("pruner", ">seen", ">dropped", ">time", "for example")
    return tag("h4", "Pruners"), table(columns, rows, caption="What each pruner dropped")


def _parameters(tuned: Tuned) -> Sequence[Markup]:
    rows = [("trials", ", ".join(f"{n} {outcome}" for outcome, n in tuned.trials))]
    if tuned.graph:
        error = "-" if tuned.max_error is None else f"{tuned.max_error:.2g}"
        timed = [
            ("median", tuned.median_s),
            ("minimum", tuned.min_s),
            ("predicted", tuned.predicted_s),
        ]
        rows = [
            ("graph", tuned.graph),
            ("parameters", tuned.parameters or "none"),
            *((name, seconds(value)) for name, value in timed if value is not None),
            ("largest norm error against float64", error),
            *tuned.facts,
            *rows,
        ]
    if tuned.space_size is not None:
        rows.append(("space", f"{counted(tuned.space_size)} configs; stopped by {tuned.stopped}"))
    return tag("h4", "Parameters"), _facts(rows)


def _facts(rows: Sequence[tuple[str, str]]) -> Markup:
    parts = (part for name, text in rows for part in (tag("dt", name), tag("dd", text or "-")))
    return tag("dl", parts)


def _repeat(view: View) -> Sequence[Markup]:
    cell = view.cell
    rows = [
        *cell.labels.items(),
        ("seed", str(cell.seed)),
        ("started", cell.started),
        ("machine", ", ".join(f"{n} {_text(v)}" for n, v in cell.device.items())),
        ("versions", ", ".join(f"{n} {v}" for n, v in cell.versions.items())),
        ("input files", ", ".join(f"{n} sha256 {v}" for n, v in cell.inputs.items())),
        ("recorded in", view.where),
    ]
    parts: list[Markup] = [_facts([(n, t) for n, t in dict(rows).items() if t])]
    if cell.commands:
        lines = "\n".join(shlex.join(["python", "-m", *map(str, line)]) for line in cell.commands)
        parts.insert(0, tag("pre", lines))
    return tag("h4", "To repeat it"), details("command, machine, versions", join(parts))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
