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

BEHIND = 1.25
"""A kernel whose fastest of `FEWEST` runs is this many times slower than the best is not repeated
further. It does not contend: neither is it of use in the finals."""

BEATEN = 1.1
"""In the finals a kernel drops out that takes this many times as long as the best, run for run."""


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
    *,
    is_final: bool = False,
) -> tuple[Timing, ...]:
    """Time kernels in turns; `flush` comes before every timed run.

    `best_s`: what they have to beat; kernels that are `HOPELESS` run once more than to warm up,
    those that are `BEHIND` a few times. Where it `is_final`, those that are `BEATEN` by the one
    that leads drop out.
    """
    warm_s = min(_warm_up(kernel, HOPELESS * best_s) for kernel in kernels)
    if warm_s > HOPELESS * best_s:
        repeats = 1
    seconds: list[list[float]] = [[] for _ in kernels]
    left = list(range(len(kernels)))
    for repeat in range(repeats):
        if repeat >= FEWEST and _is_enough([seconds[k] for k in left], best_s):
            break
        for k in left:
            flush()
            seconds[k].append(kernels[k].run_timed())
        if is_final and repeat >= FEWEST:
            left = _unbeaten(left, seconds)
    return tuple(Timing(tuple(times)) for times in seconds)


def _unbeaten(left: Sequence[int], seconds: Sequence[Sequence[float]]) -> list[int]:
    """The kernels that go on: the one that leads, and those that it does not beat.

    Two may beat each other, since the median of an even number of ratios is a mean of two of them.
    """
    best = left[best_of([Timing(tuple(seconds[k])) for k in left])]
    return [k for k in left if k == best or not _beats(seconds[best], seconds[k])]


def _is_enough(seconds: Sequence[Sequence[float]], best_s: float) -> bool:
    """Whether kernels have run for long enough, or none of them can contend with the best."""
    spent = sum(sum(times) for times in seconds)
    fastest_s = min(min(times) for times in seconds)
    return spent > MOST_SECONDS * len(seconds) or fastest_s > BEHIND * best_s


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the other takes clearly longer, run for run."""
    return _ratio(other, one) > BEATEN


def _ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """How many times as long as the other one takes, by the median of the rounds both ran in."""
    return median(mine / theirs for mine, theirs in zip(one, other, strict=False))


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
        if _ratio(timings[index].seconds, timings[best].seconds) < 1.0:
            best = index
    return best
