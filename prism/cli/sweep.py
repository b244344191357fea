"""`prism sweep GRID`: every cell of a grid becomes a line; goes on where it stopped."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType

from prism.cli.answer import Answer, Status
from prism.cli.grid_check import require_right_options
from prism.cli.params import ray_option
from prism.cli.render import seconds, table
from prism.cli.run import Run, answering
from prism.cluster import Cluster, connected
from prism.plugins import Group, file_of
from prism.sweep import Cell, LocalPool, Pool, SweepResult, load_grid, shard_of, sweep
from prism.sweep.grid import Grid, Planned

SHOWN_FAILURES = 5
MAX_SHARDS = 10_000


def parse_shard(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int]:
    """`2/3` -> (2, 3); not given -> (1, 1).

    Raises:
        click.BadParameter: it is not of that form, or there is no such shard.
    """
    del ctx, param
    if value is None:
        return 1, 1
    found = re.fullmatch(r"([0-9]{1,5})/([0-9]{1,5})", value)
    if found is None or not 1 <= int(found[1]) <= int(found[2]) <= MAX_SHARDS:
        raise click.BadParameter(f"a shard is i/n with i from 1 to n, as in 1/2, not {value!r}")
    return int(found[1]), int(found[2])


@click.command("sweep")
@click.argument("grid", metavar="GRID")
@click.option(
    "--shard",
    callback=parse_shard,
    metavar="i/n",
    help="Only every n-th cell, from the i-th: each machine takes one shard, with -o of its own.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    metavar="N",
    help="Cells at once; those that time kernels run alone whatever this says.",
)
@ray_option("Run the cells on this Ray cluster instead")
@click.option("--smoke", is_flag=True, help="The grid's small form.")
@click.option("--retry", is_flag=True, help="Run cells that failed once more.")
@click.option("--list", "only_list", is_flag=True, help="Show the cells, and run nothing.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="RUN.jsonl",
    help="Where lines are appended: records/GRID.jsonl, GRID-smoke.jsonl for --smoke.",
)
@answering("sweep")
def command(run: Run, grid: str, **options: Any) -> Answer:  # noqa: ANN401 - see the options
    """Run every cell of GRID, each in a process of its own, and append a line for each.

    GRID is a file GRID.toml, or the name of an installed one (prism list grids).

    Cells that have their line are not run again: a sweep that was killed goes on where it stopped.
    A cell that fails is a line too. `prism report` shows one file or several together, such as the
    shards of a sweep.

    Exit status 1: cells failed. 130: interrupted; what was done is in the file.
    """
    path = file_of(Group.GRID, grid, ".toml")
    found = load_grid(path, smoke=options["smoke"])
    require_right_options(found, path)
    planned = shard_of(found.cells, *options["shard"])
    if options["only_list"]:
        return listed(found, planned)
    name = f"{found.name}-smoke.jsonl" if options["smoke"] else f"{found.name}.jsonl"
    output = options["output"] or Path("records") / name
    with connected(options["ray"]) as cluster, run.progress() as progress:
        pool = _pool(cluster, options["jobs"])
        result = sweep(found, planned, output, pool, progress, retry=options["retry"])
    fields = sweep_json(result, found, output)
    status = Status.YES if all(cell.is_answered for cell in result.cells) else Status.NO
    return Answer(fields, sweep_view(result, fields), status)


def _pool(cluster: Cluster | None, jobs: int) -> Pool:
    if cluster is None:
        return LocalPool(jobs)
    from prism.sweep.cluster import ClusterPool  # noqa: PLC0415 - few sweeps use a cluster

    return ClusterPool(cluster)


def listed(grid: Grid, planned: Sequence[Planned]) -> Answer:
    """The cells, not run."""
    cells = [
        {"index": cell.index, "labels": dict(cell.labels), "settings": dict(cell.settings)}
        for cell in planned
    ]
    # lines and no table: there may be 100,000
    width = len(str(len(grid.cells)))
    rows = (f"{cell.index + 1:>{width}}  {_name(cell)}" for cell in planned)
    view = (f"{grid.title}: {len(planned)} cells", "\n".join(rows))
    return Answer({"grid": grid.name, "title": grid.title, "cells": cells}, view)


def sweep_json(result: SweepResult, grid: Grid, output: Path) -> dict[str, Any]:
    """What a sweep did as JSON-able data."""
    return {
        "grid": grid.name,
        "output": str(output),
        "planned": result.planned,
        "done_before": result.before,
        "run": result.run,
        "outcomes": dict(Counter(cell.outcome for cell in result.cells)),
        "failures": [
            {"index": cell.index, "labels": dict(cell.labels), "message": cell.message}
            for cell in result.cells
            if not cell.is_answered
        ],
    }


def sweep_view(result: SweepResult, fields: dict[str, Any]) -> tuple[RenderableType, ...]:
    """The cells for people: one row each, then what failed."""
    counts = ", ".join(f"{count} {outcome}" for outcome, count in fields["outcomes"].items())
    axes = list(dict.fromkeys(axis for cell in result.cells for axis in cell.labels))
    rows = [_row(cell, axes) for cell in result.cells]
    failed = [cell for cell in result.cells if not cell.is_answered]
    return (
        table((*axes, "outcome", "answer", ">took"), rows),
        f"{fields['grid']}: {result.run} cells run, {result.before} were there: {counts or 'none'}",
        *(f"failed: {_name(cell)}: {_last(cell)}" for cell in failed[:SHOWN_FAILURES]),
        *(["run with --retry to try these again"] if failed else []),
        f"lines: {fields['output']}",
    )


def _row(cell: Cell, axes: Sequence[str]) -> tuple[str, ...]:
    labels = [cell.labels.get(axis, "") for axis in axes]
    return (*labels, cell.outcome, answer_of(cell), seconds(cell.elapsed_s))


def answer_of(cell: Cell) -> str:
    """What a cell found, in a few words."""
    parts: list[str] = []
    if search := cell.result("search"):
        parts.append(f"{search.get('graph_count')} graphs in {seconds(search.get('search_s'))}")
    if verify := cell.result("verify"):
        parts.append(str(verify.get("verdict")))
    best = cell.result("tune").get("best") or cell.result("optimize").get("best") or {}
    time_s = best.get("median_s") or best.get("predicted_s")
    if time_s is not None:
        parts.append(f"kernel {seconds(time_s)}")
    rivals = cell.result("bench").get("contestants", ())[1:]
    parts += [f"{r['ratio']:.2f}x vs {r['name']}" for r in rivals if r["ratio"] is not None]
    return ", ".join(parts)


def _name(cell: Cell | Planned) -> str:
    return ", ".join(f"{axis} {text}" for axis, text in cell.labels.items())


def _last(cell: Cell) -> str:
    return cell.message.splitlines()[-1] if cell.message else cell.outcome
