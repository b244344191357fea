"""Writes the tables of a report as CSV, its charts as SVG and PNG, its drawn graphs as SVG."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from prism.files import write_atomically
from prism.report_page import plot
from prism.report_page.chain import chosen_graphs
from prism.report_page.charts import Chart, charts_of
from prism.report_page.drawing import draw
from prism.report_page.runs import Runs
from prism.report_page.tables import csv_files


def write_csv(runs: Runs, folder: Path) -> list[Path]:
    """Write the tables of all grids.

    Raises:
        UsageError: a file cannot be written.
    """
    written = []
    charts = [(grid, chart) for grid, chart in _charts(runs)]
    for name, text in csv_files(runs.views, charts):
        write_atomically(folder / name, text)
        written.append(folder / name)
    return written


def write_figures(runs: Runs, folder: Path, graph_count: int) -> list[Path]:
    """Write charts and drawn graphs.

    Raises:
        UsageError: matplotlib is missing, or a file cannot be written.
    """
    plot.require_matplotlib()
    written: list[Path] = []
    for grid, chart in _charts(runs):
        stem = _free(folder, f"{grid}-{chart.name}", written)
        written += plot.save(chart, stem)
    for view in runs.views:
        for graph in chosen_graphs(view, graph_count):
            if graph.kernels:
                name = f"{view.cell.grid}-{view.cell.index}-{graph.id}"
                stem = _free(folder, name, written)
                path = stem.with_name(f"{stem.name}.svg")
                write_atomically(path, draw(graph, standalone=True) + "\n")
                written.append(path)
    return written


def _charts(runs: Runs) -> Iterator[tuple[str, Chart]]:
    for grid, views in runs.grids.items():
        for chart in charts_of(views):
            yield grid, chart


def _free(folder: Path, name: str, written: list[Path]) -> Path:
    """A path for a name from a record: letters, digits and dashes, and none taken."""
    plain = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-")[:80] or "figure"
    taken = {path.stem for path in written}
    free, i = plain, 1
    while free in taken:
        i += 1
        free = f"{plain}-{i}"
    return folder / free
