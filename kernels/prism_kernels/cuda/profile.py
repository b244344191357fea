"""The GPU's clock: what a kernel takes between two events, apart from what launching it costs.

An idle GPU starts an event at once and then waits for Python to bring the kernel. So before each
timed run a kernel that sleeps holds the stream until all of it is enqueued: event, kernels, event.
What the device itself takes to begin and end a launch stays in the time; it is measured with an
empty kernel and reported beside it, and so is the host's share.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from prism_kernels.cuda.backend import Facts
from prism_kernels.cuda.gpu_api import Api, configured

HOLD_ROUNDS = 200
"""Least sleeps, of about a microsecond each, before a timed run."""

HOLD_LAUNCHES = 8
"""A timed run is held this many times as long as the host takes for a launch."""

FLUSH_FACTOR = 2
"""The buffer written before a timed run is this many times the L2 cache."""

WARM_UPS = 5
REPEATS = 21
LAUNCHES = 200
"""Launches in a row to see what one costs the host."""

_HOLD = """
from numba import cuda

def kernel(rounds):
    for _ in range(rounds):
        cuda.nanosleep(1000)
"""

_EMPTY = """
def kernel():
    return
"""


class GpuClock:
    """Events on one stream."""

    def __init__(self, api: Api, stream: Any, l2_bytes: int) -> None:  # noqa: ANN401 - numba's
        self._api = api
        self._stream = stream
        self._l2_bytes = l2_bytes
        self._start = api.cuda.event(timing=True)
        self._end = api.cuda.event(timing=True)
        self._buffer: Any = None
        self._overheads: Facts | None = None
        self._rounds = HOLD_ROUNDS
        hold = api.cuda.jit("void(int32)")(api.function(_HOLD, "hold"))
        self._hold = configured(hold, 1, 1, stream, 0)

    def timed(self, launch: Callable[[], None]) -> float:
        """Seconds between an event before and one after what `launch` enqueues."""
        self._hold(self._rounds)
        self._start.record(self._stream)
        launch()
        self._end.record(self._stream)
        self._end.synchronize()
        return float(self._api.cuda.event_elapsed_time(self._start, self._end)) * 1e-3

    def flush(self) -> None:
        """Write a buffer larger than the L2 cache; enqueued, not waited for."""
        size = FLUSH_FACTOR * self._l2_bytes
        if self._buffer is None:
            self._buffer = self._api.cuda.device_array(size, "uint8")
        self._api.driver.device_memset(self._buffer, 0, size, self._stream)

    def overheads(self) -> Facts:
        """`launch_overhead_s`, an empty kernel by events; `host_launch_s`, Python's share."""
        if self._overheads is None:
            self._overheads = self._measure()
        return self._overheads

    def _measure(self) -> Facts:
        empty = self._api.cuda.jit("void()")(self._api.function(_EMPTY, "empty"))
        launch = configured(empty, 1, 1, self._stream, 0)
        for _ in range(WARM_UPS):
            self.timed(launch)
        start = time.perf_counter()
        for _ in range(LAUNCHES):
            launch()
        host_s = (time.perf_counter() - start) / LAUNCHES
        self._stream.synchronize()
        self._rounds = max(HOLD_ROUNDS, round(HOLD_LAUNCHES * host_s * 1e6))
        device_s = median(self.timed(launch) for _ in range(REPEATS))
        return {"launch_overhead_s": round(device_s, 9), "host_launch_s": round(host_s, 9)}
