"""An end to what cannot be interrupted: one iteration of the e-graph may take any time.

The work is done in a thread of its own, and egglog lets threads run; it is waited for so long and
no longer. It ends with the iteration it is at, or with the process.
"""

from __future__ import annotations

import contextvars
import math
import threading
import time
import traceback
from collections.abc import Callable
from typing import Generic, TypeVar

from prism.egraph.session import deadline

T = TypeVar("T")

SLICE_S = 0.1
"""How long to wait at a time: an interrupt gets through in between."""


class TooLongError(Exception):
    """The work has not ended in time."""


class _Work(threading.Thread, Generic[T]):
    """Keeps what came of it."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(daemon=True)  # the process does not wait for it
        self._work = work
        self._context = contextvars.copy_context()
        self.is_awaited = True
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Do it, within the deadlines of who asked."""
        try:
            self.result = self._context.run(self._while_awaited)
        except BaseException as error:
            # an e-graph must be dropped by the thread that made it: leave none in the traceback
            traceback.clear_frames(error.__traceback__)
            self.error = error

    def _while_awaited(self) -> T:
        with deadline(lambda: math.inf if self.is_awaited else -math.inf):
            return self._work()


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` returns or raises, if it ends in so many seconds.

    When nobody waits any more, because of an interrupt too, its e-graphs begin no iteration.

    Raises:
        TooLongError: it does not.
    """
    thread = _Work(work)
    thread.start()
    end = time.monotonic() + seconds
    try:
        while thread.is_alive() and (left := end - time.monotonic()) > 0:
            thread.join(min(SLICE_S, left))
    finally:
        thread.is_awaited = False
    if thread.is_alive():
        raise TooLongError
    if thread.error is not None:
        raise thread.error
    return thread.result  # type: ignore[return-value]  # it ended, and raised nothing
