"""What the CPU at hand is: vector length, caches, threads, and its stream bandwidth.

The bandwidth is measured once per machine (under a second) and kept in the cache folder.
"""

from __future__ import annotations

import contextlib
import json
import platform
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm  # type: ignore[import-untyped]  # it has no stubs
import numpy as np
from numpy.typing import NDArray

from prism.cache import writable_folder, write_atomically
from prism.errors import UsageError
from prism.protocols import Device
from prism_kernels.cpu.launch import read_all
from prism_kernels.cpu.team import TEAM

_DEFAULT_CACHES = (32 << 10, 1 << 20, 32 << 20)
_STREAM_BYTES = 128 << 20
_PIECE_BYTES = 16 << 20
_MEASURE_S = 0.2
_CACHE_VERSION = 3


@cache
def _features() -> dict[str, bool]:
    """What LLVM finds this host to have."""
    return dict(llvm.get_host_cpu_features())


def vector_bits() -> int:
    """The widest vectors that code for this host may use."""
    features = _features()
    if features.get("avx512f"):
        return 512
    return 256 if features.get("avx2") else 128


def vector_registers() -> int:
    """How many vector registers there are."""
    features = _features()
    return 32 if features.get("avx512f") or features.get("neon") else 16


@cache
def device() -> Device:
    """The machine at hand."""
    l1, l2, l3 = _cache_sizes()
    threads = TEAM.threads
    return Device(
        name=_processor_name(),
        threads=threads,
        vector_bits=vector_bits(),
        l1_bytes=l1,
        l2_bytes=l2,
        l3_bytes=l3,
        stream_gbps=_stream_gbps(threads),
    )


def _processor_name() -> str:
    """The processor's name as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def l2_bytes() -> int:
    """Bytes of a core's L2 cache."""
    return _cache_sizes()[1]


def l3_bytes() -> int:
    """Bytes of the last cache."""
    return _cache_sizes()[2]


def streams_stores() -> bool:
    """Whether there are stores past the caches, with a fence that we know."""
    return platform.machine().lower() in {"x86_64", "amd64"}


@cache
def _cache_sizes() -> tuple[int, int, int]:
    """Bytes of the data caches of levels 1 to 3; usual sizes where the system does not say."""
    found = dict(enumerate(_DEFAULT_CACHES, start=1))
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level = int((folder / "level").read_text())
            kind = (folder / "type").read_text().strip()
            size = (folder / "size").read_text().strip()
            units = {"K": 1 << 10, "M": 1 << 20}
            amount = int(size[:-1]) * units[size[-1]] if size[-1] in units else int(size)
        except (OSError, ValueError, IndexError):
            continue
        if kind in {"Data", "Unified"} and level in found and amount > 0:
            found[level] = amount
    return found[1], found[2], found[3]


def _measure_stream(threads: int) -> tuple[float, bool]:
    """Read bandwidth in GB/s of an array no cache holds, and whether the machine was quiet.

    The best of many short pieces, because on a busy machine a long pass is always disturbed. There
    even the best piece of all threads may be slower than one thread alone, measured by its own
    clock; that is then the better guess.
    """
    array = np.ones(_STREAM_BYTES // 4, np.float32)
    alone = _best_rate(array, 1, time.thread_time)
    together = _best_rate(array, threads, time.perf_counter)
    return max(alone, together), together >= 0.95 * alone


def _best_rate(array: NDArray[np.float32], threads: int, clock: Callable[[], float]) -> float:
    piece = _PIECE_BYTES // 4
    best = float("inf")
    read_all(array[:piece], threads)  # compiles it
    end = time.perf_counter() + _MEASURE_S
    while time.perf_counter() < end:
        for first in range(0, array.size, piece):
            start = clock()
            read_all(array[first : first + piece], threads)
            best = min(best, clock() - start)
    return _PIECE_BYTES / best / 1e9


def _stream_gbps(threads: int) -> float:
    """The measured bandwidth, from the cache file when it has it."""
    path = writable_folder() / "device.json"
    key = f"{_processor_name()} / {threads} threads / v{_CACHE_VERSION}"
    known: dict[str, float] = {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        known = {str(k): float(v) for k, v in data.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        pass  # absent, or broken: measure again and write a good one
    if known.get(key, 0.0) > 0.0:
        return known[key]
    rate, is_quiet = _measure_stream(threads)
    if is_quiet:  # otherwise the next process may measure better
        with contextlib.suppress(UsageError):  # what cannot be kept is measured again
            write_atomically(path, json.dumps({**known, key: round(rate, 2)}, indent=1))
    return round(rate, 2)


def maximum_threads() -> int:
    """The most threads a launch can use in this process."""
    return TEAM.threads
