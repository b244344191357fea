"""Where what is in the memory that the threads of a team share, in bytes.

A head, then a row for each thread. What one thread writes and another polls has cache lines of its
own.
"""

from __future__ import annotations

# the head: what the current job is, and what stays
ADDRESS, ARRAYS, BLOCKS, THREADS = 0, 8, 16, 24
LIMIT = 32
"""How many threads a launch may use."""
WAIT, POST, YIELD, CLOCK = 40, 48, 56, 88
"""Functions of the C library."""
WHERE, ALLOWED, MOVE = 96, 104, 112
"""More of them: which core the caller is on, which ones it may use, and how to say which ones a
thread may use; zero where there are none."""
RUN = 64
"""Where `run_kernels` is, for other machine code."""
JOB = 72
"""The number of the job that the first four words describe, or are about to."""
QUIT = 80
"""Whether the threads are to end."""
MOST_SPIN = 120
"""Nanoseconds that a thread waits awake at most."""
DONE = 128
"""How many blocks of the job are done."""
ENDED = 192
"""When the last launch ended, in nanoseconds of the monotonic clock; zero: there was none."""
MASK, MASK_BYTES = 256, 128
"""A set of cores, a bit for each, and how many bytes it has."""

ROWS, ROW = 384, 256
AWAKE, NUMBER, OWNER, HANDLE, PLACE = 128, 136, 144, 152, 160
"""In the row of a thread, which begins with its ticket: whether it is awake (1) or sleeps, or is
about to (0); its number; the address of its team; its handle for the C library; and one more than
the core it was last seen on, or zero."""
SEMAPHORE, TIME = 192, 232
"""Where it sleeps (a `sem_t`), and what it read last of the clock: seconds, then nanoseconds."""

KERNEL, KERNEL_BLOCKS, KERNEL_ALONE = 24, 8, 16
"""A kernel in a list of them: address, blocks, and nanoseconds that it would take one thread, as
the last launch found; zero where that is not known."""
