"""`make bench-tuning`: how many trials strategies need, replayed from exhaustive records.

A record (`exhaustive`) knows the time of every config of a space, so a strategy can be run on it
without a compiler, over many seeds, in seconds. As in a tuning run, a config that runs what another
one has run is passed by. Printed for each record and strategy, over the seeds: the trials until the
first one within 5 % of the record's best, median and worst; the share of random's median; the
trials to within 10 %, since the best of a record may be a single lucky config; and where the
strategy would have stopped by itself: after how many trials, how far from the best.

Where there is a record of the same program at other sizes, the default strategy is also run after a
run there, with what was fast in it as its first configs (`prism.tune.transfer`). `blind`: the same
without a cost model, every estimate equal, which leaves what it learns from the trials.

    python -m prism_experiments.bench_tuning --make rmsnorm --sizes n=8,d=1024,h=1024 --configs 170

makes a record on this machine: it builds every config (about a second each) and times them. With
`--like FILE` it has the configs of another record, carried over.

Estimates are those of the record. `--anew` asks the CPU's cost model of today instead; with `-o` a
record (`--records`) gets them and is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import click
from rich.console import Console

from prism.cli.params import parse_sizes
from prism.cli.render import percent, table
from prism.frontend import load_program
from prism.limits import check_memory
from prism.plugins import Group, installed, load, make
from prism.protocols import Target
from prism.record import Outcome, Trial
from prism.search import TUNED_KERNELS, SearchOptions, search
from prism.tune import Budget, Config, Strategy, Task, build_space, taught
from prism.tune.strategies import Estimate
from prism.tune.task import Identity
from prism.verdict import Verdict
from prism_experiments.exhaustive import ExhaustiveRecord, like, measured, thinned

RECORDS = Path(__file__).with_name("tuning_records")

WITHIN = 0.05
NEAR = 0.1
SEEDS = 20
REFERENCE = "random"
DEFAULT = "model"
BLIND = "model, blind"
ROUNDS = 15

GOAL = 0.25
"""Of the trials that random needs."""

Maker = Callable[[int], Strategy]
"""A strategy by its seed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy on one record, over all seeds; trials are infinite where it stopped before."""

    record: str
    configs: int
    good: float
    """The share of configs within 5 % of the best."""
    strategy: str
    median_trials: float
    worst_trials: float
    near_trials: float
    """Trials to within 10 % of the best, median."""
    stopped: float
    """Trials until it stopped by itself, median."""
    found: float
    """Time of its best then, over the record's best, median."""
    worst_found: float
    share: float = 1.0
    """Of the median trials of `random`."""


def replay(record: ExhaustiveRecord, strategy: Strategy) -> Iterator[tuple[Config, float | None]]:
    """What a strategy asks and is told, in order, until it stops."""
    seen: set[str] = set()
    while (config := strategy.ask()) is not None:
        identity, trial = record.identity(config), record.trials[config]
        if identity in seen or math.isinf(trial.estimate):
            continue
        seen.add(identity)
        strategy.tell(config, trial.seconds)
        yield config, trial.seconds


def trials_to(times: Sequence[float | None], goal_s: float) -> float:
    """How many trials until one is at least as fast; infinite if none is."""
    reached = (n for n, s in enumerate(times, start=1) if s is not None and s <= goal_s)
    return next(reached, math.inf)


def judged(record: ExhaustiveRecord, name: str, maker: Maker, seeds: int) -> Row:
    """A strategy on a record."""
    goal_s = (1 + WITHIN) * record.best_s
    runs = [[s for _, s in replay(record, maker(seed))] for seed in range(seeds)]
    counts = [trials_to(times, goal_s) for times in runs]
    found = [min(s for s in times if s is not None) / record.best_s for times in runs]
    known = [t.seconds for t in record.trials.values()]
    return Row(
        record=record.name,
        configs=len(known),
        good=sum(s is not None and s <= goal_s for s in known) / len(known),
        strategy=name,
        median_trials=median(counts),
        worst_trials=max(counts),
        near_trials=median(trials_to(times, (1 + NEAR) * record.best_s) for times in runs),
        stopped=median(len(times) for times in runs),
        found=median(found),
        worst_found=max(found),
    )


def compared(
    record: ExhaustiveRecord,
    names: Sequence[str],
    seeds: int,
    others: Sequence[ExhaustiveRecord] = (),
) -> list[Row]:
    """All strategies on one record, the reference first; `others` are of the same program."""
    ordered = [REFERENCE, *(name for name in names if name != REFERENCE)]
    rows = [judged(record, name, _maker(record, name), seeds) for name in ordered]
    if DEFAULT in ordered:
        rows.append(judged(record, BLIND, _maker(record, DEFAULT, lambda _: 1.0), seeds))
    for other in others:
        after = f"{DEFAULT} after {other.sizes_text}"
        rows.append(judged(record, after, _seeded(record, other), seeds))
    return [replace(row, share=row.median_trials / rows[0].median_trials) for row in rows]


def _maker(record: ExhaustiveRecord, name: str, estimate: Estimate | None = None) -> Maker:
    strategy: Callable[..., Strategy] = load(Group.STRATEGY, name)
    return lambda seed: strategy(record.space, estimate or record.estimate, seed)


def _seeded(record: ExhaustiveRecord, other: ExhaustiveRecord) -> Maker:
    """The default strategy with what a run on the other record found, whose seed is another."""
    before, after = _maker(other, DEFAULT), _maker(record, DEFAULT)

    def made(seed: int) -> Strategy:
        identity = Identity.of(_task(other))
        trials = [
            Trial(
                identity.key(config), other.program.name, config.graph_id, seed,
                Outcome.ERROR if seconds is None else Outcome.OK, seconds, seconds,
            )
            for config, seconds in replay(other, before(seed + 1000))
        ]  # fmt: skip
        return taught(after(seed), trials, _task(record), lambda k: other.estimate(k.config))[0]

    return made


def _task(record: ExhaustiveRecord) -> Task:
    """What was tuned; of the target only the device is there."""
    target: Any = SimpleNamespace(device=lambda: SimpleNamespace(text=record.device))
    sizes, dtype = dict(record.sizes), record.dtype
    return Task(record.program, sizes, "recorded", target, dtype, 0, record.space, Budget())


@click.command()
@click.option("--records", "files", multiple=True, type=click.Path(path_type=Path))
@click.option("--strategies", default="", help="Names separated by commas; all that are installed.")
@click.option("--seeds", default=SEEDS, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON line per row instead.")
@click.option("--smoke", is_flag=True, help="One record, three seeds.")
@click.option("--anew", is_flag=True, help="Estimates of today's cost model on this CPU.")
@click.option("--make", "workload", help="Make a record of this workload on this CPU instead.")
@click.option("--sizes", callback=parse_sizes, help="The sizes of the new record.")
@click.option("--configs", default=170, show_default=True, help="About how many it has.")
@click.option("--like", "other", type=click.Path(path_type=Path), help="... those of a record.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where it is written.")
def main(  # noqa: PLR0913 - the options of the command
    *,
    files: tuple[Path, ...],
    strategies: str,
    seeds: int,
    as_json: bool,
    smoke: bool,
    anew: bool,
    workload: str | None,
    sizes: dict[str, int] | None,
    configs: int,
    other: Path | None,
    output: Path | None,
) -> None:
    """Judge strategies on records, or make a record."""
    if workload is not None:
        if sizes is None or output is None:
            raise click.UsageError("a new record needs --sizes and --output")
        record = None if other is None else ExhaustiveRecord.load(other)
        recorded(workload, sizes, configs, record).save(output)
        return
    names = strategies.split(",") if strategies else list(installed(Group.STRATEGY))
    chosen = [ExhaustiveRecord.load(file) for file in files or sorted(RECORDS.glob("*.json"))]
    if anew:
        target: Target = make(Group.TARGET, "cpu")
        chosen = [record.estimated_by(target) for record in chosen]
    if output is not None:
        if len(chosen) != 1:
            raise click.UsageError("--output takes one record: name it with --records")
        chosen[0].save(output)
        return
    rows: list[Row] = []
    for record in chosen[: 1 if smoke else None]:
        others = [r for r in chosen if r.program == record.program and r.sizes != record.sizes]
        click.echo(record.name, err=True)
        rows += compared(record, names, 3 if smoke else seeds, () if smoke else others)
    if as_json:
        for row in rows:
            click.echo(json.dumps(asdict(row)))
        return
    _print(rows)


def recorded(
    workload: str, sizes: dict[str, int], configs: int, other: ExhaustiveRecord | None = None
) -> ExhaustiveRecord:
    """The record of a workload on this CPU, of a sample of what `optimize` would tune."""
    program = load_program(workload)[1]
    bound = check_memory(program, sizes)
    target: Target = make(Group.TARGET, "cpu")
    if other is None:
        options = SearchOptions(
            mode="tune",
            max_kernels=TUNED_KERNELS,
            sizes=tuple(bound.items()),
            device=target.device(),
        )
        proved = [g for g in search(program, options).graphs if g.verdict is Verdict.PROVED]
        space = build_space(tuple((g.id, g.graph) for g in proved), bound, target)
        space = thinned(space, configs, 0)
    else:
        space = like(other, bound, target)

    def show(done: int, total: int) -> None:
        click.echo(f"{done} of {total}", err=True)

    return measured(program, space, target, "float32", rounds=ROUNDS, step=show)


HEADINGS = (
    *("record", ">configs", ">within 5 %", "strategy", ">trials to 5 %", ">worst"),
    *(">of random", ">to 10 %", ">stops after", ">at best x", ">worst"),
)


def _print(rows: list[Row]) -> None:
    out = Console(markup=False, emoji=False, highlight=False)
    if not out.is_terminal:
        out.width = 190
    out.print(table(HEADINGS, (_cells(row) for row in rows)))
    out.print(summary(rows))


def summary(rows: Sequence[Row]) -> str:
    """How often the default reaches the goal, and its trials on all records together."""
    mine = [row for row in rows if row.strategy == DEFAULT]
    reached = sum(row.share <= GOAL for row in mine)
    trials = sum(row.median_trials for row in mine)
    reference = sum(row.median_trials for row in rows if row.strategy == REFERENCE)
    return (
        f"{DEFAULT}: a quarter of random's trials or less on {reached} of {len(mine)} records; "
        f"{trials:g} instead of {reference:g} on all together"
    )


def _cells(row: Row) -> tuple[str, ...]:
    is_first = row.strategy == REFERENCE
    return (
        row.record if is_first else "",
        str(row.configs) if is_first else "",
        percent(row.good) if is_first else "",
        row.strategy,
        f"{row.median_trials:g}",
        f"{row.worst_trials:g}",
        percent(row.share),
        f"{row.near_trials:g}",
        f"{row.stopped:g}",
        f"{row.found:.3f}",
        f"{row.worst_found:.3f}",
    )


if __name__ == "__main__":
    main()
