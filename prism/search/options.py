"""What a search is asked and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prism.artifact import FoundGraph
from prism.errors import UsageError
from prism.ir import MAX_GRID_DIMS, MAX_KERNELS, MAX_LOOPS, DataDim, Program, bind_sizes
from prism.plugins import SHIPPED_AXIOMS
from prism.protocols import Device
from prism.scope import Scope
from prism.search.generators import check_generator
from prism.verdict import Verdict

TUNED_KERNELS = 2
"""Kernels of the graphs that `optimize` tries, where it is not told."""

MODES = ("count", "tune")
"""Every graph within the limits; or only those that none beats for all sizes and tiles."""

VERIFY = ("full", "sample")
"""Every graph proved; or, to count them, admitted by local lemmas and a sample proved."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The budgets and choices of a search.

    `max_ops` counts block operators: inputs, operators and accumulators; a composite counts as
    one, a reduction together with its accumulator too. None stands for what the program itself
    needs and some more (`limits` of the result says how many). `mode` is one of `MODES`.
    `generator` is "cone" or "forward", and `concrete` the kinds of map that the latter enumerates
    (imap, fmap, omap). With `loop_dims` 2 kernels may have a loop inside the loop (mode count).
    `without` names pruners to switch off, `also` optional ones, or a stranger's `FILE.py:CLASS`, to
    add. `verify` is one of `VERIFY`; what is only admitted is never tuned. `budget_s` bounds the
    whole search, `max_graphs` the graphs that are verified, the best looking first; None leaves
    either open. With `sizes` or a `device` the result is for these alone; without, for all. Only
    how long it takes depends on `workers`, the processes that verify; 0 is one for each core.
    """

    max_ops: int | None = None
    max_accumulators: int | None = None
    grid_dims: int = MAX_GRID_DIMS
    loop_dims: int = 1
    max_kernels: int = 1
    encoding: str = "boolean"
    axioms: tuple[str, ...] = (SHIPPED_AXIOMS,)
    mode: str = "count"
    generator: str = "cone"
    concrete: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    budget_s: float | None = 10.0
    max_graphs: int | None = 500
    seed: int = 0
    verify: str = "full"
    sizes: tuple[tuple[DataDim, int], ...] | None = None
    device: Device | None = None
    workers: int = 1

    def check(self) -> None:
        """Refuse what cannot be searched.

        Raises:
            UsageError: an option out of range.
        """
        bounds = {
            "max_ops": (self.max_ops, 1),
            "max_accumulators": (self.max_accumulators, 0),
            "max_graphs": (self.max_graphs, 1),
            "budget_s": (self.budget_s, 0),
            "workers": (self.workers, 0),
        }
        for name, (value, least) in bounds.items():
            if value is not None and value < least:
                raise UsageError(f"{name} must be at least {least}, not {value}")
        if not 0 <= self.grid_dims <= MAX_GRID_DIMS:
            raise UsageError(f"grid_dims must be 0 to {MAX_GRID_DIMS}, not {self.grid_dims}")
        self._check_loops()
        check_generator(self.generator, self.concrete)
        if self.mode not in MODES:
            raise UsageError(f"there is no mode {self.mode!r}; there are {', '.join(MODES)}")
        if self.verify not in VERIFY:
            raise UsageError(f"there is no verify {self.verify!r}; there are {', '.join(VERIFY)}")
        if self.mode == "tune" and self.verify != "full":
            raise UsageError(f"mode tune needs verify full, not {self.verify}: its graphs are run")
        if self.mode == "tune" and self.generator != "cone":
            raise UsageError(f"mode tune needs the generator cone, not {self.generator}")
        if not 1 <= self.max_kernels <= MAX_KERNELS:
            raise UsageError(f"max_kernels must be 1 to {MAX_KERNELS}, not {self.max_kernels}")

    def _check_loops(self) -> None:
        if not 1 <= self.loop_dims <= MAX_LOOPS:
            raise UsageError(f"loop_dims must be 1 to {MAX_LOOPS}, not {self.loop_dims}")
        where = f"generator {self.generator}" if self.generator != "cone" else "mode tune"
        if self.loop_dims > 1 and (self.mode == "tune" or self.generator != "cone"):
            raise UsageError(
                f"{where} searches one loop, not {self.loop_dims}; loops inside loops need mode "
                "count and generator cone"
            )


@dataclass(frozen=True, slots=True)
class RejectedGraph:
    """A candidate that verification did not prove, and why placement thinks so."""

    id: str
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The verified graphs, the best looking first, and what the search did.

    `complete` is true when every graph within `limits` was judged, relative to the axioms; `cuts`
    says what was not. `nearest` names, for each budget that cut candidates, the least one left out.
    `counters` is what `prism search --json` prints under that name.
    """

    program: Program
    graphs: tuple[FoundGraph, ...]
    rejected: tuple[RejectedGraph, ...]
    complete: bool
    cuts: tuple[str, ...]
    nearest: Mapping[str, str]
    limits: Mapping[str, int]
    search_s: float
    counters: Mapping[str, Any]
    options: SearchOptions
    fingerprint: str

    @property
    def scope(self) -> Scope:
        """The sizes and the device that the result is for."""
        return scope_of(self.program, self.options)


def scope_of(program: Program, options: SearchOptions) -> Scope:
    """What a search with these options is good for."""
    sizes = None
    if options.sizes is not None:
        bound = bind_sizes(program, dict(options.sizes))
        sizes = tuple((name, bound[name]) for name in program.size_names)
    return Scope(sizes, None if options.device is None else options.device.text)
