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
"""More of them, about cores; zero where there are none."""
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
"""When the last launch ended."""
MASK, MASK_BYTES = 256, 128
"""A set of cores."""

ROWS, ROW = 384, 256
AWAKE, NUMBER, OWNER, HANDLE, PLACE = 128, 136, 144, 152, 160
"""In a row, which begins with its ticket. `PLACE` is one more than the core it was last seen on."""
SEMAPHORE, TIME = 192, 232

KERNEL, KERNEL_BLOCKS, KERNEL_ALONE = 24, 8, 16
"""A kernel in a list of them: address, blocks, and nanoseconds that it would take one thread, as
the last launch found; zero where that is not known."""
