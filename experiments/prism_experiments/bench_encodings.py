"""`make bench-encodings`: what each installed encoding costs in a search, and whether they agree.

Every workload is searched under every encoding, in rounds, the encodings in turn so that all of
them meet the same noise. The first round is cold (a solver's first use in the process), of the
others the best counts. Loading an encoding is timed apart, in a process of its own. Printed: models
solved, assignments found, seconds in the encoding, and whether the graphs are the ones that the
first encoding leads to. Exit status 1 if they are not.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import click
from rich.console import Console

from prism.cli.render import seconds, table, times
from prism.frontend import load_program
from prism.ir import Program
from prism.plugins import Group, installed
from prism.search import SearchOptions, SearchResult, search

ROUNDS = 3
MAX_GRAPHS = 20
"""Graphs verified in each search: these are compared; more would only be more proofs."""

LOADING = """
import sys, time
from prism.ir import GRID_DIMS, LOOP_DIM, MappedTensor, MappingProblem
from prism.plugins import Group, make
problem = MappingProblem((MappedTensor("X", ("n", "d")),), GRID_DIMS, (LOOP_DIM,), frozenset())
start = time.perf_counter()
make(Group.ENCODING, sys.argv[1]).enumerate(problem)
print(time.perf_counter() - start)
"""


@dataclass(slots=True)
class Cost:
    """One encoding on one workload; `seconds` in the encoding, of each round."""

    workload: str
    encoding: str
    problems: int = 0
    models: int = 0
    assignments: int = 0
    seconds: list[float] = field(default_factory=list)
    graphs: tuple[str, ...] = ()
    is_complete: bool = False

    def add(self, result: SearchResult) -> None:
        """Note one round."""
        counts = result.counters["encodings"][self.encoding]
        self.problems, self.models = counts["problems"], counts["models"]
        self.assignments = counts["assignments"]
        self.seconds.append(counts["seconds"])
        self.graphs = tuple(g.id for g in result.graphs)
        self.is_complete = not any(cut.startswith("mappings") for cut in result.cuts)

    @property
    def warm_s(self) -> float:
        """The best round but the first."""
        return min(self.seconds[1:] or self.seconds)


@click.command()
@click.option("--workloads", default="", help="Names separated by commas; all that are installed.")
@click.option("--encodings", default="", help="The same for encodings; FILE.py:CLASS works too.")
@click.option("--rounds", default=ROUNDS, show_default=True)
def main(workloads: str, encodings: str, rounds: int) -> None:
    """Measure the encodings and print the tables."""
    programs = _names(workloads, Group.WORKLOAD)
    chosen = _names(encodings, Group.ENCODING)
    costs: list[Cost] = []
    for name in programs:
        click.echo(name, err=True)
        costs += measure(load_program(name)[1], name, chosen, rounds)
    out = Console(markup=False, emoji=False, highlight=False)
    if not out.is_terminal:
        out.width = 160
    out.print(table(HEADINGS, _rows(costs)))
    out.print(table(TOTALS, _totals(costs, {name: loading_s(name) for name in chosen})))
    if not all(_agrees(costs, cost) for cost in costs):
        click.echo("Encodings lead to different graphs.", err=True)
        sys.exit(1)


def _names(given: str, group: Group) -> list[str]:
    return given.split(",") if given else list(installed(group))


def measure(program: Program, name: str, encodings: Sequence[str], rounds: int) -> list[Cost]:
    """All rounds of one workload."""
    costs = [Cost(name, encoding) for encoding in encodings]
    for _ in range(rounds):
        for cost in costs:
            options = SearchOptions(encoding=cost.encoding, budget_s=None, max_graphs=MAX_GRAPHS)
            cost.add(search(program, options))
        costs = [*costs[1:], costs[0]]
    return sorted(costs, key=lambda cost: encodings.index(cost.encoding))


def loading_s(encoding: str) -> float:
    """Seconds to load an encoding and solve a first small problem, in a fresh process."""
    command = [sys.executable, "-c", LOADING, encoding]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


HEADINGS = (
    *("workload", "encoding", ">problems", ">models", ">assignments", ">cold", ">warm"),
    *(">of the fastest", "graphs"),
)
TOTALS = ("all workloads", ">models", ">assignments", ">cold", ">warm", ">loading")


def _rows(costs: Sequence[Cost]) -> Iterator[tuple[str, ...]]:
    for cost in costs:
        fastest = min(c.warm_s for c in costs if c.workload == cost.workload)
        first = cost is _first(costs, cost.workload)
        yield (
            cost.workload if first else "",
            cost.encoding,
            f"{cost.problems}",
            f"{cost.models}",
            f"{cost.assignments}{'' if cost.is_complete else ' (cut)'}",
            seconds(cost.seconds[0]),
            seconds(cost.warm_s),
            times(cost.warm_s / fastest),
            f"{len(cost.graphs)}" if first else "same" if _agrees(costs, cost) else "OTHERS",
        )


def _totals(costs: Sequence[Cost], loading: dict[str, float]) -> Iterator[tuple[str, ...]]:
    for encoding, load_s in loading.items():
        ours = [cost for cost in costs if cost.encoding == encoding]
        yield (
            encoding,
            f"{sum(cost.models for cost in ours)}",
            f"{sum(cost.assignments for cost in ours)}",
            seconds(sum(cost.seconds[0] for cost in ours)),
            seconds(sum(cost.warm_s for cost in ours)),
            seconds(load_s),
        )


def _first(costs: Sequence[Cost], workload: str) -> Cost:
    return next(cost for cost in costs if cost.workload == workload)


def _agrees(costs: Sequence[Cost], cost: Cost) -> bool:
    return cost.graphs == _first(costs, cost.workload).graphs


if __name__ == "__main__":
    main()
