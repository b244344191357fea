"""Runs the blocks of kernels on all threads: one launcher for all kernels (`team`).

It calls block functions by address, so a candidate costs one serial compilation. Each call gets the
number of its thread, which picks a slice of the kernel's workspace. Launches from several Python
threads take turns. Where the system has no threads as the team wants them, the blocks run on
threads of Python's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np
from numba import cfunc
from numpy.typing import NDArray

from prism_kernels.cpu.intrinsics import argument, load, offset, signature, store
from prism_kernels.cpu.team import TEAM, kernel_table
from prism_kernels.cpu.words import compiled


class _PythonThreads:
    """Threads of Python's; a child process makes its own."""

    def __init__(self) -> None:
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._turn = threading.RLock()
        self._pool: ThreadPoolExecutor | None = None

    def run(self, address: int, blocks: int, arrays: int) -> None:
        """Run a kernel, an equal share of its blocks on each thread."""
        threads = min(TEAM.threads, blocks)
        cuts = [blocks * t // threads for t in range(threads + 1)]
        with self._turn:
            self._pool = self._pool or ThreadPoolExecutor(TEAM.threads)
            parts = [
                self._pool.submit(TEAM.run_alone, address, cuts[t], cuts[t + 1], t, arrays)
                for t in range(threads)
            ]
            for part in parts:
                part.result()


_PYTHON = _PythonThreads()


def address_of(array: NDArray[np.generic]) -> int:
    """Where an array's data begin (several times faster than `array.ctypes.data`)."""
    address: int = array.__array_interface__["data"][0]
    return address


def launch(
    kernels: Sequence[tuple[int, int]],
    arrays: Sequence[NDArray[np.generic]],
    *,
    threads: int | None = None,
) -> None:
    """Run kernels, block function and number of blocks, one after the other on the same arrays.

    `threads`: 1 for the caller's alone.
    """
    launcher(kernels, threads=threads)(arrays)


def launcher(
    kernels: Sequence[tuple[int, int]], *, threads: int | None = None
) -> Callable[[Sequence[NDArray[np.generic]]], None]:
    """As `launch`, for any number of launches: what they take is known from the second on."""
    table = kernel_table(kernels)
    is_alone = threads == 1 or all(blocks == 1 for _, blocks in kernels)

    def run(arrays: Sequence[NDArray[np.generic]]) -> None:
        pointers = np.array([address_of(a) for a in arrays], np.int64)
        if is_alone:
            for address, blocks in kernels:
                TEAM.run_alone(address, 0, blocks, 0, address_of(pointers))
        elif TEAM.start():
            with TEAM.turn:
                TEAM.run(address_of(table), len(kernels), address_of(pointers))
        else:
            for address, blocks in kernels:
                _PYTHON.run(address, blocks, address_of(pointers))

    return run


def nothing(index: int, thread: int, arrays: int) -> None:
    """A block that does no work."""


_EMPTY_LAUNCHES = 100


@cache
def empty_launch_s() -> float:
    """Seconds of a launch of blocks that do nothing, one on every thread; the fastest of some.

    Measured once in each process, when it is first asked for. On a busy machine threads wait for
    one another by the millisecond, which is no cost of the launch: hence not the median.
    """
    empty = compiled((nothing,))["nothing"]
    arrays = [np.zeros(1)] * 3
    seconds = []
    for _ in range(_EMPTY_LAUNCHES):
        start = perf_counter()
        launch([(empty, TEAM.threads)], arrays)
        seconds.append(perf_counter() - start)
    return min(seconds)


_PART = 1 << 16
"""Elements that are read by one block."""


@cache
def _reader() -> Any:  # noqa: ANN401 - Numba has no annotations
    """A block function that adds up a part of an array."""

    def read(index, thread, arrays) -> None:  # noqa: ARG001 - as every block function
        source = offset(argument(arrays, 0), index * _PART)
        total = np.float32(0)
        for i in range(_PART):
            total += load(source, i)
        store(argument(arrays, 1), index, total)

    return cfunc(signature("float32"), fastmath=True)(read)


def read_all(array: NDArray[np.float32], threads: int | None = None) -> float:
    """Read an array, every thread a part of it; returns the sum."""
    parts = array.size // _PART
    sums = np.zeros(max(1, parts), np.float32)
    if parts:
        launch([(_reader().address, parts)], [array, sums], threads=threads)
    return float(sums.sum() + array[parts * _PART :].sum())
