"""How long each cell may take, so that the session ends in time and the important cells are done.

Cells are ordered, the most important first. With so much time left, as many of them as can have
their least time are expected to run, and the next one gets an equal share of the time, within its
bounds; what it does not use goes to those behind it. A cell whose least time is not left is not
started: half a tuning run says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

EPSILON_S = 1e-9


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds a cell takes at least and at most."""

    least_s: float
    most_s: float


def share(count: int, left_s: float, bounds: Bounds) -> float | None:
    """Seconds for the next of `count` cells with `left_s` left for all; None: leave it out."""
    if count < 1 or left_s < bounds.least_s - EPSILON_S:
        return None
    fitting = count if bounds.least_s <= 0 else min(count, int(left_s / bounds.least_s + EPSILON_S))
    return min(bounds.most_s, left_s / max(1, fitting))


class Clock:
    """The time of a session: what is left of it, what is kept back for its end."""

    def __init__(self, limit_s: float, now: Callable[[], float]) -> None:
        self._now = now
        self._start = now()
        self._limit_s = limit_s

    @property
    def elapsed_s(self) -> float:
        """Seconds since the session began."""
        return self._now() - self._start

    def left_s(self, reserve_s: float = 0.0) -> float:
        """Seconds left beside a reserve."""
        return max(0.0, self._limit_s - self.elapsed_s - reserve_s)

    def deadline(self, seconds: float) -> float:
        """When a step that may take `seconds` ends, by the clock, no later than the session."""
        return self._now() + min(seconds, self.left_s())
