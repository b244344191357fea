"""The tables of a report as columns and rows of text, for the page and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from prism.report_page.charts import Chart
from prism.report_page.measures import (
    COUNTS,
    GROWING,
    MEASURES,
    Baseline,
    Measure,
    axes,
    compared_by,
    faster,
    is_cut,
    main_measure,
    pivot,
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
    has_cuts = any(map(is_cut, views))
    ratio = [] if baseline is None or measure is None else [f">times faster than {baseline.name}"]
    figures = [[(p, p.figures_of(view)) for p in published] for view in views]
    headings = list(dict.fromkeys(n for row in figures for _, found in row for n in found))
    rows = []
    for view, own in zip(views, figures, strict=True):
        known = {name: value for _, found in own for name, value in found.items()}
        row = [view.cell.labels.get(name, "") for name in names]
        row.append(view.cell.outcome)
        if has_cuts:
            row.append(_extent(view))
        row += [m.show(m.of(view)) for m in measures]
        if baseline is not None and measure is not None:
            sign = bound(measure, over=baseline.is_cut(view, views), under=is_cut(view))
            row.append("-" if sign is None else sign + times(baseline.ratio(view, views, measure)))
        row += [known.get(name, "-") for name in headings]
        rows.append(tuple(row))
    outcome = ["outcome", *(["search is"] if has_cuts else [])]
    columns = [*names, *outcome, *(f">{m.heading}" for m in measures), *ratio]
    return Table("Cells", (*columns, *(f">{name}" for name in headings)), tuple(rows))


def _extent(view: View) -> str:
    """Whether the search saw everything, else the limits that ended it, by name."""
    if view.search is None:
        return "-"
    if not is_cut(view):
        return "complete"
    limits = dict.fromkeys(cut.partition(":")[0] for cut in view.search.cuts if ":" in cut)
    return f"cut by {', '.join(limits)}" if limits else "cut"


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


AT_LEAST, AT_MOST = "\u2265 ", "\u2264 "
"""Before what a search would have done more of, had a limit not ended it, and less of."""


def bound(measure: Measure, *, over: bool, under: bool = False) -> str | None:
    """What stands before a quotient of two cells; None: nothing can be said.

    `over`, `under`: whether a limit ended the search of the one that is divided, or divides.
    """
    if measure.name not in GROWING or not (over or under):
        return ""
    if over and under:
        return None
    return AT_LEAST if over else AT_MOST


CUT = Measure(
    "cut", "cut by a limit", lambda v: None if v.search is None else float(is_cut(v)), counted
)


def ablation_table(views: Sequence[View], axis: str, measure: Measure) -> Table:
    """The values of an axis side by side, each with its ratio to the first."""
    rows = []
    pivots = zip(pivot(views, axis, measure), pivot(views, axis, CUT), strict=True)
    for (name, found), (_, cuts) in pivots:
        shown = []
        for x, cut in zip(found, cuts, strict=True):
            own = bound(measure, over=bool(cut))
            sign, first = bound(measure, over=bool(cut), under=bool(cuts[0])), found[0]
            ratio = ""
            if x and first and sign is not None:
                ratio = f" ({'' if sign == own else sign}{_ratio(x / first)})"
            shown.append(f"{own}{measure.show(x)}{ratio}")
        rows.append((name, *shown))
    columns = tuple(f">{value or 'none'}" for value in values(views, axis))
    what = measure.heading.capitalize() + ("" if measure.name in COUNTS else " time")
    has_cuts = measure.name in GROWING and any(map(is_cut, views))
    note = f"; {AT_LEAST.strip()}: a limit ended the search" if has_cuts else ""
    caption = f"{what} by {axis}; in brackets, over the first{note}"
    return Table(caption, ("cells", *columns), tuple(rows))


def worth_table(views: Sequence[View], axis: str) -> Table | None:
    """What each value of an axis makes of all cells, over the first one: which of them matters.

    Ratios are geometric means over what both have; graphs are added up. Where a limit ended the
    search of the first, what would have grown is not compared with it.
    """
    measures = compared_by(views, axis)
    cuts = [row for _, row in pivot(views, axis, CUT)]
    found = {m.name: pivot(views, axis, m) for m in measures}
    if not measures or all(len(rows) < LEAST_COMPARED for rows in found.values()):
        return None
    rows = []
    for i, value in enumerate(values(views, axis)):
        there = [cut[i] for cut in cuts if cut[i] is not None]
        row = [value or "none", f"{sum(map(bool, there))} of {len(there)}"]
        for measure in measures:
            is_growing = measure.name in GROWING
            known = [
                (x[i], x[0], is_growing and bool(cut[i]))
                for (_, x), cut in zip(found[measure.name], cuts, strict=True)
                if not (is_growing and cut[0])
            ]
            row.append(_total(known) if measure.name == "graphs" else _mean_ratio(known))
        rows.append(tuple(row))
    first = values(views, axis)[0] or "none"
    what = (
        f"By {axis}, over all cells that have both: mean ratios to {first}; graphs found / found "
        f"with {first}"
    )
    headings = (f">{measure.heading}" for measure in measures)
    return Table(what, (axis, ">searches cut by a limit", *headings), tuple(rows))


LEAST_COMPARED = 2
"""Of one row the table of its values says all."""


Pairs = Sequence[tuple[float | None, float | None, bool]]
"""Of each cell its value, the first one's, and whether a limit kept its own from growing."""


def _total(pairs: Pairs) -> str:
    known = [(x, y, cut) for x, y, cut in pairs if x is not None and y is not None]
    if not known:
        return "-"
    sums = [counted(sum(pair[side] for pair in known)) for side in (0, 1)]
    return f"{AT_LEAST if any(cut for *_, cut in known) else ''}{' / '.join(sums)}"


def _mean_ratio(pairs: Pairs) -> str:
    known = [(one / first, cut) for one, first, cut in pairs if one and first]
    if not known:
        return "-"
    sign = AT_LEAST if any(cut for _, cut in known) else ""
    return f"{sign}{_ratio(geometric_mean(ratio for ratio, _ in known))}"


def _ratio(value: float) -> str:
    return f"{value:.3g}x" if value < 1000 else f"{value:,.0f}x"


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
