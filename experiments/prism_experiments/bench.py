"""`make bench`: the shipped workloads beside NumPy, at a decode size and a ragged one each.

Every measurement is one `prism bench --json` in a process of its own, and one line of a JSON-lines
file. A measurement that is in the file already is not repeated, so an interrupted run goes on where
it stopped; one that fails is a line too, with its message.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from prism.cli.render import percent, seconds, table, times
from prism.record import append_line
from prism_experiments.sizes import SHAPES, sizes_text

SCHEMA = "prism.experiment.bench/1"

CASES: tuple[tuple[str, str], ...] = tuple(
    (workload, sizes_text(workload, shape)) for workload in SHAPES for shape in ("decode", "ragged")
)
"""Workload and sizes: weights that stream from memory, and sizes that divide by nothing."""

SMOKE_CASES: tuple[tuple[str, str], ...] = (
    ("rmsnorm", "n=4,d=256,h=256"),
    ("softmax_matmul", "n=3,k=127,h=65"),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """How each case is measured."""

    budget: float
    rounds: int
    seed: int = 0
    dtype: str = "float32"
    against: str = "numpy"


FULL = Setting(budget=60.0, rounds=7)
SMOKE = Setting(budget=15.0, rounds=3)


@click.command()
@click.option("--smoke", is_flag=True, help="Two small cases, under two minutes in all.")
@click.option("--budget", type=float, help="Seconds of tuning per case (60; smoke: 15).")
@click.option("--rounds", type=int, help="Rounds of timing per case (7; smoke: 3).")
@click.option("--seed", default=0, show_default=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The JSON-lines file (records/bench.jsonl; smoke: records/bench-smoke.jsonl).",
)
@click.option("--again", is_flag=True, help="Measure what is in the file once more.")
def main(*, smoke: bool, seed: int, output: Path | None, again: bool, **measuring: Any) -> None:  # noqa: ANN401 - click's values
    """Measure the shipped workloads against NumPy and print the table."""
    default = SMOKE if smoke else FULL
    given = {name: value for name, value in measuring.items() if value is not None}
    setting = replace(default, seed=seed, **given)
    path = output or Path("records/bench-smoke.jsonl" if smoke else "records/bench.jsonl")
    cases = SMOKE_CASES if smoke else CASES
    known = {} if again else read_lines(path)
    results: list[dict[str, Any]] = []
    for number, (program, sizes) in enumerate(cases, start=1):
        key = key_of(program, sizes, setting)
        line = known.get(json.dumps(key))
        if line is None:
            click.echo(f"[{number}/{len(cases)}] {program} {sizes}", err=True)
            line = {"schema": SCHEMA, "key": key, **measure(program, sizes, setting)}
            append_line(path, json.dumps(line))
        results.append(line)
    show(results)
    click.echo(f"lines: {path}")


def key_of(program: str, sizes: str, setting: Setting) -> dict[str, Any]:
    """What makes two measurements the same one."""
    return {
        "program": program,
        "sizes": sizes,
        "dtype": setting.dtype,
        "against": setting.against,
        "budget": setting.budget,
        "rounds": setting.rounds,
        "seed": setting.seed,
        "prism_version": version("prism-superopt"),
    }


def measure(program: str, sizes: str, setting: Setting) -> dict[str, Any]:
    """One `prism bench`; its JSON as `result`, or its message as `failure`."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "prism", "bench", program, "--sizes", sizes, "--json"),
            *("--against", setting.against, "--dtype", setting.dtype),
            *("--budget", str(setting.budget), "--rounds", str(setting.rounds)),
            *("--seed", str(setting.seed)),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        return {"result": None, "failure": done.stderr.strip() or f"status {done.returncode}"}
    return {"result": json.loads(done.stdout), "failure": None}


def read_lines(path: Path) -> dict[str, dict[str, Any]]:
    """What is in the file, by key; a line cut off by an interrupt is left out, a failure too."""
    if not path.is_file():
        return {}
    found: dict[str, dict[str, Any]] = {}
    for line in _parsed(path.read_text(encoding="utf-8").splitlines()):
        if line.get("schema") == SCHEMA and line.get("failure") is None:
            found[json.dumps(line["key"])] = line
    return found


def _parsed(lines: list[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict):
            yield data


def show(results: list[dict[str, Any]]) -> None:
    """The table: one row per case and rival."""
    rows: list[tuple[str, ...]] = []
    for line in results:
        place = (line["key"]["program"], line["key"]["sizes"])
        if line["result"] is None:
            rows.append((*place, line["failure"].splitlines()[-1], "", "", "", ""))
            continue
        ours, *rivals = line["result"]["contestants"]
        share = percent(ours["bandwidth_fraction"])
        rows += [
            (
                *place,
                rival["name"],
                seconds(ours["median_s"]),
                seconds(rival["median_s"]),
                times(rival["ratio"]),
                share,
            )
            for rival in rivals
        ]
    headings = ("workload", "sizes", "against", ">ours", ">theirs", ">ratio", ">of stream")
    out = Console(markup=False, emoji=False, highlight=False)
    if not out.is_terminal:
        out.width = 200
    out.print(table(headings, rows))


if __name__ == "__main__":
    main()
