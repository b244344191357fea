"""`prism report RUN.jsonl.. -o REPORT.html`: what runs found, as one page to look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from prism.cli.answer import Answer, say
from prism.cli.inputs import check_output
from prism.cli.run import Run, answering
from prism.files import write_atomically
from prism.plugins import Group, file_of
from prism.report_page import (
    find_baseline,
    load_published,
    make_page,
    read_runs,
    require_matplotlib,
    write_csv,
    write_figures,
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What goes into the page, and what is written beside it."""

    published: str | None
    graphs: int
    csv: Path | None
    figures: Path | None


@click.command("report")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="REPORT.html",
    default=Path("report.html"),
    show_default=True,
    help="The page; it needs no other file and no network.",
)
@click.option(
    "--baseline",
    metavar="NAME|AXIS=VALUE",
    help="What ratios are to: a contestant of the benchmark, or the cells with this label. "
    "Otherwise the best rival, or the first value of the one axis that says how.",
)
@click.option(
    "--published",
    metavar="NAME|FILE.toml",
    help="Published figures, printed beside ours: `paper`, or a file.",
)
@click.option(
    "--graphs",
    type=click.IntRange(0),
    metavar="N",
    default=3,
    show_default=True,
    help="How many graphs of a search are drawn; of a tuned one it is the best alone.",
)
@click.option(
    "--csv",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The tables as CSV.",
)
@click.option(
    "--figures",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The charts as SVG and PNG, the drawn graphs as SVG.",
)
@answering("report")
def command(
    run: Run,
    runs: tuple[Path, ...],
    output: Path,
    baseline: str | None,
    **options: Any,  # noqa: ANN401 - see Wanted
) -> Answer:
    """Write a page about RUNS: files of prism sweep, of --json answers, or of trials.

    Tables with ratios and published figures, the search funnel, kernel times, curves, ablations,
    and for every cell the chain from its program over the drawn sGraph, the proof and the
    parameters to the kernel and its trials. What cannot be read is left out, and said.
    """
    del run
    wanted = Wanted(**options)
    found = read_runs(runs)
    for line in found.skipped:
        say(f"warning: left out {line}")
    chosen = find_baseline(baseline, found.views)
    rows = () if wanted.published is None else load_published(_published(wanted.published))
    if wanted.figures is not None:
        require_matplotlib()
    check_output(output)
    page = make_page(found, baseline=chosen, published=rows, graph_count=wanted.graphs)
    written: list[Path] = []
    if wanted.figures is not None:
        written += write_figures(found, wanted.figures, wanted.graphs)
    if wanted.csv is not None:
        written += write_csv(found, wanted.csv)
    write_atomically(output, page)
    fields = {
        "report": str(output),
        "cell_count": len(found.views),
        "grids": list(found.grids),
        "skipped": list(found.skipped),
        "files": [str(path) for path in written],
    }
    more = f", {len(written)} files beside it" if written else ""
    said = f"{output}: {len(found.views)} cells of {len(found.grids)} grids{more}"
    return Answer(fields, (said,))


def _published(name: str) -> Path:
    return file_of(Group.PUBLISHED, name, ".toml")
