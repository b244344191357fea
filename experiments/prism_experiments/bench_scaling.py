"""`make bench-scaling`: what a search costs as the program and the space grow, under 4 minutes.

Generated programs (`grown`) are searched in count and tune mode, one thing varied at a time:

  operators   4 to 16, in one kernel with two grid dims
  grid dims   1 to 3
  kernels     1 to 3

Each search has the same budget; one that reaches it says what was left out, and its states and
graphs are those of the budget. Seconds are from the program to the last verdict. The numbers go to
a CSV file and, where matplotlib is installed (extra `plots`), to an SVG file beside it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from prism.cli.render import seconds, table
from prism.errors import to_install
from prism.search import SearchOptions, search
from prism_experiments.grown import FAMILIES, grown

BUDGET_S = 3.0
OPERATORS = (4, 6, 8, 10, 12, 14, 16)
FIXED_OPERATORS = 8
"""Where grid dims or kernels are varied."""

MODES = {
    "count": SearchOptions(max_graphs=None, verify="sample"),
    "tune": SearchOptions(mode="tune"),
}


@dataclass(frozen=True, slots=True)
class Point:
    """One search to be done: `varied` is operators, grid_dims or kernels."""

    varied: str
    family: str
    mode: str
    operators: int
    grid_dims: int
    kernels: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What one search cost; a row of the CSV file."""

    varied: str
    family: str
    mode: str
    operators: int
    grid_dims: int
    kernels: int
    search_s: float
    states: int
    graphs: int
    complete: bool
    cut_by: str

    @property
    def at(self) -> int:
        """The number that is varied."""
        value: int = getattr(self, self.varied)
        return value


@click.command()
@click.option("-o", "output", default="build/scaling.csv", show_default=True, type=Path)
@click.option("--budget", default=BUDGET_S, show_default=True, help="Seconds of each search.")
@click.option("--smoke", is_flag=True, help="A few small searches.")
def main(output: Path, budget: float, *, smoke: bool) -> None:
    """Search everything, print the table, write the files."""
    points = list(_points((2, 3), 2, 2) if smoke else _points(OPERATORS, FIXED_OPERATORS, 3))
    costs = []
    for number, point in enumerate(points, 1):
        click.echo(f"{number} of {len(points)}: {point}", err=True)
        costs.append(measure(point, budget))
    out = Console(markup=False, emoji=False, highlight=False)
    if not out.is_terminal:
        out.width = 150
    out.print(table(HEADINGS, _cells(costs)))
    output.parent.mkdir(parents=True, exist_ok=True)
    write_csv(costs, output)
    picture = output.with_suffix(".svg")
    plotted = plot(costs, picture)
    click.echo(f"Written: {output}" + (f", {picture}" if plotted else ""))
    if not plotted:
        click.echo(f"No picture: matplotlib is not installed ({to_install('plots')}).")


def _points(operators: Sequence[int], fixed: int, most: int) -> Iterator[Point]:
    """One thing varied at a time."""
    for family in FAMILIES:
        for mode in MODES:
            yield from (Point("operators", family, mode, k, 2, 1) for k in operators)
            yield from (Point("grid_dims", family, mode, fixed, k, 1) for k in range(1, most + 1))
            yield from (Point("kernels", family, mode, fixed, 2, k) for k in range(1, most + 1))


def measure(point: Point, budget_s: float) -> Cost:
    """One search."""
    options = replace(MODES[point.mode], budget_s=budget_s)
    options = replace(options, grid_dims=point.grid_dims, max_kernels=point.kernels)
    result = search(grown(point.family, point.operators), options)
    return Cost(
        **asdict(point),
        search_s=round(result.search_s, 4),
        states=result.counters["states"],
        graphs=len(result.graphs) - 1,
        complete=result.complete,
        cut_by="; ".join(result.cuts),
    )


HEADINGS = (
    *("varied", "family", "mode", ">operators", ">grid dims", ">kernels", ">search_s", ">states"),
    *(">graphs", "cut by"),
)


def _cells(costs: Iterable[Cost]) -> Iterator[tuple[str, ...]]:
    before: tuple[str, ...] = ()
    for cost in costs:
        line = (cost.varied.replace("_", " "), cost.family, cost.mode)
        yield (
            *(line if line != before else ("", "", "")),
            str(cost.operators),
            str(cost.grid_dims),
            str(cost.kernels),
            seconds(cost.search_s),
            f"{cost.states:,}",
            f"{cost.graphs:,}",
            cost.cut_by or "nothing: complete",
        )
        before = line


def write_csv(costs: Iterable[Cost], path: Path) -> None:
    """A line per search."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Cost)])
        writer.writeheader()
        writer.writerows(asdict(cost) for cost in costs)


PANELS = ("operators", "grid_dims", "kernels")
QUANTITIES = {"search_s": "seconds", "states": "states", "graphs": "graphs"}


def plot(costs: Sequence[Cost], path: Path) -> bool:
    """A picture: a column for what is varied, a row per quantity; False without matplotlib.

    Searches that the budget cut are hollow points.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra that may be absent
    except ImportError:
        return False
    figure = Figure(figsize=(12, 9), layout="constrained")
    grid = figure.subplots(len(QUANTITIES), len(PANELS), squeeze=False)
    for axes, (quantity, label) in zip(grid, QUANTITIES.items(), strict=True):
        for panel, varied in zip(axes, PANELS, strict=True):
            _draw(panel, [cost for cost in costs if cost.varied == varied], quantity)
            panel.set_ylabel(label)
            panel.set_xlabel(varied.replace("_", " "))
    grid[0][0].legend(fontsize="small")
    figure.savefig(path)
    return True


def _draw(panel: Any, costs: Sequence[Cost], quantity: str) -> None:  # noqa: ANN401 - an extra
    """One line for each family and mode."""
    for number, (family, mode) in enumerate(dict.fromkeys((c.family, c.mode) for c in costs)):
        ours = [c for c in costs if (c.family, c.mode) == (family, mode)]
        values = [max(getattr(c, quantity), 1e-3) for c in ours]
        colour = f"C{number}"
        panel.plot([c.at for c in ours], values, color=colour, label=f"{family}, {mode}")
        filled = [colour if c.complete else "none" for c in ours]
        panel.scatter([c.at for c in ours], values, facecolors=filled, edgecolors=colour)
    panel.set_yscale("log")
    panel.set_xticks(sorted({c.at for c in costs}))


if __name__ == "__main__":
    main()
