"""Runs the blocks of a kernel on all threads: one launcher for all kernels, compiled once.

The launcher calls block functions by address, so a candidate costs one serial compilation. Each
call gets the number of its thread, which picks a slice of the kernel's workspace.

Launches from several Python threads take turns (Numba's workqueue layer would abort). A process
that is forked after a launch must not enter the OpenMP layer again (it would abort); there the
blocks run on Python threads.

Compiling takes 0.4 s in each process, and as much again for the functions that read arrays, which
are compiled when they are first called. Nothing is kept on disk: Numba's cache files are pickles,
which run what is in them, and a broken one would keep this module from being imported.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from time import perf_counter

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # it has no stubs
from numba import cfunc, config, get_num_threads, get_thread_id, njit, prange, types
from numba.extending import intrinsic
from numba.np.ufunc import parallel
from numpy.typing import NDArray

from prism.errors import KernelError
from prism_kernels.cpu.intrinsics import Context, NumbaType, Typed, load


class _Turns:
    """Whose turn it is to launch, and whether this process may use Numba's threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pool: ThreadPoolExecutor | None = None
        """Python threads, in a process whose parent had started Numba's."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self.lock = threading.Lock()  # the parent's may be held by a thread that is not here
        if getattr(parallel, "_is_initialized", True):
            self.pool = ThreadPoolExecutor(int(config.NUMBA_NUM_THREADS))


_TURNS = _Turns()


def _start_threads() -> None:
    """Start Numba's threads, as compiling a parallel loop does anyway.

    Raises:
        KernelError: the environment asks for threads that there are not.
    """
    try:
        get_num_threads()
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise KernelError(
            f"Numba cannot start its threads: {reason} (see NUMBA_THREADING_LAYER)"
        ) from error


_start_threads()


@intrinsic
def _call(
    _context: Context, address: NumbaType, index: NumbaType, thread: NumbaType, arrays: NumbaType
) -> Typed:
    """Call the block function at `address`."""
    del address, index, thread

    def build(
        context: Context, builder: ir.IRBuilder, signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        word = ir.IntType(64)
        table = word.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [word, word, table])
        function = builder.inttoptr(args[0], kind.as_pointer())
        data = context.make_array(signature.args[3])(context, builder, args[3]).data
        builder.call(function, [args[1], args[2], builder.bitcast(data, table)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, arrays), build


@intrinsic
def _pointer(_context: Context, array: NumbaType) -> Typed:
    """A raw pointer to an array's data."""

    def build(
        context: Context, builder: ir.IRBuilder, signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), build


@njit("void(int64, int64, int64[::1])", parallel=True, nogil=True)
def _launch_parallel(address, blocks, arrays) -> None:
    for index in prange(blocks):
        _call(address, index, get_thread_id(), arrays)


@njit("void(int64, int64, int64, int64, int64[::1])", nogil=True)
def _launch_range(address, first, last, thread, arrays) -> None:
    for index in range(first, last):
        _call(address, index, thread, arrays)


def address_of(array: NDArray[np.generic]) -> int:
    """Where an array's data begin (several times faster than `array.ctypes.data`)."""
    address: int = array.__array_interface__["data"][0]
    return address


def _threads() -> int:
    """How many threads a launch uses."""
    if _TURNS.pool is not None:  # asking Numba would start its threads
        return int(config.NUMBA_NUM_THREADS)
    return int(get_num_threads())


def launch(kernels: Sequence[tuple[int, int]], arrays: Sequence[NDArray[np.generic]]) -> None:
    """Run kernels, block function and number of blocks, one after the other on the same arrays."""
    pointers = np.array([address_of(a) for a in arrays], np.int64)
    for address, blocks in kernels:
        _launch(address, blocks, pointers)


def _launch(address: int, blocks: int, pointers: NDArray[np.int64]) -> None:
    """Call the block function at `address` for every block."""
    threads = min(_threads(), blocks) if blocks > 1 else 1
    if threads == 1:
        _launch_range(address, 0, blocks, 0, pointers)
        return
    with _TURNS.lock:
        if _TURNS.pool is None:
            _launch_parallel(address, blocks, pointers)
            return
        cuts = [blocks * t // threads for t in range(threads + 1)]
        parts = [
            _TURNS.pool.submit(_launch_range, address, cuts[t], cuts[t + 1], t, pointers)
            for t in range(threads)
        ]
        for part in parts:
            part.result()


def _nothing(_index, _thread, _arrays) -> None:
    """A block that does no work."""


_EMPTY_LAUNCHES = 100


@cache
def empty_launch_s() -> float:
    """Seconds of a launch of blocks that do nothing, one on every thread; the fastest of some.

    Measured once in each process, when it is first asked for. On a busy machine threads wait for
    one another by the millisecond, which is no cost of the launch: hence not the median.
    """
    empty = cfunc("void(int64, int64, CPointer(int64))")(_nothing)
    arrays = [np.zeros(1)] * 3
    seconds = []
    for _ in range(_EMPTY_LAUNCHES):
        start = perf_counter()
        launch([(empty.address, _threads())], arrays)
        seconds.append(perf_counter() - start)
    return min(seconds)


@njit(nogil=True, fastmath=True)
def _read_serially(array) -> np.float32:
    source, total = _pointer(array), np.float32(0)
    for i in range(array.size):
        total += load(source, i)
    return total


@njit(parallel=True, nogil=True)
def _read_parts(array, sums) -> None:
    length = array.size // sums.size
    for t in prange(sums.size):
        sums[t] = _read_serially(array[t * length : (t + 1) * length])


def read_all(array: NDArray[np.float32], threads: int | None = None) -> float:
    """Read an array, every thread a part of it; returns the sum."""
    sums = np.zeros(threads or _threads(), np.float32)
    if sums.size == 1 or _TURNS.pool is not None:
        return float(_read_serially(array))
    with _TURNS.lock:
        _read_parts(array, sums)
    return float(sums.sum())
