"""How long calls take beside each other: caches emptied before each, taken in turns.

On a GPU the time lies between two CUDA events around the call. Emptying the L2 cache takes the GPU
longer than the host needs to enqueue a call, so that the call starts the moment the GPU is free and
the host's part is not measured (`overhead` measures that); where the host was too slow all the same
the sample is counted as late. Elsewhere the clock is the host's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

FLUSH_BYTES = 2 * 2**30
"""Half a millisecond of reading on a fast GPU; more than any L2 cache holds."""

FLUSH_SHARE = 8
"""No more than this part of the GPU's memory."""

FEWEST, MOST = 5, 50
"""Rounds."""

MOST_SECONDS = 1.5
"""Rounds beyond the fewest end after this."""

WARM_UPS = 3


@dataclass(frozen=True, slots=True)
class Laps:
    """Seconds of one call by round; `late`: how many of them may hold some of the host's time."""

    seconds: tuple[float, ...]
    late: int = 0


class Stopwatch(Protocol):
    """A clock with a way to empty the caches."""

    def lap(self, calls: Sequence[Callable[[], object]]) -> list[tuple[float, bool]]:
        """Run each call once; its seconds, and whether it was late."""

    def wait(self) -> None:
        """Until everything enqueued is done."""


class HostStopwatch:
    """The host's clock."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush

    def lap(self, calls: Sequence[Callable[[], object]]) -> list[tuple[float, bool]]:
        """Run each call once."""
        out = []
        for call in calls:
            self._flush()
            start = time.perf_counter()
            call()
            out.append((time.perf_counter() - start, False))
        return out

    def wait(self) -> None:
        """Nothing is enqueued."""


class EventStopwatch:
    """CUDA events on torch's current stream."""

    def __init__(self, torch: Any) -> None:  # noqa: ANN401 - the module
        self._cuda = torch.cuda
        memory = torch.cuda.get_device_properties(0).total_memory
        size = min(FLUSH_BYTES, memory // FLUSH_SHARE)
        # read only: no dirty line has to be written back during the timed call
        self._buffer = torch.ones(size // 4, dtype=torch.float32, device="cuda")

    def lap(self, calls: Sequence[Callable[[], object]]) -> list[tuple[float, bool]]:
        """Run each call once."""
        marks = []
        for call in calls:
            self._buffer.sum()
            start = self._cuda.Event(enable_timing=True)
            end = self._cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            marks.append((start, end, start.query()))
            # the next flush must not begin while the host is still busy with this call
            self._cuda.synchronize()
        return [(start.elapsed_time(end) * 1e-3, late) for start, end, late in marks]

    def wait(self) -> None:
        """Until the GPU is idle."""
        self._cuda.synchronize()


def time_calls(
    stopwatch: Stopwatch,
    calls: Sequence[Callable[[], object]],
    *,
    most_s: float = MOST_SECONDS,
    now: Callable[[], float] = time.monotonic,
) -> list[Laps]:
    """Time calls in turns, after a few untimed ones."""
    for call in calls:
        for _ in range(WARM_UPS):
            call()
    stopwatch.wait()
    start = now()
    rounds: list[list[tuple[float, bool]]] = []
    while len(rounds) < MOST and (len(rounds) < FEWEST or now() - start < most_s):
        rounds.append(stopwatch.lap(calls))
    return [
        Laps(tuple(seconds for seconds, _ in own), sum(late for _, late in own))
        for own in zip(*rounds, strict=True)
    ]
