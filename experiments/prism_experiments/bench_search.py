"""`make bench-search`: what a search costs and finds on every workload, in about 4 minutes.

Each workload is searched several times, each time in a process of its own (`searched`), so that
the peak of memory is the search's and imports are not counted:

  reference  every graph within the limits of the authors' own search: one kernel, at most 11 block
             operators and 3 accumulators
  full       every graph of one kernel within the default limits
  plans      the same with up to two kernels, as many as a short budget lets it list and judge
  tune       the graphs of one kernel that may be the fastest for some sizes and tiles
  optimize   tune mode with up to three kernels, one more than `prism optimize` tries by itself

The first three admit graphs by local lemmas and prove a sample, the others prove each. Printed for
each: seconds from the traced program to the last verdict, the peak of memory, partial graphs
visited (states) and op DAGs completed, graphs found, how many of them are PROVED, ADMITTED and of
several kernels, and what cut it, if anything did (`--json` says it in full). Of the graphs within
the reference limits it is also said how many the CPU target accepts at the sizes of the paper's
search (or at those of `make bench`); beside them stand the paper's seconds and graphs.

Below the table: which of the project's goals are reached, among them that encodings, generators and
brute force agree (`bench_goals`), and where the time goes that is above a goal.
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
from prism_experiments.bench_goals import (
    PUBLISHED_SEARCH,
    Goal,
    Measured,
    agreements,
    goals,
    profile,
)
from prism_experiments.sizes import FULL_SIZE, SHAPES


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of search: its options, and the part of the budget that it may take."""

    options: Mapping[str, object]
    share: float = 1.0


BUDGET_S = 5.0

COUNTED: Mapping[str, object] = {"max_graphs": None, "verify": "sample"}
KINDS: Mapping[str, Kind] = {
    "reference": Kind({**COUNTED, "max_ops": 11, "max_accumulators": 3}),
    "full": Kind(COUNTED, 0.3),
    "plans": Kind({**COUNTED, "max_kernels": 2}, 0.2),
    "tune": Kind({"mode": "tune"}),
    "optimize": Kind({"mode": "tune", "max_kernels": 3}, 0.8),
}
FIRST = "reference"

SMOKE = "matmul"
"""The one workload of `--smoke`."""


@click.command()
@click.option("--workloads", default="", help="Names separated by commas; all that are installed.")
@click.option("--budget", default=BUDGET_S, show_default=True, help="Seconds of each search.")
@click.option("--rounds", default=1, show_default=True, help="Of each search; the fastest counts.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line per search instead.")
@click.option("--smoke", is_flag=True, help="One small workload, and what agrees on it.")
def main(workloads: str, budget: float, rounds: int, *, as_json: bool, smoke: bool) -> None:
    """Measure the searches and print the tables; exit status 1 if there is a disagreement."""
    names = workloads.split(",") if workloads else list(installed(Group.WORKLOAD))
    if smoke:
        names = [SMOKE]
    rows: list[Measured] = []
    for name in names:
        for kind in KINDS:
            click.echo(f"{name} {kind}", err=True)
            tries = [measure(name, kind, budget) for _ in range(rounds)]
            rows.append(min(tries, key=lambda row: row.search_s))
            if as_json:
                click.echo(json.dumps(asdict(rows[-1])))
    if as_json:
        return
    agreed = agreements(SMOKE if smoke else None, lambda text: click.echo(text, err=True))
    _print(rows, agreed)
    if any(goal.is_due and not goal.is_reached for goal in agreed):
        sys.exit(1)


def measure(name: str, kind: str, budget_s: float) -> Measured:
    """One search, in a process of its own."""
    chosen = KINDS[kind]
    options = json.dumps({**chosen.options, "budget_s": chosen.share * budget_s})
    command = [sys.executable, "-m", "prism_experiments.searched", name, options]
    if kind == FIRST and name in SHAPES:
        sizes = SHAPES[name][dict(FULL_SIZE).get(name, "decode")]
        command.append(json.dumps(dict(sizes)))
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    counters = answer["counters"]
    return Measured(
        name,
        kind,
        answer["search_s"],
        answer["peak_mb"],
        counters["states"],
        counters["dags"],
        answer["graphs"],
        counters["proved"],
        counters["admitted"],
        answer["plans"],
        counters["candidates"],
        answer.get("instantiable"),
        answer.get("asked"),
        tuple(answer["cuts"]),
        answer["seconds"],
    )


HEADINGS = (
    *("workload", "search", ">search_s", ">peak MB", ">states", ">op DAGs", ">graphs"),
    *(">PROVED", ">ADMITTED", ">plans", ">instantiable", ">paper", "cut by"),
)


def _print(rows: list[Measured], agreed: list[Goal]) -> None:
    out = Console(markup=False, emoji=False, highlight=False)
    if not out.is_terminal:
        out.width = 190
    out.print(table(HEADINGS, _cells(rows)))
    reached = [
        (g.what, "not run" if g.is_reached is None else "yes" if g.is_reached else "NO", g.found)
        for g in (*goals(rows), *agreed)
    ]
    out.print(table(("goal", "reached", "found"), reached))
    slow = [(row.workload, row.kind, *profile(row)) for row in rows if row.is_over_goal]
    if slow:
        out.print(table(("not reached: seconds by step", "", ">", ">", ">", ">"), slow))


def _cells(rows: list[Measured]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        is_first = row.kind == FIRST
        published = PUBLISHED_SEARCH.get(row.workload) if is_first else None
        yield (
            row.workload if is_first else "",
            row.kind,
            seconds(row.search_s),
            f"{row.peak_mb:.0f}",
            str(row.states),
            str(row.dags),
            f"{row.graphs}" if row.is_judged_in_full else f"{row.graphs} of {row.candidates}",
            str(row.proved),
            str(row.admitted),
            str(row.plans) if row.plans else "",
            "" if row.asked is None else f"{row.instantiable} of {row.asked}",
            "" if published is None else f"{seconds(published[0])}, {published[1]}",
            ", ".join(dict.fromkeys(cut.split(":")[0] for cut in row.cuts)) or "nothing",
        )


if __name__ == "__main__":
    main()
