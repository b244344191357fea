"""Memory as the benchmark meets it: how fast it streams, and how to empty the caches.

Both use one pinned thread per CPU. Cores may own different last-level caches, so a flush by one
thread would leave the others' contents in place (measured: 30 % faster calls), and one thread alone
does not reach the bandwidth of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

MIB = 1 << 20
_UNKNOWN_CACHE = 64 * MIB
_MAX_CACHE = 512 * MIB


def last_level_cache_bytes(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Size of the largest cache of CPU 0, or a safe guess where the system does not say."""
    sizes = [_parse_size(p.read_text(encoding="ascii")) for p in root.glob("index*/size")]
    return min(max(sizes, default=_UNKNOWN_CACHE), _MAX_CACHE)


def _parse_size(text: str) -> int:
    """Bytes of a size as sysfs prints it, e.g. `32768K`."""
    number = text.strip()
    unit = {"K": 1 << 10, "M": MIB, "G": 1 << 30}.get(number[-1:], 1)
    return int(number.rstrip("KMG") or 0) * unit


class PinnedThreads:
    """One thread per CPU, each pinned to its own."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self._pools = [ThreadPoolExecutor(1, initializer=pin, initargs=((cpu,),)) for cpu in cpus]

    def run(self, work: Callable[[int], object]) -> None:
        """Call `work(thread index)` on every thread and wait for all."""
        futures = [pool.submit(work, i) for i, pool in enumerate(self._pools)]
        for future in futures:
            future.result()


class CacheFlusher:
    """Empties the caches by reading twice the last level's size on every thread."""

    def __init__(self, cpus: Sequence[int], cache_bytes: int | None = None) -> None:
        size = 2 * (cache_bytes or last_level_cache_bytes())
        self._threads = PinnedThreads(cpus)
        # written once, so that the pages exist; only read later, so that no dirty line has to be
        # written back during the timed call
        self._buffers = [np.ones(size // 8, dtype=np.int64) for _ in cpus]

    def flush(self) -> None:
        """Read all buffers (an integer reduction: no BLAS, so no second pool of threads)."""
        self._threads.run(lambda i: np.bitwise_or.reduce(self._buffers[i]))


class StreamMeter:
    """Reads a buffer far larger than the caches on every thread.

    `np.dot` of a vector with itself is the fastest reader NumPy has; its worker must be started
    with one BLAS thread, since the threads are ours.
    """

    def __init__(self, cpus: Sequence[int], cache_bytes: int | None = None) -> None:
        size = max(64 * MIB, 2 * (cache_bytes or last_level_cache_bytes()))
        self._threads = PinnedThreads(cpus)
        self._buffers = [np.ones(size // 4, dtype=np.float32) for _ in cpus]
        self.byte_count = sum(b.nbytes for b in self._buffers)

    def read(self) -> None:
        """Read everything once."""
        self._threads.run(lambda i: np.dot(self._buffers[i], self._buffers[i]))


def pin(cpus: Sequence[int]) -> None:
    """Pin the calling thread, and what it starts from now on, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)


@contextmanager
def pinned(cpus: Sequence[int]) -> Iterator[None]:
    """Pin the calling thread for a while: a process started meanwhile stays pinned.

    A process that pins itself is too late for the threads that libraries start when imported.
    """
    before = allowed_cpus()
    pin(cpus)
    try:
        yield
    finally:
        pin(before)


def allowed_cpus() -> tuple[int, ...]:
    """The CPUs this thread may run on (all of them where the system cannot say)."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))
