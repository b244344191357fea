"""`prism bench PROGRAM --sizes ... --against numpy,torch`: our kernel beside its rivals."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import RenderableType

from prism.bench import ALL, BenchOptions, BenchResult, Task, contestant, run_bench
from prism.bench.stream import allowed_cpus
from prism.cli.answer import Answer, say
from prism.cli.inputs import check_memory
from prism.cli.params import (
    axiom_specs,
    budget_option,
    parse_names,
    sizes_option,
    tune_options,
)
from prism.cli.render import percent, seconds, table, times
from prism.cli.run import Bar, Run, answering
from prism.driver import optimize
from prism.errors import UsageError
from prism.frontend import load_program
from prism.ir import Program, format_program
from prism.optimized import Optimized
from prism.plugins import SHIPPED_AXIOMS, Group, installed, make
from prism.protocols import Target

if TYPE_CHECKING:
    from prism.search import SearchOptions

SIMULATOR = "simulator"
"""The kind of device whose time means nothing."""


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
    axioms: tuple[str, ...] = (SHIPPED_AXIOMS,)


@click.command("bench")
@click.argument("program")
@sizes_option
@click.option(
    "--against",
    default="numpy",
    show_default=True,
    callback=parse_names,
    metavar="NAME,..",
    help=f"Rivals: {ALL}, names of `prism list contestants`, or FILE.py:CLASS.",
)
@tune_options
@budget_option(60.0)
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=7,
    show_default=True,
    help="Rounds: in each, every contestant is timed once, in turn.",
)
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
@click.option(
    "--axioms",
    multiple=True,
    callback=axiom_specs,
    metavar="NAME|FILE.egg",
    help="Axioms for the search, and the operators that PROGRAM may call; repeatable.",
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
    empty caches before every call. What one computes is first held against float64; of several ways
    to run the program it takes its fastest. `ratio` is a rival's time over ours, paired by round.
    """
    request = Request(**options)
    rivals = named_rivals(against)
    tables = load_tables(request.axioms)  # first: the program may call the operators they define
    _, traced = load_program(program)
    check_memory(traced, sizes)
    require_runs_here(request.target)
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
            text=format_program(traced),
            tables=tables,
        )
        rounds = BenchOptions(request.rounds, request.processes)
        result = run_bench(traced, task, rivals, rounds, progress)
    for warning in result.warnings:
        say(f"warning: {warning}")
    source = None if made.path is None else str(made.path)
    fields = {**result.to_json(), "target": made.target, "kernel": source}
    return Answer({**fields, "is_fallback": made.is_fallback}, bench_view(result, source))


def named_rivals(against: tuple[str, ...]) -> tuple[str, ...]:
    """The rivals that were asked for, `all` written out; each is there."""
    names = tuple(
        name
        for given in against
        for name in (installed(Group.CONTESTANT) if given == ALL else (given,))
    )
    for name in names:
        contestant(name)
    return tuple(dict.fromkeys(names)) if ALL in against else names


def load_tables(axioms: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The tables of operators that a user's axioms bring along: text and source of each."""
    if axioms == (SHIPPED_AXIOMS,):
        return ()
    from prism.egraph import load_axioms  # noqa: PLC0415 - timing a saved kernel does without

    return tuple((file.text, file.name) for file in load_axioms(axioms).files if file.is_table)


def require_runs_here(name: str) -> None:
    """Refuse a target whose kernels cannot be timed.

    Raises:
        UsageError: its device is not here, or is a simulator.
        KernelError: it cannot be used here at all.
    """
    target: Target = make(Group.TARGET, name)
    device = target.device()
    if not target.measures:
        raise UsageError(
            f"{name} stands for a device that is not here ({device.name}): kernels are compiled "
            "for it and their times predicted (`prism tune`), there is nothing to time; on a "
            "machine that has one take --target cuda"
        )
    if device.kind == SIMULATOR:
        raise UsageError(
            f"{name} is a simulator: it says whether a kernel is right, not how fast it is; take "
            "--target cpu or cuda"
        )


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
        search_options=searched_with(request.axioms),
        progress=progress,
    )


def searched_with(axioms: tuple[str, ...]) -> SearchOptions | None:
    """How to search with a user's axioms; with ours alone `optimize` knows."""
    if axioms == (SHIPPED_AXIOMS,):
        return None
    from prism.search import TUNED_KERNELS, SearchOptions  # noqa: PLC0415 - as in load_tables

    return SearchOptions(mode="tune", max_kernels=TUNED_KERNELS, axioms=axioms)


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
            "-" if row.error is None else f"{row.error:.1e}",
            row.failure or row.way,
        )
        for row in result.contestants
    ]
    headings = ("contestant", ">median", ">min", ">ratio", ">of stream", ">error", "how")
    what = f"{result.program} {sizes} {result.dtype}, {result.threads} threads"
    return (
        f"{what}, {result.byte_count / 1e6:.1f} MB in and out, stream {stream}",
        table(headings, rows),
        f"kernel: {source or 'none, NumPy evaluates the program itself in float64'}",
    )
