"""The search half of `optimize`: what it searches for, and the artifact of that, kept in the cache.

`prism.search` is imported only when a search is needed, so that tuning works where ortools, egglog
and z3 are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol

from prism.artifact import FoundGraph, load_artifact, save_artifact
from prism.cache import entry_path
from prism.errors import ParseError, PrismError, UsageError
from prism.ir import Program, format_program
from prism.kernel_cache import drop_entry, warn
from prism.protocols import Device
from prism.report import search_facts, vet_facts
from prism.scope import Scope
from prism.tune import Progress

if TYPE_CHECKING:
    from prism.search import SearchOptions


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


def search_options(
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


def search_key(program: Program, options: SearchOptions) -> dict[str, Any]:
    """Everything the outcome of a search depends on."""
    # found in the cache or not: nothing counts as proved by a rule that a test refutes
    from prism.egraph.soundness import load_sound  # noqa: PLC0415 - the search half

    return {
        "program": format_program(program),
        "axioms": load_sound(options.axioms, seed=options.seed).fingerprint,
        "encoding": options.encoding,
        # its bandwidth is measured anew, and never twice the same; any number of workers finds it
        "options": repr(replace(options, device=None, workers=1)),
        "device": None if options.device is None else options.device.text,
        "versions": [version(name) for name in ("prism-superopt", "egglog", "ortools")],
    }


def searched(
    program: Program, options: SearchOptions, *, cache: bool, progress: Progress | None
) -> tuple[Found, dict[str, Any]]:
    """The artifact of a program, from the cache or from a new search, and facts for the report."""
    path = entry_path("search", search_key(program, options))
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
