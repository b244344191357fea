"""When a search has to stop: at the end of its time budget, or soon after Ctrl-C.

An exception in the middle of whatever runs would lose what this was about to give back. So the
first interrupt is only noted, and every step ends as if its time were up: saturation has found
nothing yet, then only the program itself is left; what was generated so far is verified for
`GRACE_S` at most; verification ends where it is. A second one raises KeyboardInterrupt as usual,
and what was proved until then counts as well.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

GRACE_S = 1.0
"""What verification gets when an interrupt comes before it."""


class Clock:
    """The time budget of a search that begins now; all times are on the monotonic clock."""

    def __init__(self, budget_s: float | None) -> None:
        self._budget_s = math.inf if budget_s is None else budget_s
        self._interrupted_at: float | None = None
        self._grace_s = 0.0
        self.begin()

    def begin(self) -> None:
        """Begin anew; an interrupt that came stays noted."""
        self._start = time.monotonic()

    @property
    def is_interrupted(self) -> bool:
        """Whether an interrupt came."""
        return self._interrupted_at is not None

    @property
    def elapsed_s(self) -> float:
        """How long the search takes so far."""
        return time.monotonic() - self._start

    def note_interrupt(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signal: note the first one."""
        if self._interrupted_at is not None:
            signal.default_int_handler(number, frame)
        self._interrupted_at = time.monotonic()

    def grant_grace(self) -> None:
        """Before verification: an interrupt that came until now leaves it some time."""
        if self._interrupted_at is not None:
            self._grace_s = time.monotonic() + GRACE_S - self._interrupted_at

    def end(self) -> float:
        """When the search has to stop."""
        end = self._start + self._budget_s
        if self._interrupted_at is None:
            return end
        return min(end, self._interrupted_at + self._grace_s)

    def is_late(self, share: float) -> bool:
        """Whether this share of the time budget is used up, or an interrupt came."""
        return self.is_interrupted or self.elapsed_s > share * self._budget_s


@contextmanager
def noting_interrupts(clock: Clock) -> Iterator[None]:
    """Let a clock note interrupts, where nobody else handles them and this is the main thread."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, clock.note_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
