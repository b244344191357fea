"""From a program to its fastest kernel: `tune` an artifact, or `optimize` a function in one go.

`optimize` searches (or finds the artifact in the cache), tunes (or finds the kernel in the cache),
and always returns something right: when no graph is proved or no kernel passes, the program itself
is evaluated in NumPy and the report says so.

The search half is imported only when a search is needed, so that `tune` works where ortools,
egglog and z3 are missing.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from prism.artifact import FoundGraph, load_artifact, save_artifact
from prism.cache import CacheWarning, entry_path, warn_if_unwritable, write_atomically
from prism.dtypes import dtype_of
from prism.errors import KernelError, ParseError, PrismError, UsageError
from prism.files import check_writable, read_regular
from prism.ir import Program, format_program
from prism.limits import check_memory, require_integer, require_seconds, require_texts
from prism.optimized import MAX_BYTES, Optimized, Winner, compiled, from_json, source_path
from prism.plugins import Group, installed, load, make
from prism.protocols import Device, Target
from prism.record import RecordFile, versions
from prism.report import search_facts, tune_facts, vet_facts
from prism.scope import Scope
from prism.tune import (
    Budget,
    Config,
    Progress,
    Space,
    Strategy,
    Task,
    Tuner,
    TuneResult,
    build_space,
    instantiate,
)
from prism.verdict import Verdict

if TYPE_CHECKING:
    from prism.search import SearchOptions

__all__ = ["Optimized", "TuneResult", "optimize", "tune"]


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

    `records` is a JSON-lines file: trials in it are not repeated, new ones are appended. The
    winner's source is written to `output`, or into the cache.

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
    estimates = _Estimates(space, chosen, dtype, started + ESTIMATE_SHARE * budget_s)
    tuner = Tuner(task, make_strategy(space, estimates, seed), record_file, progress, started)
    result = tuner.run()
    result = replace(result, notes=(*result.notes, *estimates.notes))
    if result.best is None:
        return result
    path = source_path(found.program, result.best.source) if output is None else Path(output)
    write_atomically(path, result.best.source)
    return replace(result, best=replace(result.best, path=path))


def optimize(  # noqa: PLR0913 - the options of the command
    program_or_fn: Program | Callable[..., Any],
    *,
    sizes: Mapping[str, int],
    target: str = "cpu",
    dtype: str = "float32",
    budget: float = 60.0,
    seed: int = 0,
    search_options: SearchOptions | None = None,
    cache: bool = True,
    progress: Progress | None = None,
    **dims: str,
) -> Optimized:
    """The fastest right kernel of a program, as a callable.

    `program_or_fn` is a traced program, or a function whose dims are annotations or given as
    `x="n d"`. `budget` is in seconds and covers the tuning.

    Raises:
        TraceError: the function cannot be traced.
        SizeError: sizes that do not fit the program.
        UsageError: another argument that cannot be used as given.
        PluginError: no such target.
    """
    program = _program(program_or_fn, dims)
    require_texts(target=target, dtype=dtype)
    budget, seed = require_seconds(budget), require_integer("the seed", seed, 0)
    bound = check_memory(program, sizes)
    warn_if_unwritable()
    chosen = _target(target, dtype)
    options = _search_options(search_options, bound, chosen.device())
    key = {
        "search": _search_key(program, options),
        "sizes": bound,
        "dtype": dtype,
        "target": target,
        "device": chosen.device().text,
        "versions": versions(),
    }
    path = entry_path("tuned", key)
    wanted = Optimized(program, bound, dtype, target, None, {})
    if cache and (hit := _cached_kernel(path, wanted, budget)) is not None:
        return hit
    found, searched = _search(program, options, cache=cache, progress=progress)
    try:
        result = tune(
            found, bound, target=target, dtype=dtype, budget_s=budget, seed=seed, progress=progress
        )
    except KernelError as error:
        result = TuneResult(None, {}, 0, 0, 0.0, f"the target cannot run here: {error}")
    winner = None
    if result.best is not None:
        winner = Winner(result.best.config.graph_id, result.best.mu, result.best.source)
    facts = {"search": searched, "tune": tune_facts(result)}
    made = compiled(Optimized(program, bound, dtype, target, winner, facts))
    if cache and made.winner is not None and result.stopped != "interrupted":
        _store(path, made, result, budget)
    return made


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
        made: Target = make(Group.TARGET, target)
    except PrismError:
        return ()
    return made.dtypes


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


class _Estimates:
    """The target's cost model as strategies see it: infinite where it refuses.

    Once the time for estimates is used up, what was not estimated counts as refused: a strategy
    that ranks thousands of configs must leave time to try some.
    """

    def __init__(self, space: Space, target: Target, dtype: str, until: float) -> None:
        self._graphs = {graph.graph_id: graph for graph in space.graphs}
        self._target = target
        self._dtype = dtype
        self._until = until
        self.made = self.left = 0

    def __call__(self, config: Config) -> float:
        """Predicted seconds of a config."""
        if self.made and time.monotonic() > self._until:
            self.left += 1
            return math.inf
        self.made += 1
        try:
            mu = instantiate(self._graphs[config.graph_id], config)
            return self._target.estimate(mu, self._dtype)
        except KernelError:
            return math.inf

    @property
    def notes(self) -> tuple[str, ...]:
        """What the result should say of it."""
        if not self.left:
            return ()
        return (f"the budget allowed {self.made} estimates, {self.left} more were wanted",)


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
        # not all of the device: its bandwidth is measured anew, and never twice the same
        # nor how many processes looked: they find the same
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
            _drop(path, f"the cached search {path} is not used: {error}")
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
            _warn(f"the search is not cached: {error}")
    return result, search_facts(result.graphs, result, is_cached=False)


def _cached_kernel(path: Path, wanted: Optimized, budget: float) -> Optimized | None:
    """A tuned kernel from the cache, if as much time was spent on it as is offered now.

    An entry that is of no use is deleted, so that it costs one warning, not one per call.
    """
    try:
        entry = json.loads(read_regular(path, MAX_BYTES))
        require_texts(kernel=entry["kernel"], optimized=entry["optimized"])
        if entry["budget_s"] < budget and entry["stopped"] != "strategy":
            return None
        made = from_json(entry["optimized"], entry["kernel"], str(path), wanted.target)
        _require_wanted(made, wanted)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, RecursionError, PrismError) as error:
        _drop(path, f"the cached kernel {path} is not used: {type(error).__name__}: {error}")
        return None
    return made


def _require_wanted(made: Optimized, wanted: Optimized) -> None:
    if _situation(made) != _situation(wanted):
        raise ParseError("it is of another program, size, dtype or target")
    if made.winner is None:
        raise KernelError("its kernel does not load here")


def _situation(made: Optimized) -> tuple[object, ...]:
    return format_program(made.program), dict(made.sizes), made.dtype, made.target


def _drop(path: Path, message: str) -> None:
    """Delete a bad entry and say so."""
    with contextlib.suppress(OSError):
        path.unlink()
    _warn(message)


def _store(path: Path, made: Optimized, result: TuneResult, budget: float) -> None:
    entry = {
        "budget_s": budget,
        "stopped": result.stopped,
        "kernel": made.source,
        "optimized": made.to_json(),
    }
    try:
        write_atomically(path, json.dumps(entry))
    except PrismError as error:
        _warn(f"the kernel is not cached: {error}")


def _warn(message: str) -> None:
    warnings.warn(message, CacheWarning, stacklevel=4)
