"""How long loaded kernels take: medians of repeats, caches emptied before each.

A kernel is timed with its arrays in place (`prism.protocols.Bound`), by its target's own clock.

Kernels timed together take turns, repeat by repeat, so that a slow moment of the machine hits all
of them; the winner is chosen by paired medians (`best_of`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prism.protocols import Bound

WARM_UPS = 2
MOST_SECONDS = 1.0
"""A kernel is not repeated beyond this, except that it runs at least `FEWEST` times."""

FEWEST = 3

HOPELESS = 4.0
"""A kernel this many times slower than the best so far is not repeated: once tells enough."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of each repeat of one kernel."""

    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The middle repeat."""
        return median(self.seconds)

    @property
    def min_s(self) -> float:
        """The fastest repeat."""
        return min(self.seconds)


def time_kernels(
    kernels: Sequence[Bound],
    flush: Callable[[], None],
    repeats: int,
    best_s: float = math.inf,
) -> tuple[Timing, ...]:
    """Time kernels in turns; `flush` comes before every timed run.

    `best_s`: what they have to beat; kernels that are `HOPELESS` run once more than to warm up.
    """
    warm_s = min(_warm_up(kernel, HOPELESS * best_s) for kernel in kernels)
    if warm_s > HOPELESS * best_s:
        repeats = 1
    seconds: list[list[float]] = [[] for _ in kernels]
    spent = 0.0
    for repeat in range(repeats):
        if repeat >= FEWEST and spent > MOST_SECONDS * len(kernels):
            break
        for kernel, times in zip(kernels, seconds, strict=True):
            flush()
            times.append(kernel.run_timed())
            spent += times[-1]
    return tuple(Timing(tuple(times)) for times in seconds)


def _warm_up(kernel: Bound, limit_s: float) -> float:
    """Run a kernel at most `WARM_UPS` times; seconds of its last run."""
    taken = math.inf
    for _ in range(WARM_UPS):
        taken = kernel.run_timed()
        if taken > limit_s:
            break
    return taken


def best_of(timings: Sequence[Timing]) -> int:
    """The index of the fastest of kernels timed in turns, by the median of paired ratios.

    Each kernel is compared with the one that leads so far, repeat by repeat; ties go to the first.
    """
    best = 0
    for index in range(1, len(timings)):
        pairs = zip(timings[index].seconds, timings[best].seconds, strict=True)
        if median(mine / theirs for mine, theirs in pairs) < 1.0:
            best = index
    return best
