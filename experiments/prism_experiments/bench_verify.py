"""`make bench-verify`: milliseconds per full candidate on the five workloads of the paper.

Every graph within the limits of the authors' own search is proved by full terms, set-up included,
by one process, in e-graphs that hold nothing else. Each round uses a new verifier; the fastest
counts. Beside the total stands where it goes: terms built, e-graphs set up, terms inserted,
iterations, classes read, thread graphs (their e-graph is in the other columns too). `alone` is the
time of candidates that the parallel rules left open, so that each had an e-graph of its own; their
number stands before it. The digest is of all verdicts in order: it tells if a change kept them.
The goal is that of this interpreter, whose egglog is faster from Python 3.12 on.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest.mock import patch

import click
from rich.console import Console

from prism.cli.render import table
from prism.egraph import Session, load_axioms
from prism.frontend import load_program
from prism.ir import Program, SGraph
from prism.search import SearchOptions, search
from prism.verdict import Verdict
from prism.verify import ThreadProofs, Verifier
from prism.verify.equivalence import Judge

WORKLOADS = "rmsnorm_paper,swiglu_paper,attention_paper,qk_attention_paper,rmsnorm_mlp_paper"
GOAL_MS = 1.0 if sys.version_info >= (3, 12) else 4.0

STAGES: dict[str, tuple[type, tuple[str, ...]]] = {
    "terms": (Verifier, ("built",)),
    "set-up": (Session, ("__init__",)),
    "insert": (Session, ("insert",)),
    "iterate": (Session, ("iterate",)),
    "roots": (Session, ("roots",)),
    "threads": (ThreadProofs, ("faults",)),
    "alone": (Judge, ("_alone",)),
}
"""Which calls are timed; iterations include reading the size, thread graphs their own e-graph."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One workload; milliseconds are per graph."""

    workload: str
    graphs: int
    proved: int
    alone: int
    ms: float
    stages: dict[str, float]
    digest: str


@click.command()
@click.option("--workloads", default=WORKLOADS, show_default=True, help="Separated by commas.")
@click.option("--rounds", default=3, show_default=True, help="The fastest counts.")
def main(workloads: str, rounds: int) -> None:
    """Measure and print the table; exit status 1 if a goal is missed."""
    rows = []
    for name in workloads.split(","):
        click.echo(name, err=True)
        program, graphs = found(name)
        rows.append(min((measure(name, program, graphs) for _ in range(rounds)), key=_ms))
    out = Console(markup=False, emoji=False, highlight=False)
    if not out.is_terminal:
        out.width = 160
    out.print(table(HEADINGS, _cells(rows)))
    if any(row.ms > GOAL_MS for row in rows):
        sys.exit(1)


def found(name: str) -> tuple[Program, list[SGraph]]:
    """A workload's graphs at the reference limits."""
    options = SearchOptions(
        max_graphs=None, verify="sample", max_ops=11, max_accumulators=3, budget_s=None, workers=1
    )
    result = search(load_program(name)[1], options)
    return result.program, [g.graph for g in result.graphs if not g.is_fallback]


def measure(name: str, program: Program, graphs: Sequence[SGraph]) -> Measured:
    """Judge them all once."""
    axioms = load_axioms()
    seconds = dict.fromkeys(STAGES, 0.0)
    calls: Counter[str] = Counter()
    with _timed(seconds, calls):
        begin = time.perf_counter()
        verdicts = Verifier(program, axioms).verify(graphs)
        elapsed = time.perf_counter() - begin
    each = 1000 / max(1, len(graphs))
    text = " ".join(verdict.value for verdict in verdicts)
    return Measured(
        name,
        len(graphs),
        sum(verdict is Verdict.PROVED for verdict in verdicts),
        calls["alone"],
        elapsed * each,
        {stage: seconds[stage] * each for stage in STAGES},
        hashlib.sha256(text.encode()).hexdigest()[:12],
    )


@contextmanager
def _timed(seconds: dict[str, float], calls: Counter[str]) -> Iterator[None]:
    """Within, calls of each stage are counted and timed."""

    def timed(stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - what the stage takes
            begin = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                seconds[stage] += time.perf_counter() - begin
                calls[stage] += 1

        return call

    with ExitStack() as stack:
        for stage, (owner, names) in STAGES.items():
            for name in names:
                wrapped = timed(stage, getattr(owner, name))
                stack.enter_context(patch.object(owner, name, wrapped))
        yield


def _ms(row: Measured) -> float:
    return row.ms


HEADINGS = (
    *("workload", ">graphs", ">proved", ">alone", ">ms each", ">goal"),
    *(f">{stage}" for stage in STAGES),
    "verdicts",
)


def _cells(rows: Sequence[Measured]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        yield (
            row.workload,
            str(row.graphs),
            str(row.proved),
            str(row.alone),
            f"{row.ms:.2f}",
            f"{GOAL_MS:.0f}" if row.ms <= GOAL_MS else f"{GOAL_MS:.0f} MISSED",
            *(f"{row.stages[stage]:.2f}" for stage in STAGES),
            row.digest,
        )


if __name__ == "__main__":
    main()
