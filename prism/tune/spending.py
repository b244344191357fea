"""How a run's time is spent: on estimates, on trials, on the finals; each by what it costs here.

A busy machine makes everything slower, so shares are of the time that is left when a part begins,
and what a round or a final takes is known from those before it. A round begins while there is time
for it and for the finals after it; the first one always begins, so that a run of any budget has
tried something. The finals take as many kernels as the time left allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from prism.tune.entries import Entry

ESTIMATE_SHARE = 0.25
"""The part of what is left that ranking configs by their estimates may take."""

LEAST_SHARE = 0.05
"""The part of the whole that a part may take whatever is left."""

FINAL_SHARE = 0.1
"""The part of the whole that timing the finals may take, but for `FEWEST_ROUNDS`."""

FEWEST_ROUNDS = 7
"""How often the finals time each kernel at least, if the budget asks for as many: a median of
fewer paired runs does not settle which of two close ones is faster."""

LATEST = 3
"""Rounds whose times say what the next one takes."""

RUN_S = 0.03
"""What a timed run takes beside the kernel: caches are emptied before it."""

MOST_TIMED_S = 1.0
"""Timing a final takes no longer than this and its fewest runs (`prism.tune.timing`)."""


GRACE_S = 10.0
"""What was begun within the budget may take this long beyond it."""


class Spending:
    """The time of one run; it begins to run when this is made."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._start = clock()
        self._rounds: list[float] = []
        self._check_s = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._start

    @property
    def left_s(self) -> float:
        """Seconds that are left; negative beyond the budget."""
        return self._seconds - self.elapsed_s

    @property
    def longest_s(self) -> float:
        """How long a request that begins now may take: a hung kernel must not cost much more."""
        return max(GRACE_S, self.left_s)

    def is_within(self, share: float) -> Callable[[], bool]:
        """Whether a part that begins now may go on; it may take this share of what is left.

        A little it may take in any case: the trials that come after it would be of no use.
        """
        until = self._clock() + max(share * self.left_s, LEAST_SHARE * self._seconds)
        return lambda: self._clock() <= until

    @contextmanager
    def round(self) -> Iterator[None]:
        """A round of trials, whose time is taken."""
        begun = self._clock()
        try:
            yield
        finally:
            self._rounds.append(self._clock() - begun)

    @property
    def round_s(self) -> float:
        """What a round takes."""
        latest = self._rounds[-LATEST:]
        return sum(latest) / len(latest) if latest else 0.0

    @property
    def has_begun(self) -> bool:
        """Whether anything was tried."""
        return bool(self._rounds)

    def checked(self, seconds: float) -> None:
        """A kernel was checked on every case, apart from its first check."""
        self._check_s = seconds

    def checks_s(self, entries: Sequence[Entry]) -> float:
        """What checking is left for the finals of these entries, as long as the latest check took.

        Every one that is on record, and of those checked on the first case alone the one that wins.
        """
        resumed = sum(e.is_resumed for e in entries)
        return self._check_s * (resumed + any(not (e.is_resumed or e.is_checked) for e in entries))

    def allows_round(self, finals_s: float) -> bool:
        """Whether a round can begin that finals of so many seconds have to follow."""
        return self.left_s > self.round_s + finals_s

    def final_rounds(self, entries: Sequence[Entry], most: int) -> int:
        """How often the finals time each of their entries: as often as their share allows."""
        round_s = sum(e.seconds + RUN_S for e in entries)
        allowed = FINAL_SHARE * self._seconds / round_s if round_s > 0 else most
        return max(min(most, FEWEST_ROUNDS), min(most, int(allowed)))

    def allows_final(self, build_s: float, timing_s: float, checks_s: float) -> bool:
        """Whether another kernel can be built for the finals before all are timed and checked."""
        return self.left_s > build_s + timing_s + checks_s


def timing_s(entries: Sequence[Entry], repeats: int) -> float:
    """What timing entries' kernels in turns takes."""
    return sum(min(repeats * (e.seconds + RUN_S), MOST_TIMED_S + 3 * e.seconds) for e in entries)


def finals_s(
    entries: Sequence[Entry], rounds: int, is_kept: Callable[[int], bool] = lambda _: False
) -> float:
    """What the finals of these entries take but for checks (`Spending.checks_s`).

    To build a kernel that `is_kept` takes nothing.
    """
    again = (e.build_s for e in entries if not is_kept(e.candidate.number))
    return sum(again) + timing_s(entries, rounds)
