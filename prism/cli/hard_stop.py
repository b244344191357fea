"""An end to what cannot be interrupted: one iteration of the e-graph may take any time.

The work is done in a thread of its own, and egglog lets threads run; a command that waits no longer
answers, and the process ends with it.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

SLICE_S = 0.1
"""How long to wait at a time: an interrupt gets through in between."""


class TooLongError(Exception):
    """The work has not ended in time; it goes on until the process ends."""


class _Work(threading.Thread, Generic[T]):
    """Keeps what came of it."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(daemon=True)  # the process does not wait for it
        self._work = work
        self._context = contextvars.copy_context()
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Do it, within the deadlines of who asked."""
        try:
            self.result = self._context.run(self._work)
        except BaseException as error:
            self.error = error


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` returns or raises, if it ends in so many seconds.

    Raises:
        TooLongError: it does not.
    """
    thread = _Work(work)
    thread.start()
    end = time.monotonic() + seconds
    while thread.is_alive() and (left := end - time.monotonic()) > 0:
        thread.join(min(SLICE_S, left))
    if thread.is_alive():
        raise TooLongError
    if thread.error is not None:
        raise thread.error
    return thread.result  # type: ignore[return-value]  # it ended, and raised nothing
