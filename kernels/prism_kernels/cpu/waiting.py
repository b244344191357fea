"""How long a thread of a team waits awake, and on which core: in the dialect of `words`.

To wake a thread costs the caller 10 us in a virtual machine, and the thread comes 50 us late. So
who calls in a loop should find it awake: it waits for twice as long as the last gap between two
jobs was, unless that was longer than `PRISM_CPU_SPIN_US`; then waiting is of no use, and a moment
has to do, for the next kernel of the same call. Whoever else wants the core gets it meanwhile.

A thread on the caller's core would wait for the very thread that waits for it. In virtual machines
Linux wakes it there though another core is idle, as it may take a core that sleeps for one that the
host has taken away (measured: in up to a third of all calls, which then took as long as with one
thread). So each thread notes where it runs, and the caller keeps one that it meets on its own core
off that core, which takes 20 us.
"""

from __future__ import annotations

import os
import time

from prism.errors import UsageError
from prism_kernels.cpu.memory import (
    ALLOWED,
    AWAKE,
    CLOCK,
    ENDED,
    HANDLE,
    KERNEL,
    KERNEL_ALONE,
    KERNEL_BLOCKS,
    MASK,
    MASK_BYTES,
    MOST_SPIN,
    MOVE,
    PLACE,
    POST,
    ROW,
    ROWS,
    SEMAPHORE,
    TIME,
    WHERE,
    YIELD,
)
from prism_kernels.cpu.words import atomic_store, call, exchange, pause, peek, poke

SPIN = "PRISM_CPU_SPIN_US"
"""The variable that says how long a thread waits awake at most; 0: not at all."""

_SPIN_US = 5000
"""Where it is not set. After every call torch's threads spin for 5 ms and onnxruntime's for 27."""
_LEAST = 100_000
"""Nanoseconds that a thread waits awake, whatever the last gap was."""
_WORTH = 200_000
"""Nanoseconds that a launch has to take one thread if others are to be woken for it. In a virtual
machine one of 80 us took as long with one that was woken, one of 150 us 120 to 190, of 265, 200."""
_PAUSES = 24
"""Pauses of a round, 2 us; then whoever else waits for the core gets it. That may be the very
thread that is waited for."""
_MONOTONIC = int(getattr(time, "CLOCK_MONOTONIC", 0))
_SECOND = 10**9
_INT = (1 << 32) - 1


def spin_us() -> int:
    """How long a thread waits awake at most.

    Raises:
        UsageError: the variable is no number of microseconds.
    """
    text = os.environ.get(SPIN, "").strip() or str(_SPIN_US)
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise UsageError(f"{SPIN} is {text!r}: it may be a number of microseconds, as {_SPIN_US}")
    return int(text)


def wait_a_little(team: int) -> None:
    """One round of waiting."""
    for _ in range(_PAUSES):
        pause()
    call(peek(team + YIELD))


def now(team: int, row: int) -> int:
    """Nanoseconds since some time."""
    call(peek(team + CLOCK), _MONOTONIC, row + TIME)
    return peek(row + TIME) * _SECOND + peek(row + TIME + 8)


def patience(team: int, gap: int) -> int:
    """How long to wait awake, after a gap of so many nanoseconds between two jobs."""
    most = peek(team + MOST_SPIN)
    least = min(most, _LEAST)
    if gap > most:
        return least
    return max(least, min(most, 2 * gap))


def is_worth_waking(team: int, kernels: int, count: int) -> int:
    """Whether threads that sleep should be woken for these kernels.

    For a short launch they should where they will still be awake at the next one. Kernels of one
    block run on the caller's thread anyway, and nobody knows how long those take.
    """
    since = now(team, team + ROWS) - peek(team + ENDED)
    if since < peek(team + MOST_SPIN):
        return 1
    alone = 0
    for k in range(count):
        kernel = kernels + k * KERNEL
        if peek(kernel + KERNEL_BLOCKS) > 1:
            known = peek(kernel + KERNEL_ALONE)
            if known == 0:
                return 1
            alone += known
    return alone > _WORTH


def note_place(team: int, row: int, before: int) -> int:
    """Note where this thread runs, if it has been moved."""
    where = peek(team + WHERE)
    if where == 0:
        return 0
    place = (call(where) & _INT) + 1
    if place != before:
        atomic_store(row + PLACE, place)
    return place


def leave(team: int, row: int, here: int) -> None:
    """Keep a thread off a core, if it may use another."""
    mask = team + MASK
    if here >= 8 * MASK_BYTES:
        return
    if call(peek(team + ALLOWED), 0, MASK_BYTES, mask) & _INT != 0:
        return
    word = mask + (here >> 6) * 8
    bit = 1 << (here & 63)
    if peek(word) & bit != 0:
        poke(word, peek(word) - bit)
    others = 0
    for k in range(MASK_BYTES // 8):
        others = others | peek(mask + 8 * k)
    if others != 0:
        call(peek(team + MOVE), peek(row + HANDLE), MASK_BYTES, mask)


def keep_apart(team: int, threads: int) -> None:
    """Keep the first threads off the core that the caller is on."""
    where = peek(team + WHERE)
    if where == 0:
        return
    here = call(where) & _INT
    for number in range(1, threads):
        row = team + ROWS + number * ROW
        if exchange(row + PLACE, here + 1, 0):
            leave(team, row, here)


def wake(team: int, threads: int) -> None:
    """Wake those of the first threads that sleep, the caller's own aside."""
    for number in range(1, threads):
        row = team + ROWS + number * ROW
        if exchange(row + AWAKE, 0, 1):
            call(peek(team + POST), row + SEMAPHORE)


WAITING = (
    wait_a_little,
    now,
    patience,
    is_worth_waking,
    note_place,
    leave,
    keep_apart,
    wake,
)
"""All of them, to be compiled."""
