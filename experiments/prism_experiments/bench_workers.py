"""`make bench-workers`: what a search gains from processes that verify, in about a minute.

Each workload is searched in count mode with a proof of every graph, by different numbers of workers
in turn, several rounds of them, so that a busy machine slows all alike; the least seconds of each
number count. Each search runs in a process of its own that has searched a small program before. The
last column says whether all results are the same, seconds apart.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click
from rich.console import Console

from prism.cli.render import seconds, table

WORKLOADS = "rmsnorm_mlp_paper,qk_attention_paper"
"""The one with the most graphs, and one whose graphs are long."""

CHILD = """
import hashlib, json, resource, sys
from prism.cli.search import search_json
from prism.frontend import load_program
from prism.search import SearchOptions, search

name, workers, max_graphs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
search(load_program("matmul")[1], SearchOptions())
options = SearchOptions(budget_s=None, max_graphs=max_graphs, workers=workers)
result = search(load_program(name)[1], options)
told = search_json(result)
kept = {k: told[k] for k in ("graphs", "rejected", "cuts", "nearest", "limits")}
kept["counts"] = {k: v for k, v in told["counters"].items() if isinstance(v, int)}
usage = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps({
    "search_s": result.search_s,
    "verify_s": result.counters["seconds"]["verify"],
    "graphs": len(result.graphs) - 1,
    "cpu_s": sum(u.ru_utime + u.ru_stime for u in usage),
    "digest": hashlib.sha256(json.dumps(kept).encode()).hexdigest(),
}))
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One search; `cpu_s` is of all its processes, imports included."""

    search_s: float
    verify_s: float
    graphs: int
    cpu_s: float
    digest: str


@click.command()
@click.option("--workloads", default=WORKLOADS, show_default=True, help="Separated by commas.")
@click.option("--workers", default="1,2", show_default=True, help="Numbers of workers.")
@click.option("--rounds", default=2, show_default=True, help="Searches with each number.")
@click.option("--max-graphs", default=20_000, show_default=True, help="Most graphs to verify.")
def main(workloads: str, workers: str, rounds: int, max_graphs: int) -> None:
    """Measure the searches and print the table."""
    counts = [int(count) for count in workers.split(",")]
    rows: list[tuple[str, ...]] = []
    for name in workloads.split(","):
        found: dict[int, list[Measured]] = {count: [] for count in counts}
        for _ in range(rounds):
            for count in counts:
                click.echo(f"{name}, workers {count}", err=True)
                found[count].append(measure(name, count, max_graphs))
        rows += _rows(name, list(found.items()))
    out = Console(markup=False, emoji=False, highlight=False)
    if not out.is_terminal:
        out.width = 140
    out.print(table(HEADINGS, rows))


def measure(name: str, workers: int, max_graphs: int) -> Measured:
    """One search, in a process of its own."""
    command = [sys.executable, "-c", CHILD, name, str(workers), str(max_graphs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Measured(**json.loads(done.stdout))


HEADINGS = (
    *("workload", ">workers", ">search_s", ">verify_s", ">faster", ">cpu_s", ">graphs"),
    "results",
)


def _rows(name: str, found: Sequence[tuple[int, list[Measured]]]) -> Iterator[tuple[str, ...]]:
    """A row for each number of workers; those after the first are compared with it."""
    digests = {run.digest for _, runs in found for run in runs}
    first = min(run.search_s for run in found[0][1])
    for index, (count, runs) in enumerate(found):
        best = min(runs, key=lambda run: run.search_s)
        yield (
            "" if index else name,
            str(count),
            seconds(best.search_s),
            seconds(best.verify_s),
            f"{first / best.search_s:.2f}x",
            seconds(best.cpu_s),
            str(best.graphs),
            "" if index else ("the same" if len(digests) == 1 else "DIFFERENT"),
        )


if __name__ == "__main__":
    main()
