"""From a program to its fastest kernel: `tune` an artifact, or `optimize` a function in one go.

`optimize` searches (or finds the artifact in the cache), tunes (or finds the kernel in the cache),
and always returns something right: when no graph is proved or no kernel passes, the program itself
is evaluated in NumPy and the report says so.

The search half is imported only when a search is needed, so that `tune` works where ortools,
egglog and z3 are missing.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, overload

from prism.artifact import FoundGraph, load_artifact, save_artifact
from prism.cache import entry_path, warn_if_unwritable, write_atomically
from prism.dtypes import dtype_of
from prism.errors import KernelError, ParseError, PrismError, UsageError
from prism.files import check_writable
from prism.ir import Program, format_program
from prism.kernel_cache import cached_kernel, drop_entry, store_kernel, warn
from prism.limits import check_memory, require_integer, require_seconds, require_texts
from prism.optimized import Optimized, Winner, compiled, source_path
from prism.optimized_shapes import OptimizedShapes
from prism.plugins import Group, installed, load, make
from prism.protocols import Device, Target
from prism.record import RecordFile, versions
from prism.report import search_facts, tune_facts, vet_facts
from prism.scope import Scope
from prism.tune import (
    Budget,
    Estimates,
    Progress,
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
    from prism.search import SearchOptions

__all__ = ["Optimized", "OptimizedShapes", "TuneResult", "optimize", "tune"]


ESTIMATE_SHARE = 0.25
"""The part of a tuning budget that ranking configs by their estimates may take."""


class Found(Protocol):
    """A search result or a loaded artifact."""

    @property
    def program(self) -> Program:
        """What was searched."""

    @property
    def graphs(self) -> Sequence[FoundGraph]:
        """What was found."""

    @property
    def scope(self) -> Scope:
        """What it is good for."""


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
) -> TuneResult:
    """Find the fastest kernel among the proved graphs of an artifact at `sizes`.

    `records` is a JSON-lines file: trials in it are not repeated, new ones are appended; what was
    fast there at other sizes is tried first. The winner's source is written to `output`, or into
    the cache.

    Raises:
        UsageError: an argument that cannot be used as given, or an artifact that was searched for
            other sizes or another device.
        SizeError: sizes that do not fit the program.
        ParseError: the artifact does not parse.
        PluginError: no such target or strategy.
        KernelError: the target cannot run here at all.
    """
    started = time.monotonic()
    found = load_artifact(Path(artifact)) if isinstance(artifact, str | Path) else artifact
    require_texts(target=target, dtype=dtype, strategy=strategy)
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
    estimates = Estimates(space, chosen, dtype, started + ESTIMATE_SHARE * budget_s)
    chosen_strategy = make_strategy(space, estimates, seed)
    estimates.ranked()
    known = () if record_file is None else record_file.read()
    chosen_strategy, notes = taught(chosen_strategy, known, task, estimated_there(task))
    result = Tuner(task, chosen_strategy, record_file, progress, started).run()
    result = replace(result, notes=(*result.notes, *notes, *estimates.notes))
    if result.best is None:
        return result
    path = source_path(found.program, result.best.source) if output is None else Path(output)
    write_atomically(path, result.best.source)
    return replace(result, best=replace(result.best, path=path))


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
    **dims: str,
) -> Optimized | OptimizedShapes:
    """The fastest right kernel of a program, as a callable.

    `program_or_fn` is a traced program, or a function whose dims are annotations or given as
    `x="n d"`. `sizes` is one mapping, `{"n": 8, "d": 4096}`, or a list of them: then every shape
    is tuned, each beginning with what was fast for those before it, and the result takes arrays of
    any shape (`OptimizedShapes`). `budget` is in seconds and covers the tuning, of each shape.

    Trials are kept in the cache: a larger budget goes on where a smaller one ended, and other sizes
    of the same program begin with what was fast.

    Raises:
        TraceError: the function cannot be traced.
        SizeError: sizes that do not fit the program.
        UsageError: another argument that cannot be used as given.
        PluginError: no such target.
    """
    program = _program(program_or_fn, dims)
    require_texts(target=target, dtype=dtype)
    budget, seed = require_seconds(budget), require_integer("the seed", seed, 0)
    several = sizes if isinstance(sizes, list | tuple) else None
    one_by_one = cast("Sequence[Mapping[str, int]]", [sizes] if several is None else several)
    wanted = [check_memory(program, one) for one in one_by_one]
    if not wanted or any(one in wanted[:place] for place, one in enumerate(wanted)):
        raise UsageError("a list of sizes must hold some, each of them once")
    warn_if_unwritable()
    chosen = _target(target, dtype)
    with tempfile.TemporaryDirectory(prefix="prism-trials-") as folder:
        records = _trials_path(program, target, dtype) if cache else Path(folder) / "trials.jsonl"
        order = _Order(
            program, target, dtype, budget, seed, search_options, progress, records, is_cached=cache
        )
        made = [_optimized(order, one, chosen.device()) for one in wanted]
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
    is_cached: bool


def _optimized(order: _Order, sizes: dict[str, int], device: Device) -> Optimized:
    """One shape, from the cache or searched and tuned."""
    options = _search_options(order.search_options, sizes, device)
    key = {
        "search": _search_key(order.program, options),
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
    found, searched = _search(
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
        )
    except KernelError as error:
        result = TuneResult(None, {}, 0, 0, 0.0, f"the target cannot run here: {error}")
    best = result.best
    winner = None if best is None else Winner(best.config.graph_id, best.mu, best.source)
    facts = {"search": searched, "tune": tune_facts(result)}
    made = compiled(replace(wanted, winner=winner, facts=facts))
    if order.is_cached and made.winner is not None and result.stopped != "interrupted":
        store_kernel(path, made, result, order.budget)
    return made


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


def _search_options(
    given: SearchOptions | None, sizes: Mapping[str, int], device: Device
) -> SearchOptions:
    """What `optimize` searches for: in tune mode, these sizes on this device alone.

    One search for all sizes would be made once and kept. But it lists up to twenty times as many
    graphs, and is cut by its budget on programs like qk_attention (501 graphs, not complete after
    6 s; with sizes 45, complete after 2 s), while tuning has to rank and try what is listed. On the
    CPU the best predicted time is the same within 4 %, which is how much sampled configs differ.
    """
    try:
        from prism.search import (  # noqa: PLC0415 - the search half
            TUNED_KERNELS,
            SearchOptions,
        )
    except ModuleNotFoundError as error:
        raise UsageError(
            f"optimize searches, which needs {error.name}; install it, or search elsewhere "
            "(prism search -o ART.json) and tune the artifact here"
        ) from error
    options = given or SearchOptions(mode="tune", max_kernels=TUNED_KERNELS)
    if options.mode != "tune" or options.sizes is not None or options.device is not None:
        return options
    return replace(options, sizes=tuple(sizes.items()), device=device)


def _search_key(program: Program, options: SearchOptions) -> dict[str, Any]:
    """Everything the outcome of a search depends on."""
    from prism.egraph import load_axioms  # noqa: PLC0415 - the search half

    return {
        "program": format_program(program),
        "axioms": load_axioms(options.axioms).fingerprint,
        "encoding": options.encoding,
        # its bandwidth is measured anew, and never twice the same; any number of workers finds it
        "options": repr(replace(options, device=None, workers=1)),
        "device": None if options.device is None else options.device.text,
        "versions": [version(name) for name in ("prism-superopt", "egglog", "ortools")],
    }


def _search(
    program: Program, options: SearchOptions, *, cache: bool, progress: Progress | None
) -> tuple[Found, dict[str, Any]]:
    """The artifact of a program, from the cache or from a new search, and facts for the report."""
    path = entry_path("search", _search_key(program, options))
    if cache and path.is_file():
        try:
            artifact = load_artifact(path)
            if artifact.program != program:
                raise ParseError("it is of another program")
            facts = search_facts(artifact.graphs, artifact, is_cached=True)
            vet_facts({"search": facts})
        except PrismError as error:
            drop_entry(path, f"the cached search {path} is not used: {error}")
        else:
            return artifact, facts
    from prism.search import search  # noqa: PLC0415 - the search half

    show = progress or (lambda *_: None)
    result = search(
        program,
        options,
        lambda stage, done, total: show(done, total or 1, f"search: {stage}"),
    )
    if "interrupt" in result.counters["cut"]:
        # who stops a search does not want to wait for the tuning, nor to find a part of it later
        raise KeyboardInterrupt
    if cache:
        try:
            save_artifact(result, path)
        except (PrismError, OSError) as error:
            warn(f"the search is not cached: {error}")
    return result, search_facts(result.graphs, result, is_cached=False)
