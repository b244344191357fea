"""`prism bench PROGRAM --sizes ... --against numpy`: our kernel beside its rivals."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType

from prism.bench import CONTESTANTS, BenchOptions, BenchResult, Task, contestant, run_bench
from prism.bench.stream import allowed_cpus
from prism.cli.answer import Answer, say
from prism.cli.inputs import check_memory
from prism.cli.params import budget_option, parse_names, sizes_option, tune_options
from prism.cli.render import percent, seconds, table, times
from prism.cli.run import Bar, Run, answering
from prism.driver import optimize
from prism.errors import UsageError
from prism.frontend import load_program
from prism.ir import Program
from prism.optimized import Optimized


@dataclass(frozen=True, slots=True)
class Request:
    """The options that say how to optimize and how much to measure."""

    target: str
    dtype: str
    budget: float
    rounds: int
    processes: int
    threads: int | None
    kernel: Path | None


@click.command("bench")
@click.argument("program")
@sizes_option
@click.option(
    "--against",
    default="numpy",
    show_default=True,
    callback=parse_names,
    metavar="NAME,..",
    help=f"Rivals: {', '.join(CONTESTANTS)}, or FILE.py:CLASS.",
)
@tune_options
@budget_option(60.0)
@click.option("--rounds", type=click.IntRange(1, 1000), metavar="N", default=7, show_default=True)
@click.option(
    "--processes",
    type=click.IntRange(1, 100),
    metavar="N",
    default=1,
    show_default=True,
    help="How often each contestant is started anew.",
)
@click.option(
    "--threads", type=click.IntRange(1), metavar="N", help="Threads of each contestant: all CPUs."
)
@click.option(
    "--kernel",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Time this kernel (`prism optimize --save FOLDER`) instead of optimizing first.",
)
@answering("bench")
def command(
    run: Run,
    program: str,
    sizes: dict[str, int],
    against: tuple[str, ...],
    **options: Any,  # noqa: ANN401 - see Request
) -> Answer:
    """Time the tuned kernel of PROGRAM beside other implementations.

    Each contestant has its own process, pinned to the same CPUs; they take turns in rounds, with
    empty caches before every call. `ratio` is a rival's time over ours, paired by round.
    """
    for name in against:
        contestant(name)
    request = Request(**options)
    _, traced = load_program(program)
    check_memory(traced, sizes)
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder, run.progress() as progress:
        made = _kernel(traced, sizes, request, run.seed, progress)
        where = request.kernel or Path(folder)
        if request.kernel is None:
            made.save(where)
        task = Task(
            program=program,
            sizes=tuple(sizes.items()),
            dtype=request.dtype,
            seed=run.seed,
            threads=request.threads or len(allowed_cpus()),
            kernel=str(where),
            target=request.target,
        )
        rounds = BenchOptions(request.rounds, request.processes)
        result = run_bench(traced, task, against, rounds, progress)
    for warning in result.warnings:
        say(f"warning: {warning}")
    source = None if made.path is None else str(made.path)
    fields = {**result.to_json(), "target": made.target, "kernel": source}
    return Answer({**fields, "is_fallback": made.is_fallback}, bench_view(result, source))


def _kernel(
    program: Program, sizes: dict[str, int], request: Request, seed: int, progress: Bar
) -> Optimized:
    """The kernel to time: a saved one, or one optimized now (or found in the cache)."""
    if request.kernel is not None:
        return checked_kernel(request.kernel, program, sizes, request)
    return optimize(
        program,
        sizes=sizes,
        target=request.target,
        dtype=request.dtype,
        budget=request.budget,
        seed=seed,
        progress=progress,
    )


def checked_kernel(
    folder: Path, program: Program, sizes: dict[str, int], request: Request
) -> Optimized:
    """A saved kernel, once it is known to compute this program at these sizes.

    Raises:
        UsageError: the kernel is for something else.
    """
    made = Optimized.load(folder, target=request.target)
    if made.is_fallback:
        raise UsageError(f"{folder} holds no kernel that runs here; optimize anew")
    wanted = (program, sizes, request.dtype)
    if (made.program, {n: made.sizes[n] for n in sizes}, made.dtype) != wanted:
        have = ",".join(f"{name}={size}" for name, size in made.sizes.items())
        raise UsageError(
            f"the kernel in {folder} is for {made.program.name} at {have} in {made.dtype}; "
            "give the same program, sizes and dtype, or optimize anew"
        )
    return made


def bench_view(result: BenchResult, source: str | None) -> tuple[RenderableType, ...]:
    """A benchmark for people."""
    sizes = ",".join(f"{name}={size}" for name, size in result.sizes)
    stream = "-" if result.stream_gbps is None else f"{result.stream_gbps:.1f} GB/s"
    rows = [
        (
            row.name,
            seconds(row.median_s),
            seconds(row.min_s),
            times(row.ratio),
            percent(row.bandwidth_fraction),
            "-" if row.difference is None else f"{row.difference:.1e}",
        )
        for row in result.contestants
    ]
    headings = ("contestant", ">median", ">min", ">ratio", ">of stream", ">difference")
    what = f"{result.program} {sizes} {result.dtype}, {result.threads} threads"
    return (
        f"{what}, {result.byte_count / 1e6:.1f} MB in and out, stream {stream}",
        table(headings, rows),
        f"kernel: {source or 'none, NumPy evaluates the program itself in float64'}",
    )
