"""The threads that run the blocks of kernels, in machine code: no lock of Python's is in the way.

A kernel of one block, or one that a single thread runs, is called where it is launched. Otherwise
the caller publishes a *job*: every thread has a row with a ticket, (number of the job, next block
of this thread's share). Who takes a block moves the ticket on by an atomic exchange, first those of
its own share, then what is left of the others'. A ticket of another job is never moved, so a thread
that comes too late touches nothing, and the caller need not wait for it: it is done when all blocks
are. What it read of the job may be half the next one's, so every job begins by writing its number,
which is looked at last. Kernels of one call follow each other without Python in between.

A thread without work waits awake for a while and then sleeps at a semaphore (`waiting`). A launch
that one thread ends before another wakes does not wake any; those that are awake take their part.
Waking them before Python has looked at the arguments gained nothing (measured).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import config
from numpy.typing import NDArray

from prism_kernels.cpu.memory import (
    ADDRESS,
    ALLOWED,
    ARRAYS,
    AWAKE,
    BLOCKS,
    CLOCK,
    DONE,
    ENDED,
    HANDLE,
    JOB,
    KERNEL,
    KERNEL_ALONE,
    KERNEL_BLOCKS,
    LIMIT,
    MOST_SPIN,
    MOVE,
    NUMBER,
    OWNER,
    POST,
    QUIT,
    ROW,
    ROWS,
    RUN,
    SEMAPHORE,
    THREADS,
    WAIT,
    WHERE,
    YIELD,
)
from prism_kernels.cpu.waiting import (
    WAITING,
    is_worth_waking,
    keep_apart,
    note_place,
    now,
    patience,
    spin_us,
    wait_a_little,
    wake,
)
from prism_kernels.cpu.words import (
    atomic_add,
    atomic_load,
    atomic_store,
    call,
    compiled,
    exchange,
    peek,
    poke,
)

_BITS = 32
_INDEX = (1 << _BITS) - 1
_SEVERAL = 2


def take_blocks(team: int, number: int, job: int) -> int:
    """Run blocks of a job, by its number, until none is left to be taken; how many were run."""
    threads = atomic_load(team + THREADS)
    address = atomic_load(team + ADDRESS)
    arrays = atomic_load(team + ARRAYS)
    blocks = atomic_load(team + BLOCKS)
    # a thread that was held up on its way here may have read what the next job has written; with
    # its number of blocks the tickets of this one would seem to have some left
    if atomic_load(team + JOB) != job:
        return 0
    if number >= threads:
        return 0
    ran = 0
    for step in range(threads):
        owner = number + step
        if owner >= threads:
            owner -= threads
        row = team + ROWS + owner * ROW
        last = blocks * (owner + 1) // threads
        ticket = atomic_load(row)
        while ticket >> _BITS == job and (ticket & _INDEX) < last:
            if exchange(row, ticket, ticket + 1):
                call(address, ticket & _INDEX, number, arrays)
                ran += 1
            ticket = atomic_load(row)
    if ran > 0:
        atomic_add(team + DONE, ran)
    return ran


def work(row: int) -> None:
    """What a thread does all its life."""
    team = peek(row + OWNER)
    number = peek(row + NUMBER)
    seen = atomic_load(row) >> _BITS
    place = 0
    gap = 0
    idle = now(team, row)
    while atomic_load(team + QUIT) == 0:
        time = now(team, row)
        until = time + patience(team, gap)
        place = note_place(team, row, place)
        job = atomic_load(row) >> _BITS
        while job == seen and time < until:
            wait_a_little(team)
            place = note_place(team, row, place)
            time = now(team, row)
            job = atomic_load(row) >> _BITS
        if job != seen:
            seen = job
            gap = time - idle
            take_blocks(team, number, job)
            idle = now(team, row)
        else:
            atomic_store(row + AWAKE, 0)
            # who published a job just now may have seen us awake: then nobody will wake us
            is_late = atomic_load(row) >> _BITS != seen and exchange(row + AWAKE, 0, 1)
            if is_late == 0:
                call(peek(team + WAIT), row + SEMAPHORE)


def end(team: int, threads: int) -> None:
    """Have the threads end: by a job without blocks, since one may just be going to sleep."""
    atomic_store(team + QUIT, 1)
    atomic_store(team + THREADS, 0)
    for number in range(threads):
        atomic_add(team + ROWS + number * ROW, 1 << _BITS)
    wake(team, threads)


def describe(team: int, address: int, blocks: int, arrays: int, threads: int) -> int:
    """Write what the next job is; its number, which nobody finds on a ticket yet."""
    job = (((atomic_load(team + ROWS) >> _BITS) + 1) << _BITS) >> _BITS
    atomic_store(team + JOB, job)
    atomic_store(team + ADDRESS, address)
    atomic_store(team + ARRAYS, arrays)
    atomic_store(team + BLOCKS, blocks)
    atomic_store(team + THREADS, threads)
    return job


def share_blocks(team: int, kernel: int, arrays: int, threads: int, wakes: int) -> None:
    """Run a kernel on several threads, with those that sleep or without them."""
    blocks = peek(kernel + KERNEL_BLOCKS)
    job = describe(team, peek(kernel), blocks, arrays, threads)
    atomic_store(team + DONE, 0)
    for number in range(threads):
        ticket = (job << _BITS) + blocks * number // threads
        atomic_store(team + ROWS + number * ROW, ticket)
    keep_apart(team, threads)
    if wakes:
        wake(team, threads)
    own = team + ROWS
    begun = now(team, own)
    ran = take_blocks(team, 0, job)
    if ran > 0:
        poke(kernel + KERNEL_ALONE, (now(team, own) - begun) * blocks // ran)
    while atomic_load(team + DONE) < blocks:
        wait_a_little(team)


def run_range(address: int, first: int, last: int, thread: int, arrays: int) -> None:
    """Run some blocks of a kernel here."""
    for index in range(first, last):
        call(address, index, thread, arrays)


def most_blocks(kernels: int, count: int) -> int:
    """How many blocks the kernel has that has most."""
    most = 0
    for k in range(count):
        most = max(most, peek(kernels + k * KERNEL + KERNEL_BLOCKS))
    return most


def run_kernels(team: int, kernels: int, count: int, arrays: int) -> None:
    """Run kernels of a `kernel_table`, one after the other on the same arrays."""
    limit = min(peek(team + LIMIT), most_blocks(kernels, count))
    wakes = 0
    if limit > 1:
        wakes = is_worth_waking(team, kernels, count)
    for k in range(count):
        kernel = kernels + k * KERNEL
        blocks = peek(kernel + KERNEL_BLOCKS)
        threads = min(limit, blocks)
        if threads > 1:
            share_blocks(team, kernel, arrays, threads, wakes)
        else:
            run_range(peek(kernel), 0, blocks, 0, arrays)
    if limit > 1:
        poke(team + ENDED, now(team, team + ROWS))


_CODE = compiled(
    (
        *WAITING,
        take_blocks,
        work,
        end,
        describe,
        share_blocks,
        run_range,
        most_blocks,
        run_kernels,
    )
)
_CALLS = {
    "end": ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64),
    "run_range": ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 5),
    "run_kernels": ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4),
}
_end, _run_range, _run_kernels = (kind(_CODE[name]) for name, kind in _CALLS.items())

_NEEDED = {WAIT: "sem_wait", POST: "sem_post", YIELD: "sched_yield", CLOCK: "clock_gettime"}
_PLACING = {WHERE: "sched_getcpu", ALLOWED: "sched_getaffinity", MOVE: "pthread_setaffinity_np"}
"""Functions of the C library: those without which there is no team, and those of Linux."""


def kernel_table(kernels: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Kernels, (address, blocks) each, as `Team.run` takes them; it notes what they take."""
    return np.array([(address, blocks, 0) for address, blocks in kernels], np.int64)


class Team:
    """The threads of this process; they start when they are first needed, in a child anew."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._memory = np.zeros((ROWS + (threads + 1) * ROW) // 8, np.int64)
        start: int = self._memory.__array_interface__["data"][0]
        self.address = start + -start % ROW
        self.turn = threading.RLock()
        """Who launches; once more where a finalizer or a handler of a signal does meanwhile."""
        self.is_started = False
        self._is_able = True
        self._handles: list[ctypes.c_ulong] = []
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def run(self, kernels: int, count: int, arrays: int) -> None:
        """Run `count` kernels of a `kernel_table` at an address; `turn` is the caller's."""
        _run_kernels(self.address, kernels, count, arrays)

    @staticmethod
    def run_alone(address: int, first: int, last: int, thread: int, arrays: int) -> None:
        """Run some blocks of a kernel on the caller's thread, as thread number `thread`."""
        _run_range(address, first, last, thread, arrays)

    def start(self) -> bool:
        """Start the threads, if they are not there; whether this system has such threads.

        Raises:
            UsageError: what the environment says about them makes no sense.
        """
        if not self.is_started:
            with self.turn:
                if not self.is_started:
                    spin_ns = 1000 * spin_us()
                    self.is_started = True  # once, even if Ctrl-C ends it: then there are fewer
                    self._start(spin_ns)
        return self._is_able

    def limit(self, threads: int) -> None:
        """Let launches use so many threads from now on."""
        self._set(LIMIT, min(threads, len(self._handles) + 1))

    def _start(self, spin_ns: int) -> None:
        if self.threads < _SEVERAL:
            return
        library = _c_library()
        if library is None:
            self._is_able = False
            return
        self._set(MOST_SPIN, spin_ns)
        for place, name in _NEEDED.items():
            self._set(place, address_of_function(getattr(library, name)))
        if all(hasattr(library, name) for name in _PLACING.values()):
            for place, name in _PLACING.items():
                self._set(place, address_of_function(getattr(library, name)))
        rows = [self.address + ROWS + k * ROW for k in range(self.threads)]
        if any(library.sem_init(ctypes.c_void_p(row + SEMAPHORE), 0, 0) for row in rows):
            self._is_able = False
            return
        # signals are for Python's threads
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # may raise: Ctrl-C
            for number, row in enumerate(rows[1:], start=1):
                if not self._begin(library, number, row):
                    break  # as many as there may be
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        self.limit(self.threads)
        atexit.register(self.stop)

    def _begin(self, library: ctypes.CDLL, number: int, row: int) -> bool:
        for place, value in ((AWAKE, 1), (NUMBER, number), (OWNER, self.address)):
            self._set(row - self.address + place, value)
        handle = ctypes.c_ulong()
        entry, argument = ctypes.c_void_p(_CODE["work"]), ctypes.c_void_p(row)
        failed = library.pthread_create(ctypes.byref(handle), None, entry, argument)
        if not failed:
            self._handles.append(handle)
            self._set(row - self.address + HANDLE, handle.value)
        return not failed

    def stop(self) -> None:
        """End the threads: at exit they must not run code that is being taken down."""
        with self.turn:
            handles, self._handles = self._handles, []
            _end(self.address, len(handles) + 1)
            for handle in handles:
                ctypes.CDLL(None).pthread_join(handle, None)
            self._reset()
            self.is_started = True  # and stays so: what runs later runs on one thread

    def _after_fork(self) -> None:
        """In the child: the threads are not there, and the parent's locks may be held."""
        self.turn = threading.RLock()
        self._handles = []
        self._reset()

    def _reset(self) -> None:
        self._memory[:] = 0
        self.is_started = False
        self._set(LIMIT, 1)
        self._set(RUN, _CODE["run_kernels"])

    def _set(self, place: int, value: int) -> None:
        ctypes.c_int64.from_address(self.address + place).value = value


def _c_library() -> ctypes.CDLL | None:
    """The C library, if it has the threads and semaphores of POSIX."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # as on Windows
        return None
    names = (*_NEEDED.values(), "sem_init", "pthread_create")
    return library if all(hasattr(library, name) for name in names) else None


def address_of_function(function: Any) -> int:  # noqa: ANN401 - a function of a C library
    """Where a C function is."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


TEAM = Team(int(config.NUMBA_NUM_THREADS))
