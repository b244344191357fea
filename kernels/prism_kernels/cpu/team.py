"""The threads that run the blocks of kernels, in machine code: no lock of Python's is in the way.

A kernel of one block, or one that a single thread runs, is called where it is launched. Otherwise
the caller publishes a *job*: every thread has a row with a ticket, (number of the job, next block
of this thread's share). Who takes a block moves the ticket on by an atomic exchange, first those of
its own share, then what is left of the others'. A ticket of another job is never moved, so a thread
that comes too late touches nothing, and the caller need not wait for it: it is done when all blocks
are. What it read of the job may be half the next one's, so every job begins by writing its number,
which is looked at last. Kernels of one call follow each other without Python in between.

A thread without work waits awake for a moment (the next kernel of the call is about to come) and
then sleeps at a semaphore. To wake one takes 50 us in a virtual machine, in which the caller has
begun; waking it before Python has looked at the arguments gained nothing (measured).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import threading
from typing import Any

import numpy as np
from numba import config

from prism_kernels.cpu.words import (
    atomic_add,
    atomic_load,
    atomic_store,
    call,
    compiled,
    exchange,
    pause,
    peek,
)

# The team's memory in bytes: a head, how many blocks are done, a row for each thread. What is
# written by one thread and polled by another has cache lines of its own.
_ADDRESS, _ARRAYS, _BLOCKS, _THREADS = 0, 8, 16, 24
_LIMIT = 32
"""How many threads a launch may use."""
_WAIT, _POST, _YIELD = 40, 48, 56
"""Functions of the C library."""
RUN = 64
"""Where `run_kernels` is, for other machine code."""
_JOB = 72
"""The number of the job that the four words above describe, or are about to."""
_QUIT = 80
"""Whether the threads are to end."""
_DONE = 128
_ROWS, _ROW = 256, 256
_AWAKE, _NUMBER, _TEAM, _SEMAPHORE = 128, 136, 144, 160
"""In a row, which begins with its ticket."""

_BITS = 32
_INDEX = (1 << _BITS) - 1
_SPINS = 60
"""Rounds of waiting before a thread that has nothing to do sleeps: some 100 us."""
_PAUSES = 24
"""Pauses of a round, 2 us; then whoever else waits for the core gets it. That may be the very
thread that is waited for: the system likes to wake a thread where it was woken from."""
_SEVERAL = 2


def wait_a_little(team: int) -> None:
    """One round of waiting."""
    for _ in range(_PAUSES):
        pause()
    call(peek(team + _YIELD))


def take_blocks(team: int, number: int, job: int) -> None:
    """Run blocks of a job, by its number, until none is left to be taken."""
    threads = atomic_load(team + _THREADS)
    address = atomic_load(team + _ADDRESS)
    arrays = atomic_load(team + _ARRAYS)
    blocks = atomic_load(team + _BLOCKS)
    # a thread that was held up on its way here may have read what the next job has written; with
    # its number of blocks the tickets of this one would seem to have some left
    if atomic_load(team + _JOB) != job:
        return
    if number >= threads:
        return
    ran = 0
    for step in range(threads):
        owner = number + step
        if owner >= threads:
            owner -= threads
        row = team + _ROWS + owner * _ROW
        last = blocks * (owner + 1) // threads
        ticket = atomic_load(row)
        while ticket >> _BITS == job and (ticket & _INDEX) < last:
            if exchange(row, ticket, ticket + 1):
                call(address, ticket & _INDEX, number, arrays)
                ran += 1
            ticket = atomic_load(row)
    if ran > 0:
        atomic_add(team + _DONE, ran)


def work(row: int) -> None:
    """What a thread does all its life."""
    team = peek(row + _TEAM)
    number = peek(row + _NUMBER)
    seen = atomic_load(row) >> _BITS
    while atomic_load(team + _QUIT) == 0:
        spins = 0
        job = atomic_load(row) >> _BITS
        while job == seen and spins < _SPINS:
            wait_a_little(team)
            spins += 1
            job = atomic_load(row) >> _BITS
        if job != seen:
            seen = job
            take_blocks(team, number, job)
        else:
            atomic_store(row + _AWAKE, 0)
            # who published a job just now may have seen us awake: then nobody will wake us
            is_late = atomic_load(row) >> _BITS != seen and exchange(row + _AWAKE, 0, 1)
            if is_late == 0:
                call(peek(team + _WAIT), row + _SEMAPHORE)


def wake(team: int, threads: int) -> None:
    """Wake those of the first threads that sleep, the caller's own aside."""
    for number in range(1, threads):
        row = team + _ROWS + number * _ROW
        if exchange(row + _AWAKE, 0, 1):
            call(peek(team + _POST), row + _SEMAPHORE)


def end(team: int, threads: int) -> None:
    """Have the threads end: by a job without blocks, since one may just be going to sleep."""
    atomic_store(team + _QUIT, 1)
    atomic_store(team + _THREADS, 0)
    for number in range(threads):
        atomic_add(team + _ROWS + number * _ROW, 1 << _BITS)
    wake(team, threads)


def describe(team: int, address: int, blocks: int, arrays: int, threads: int) -> int:
    """Write what the next job is; its number, which nobody finds on a ticket yet."""
    job = (((atomic_load(team + _ROWS) >> _BITS) + 1) << _BITS) >> _BITS
    atomic_store(team + _JOB, job)
    atomic_store(team + _ADDRESS, address)
    atomic_store(team + _ARRAYS, arrays)
    atomic_store(team + _BLOCKS, blocks)
    atomic_store(team + _THREADS, threads)
    return job


def share_blocks(team: int, address: int, blocks: int, arrays: int, threads: int) -> None:
    """Run a kernel on several threads."""
    job = describe(team, address, blocks, arrays, threads)
    atomic_store(team + _DONE, 0)
    for number in range(threads):
        ticket = (job << _BITS) + blocks * number // threads
        atomic_store(team + _ROWS + number * _ROW, ticket)
    wake(team, threads)
    take_blocks(team, 0, job)
    while atomic_load(team + _DONE) < blocks:
        wait_a_little(team)


def run_range(address: int, first: int, last: int, thread: int, arrays: int) -> None:
    """Run some blocks of a kernel here."""
    for index in range(first, last):
        call(address, index, thread, arrays)


def run_kernels(team: int, kernels: int, count: int, arrays: int) -> None:
    """Run kernels, (address, blocks) each, one after the other on the same arrays."""
    for k in range(count):
        address = peek(kernels + 16 * k)
        blocks = peek(kernels + 16 * k + 8)
        threads = peek(team + _LIMIT)
        threads = min(threads, blocks)
        if threads > 1:
            share_blocks(team, address, blocks, arrays, threads)
        else:
            run_range(address, 0, blocks, 0, arrays)


_CODE = compiled(
    (wait_a_little, take_blocks, work, wake, end, describe, share_blocks, run_range, run_kernels)
)
_CALLS = {
    "end": ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64),
    "run_range": ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 5),
    "run_kernels": ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4),
}
_end, _run_range, _run_kernels = (kind(_CODE[name]) for name, kind in _CALLS.items())


class Team:
    """The threads of this process; they start when they are first needed, in a child anew."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._memory = np.zeros((_ROWS + (threads + 1) * _ROW) // 8, np.int64)
        start: int = self._memory.__array_interface__["data"][0]
        self.address = start + -start % _ROW
        self.turn = threading.RLock()
        """Who launches; once more where a finalizer or a handler of a signal does meanwhile."""
        self.is_started = False
        self._is_able = True
        self._handles: list[ctypes.c_ulong] = []
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def run(self, kernels: int, count: int, arrays: int) -> None:
        """Run kernels, `count` pairs of words at an address; `turn` is the caller's."""
        _run_kernels(self.address, kernels, count, arrays)

    @staticmethod
    def run_alone(address: int, first: int, last: int, thread: int, arrays: int) -> None:
        """Run some blocks of a kernel on the caller's thread, as thread number `thread`."""
        _run_range(address, first, last, thread, arrays)

    def start(self) -> bool:
        """Start the threads, if they are not there; whether this system has such threads."""
        if not self.is_started:
            with self.turn:
                if not self.is_started:
                    self.is_started = True  # once, even if Ctrl-C ends it: then there are fewer
                    self._start()
        return self._is_able

    def limit(self, threads: int) -> None:
        """Let launches use so many threads from now on."""
        self._set(_LIMIT, min(threads, len(self._handles) + 1))

    def _start(self) -> None:
        if self.threads < _SEVERAL:
            return
        library = _c_library()
        if library is None:
            self._is_able = False
            return
        for place, name in ((_WAIT, "sem_wait"), (_POST, "sem_post"), (_YIELD, "sched_yield")):
            self._set(place, address_of_function(getattr(library, name)))
        rows = [self.address + _ROWS + k * _ROW for k in range(self.threads)]
        if any(library.sem_init(ctypes.c_void_p(row + _SEMAPHORE), 0, 0) for row in rows):
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
        for place, value in ((_AWAKE, 1), (_NUMBER, number), (_TEAM, self.address)):
            self._set(row - self.address + place, value)
        handle = ctypes.c_ulong()
        entry, argument = ctypes.c_void_p(_CODE["work"]), ctypes.c_void_p(row)
        failed = library.pthread_create(ctypes.byref(handle), None, entry, argument)
        if not failed:
            self._handles.append(handle)
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
        self._set(_LIMIT, 1)
        self._set(RUN, _CODE["run_kernels"])

    def _set(self, place: int, value: int) -> None:
        ctypes.c_int64.from_address(self.address + place).value = value


def _c_library() -> ctypes.CDLL | None:
    """The C library, if it has the threads and semaphores of POSIX."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # as on Windows
        return None
    names = ("sem_wait", "sem_post", "sem_init", "sched_yield", "pthread_create")
    return library if all(hasattr(library, name) for name in names) else None


def address_of_function(function: Any) -> int:  # noqa: ANN401 - a function of a C library
    """Where a C function is."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


TEAM = Team(int(config.NUMBA_NUM_THREADS))
