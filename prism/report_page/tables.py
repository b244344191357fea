"""The tables of a report as columns and rows of text, for the page and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prism.report_page.charts import Chart, pivot
from prism.report_page.measures import (
    MEASURES,
    Baseline,
    Measure,
    axes,
    faster,
    main_measure,
    present,
    values,
    varying,
)
from prism.report_page.published import Published
from prism.report_page.views import STAGES, View
from prism.units import counted, seconds, times

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet would run a text that begins so."""


@dataclass(frozen=True, slots=True)
class Table:
    """Headings (`>`: numbers) and rows."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def cells_table(
    views: Sequence[View], baseline: Baseline | None, published: Sequence[Published]
) -> Table:
    """One row per cell: its labels, what came of it, ratios, published figures."""
    names = varying(views) or axes(views)[:1]
    measures, measure = present(views), main_measure(views)
    ratio = [] if baseline is None or measure is None else [f">times faster than {baseline.name}"]
    figures = [[(p, p.figures_of(view)) for p in published] for view in views]
    headings = list(dict.fromkeys(n for row in figures for _, found in row for n in found))
    rows = []
    for view, own in zip(views, figures, strict=True):
        known = {name: value for _, found in own for name, value in found.items()}
        row = [view.cell.labels.get(name, "") for name in names]
        row.append(view.cell.outcome)
        row += [m.show(m.of(view)) for m in measures]
        if baseline is not None and measure is not None:
            row.append(times(baseline.ratio(view, views, measure)))
        row += [known.get(name, "-") for name in headings]
        rows.append(tuple(row))
    columns = [*names, "outcome", *(f">{m.heading}" for m in measures), *ratio]
    return Table("Cells", (*columns, *(f">{name}" for name in headings)), tuple(rows))


def contestants_table(views: Sequence[View], baseline: Baseline | None) -> Table | None:
    """Everybody's times, a row for each contestant of each cell."""
    names = varying([view for view in views if view.contestants])
    rows = []
    for view in views:
        rival = None if baseline is None else baseline.rival(view)
        for c in view.contestants:
            over = None if rival is None else faster(c, rival)
            stream = "-" if c.bandwidth_fraction is None else f"{c.bandwidth_fraction:.0%}"
            error = "-" if c.error is None else f"{c.error:.1e}"
            labels = [view.cell.labels.get(name, "") for name in names]
            timed = (seconds(c.median_s), seconds(c.min_s), times(c.ratio), times(over))
            rows.append((*labels, c.name, *timed, stream, error, c.note))
    if not rows:
        return None
    name = "the best rival" if baseline is None else baseline.name
    columns = (">median", ">min", ">its time over ours", f">times faster than {name}")
    how = (">of stream", ">error", "how")
    return Table("Contestants", (*names, "contestant", *columns, *how), tuple(rows))


def funnel_table(views: Sequence[View]) -> Table | None:
    """The search funnel: what each pruner saw and dropped, what each stage left."""
    searched = [view for view in views if view.search is not None and view.search.stages]
    names = varying(searched) or axes(searched)[:1]
    pruners = list(
        dict.fromkeys(p.name for v in searched if v.search for p in v.search.pruners if p.seen)
    )
    rows = []
    for view in searched:
        if view.search is None:
            continue
        stages = dict(view.search.stages)
        own = {p.name: p for p in view.search.pruners}
        dropped = [
            f"{counted(own[n].dropped)} of {counted(own[n].seen)}" if n in own else "-"
            for n in pruners
        ]
        counts = [counted(stages.get(stage)) for stage in STAGES]
        rows.append((*(view.cell.labels.get(n, "") for n in names), *dropped, *counts))
    if not rows:
        return None
    columns = (
        *(f">{name} dropped" for name in pruners),
        *(f">{s.replace('_', ' ')}" for s in STAGES),
    )
    return Table("Search funnel", (*names, *columns), tuple(rows))


def ablation_table(views: Sequence[View], axis: str, measure: Measure) -> Table:
    """The values of an axis side by side, each with its ratio to the first."""
    rows = []
    for name, found in pivot(views, axis, measure):
        first = found[0]
        shown = [
            measure.show(x) if not (x and first) else f"{measure.show(x)} ({x / first:.3g}x)"
            for x in found
        ]
        rows.append((name, *shown))
    columns = tuple(f">{value or 'none'}" for value in values(views, axis))
    what = f"{measure.heading.capitalize()} time by {axis}; in brackets, over the first"
    return Table(what, ("cells", *columns), tuple(rows))


def trials_table(view: View, most: int) -> Table:
    """The trials of a cell, fastest first."""
    ordered = sorted(
        view.trials,
        key=lambda t: (t.median_s is None, t.median_s or 0.0, t.graph_id, t.key.par_sizes),
    )
    rows = [
        (
            trial.graph_id,
            "; ".join(", ".join(f"{n} = {v}" for n, v in counts) for counts in trial.key.par_sizes),
            ", ".join(f"{n} = {v}" for n, v in trial.key.schedule),
            trial.outcome.value,
            seconds(trial.median_s if trial.median_s is not None else trial.predicted_s),
            "-" if trial.max_error is None else f"{trial.max_error:.1e}",
            seconds(trial.compile_s),
            trial.detail[:200],
        )
        for trial in ordered[:most]
    ]
    more = f", the first {most}" if len(ordered) > most else ""
    columns = (
        "graph",
        "parameters",
        "schedule",
        "outcome",
        ">time",
        ">error",
        ">compiled in",
        "said",
    )
    return Table(f"{len(ordered)} trials, fastest first{more}", columns, tuple(rows))


def csv_files(
    views: Sequence[View], charts: Sequence[tuple[str, Chart]]
) -> Iterator[tuple[str, str]]:
    """Name and text of each CSV file: numbers in full, in base units."""
    names = axes(views)
    labels = [tuple(view.cell.labels.get(name, "") for name in names) for view in views]
    head = ("grid", "index", *names)
    keys = [
        (view.cell.grid, str(view.cell.index), *label)
        for view, label in zip(views, labels, strict=True)
    ]
    yield "cells.csv", _csv(
        (*head, "do", "outcome", *(m.name for m in MEASURES), "graph", "parameters", "message"),
        (
            (*key, view.cell.do, view.cell.outcome, *(_exact(m.of(view)) for m in MEASURES),
             *_best(view), view.cell.message)
            for key, view in zip(keys, views, strict=True)
        ),
    )  # fmt: skip
    yield "contestants.csv", _csv(
        (*head, "contestant", "median_s", "min_s", "ratio", "bandwidth_fraction", "error", "note"),
        (
            (*key, c.name, *map(_exact, (c.median_s, c.min_s, c.ratio, c.bandwidth_fraction,
             c.error)), c.note)
            for key, view in zip(keys, views, strict=True)
            for c in view.contestants
        ),
    )  # fmt: skip
    yield "funnel.csv", _csv((*head, "stage", "seen", "dropped", "left"), _funnel_rows(views, keys))
    yield "charts.csv", _csv(("grid", "chart", "series", "x", "y"), _chart_rows(charts))


def _best(view: View) -> tuple[str, str]:
    return ("", "") if view.tuned is None else (view.tuned.graph, view.tuned.parameters)


def _funnel_rows(
    views: Sequence[View], keys: Sequence[tuple[str, ...]]
) -> Iterator[tuple[str, ...]]:
    for key, view in zip(keys, views, strict=True):
        if view.search is None:
            continue
        for p in view.search.pruners:
            yield *key, f"pruner {p.name}", str(p.seen), str(p.dropped), str(p.seen - p.dropped)
        for stage, count in view.search.stages:
            yield *key, stage, "", "", str(count)


def _chart_rows(charts: Sequence[tuple[str, Chart]]) -> Iterator[tuple[str, ...]]:
    for grid, chart in charts:
        places = chart.places or tuple(f"{point:g}" for point in chart.points)
        for name, ys in chart.series:
            for place, y in zip(places, ys, strict=True):
                yield grid, chart.name, name, place, _exact(y)


def _exact(value: float | None) -> str:
    return "" if value is None else repr(value)


def _csv(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in (head, *rows):
        writer.writerow(map(_no_formula, row))
    return out.getvalue()


def _no_formula(text: str) -> str:
    """A text from a record is no formula, whatever it begins with."""
    return f"'{text}" if text.startswith(FORMULA) else text
