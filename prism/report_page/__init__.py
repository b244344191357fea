"""Reports of runs: one page of tables, charts and drawn graphs, and the same as CSV, SVG and PNG.

runs       reads run files: cells of a sweep, objects of `--json`, trials
facts      a stranger's object, field by field;  shapes, views: what is shown of it
measures   what cells are compared by, and with;  published: the figures of others
tables     rows of text;  charts: numbers to draw;  plot: drawn by matplotlib
layout     a layered layout;  drawing: an sGraph as in the paper's Figure 1c
chain      one cell, from its program to its trials
markup     HTML, escaped;  page: all of it together
export     files beside the page
"""

from __future__ import annotations

from prism.report_page.drawing import draw
from prism.report_page.export import write_csv, write_figures
from prism.report_page.facts import Facts
from prism.report_page.measures import Baseline, find_baseline
from prism.report_page.page import make_page
from prism.report_page.plot import require_matplotlib
from prism.report_page.published import Published, load_published
from prism.report_page.runs import Runs, read_runs
from prism.report_page.shapes import GraphShape, read_graph

__all__ = [
    "Baseline",
    "Facts",
    "GraphShape",
    "Published",
    "Runs",
    "draw",
    "find_baseline",
    "load_published",
    "make_page",
    "read_graph",
    "read_runs",
    "require_matplotlib",
    "write_csv",
    "write_figures",
]
