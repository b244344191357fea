"""From a program to its fastest kernel: `tune` an artifact, or `optimize` a function in one go.

`optimize` searches (or finds the artifact in the cache), tunes (or finds the kernel in the cache),
and always returns something right: when no graph is proved or no kernel passes, the program itself
is evaluated in NumPy and the report says so.

The search half is imported only when a search is needed, so that `tune` works where ortools,
egglog and z3 are missing.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from prism.artifact import load_artifact
from prism.cache import entry_path, warn_if_unwritable, write_atomically
from prism.cluster import connected
from prism.dtypes import dtype_of
from prism.errors import KernelError, PrismError, UsageError
from prism.files import check_writable
from prism.ir import Program, format_program
from prism.kernel_cache import cached_kernel, store_kernel, warn
from prism.limits import check_memory, require_integer, require_seconds, require_texts
from prism.optimized import Optimized, Winner, compiled, source_path
from prism.optimized_shapes import OptimizedShapes
from prism.plugins import Group, installed, load, make
from prism.protocols import Device, Target
from prism.record import RecordFile, versions
from prism.report import tune_facts
from prism.scope import sizes_text
from prism.search_cache import Found, search_key, search_options, searched
from prism.tune import (
    ESTIMATE_SHARE,
    Budget,
    DeferredStrategy,
    Estimates,
    Progress,
    Spending,
    Strategy,
    Task,
    Tuner,
    TuneResult,
    build_space,
    estimated_there,
    taught,
)
from prism.verdict import Verdict

if TYPE_CHECKING:
    from prism.cluster import Cluster
    from prism.search import SearchOptions
    from prism.tune import Runner

__all__ = ["NoKernelWarning", "Optimized", "OptimizedShapes", "TuneResult", "optimize", "tune"]


class NoKernelWarning(UserWarning):
    """`optimize` found no kernel: NumPy evaluates the program."""


CUT_SHORT = ("interrupted", "cluster lost")
"""Ends of a run whose kernel is not kept for the next one that asks."""


def tune(  # noqa: PLR0913 - the options of the command
    artifact: Found | str | Path,
    sizes: Mapping[str, int],
    *,
    target: str = "cpu",
    dtype: str = "float32",
    strategy: str = "model",
    trials: int | None = None,
    budget_s: float = 60.0,
    seed: int = 0,
    records: str | Path | None = None,
    output: str | Path | None = None,
    progress: Progress | None = None,
    ray: str | None = None,
) -> TuneResult:
    """Find the fastest kernel among the proved graphs of an artifact at `sizes`.

    `records` is a JSON-lines file: trials in it are not repeated, new ones are appended; what was
    fast there at other sizes is tried first. The winner's source is written to `output`, or into
    the cache. `ray` is the address of a Ray cluster (`auto`, `HOST:PORT`, `ray://HOST:PORT`):
    trials run on all of its machines that are the same device as this one.

    Raises:
        UsageError: an argument that cannot be used as given, an artifact that was searched for
            other sizes or another device, or a cluster that is not there or has no such machine.
        SizeError: sizes that do not fit the program.
        ParseError: the artifact does not parse.
        PluginError: no such target or strategy.
        KernelError: the target cannot run here at all.
        ClusterLostError: the cluster went away before the run began.
    """
    spending = Spending(require_seconds(budget_s))
    found = load_artifact(Path(artifact)) if isinstance(artifact, str | Path) else artifact
    require_texts(target=target, dtype=dtype, strategy=strategy, ray=ray or "")
    trials = None if trials is None else require_integer("trials", trials, 1)
    budget_s, seed = require_seconds(budget_s), require_integer("the seed", seed, 0)
    bound = check_memory(found.program, sizes)
    if output is None:
        warn_if_unwritable()
    else:
        check_writable(Path(output))
    record_file = None if records is None else RecordFile(Path(records))
    chosen = _target(target, dtype)
    what = str(artifact) if isinstance(artifact, str | Path) else "the artifact"
    found.scope.require(bound, chosen.device().text, what)
    make_strategy: Callable[..., Strategy] = load(Group.STRATEGY, strategy)
    graphs = tuple((g.id, g.graph) for g in found.graphs if g.verdict is Verdict.PROVED)
    space = build_space(graphs, bound, chosen)
    task = Task(found.program, bound, target, chosen, dtype, seed, space, Budget(budget_s, trials))
    if record_file is not None:
        record_file.require_writable()

    def ranked() -> tuple[Strategy, tuple[str, ...]]:
        estimates = Estimates(space, chosen, dtype, spending.is_within(ESTIMATE_SHARE))
        made = make_strategy(space, estimates, seed)
        estimates.ranked()
        known = () if record_file is None else record_file.read()
        made, notes = taught(made, known, task, estimated_there(task))
        return made, (*notes, *estimates.notes)

    deferred = DeferredStrategy(ranked)
    with connected(ray) as cluster:
        runner = None if cluster is None else _runner(cluster, task)
        result = Tuner(task, deferred, record_file, progress, spending, runner=runner).run()
    result = replace(result, notes=(*result.notes, *deferred.notes))
    if result.best is None:
        return result
    path = source_path(found.program, result.best.source) if output is None else Path(output)
    write_atomically(path, result.best.source)
    return replace(result, best=replace(result.best, path=path))


def _runner(cluster: Cluster, task: Task) -> Runner:
    """Trials on a cluster."""
    from prism.tune.cluster import ClusterRunner  # noqa: PLC0415 - few runs use a cluster

    return ClusterRunner(cluster, task)


@overload
def optimize(
    program_or_fn: Program | Callable[..., Any],
    *,
    sizes: Mapping[str, int],
    target: str = ...,
    dtype: str = ...,
    budget: float = ...,
    seed: int = ...,
    search_options: SearchOptions | None = ...,
    cache: bool = ...,
    progress: Progress | None = ...,
    records: str | Path | None = ...,
    ray: str | None = ...,
    **dims: str,
) -> Optimized: ...


@overload
def optimize(
    program_or_fn: Program | Callable[..., Any],
    *,
    sizes: Sequence[Mapping[str, int]],
    target: str = ...,
    dtype: str = ...,
    budget: float = ...,
    seed: int = ...,
    search_options: SearchOptions | None = ...,
    cache: bool = ...,
    progress: Progress | None = ...,
    records: str | Path | None = ...,
    ray: str | None = ...,
    **dims: str,
) -> OptimizedShapes: ...


def optimize(  # noqa: PLR0913 - the options of the command
    program_or_fn: Program | Callable[..., Any],
    *,
    sizes: Mapping[str, int] | Sequence[Mapping[str, int]],
    target: str = "cpu",
    dtype: str = "float32",
    budget: float = 60.0,
    seed: int = 0,
    search_options: SearchOptions | None = None,
    cache: bool = True,
    progress: Progress | None = None,
    records: str | Path | None = None,
    ray: str | None = None,
    **dims: str,
) -> Optimized | OptimizedShapes:
    """The fastest right kernel of a program, as a callable.

    `program_or_fn` is a traced program, or a function whose dims are annotations or given as
    `x="n d"`. `sizes` is one mapping, `{"n": 8, "d": 4096}`, or a list of them: then every shape
    is tuned, each beginning with what was fast for those before it, and the result takes arrays of
    any shape (`OptimizedShapes`). `budget` is in seconds and covers the tuning, of each shape.
    With `ray`, the address of a Ray cluster, trials run there (see `tune`).

    Trials are kept in the cache, or in the file `records`: a larger budget goes on where a smaller
    one ended, and other sizes of the same program begin with what was fast.

    Raises:
        TraceError: the function cannot be traced.
        SizeError: sizes that do not fit the program.
        UsageError: another argument that cannot be used as given.
        PluginError: no such target.
        ClusterLostError: the cluster went away between two runs.
    """
    program = _program(program_or_fn, dims)
    require_texts(target=target, dtype=dtype, ray=ray or "")
    budget, seed = require_seconds(budget), require_integer("the seed", seed, 0)
    several = sizes if isinstance(sizes, list | tuple) else None
    one_by_one = cast("Sequence[Mapping[str, int]]", [sizes] if several is None else several)
    wanted = [check_memory(program, one) for one in one_by_one]
    if not wanted or any(one in wanted[:place] for place, one in enumerate(wanted)):
        raise UsageError("a list of sizes must hold some, each of them once")
    warn_if_unwritable()
    chosen = _target(target, dtype)
    # a cluster that is not there ends this before the search
    with connected(ray), tempfile.TemporaryDirectory(prefix="prism-trials-") as folder:
        kept = _trials_path(program, target, dtype) if cache else Path(folder) / "trials.jsonl"
        if records is not None:
            kept = Path(records)
            RecordFile(kept).require_writable()
        order = _Order(
            program, target, dtype, budget, seed, search_options, progress, kept, ray,
            is_cached=cache,
        )  # fmt: skip
        made: list[Optimized] = []
        for one in wanted:  # a comprehension would be one more frame around a warning in 3.11
            made += [_optimized(order, one, chosen.device())]
    return made[0] if several is None else OptimizedShapes(tuple(made))


@dataclass(frozen=True, slots=True)
class _Order:
    """What `optimize` is asked, the sizes apart."""

    program: Program
    target: str
    dtype: str
    budget: float
    seed: int
    search_options: SearchOptions | None
    progress: Progress | None
    records: Path | None
    ray: str | None
    is_cached: bool


def _optimized(order: _Order, sizes: dict[str, int], device: Device) -> Optimized:
    """One shape, from the cache or searched and tuned."""
    options = search_options(order.search_options, sizes, device)
    key = {
        "search": search_key(order.program, options),
        "sizes": sizes,
        "dtype": order.dtype,
        "target": order.target,
        "device": device.text,
        "versions": versions(),
    }
    path = entry_path("tuned", key)
    wanted = Optimized(order.program, sizes, order.dtype, order.target, None, {})
    if order.is_cached and (hit := cached_kernel(path, wanted, order.budget)) is not None:
        return hit
    found, search_said = searched(
        order.program, options, cache=order.is_cached, progress=order.progress
    )
    try:
        result = tune(
            found,
            sizes,
            target=order.target,
            dtype=order.dtype,
            budget_s=order.budget,
            seed=order.seed,
            records=order.records,
            progress=order.progress,
            ray=order.ray,
        )
    except KernelError as error:
        result = TuneResult(None, {}, 0, 0, 0.0, f"the target cannot run here: {error}")
    best = result.best
    if best is None:
        _tell_no_kernel(order.program, sizes, result)
    winner = None if best is None else Winner(best.config.graph_id, best.mu, best.source)
    facts = {"search": search_said, "tune": tune_facts(result)}
    made = compiled(replace(wanted, winner=winner, facts=facts))
    if order.is_cached and made.winner is not None and result.stopped not in CUT_SHORT:
        store_kernel(path, made, result, order.budget)
    return made


def _tell_no_kernel(program: Program, sizes: Mapping[str, int], result: TuneResult) -> None:
    """Warn that calls evaluate the program, and say why and what to do."""
    match result.stopped:
        case "budget" | "interrupted" | "cluster lost":
            why, advice = f"none passed before the end ({result.stopped})", "give a larger budget"
        case "lack of graphs":
            why, advice = "the search proved no graph", "see report(), or search for longer"
        case stopped if not result.outcomes:
            why, advice = stopped, "see report()"
        case _:
            failed = ", ".join(f"{n} {outcome}" for outcome, n in result.outcomes.items())
            why, advice = f"none of those tried passed ({failed})", "see report()"
    warnings.warn(
        f"no kernel for {program.name} at {sizes_text(sizes)}: {why}; NumPy evaluates the program "
        f"instead: {advice}",
        NoKernelWarning,
        stacklevel=4,
    )


def _trials_path(program: Program, target: str, dtype: str) -> Path | None:
    """Where the cache keeps the trials of a program at all sizes; None if it cannot be written."""
    key = {"program": format_program(program), "target": target, "dtype": dtype}
    path = entry_path("trials", key).with_suffix(".jsonl")
    try:
        RecordFile(path).require_writable()
    except PrismError as error:
        warn(f"trials are not cached: {error}")
        return None
    return path


def _target(name: str, dtype: str) -> Target:
    """The target, once it is known to take the dtype.

    Raises:
        UsageError: it does not; the message names those that do.
        PluginError: no such target.
    """
    dtype_of(dtype)
    chosen: Target = make(Group.TARGET, name)
    if dtype in chosen.dtypes:
        return chosen
    others = [other for other in installed(Group.TARGET) if dtype in _dtypes_of(other)]
    instead = f"; targets that do: {', '.join(others)}" if others else ""
    raise UsageError(
        f"target {name} does not take {dtype}, only {', '.join(chosen.dtypes)}{instead}"
    )


def _dtypes_of(target: str) -> Sequence[str]:
    """The dtypes of an installed target; none where it cannot be used here at all."""
    try:
        return cast("Target", make(Group.TARGET, target)).dtypes
    except PrismError:
        return ()


def _program(given: Program | Callable[..., Any], dims: Mapping[str, str]) -> Program:
    if isinstance(given, Program):
        if dims:
            raise UsageError(
                f"{given.name} is traced already; dims ({', '.join(dims)}) go to prism.trace"
            )
        return given
    if not callable(given):
        raise UsageError(f"a function or a traced program is needed, not {type(given).__name__}")
    from prism.frontend import trace  # noqa: PLC0415 - tuning an artifact traces nothing

    return trace(given, **dims)
