"""One self-contained page: styles and pictures inside, no scripts, nothing fetched.

The browser is told so as well (Content-Security-Policy), so that not even a mistake here could make
a page from a stranger's records fetch or run anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from prism.report_page import plot
from prism.report_page.chain import chain
from prism.report_page.charts import Chart, charts_of
from prism.report_page.drawing import REPLICATED
from prism.report_page.drawing import STYLE as DRAWING_STYLE
from prism.report_page.markup import Markup, details, join, table, tag
from prism.report_page.measures import (
    Baseline,
    axes,
    baseline_of,
    compared,
    compared_by,
    varying,
)
from prism.report_page.published import Published
from prism.report_page.runs import Runs
from prism.report_page.tables import (
    Table,
    ablation_table,
    cells_table,
    contestants_table,
    funnel_table,
    worth_table,
)
from prism.report_page.views import View
from prism.sweep.cell import OUTCOMES

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--ground:#fff;--line:#d5d9de;--soft:#f4f6f8;
--link:#1c5fa8}
@media(prefers-color-scheme:dark){:root{--ink:#e4e7eb;--ground:#14171a;--line:#3a4047;--soft:#1d2126;
--link:#7db4ee}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:76rem;padding:1.5rem;color:var(--ink);background:var(--ground);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem}h2{font-size:1.3rem;margin-top:2.5rem;border-bottom:1px solid var(--line)}
h3{font-size:1.1rem}h4{margin:1.2rem 0 .3rem}
a{color:var(--link)}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.9rem;margin:.5rem 0}
caption{text-align:left;font-weight:600;padding:.3rem 0}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td{white-space:pre-wrap;overflow-wrap:break-word;max-width:40rem}
th{background:var(--soft);vertical-align:bottom;min-width:min-content;max-width:9rem}
td:first-child{white-space:pre;max-width:none}
.n{text-align:right;font-variant-numeric:tabular-nums}
td.n,td.s{white-space:nowrap}
pre{background:var(--soft);padding:.7rem;overflow-x:auto;font-size:.82rem;line-height:1.4}
details{margin:.4rem 0;border:1px solid var(--line);border-radius:6px;padding:.3rem .8rem}
summary{cursor:pointer;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:fit-content(16rem) 1fr;gap:.15rem 1rem;font-size:.9rem}
dt{font-weight:600}dd{margin:0;overflow-wrap:anywhere}
@media(max-width:40rem){dl{display:block}dt{margin-top:.4rem}}
.figures{display:flex;flex-wrap:wrap;gap:0 2.5rem;align-items:flex-start}
figure{margin:1rem 0;max-width:100%}
figcaption{font-size:.9rem;max-width:24rem;overflow-wrap:anywhere}
svg{max-width:none;height:auto}svg.chart{max-width:100%}
.note{border-left:3px solid #d9822b;padding-left:.7rem}
@media print{body{max-width:none;padding:0;color:#000;background:#fff}
.scroll{overflow:visible}details{break-inside:avoid}pre{white-space:pre-wrap}h2,h3,h4{break-after:avoid}
svg{max-width:100%}}
""".strip()


LEGEND = (
    "A drawn sGraph has its kernel graph above and each kernel's block graph below. Blue: what is "
    "in device memory, with its maps (imap and omap over the grid, fmap over the loop; "
    f"{REPLICATED}: replicated). Dashed: what runs in every iteration. Orange: accumulators."
)


def make_page(
    runs: Runs,
    *,
    baseline: Baseline | None = None,
    published: Sequence[Published] = (),
    graph_count: int = 3,
    heading: str = "Prism report",
) -> Markup:
    """The whole page; `graph_count`: how many graphs of a search are drawn."""
    grids = runs.grids
    parts = [tag("h1", heading), _summary(runs)]
    if not plot.has_matplotlib() and any(map(charts_of, grids.values())):
        parts.append(
            tag("p", f"No charts: matplotlib is not installed ({plot.INSTALL}).", class_="note")
        )
    if len(grids) > 1:
        links = (
            tag("li", tag("a", _name(views), href=f"#g{i}"))
            for i, views in enumerate(grids.values())
        )
        parts.append(tag("nav", tag("ul", links), aria_label="grids"))
    for i, views in enumerate(grids.values()):
        parts.append(_grid(views, f"g{i}", baseline or Baseline(), published, graph_count))
    head = [
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        tag("title", heading),
        tag("style", Markup(f"{STYLE}\n{DRAWING_STYLE}")),
    ]
    body = tag("body", tag("main", parts))
    return join(
        ["", Markup("<!DOCTYPE html>\n"), tag("html", [tag("head", head), body], lang="en"), "\n"]
    )


def _summary(runs: Runs) -> Markup:
    outcomes = Counter(view.cell.outcome for view in runs.views)
    told = ", ".join(f"{outcomes[each]} {each}" for each in OUTCOMES if each in outcomes)
    parts = [tag("p", f"{len(runs.views)} cells: {told}.")]
    if runs.skipped:
        lines = tag("ul", (tag("li", line) for line in runs.skipped))
        parts.append(
            details(f"{len(runs.skipped)} lines could not be read and are left out", lines)
        )
    return join(parts)


def _name(views: Sequence[View]) -> str:
    cell = views[0].cell
    return f"{cell.grid}: {cell.title}" if cell.title else cell.grid


def _grid(
    views: Sequence[View],
    anchor: str,
    chosen: Baseline,
    published: Sequence[Published],
    graph_count: int,
) -> Markup:
    baseline = baseline_of(views, chosen)
    names = varying(views) or axes(views)[:1]
    parts = [tag("h2", _name(views), id=anchor), *_same(views), *_of_several(views)]
    tables: list[Table | None] = [worth_table(views, axis) for axis in compared(views)]
    tables.append(cells_table(views, baseline, published))
    tables.append(contestants_table(views, baseline))
    tables += [
        ablation_table(views, axis, measure)
        for axis in compared(views)
        for measure in compared_by(views, axis)
    ]
    tables.append(funnel_table(views))
    parts += [table(t.columns, t.rows, caption=t.caption) for t in tables if t is not None]
    if plot.has_matplotlib():
        parts += [_chart(c, f"{anchor}c{i}-") for i, c in enumerate(charts_of(views))]
    parts.append(tag("h3", "From program to trials, cell by cell"))
    parts.append(tag("p", LEGEND))
    parts += [chain(view, names, graph_count) for view in views]
    return tag("section", parts, aria_labelledby=anchor)


def _same(views: Sequence[View]) -> Sequence[Markup]:
    """What all cells have in common is said once."""
    differing = varying(views)
    fixed = [
        f"{axis} {views[0].cell.labels.get(axis, '')}"
        for axis in axes(views)
        if axis not in differing
    ]
    return (tag("p", f"In all cells: {', '.join(fixed)}."),) if fixed and len(views) > 1 else ()


def _chart(chart: Chart, prefix: str) -> Markup:
    parts = [plot.inline_svg(chart, prefix)]
    if chart.left_out:
        parts.append(tag("figcaption", f"{chart.left_out} more are in the tables alone"))
    return tag("figure", parts)


def _of_several(views: Sequence[View]) -> Sequence[Markup]:
    """Cells that were run before and after a change of the code are not of one experiment."""
    states: dict[object, set[object]] = {}
    for cell in (view.cell for view in views if view.cell.versions):
        kind = (cell.do, "target" in cell.settings, *cell.inputs)  # each runs code of its own
        states.setdefault(kind, set()).add(tuple(sorted(cell.versions.items())))
    count = max(map(len, states.values()), default=1)
    if count == 1:
        return ()
    said = (
        f"These cells are of {count} states of the code or its packages (each cell says "
        "which). Run the sweep again: cells of another state are run anew."
    )
    return (tag("p", said, class_="note"),)
