"""`prism optimize PROGRAM --sizes ...`: search and tune in one go, cached."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType

from prism.cache import write_atomically
from prism.cli.answer import Answer, Status
from prism.cli.inputs import check_memory, check_output
from prism.cli.params import (
    budget_option,
    only,
    ray_option,
    search_options,
    several_sizes,
    tune_options,
)
from prism.cli.run import Run, answering
from prism.cli.search import make_options
from prism.cli.tune import tuning_status
from prism.driver import NoKernelWarning, optimize
from prism.egraph import load_axioms
from prism.errors import UsageError
from prism.frontend import load_program
from prism.optimized import KERNEL_FILE, Optimized
from prism.optimized_shapes import OptimizedShapes
from prism.search import MODES, TUNED_KERNELS

_TUNING = ("target", "dtype", "budget", "cache", "records", "ray")
"""The options that are the tuner's."""


@click.command("optimize")
@click.argument("program")
@click.option(
    "--sizes",
    required=True,
    multiple=True,
    callback=several_sizes,
    metavar="SIZES",
    help="The size of every dimension, as in n=8,d=4096,h=4096; repeat it for more shapes.",
)
@tune_options
@search_options
@click.option(
    "--mode",
    callback=only(*MODES),
    metavar="MODE",
    help="Which graphs to tune: tune (the default) those that may be the fastest; count all.",
)
@budget_option(60.0)
@click.option("--cache/--no-cache", default=True, help="Use and fill the cache (the default).")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="KERNEL.py",
    help="Write the kernel's source here as well.",
)
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Save the kernel for Optimized.load and `prism bench --kernel`; several shapes for "
    "OptimizedShapes.load.",
)
@click.option(
    "--records",
    type=click.Path(path_type=Path),
    metavar="FILE.jsonl",
    help="Every trial is appended here, not in the cache; trials found here are not repeated.",
)
@ray_option("Run trials on this Ray cluster, on machines that are the same device as this one")
@answering("optimize")
def command(
    run: Run,
    program: str,
    sizes: list[dict[str, int]],
    output: Path | None,
    save: Path | None,
    **options: Any,  # noqa: ANN401 - the tuning's and the search's own
) -> Answer:
    """Search PROGRAM, tune it at the given sizes, and say which kernel won.

    The budget is for tuning, of each shape. Of several shapes, each begins with what was fast for
    those before it. Exit status 1: no kernel passed, the program itself is the answer.
    """
    if len(sizes) > 1 and output is not None:
        raise UsageError("-o takes the kernel of one shape; --save FOLDER keeps several")
    load_axioms(options["axioms"])  # first: the program may call the operators they define
    _, traced = load_program(program)
    for each in sizes:
        check_memory(traced, each)
    check_output(output)
    check_output(None if save is None else save / KERNEL_FILE)
    tuning = {name: options.pop(name) for name in _TUNING}
    chosen = make_options(**with_defaults(options))
    with run.progress() as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", NoKernelWarning)  # the answer says it
        shapes = optimize(
            traced,
            sizes=sizes,
            seed=run.seed,
            search_options=chosen,
            progress=progress,
            **tuning,
        )
    if len(shapes.shapes) > 1:
        if save is not None:
            shapes.save(save)
        return shapes_answer(shapes)
    (made,) = shapes.shapes
    if output is not None:
        write_atomically(output, made.source)
    if save is not None:
        made.save(save)
    return Answer(optimized_json(made), optimized_view(made), optimized_status(made))


def with_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the search, with what `optimize` chooses where nothing is given."""
    mode, most = options["mode"], options["max_kernels"]
    if mode is None:
        mode = "tune" if options["generator"] == "cone" else "count"
    if most is None and mode == "tune":
        most = TUNED_KERNELS
    return {**options, "mode": mode, "max_kernels": most}


def shapes_answer(shapes: OptimizedShapes) -> Answer:
    """Several shapes: under `shapes` what one says; the first exit status that is not 0."""
    statuses = (optimized_status(made) for made in shapes.shapes)
    return Answer(
        {
            "program": shapes.program.name,
            "dtype": shapes.dtype,
            "target": shapes.target,
            "is_fallback": shapes.is_fallback,
            "shapes": [optimized_json(made) for made in shapes.shapes],
        },
        (shapes.report().rstrip(),),
        next((status for status in statuses if status is not Status.YES), Status.YES),
    )


def optimized_json(made: Optimized) -> dict[str, Any]:
    """An optimized program as JSON-able data."""
    tuned = made.facts.get("tune", {})
    best = tuned.get("best")
    if best is not None:
        best = {**best, "kernel": None if made.path is None else str(made.path)}
    return {
        "program": made.program.name,
        "sizes": dict(made.sizes),
        "dtype": made.dtype,
        "target": made.target,
        "is_fallback": made.is_fallback,
        **tuned,
        "best": best,
        "search": made.facts.get("search", {}),
    }


def optimized_view(made: Optimized) -> tuple[RenderableType, ...]:
    """The report of an optimized program."""
    return (made.report().rstrip(),)


def optimized_status(made: Optimized) -> Status:
    """Negative when there is no kernel; one that cannot run here is one."""
    tuned = made.facts.get("tune")
    status = Status.NO if tuned is None else tuning_status(tuned)
    return Status.NO if made.winner is None and status is Status.YES else status
