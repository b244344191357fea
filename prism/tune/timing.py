"""How long loaded kernels take: medians of repeats, caches emptied before each.

Kernels timed together take turns, repeat by repeat, so that a slow moment of the machine hits all
of them; the winner is chosen by paired medians (`best_of`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from prism.protocols import Kernel

WARM_UPS = 2
MOST_SECONDS = 1.0
"""A kernel is not repeated beyond this, except that it runs at least `FEWEST` times."""

FEWEST = 3


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
    kernels: Sequence[Kernel],
    arrays: Sequence[NDArray[np.generic]],
    outputs: Sequence[NDArray[np.generic]],
    flush: Callable[[], None],
    repeats: int,
) -> tuple[Timing, ...]:
    """Time kernels in turns on the same arrays; `flush` runs before every timed run."""
    for kernel in kernels:
        for _ in range(WARM_UPS):
            kernel.run_into(arrays, outputs)
    seconds: list[list[float]] = [[] for _ in kernels]
    spent = 0.0
    for repeat in range(repeats):
        if repeat >= FEWEST and spent > MOST_SECONDS * len(kernels):
            break
        for kernel, times in zip(kernels, seconds, strict=True):
            flush()
            start = time.perf_counter()
            kernel.run_into(arrays, outputs)
            times.append(time.perf_counter() - start)
            spent += times[-1]
    return tuple(Timing(tuple(times)) for times in seconds)


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
