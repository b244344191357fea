"""`prism tune ARTIFACT --sizes ...`: the fastest kernel of a search, for one set of sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType

from prism.artifact import load_artifact
from prism.cli.answer import Answer, Status
from prism.cli.inputs import check_memory, check_output
from prism.cli.params import budget_option, ray_option, sizes_option, tune_options
from prism.cli.render import seconds, table
from prism.cli.run import Run, answering
from prism.driver import tune
from prism.report import not_run_text, resources_text, tune_facts
from prism.tune import TuneResult


@click.command("tune")
@click.argument("artifact", type=click.Path(path_type=Path))
@sizes_option
@tune_options
@click.option(
    "--strategy",
    default="model",
    show_default=True,
    metavar="NAME|FILE.py:CLASS",
    help="In which order kernels are tried; `prism list strategies`.",
)
@click.option("--trials", type=click.IntRange(1), metavar="N", help="Most kernels to try.")
@budget_option(60.0)
@click.option(
    "--records",
    type=click.Path(path_type=Path),
    metavar="FILE.jsonl",
    help="Every trial is appended here; trials found here are not repeated, and what was fast at "
    "other sizes is tried first.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="KERNEL.py",
    help="Write the best kernel here, not into the cache.",
)
@ray_option("Run trials on this Ray cluster, on machines that are the same device as this one")
@answering("tune")
def command(
    run: Run,
    artifact: Path,
    sizes: dict[str, int],
    budget: float,
    **options: Any,  # noqa: ANN401 - passed on as they are
) -> Answer:
    """Find the fastest kernel among the verified graphs of ARTIFACT.

    Exit status 1: no kernel passed. 3: none did before the budget ended.
    """
    found = load_artifact(artifact)
    check_memory(found.program, sizes)
    check_output(options["output"])
    with run.progress() as progress:
        result = tune(found, sizes, budget_s=budget, seed=run.seed, progress=progress, **options)
    facts = tune_json(result)
    return Answer(
        {"artifact": str(artifact), "program": found.program.name, "sizes": sizes, **facts},
        tuning_view(facts),
        tuning_status(facts),
    )


def tune_json(result: TuneResult) -> dict[str, Any]:
    """A tuning result as JSON-able data, with where the kernel lies."""
    facts = tune_facts(result)
    best = result.best
    if best is not None:
        path = None if best.path is None else str(best.path)
        facts["best"] = {**facts["best"], "kernel": path}
    return facts


def tuning_status(facts: dict[str, Any]) -> Status:
    """What the exit status says about a tuning run."""
    if facts["stopped"] == "interrupted":
        return Status.INTERRUPTED
    if facts["best"] is not None:
        return Status.YES
    return Status.GAVE_UP if facts["stopped"] in ("budget", "cluster lost") else Status.NO


def tuning_view(facts: dict[str, Any]) -> tuple[RenderableType, ...]:
    """A tuning run for people."""
    trials = ", ".join(f"{count} {outcome}" for outcome, count in facts["trials"].items())
    origin = f"{facts['resumed']} from the record, space of {facts['space_size']}"
    lines = [
        f"trials: {trials or 'none'} ({origin}); stopped by {facts['stopped']}",
        *(f"note: {note}" for note in facts["notes"]),
    ]
    best = facts["best"]
    if best is None:
        return (*lines, "no kernel passed")
    rows = [("graph", best["graph"]), ("parameters", parameters(best)), *_times(best)]
    if resources := resources_text(best):
        rows.append(("resources", resources))
    rows.append(("kernel", str(best["kernel"])))
    return (*lines, table(("best", ""), rows))


def _times(best: dict[str, Any]) -> list[tuple[str, str]]:
    if best["predicted"]:
        return [("predicted", f"{seconds(best['predicted_s'])} ({not_run_text(best)})")]
    clock = f" ({best['clock']})" if "clock" in best else ""
    return [
        ("median", seconds(best["median_s"]) + clock),
        ("minimum", seconds(best["min_s"])),
        ("max error", f"{best['max_error'] or 0.0:.2g} (norm, against float64)"),
    ]


def parameters(best: dict[str, Any]) -> str:
    """The d_p of each kernel and the emitter's options, in one line."""
    counts = [f"{name}={n}" for kernel in best["par_sizes"] for name, n in kernel.items()]
    schedule = [f"{name}={n}" for name, n in best["schedule"].items()]
    return " ".join([*counts, *schedule]) or "none"
