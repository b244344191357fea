"""`make bench`: the shipped workloads beside their rivals, and which goals are reached.

Every measurement is one `prism bench --json` in a process of its own, and one line of a JSON-lines
file. A measurement that is in the file already is not repeated, so an interrupted run goes on where
it stopped; one that fails is a line too, with its message. No case is begun that would probably end
after the limit: run again for those.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from prism.record import append_line
from prism_experiments.bench_table import Line, show
from prism_experiments.sizes import PUBLISHED, SHAPES, sizes_text

SCHEMA = "prism.experiment.bench/2"

REAL = ("rmsnorm", "rmsnorm_mlp", "swiglu", "attention", "qk_attention")
"""The paper's five, as models run them."""

SHAPES_SHOWN = ("decode", "ragged")
"""Weights that stream from memory, and sizes that divide by nothing."""

Case = tuple[str, str]
"""A workload and a shape of `prism_experiments.sizes`."""

MAIN: tuple[Case, ...] = (
    *((workload, "decode") for workload in REAL),
    ("layernorm_linear", "decode"),  # one of the goals
    *((workload, "ragged") for workload in REAL),
    *PUBLISHED,
)
"""The five in both forms at two sizes each, the most important first."""

REST: tuple[Case, ...] = (
    *(
        (workload, shape)
        for shape in SHAPES_SHOWN
        for workload in SHAPES
        if (workload, shape) not in MAIN
    ),
    *((workload, "larger") for workload in REAL),
)
"""What `--all` adds."""

SMOKE_CASES: tuple[Case, ...] = (("rmsnorm", "ragged"), ("softmax_matmul", "ragged"))

LIBRARIES = ("numpy", "onnxruntime", "torch")
"""What rivals are made of: another version is another measurement."""

LIMIT_S = 2400.0


@dataclass(frozen=True, slots=True)
class Setting:
    """How each case is measured."""

    budget: float
    rounds: int
    seed: int = 0
    dtype: str = "float32"
    against: str = "all"


FULL = Setting(budget=40.0, rounds=7)
SMOKE = Setting(budget=5.0, rounds=3, against="numpy,onnxruntime,torch")


@click.command()
@click.option("--smoke", is_flag=True, help="Two small cases, under two minutes in all.")
@click.option("--all", "everything", is_flag=True, help="Every workload, and more sizes.")
@click.option("--budget", type=float, help="Seconds of tuning per case (40; smoke: 5).")
@click.option("--rounds", type=int, help="Rounds of timing per case (7; smoke: 3).")
@click.option("--dtype", help="float32, or another that `prism bench` takes.")
@click.option("--against", help="Rivals, as in `prism bench` (all; smoke: what need not compile).")
@click.option("--seed", default=0, show_default=True)
@click.option("--only", multiple=True, metavar="WORKLOAD", help="Only these; repeatable.")
@click.option("--limit", default=LIMIT_S, show_default=True, help="Seconds for the whole run.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The JSON-lines file (records/bench.jsonl; smoke: records/bench-smoke.jsonl).",
)
@click.option("--again", is_flag=True, help="Measure what is in the file once more.")
def main(  # noqa: PLR0913 - its options
    *,
    smoke: bool,
    everything: bool,
    seed: int,
    only: tuple[str, ...],
    limit: float,
    output: Path | None,
    again: bool,
    **measuring: Any,  # noqa: ANN401 - click's values
) -> None:
    """Measure the shipped workloads against their rivals, print the table and the goals."""
    started = time.monotonic()
    given = {name: value for name, value in measuring.items() if value is not None}
    setting = replace(SMOKE if smoke else FULL, seed=seed, **given)
    path = output or Path("records/bench-smoke.jsonl" if smoke else "records/bench.jsonl")
    cases = SMOKE_CASES if smoke else (*MAIN, *REST) if everything else MAIN
    cases = tuple(case for case in cases if not only or case[0] in only)
    known = {} if again else read_lines(path)
    results: list[Line] = []
    longest = 0.0
    for number, case in enumerate(cases, start=1):
        key = key_of(case, setting)
        line = known.get(json.dumps(key))
        if line is None:
            begun = time.monotonic()
            if begun - started + longest > limit:
                continue
            click.echo(f"[{number}/{len(cases)}] {key['program']} {key['sizes']}", err=True)
            line = {"schema": SCHEMA, "key": key, **measure(key["program"], key["sizes"], setting)}
            append_line(path, json.dumps(line))
            longest = max(longest, time.monotonic() - begun)
        results.append(Line(case, line))
    show(results)
    if left := len(cases) - len(results):
        click.echo(f"{left} cases were not begun: the limit is {limit:.0f} s; run again for them")
    click.echo(f"lines: {path}")


def key_of(case: Case, setting: Setting) -> dict[str, Any]:
    """What makes two measurements the same one."""
    return {
        "program": case[0],
        "sizes": sizes_text(*case),
        "dtype": setting.dtype,
        "against": setting.against,
        "budget": setting.budget,
        "rounds": setting.rounds,
        "seed": setting.seed,
        "prism_version": version("prism-superopt"),
        "rivals": {name: _version(name) for name in LIBRARIES},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


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
    """What is in the file, by key, but for what is worth another try.

    That is a line cut off by an interrupt, a failure, and a case without a kernel in time.
    """
    if not path.is_file():
        return {}
    found: dict[str, dict[str, Any]] = {}
    for line in _parsed(path.read_text(encoding="utf-8").splitlines()):
        result = line.get("result")
        if line.get("schema") == SCHEMA and isinstance(result, dict) and not result["is_fallback"]:
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


if __name__ == "__main__":
    main()
