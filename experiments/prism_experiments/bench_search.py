"""`make bench-search`: what a search costs and finds on every workload, in under 4 minutes.

Each workload is searched three times, each time in a process of its own that has searched a small
program before, so that imports and first uses are not counted and the peak of memory is the
search's:

  reference  every graph within the limits of the authors' own search: at most 11 block operators
             and 3 accumulators
  full       every graph within the default limits
  tune       the graphs that may be the fastest for some sizes and tiles

The first two admit graphs by local lemmas and prove a sample, the third proves each. Printed for
each: seconds from the traced program to the last verdict, graphs found and how many of them are
proved (the others are admitted), partial graphs visited (states) and op DAGs completed, the peak of
memory, and what cut it, if anything did. Where there is a goal for the reference limits it is
printed beside the result.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import click
from rich.console import Console

from prism.cli.render import seconds, table
from prism.plugins import Group, installed

BUDGET_S = 6.0
"""Of each search; a few reach it."""

MODES: Mapping[str, Mapping[str, object]] = {
    "reference": {"max_ops": 11, "max_accumulators": 3, "max_graphs": None, "verify": "sample"},
    "full": {"max_graphs": None, "verify": "sample"},
    "tune": {"mode": "tune"},
}
"""The options of each search."""

GOALS = {
    "rmsnorm_paper": (0.1, 9),
    "swiglu_paper": (0.1, 12),
    "attention_paper": (0.2, 14),
    "qk_attention_paper": (0.3, 14),
    "rmsnorm_mlp_paper": (0.5, 24),
}
"""Seconds and graphs at the reference limits; the graphs are those of the authors' search."""

CHILD = """
import json, resource, sys
from prism.frontend import load_program
from prism.search import SearchOptions, search

name, options = sys.argv[1], json.loads(sys.argv[2])
search(load_program("matmul")[1], SearchOptions(**options))
result = search(load_program(name)[1], SearchOptions(**options))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
counters = {k: v for k, v in result.counters.items() if isinstance(v, int)}
print(json.dumps({
    "search_s": result.search_s, "graphs": len(result.graphs) - 1, "cuts": result.cuts,
    "counters": counters, "peak_mb": peak / (2**20 if sys.platform == "darwin" else 2**10),
}))
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One search of one workload."""

    workload: str
    mode: str
    search_s: float
    graphs: int
    proved: int
    states: int
    dags: int
    peak_mb: float
    cuts: tuple[str, ...]


@click.command()
@click.option("--workloads", default="", help="Names separated by commas; all that are installed.")
@click.option("--budget", default=BUDGET_S, show_default=True, help="Seconds of each search.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line per search instead.")
def main(workloads: str, budget: float, *, as_json: bool) -> None:
    """Measure the searches and print the table."""
    names = workloads.split(",") if workloads else list(installed(Group.WORKLOAD))
    rows: list[Measured] = []
    for name in names:
        for mode in MODES:
            click.echo(f"{name} {mode}", err=True)
            rows.append(measure(name, mode, budget))
            if as_json:
                click.echo(json.dumps(asdict(rows[-1])))
    if as_json:
        return
    out = Console(markup=False, emoji=False, highlight=False)
    if not out.is_terminal:
        out.width = 180
    out.print(table(HEADINGS, _cells(rows)))


def measure(name: str, mode: str, budget_s: float) -> Measured:
    """One search, in a process of its own."""
    options = json.dumps({**MODES[mode], "budget_s": budget_s})
    command = [sys.executable, "-c", CHILD, name, options]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    counters = answer["counters"]
    return Measured(
        name,
        mode,
        answer["search_s"],
        answer["graphs"],
        counters["proved"],
        counters["states"],
        counters["dags"],
        answer["peak_mb"],
        tuple(answer["cuts"]),
    )


HEADINGS = (
    *("workload", "search", ">search_s", ">graphs", ">proved", ">goal", ">states", ">op DAGs"),
    *(">peak MB", "cut by"),
)


def _cells(rows: list[Measured]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        is_first = row.mode == next(iter(MODES))
        goal = GOALS.get(row.workload) if is_first else None
        yield (
            row.workload if is_first else "",
            row.mode,
            seconds(row.search_s),
            str(row.graphs),
            str(row.proved),
            "" if goal is None else f"{seconds(goal[0])}, {goal[1]}",
            str(row.states),
            str(row.dags),
            f"{row.peak_mb:.0f}",
            "; ".join(row.cuts) or "nothing: complete",
        )


if __name__ == "__main__":
    main()
