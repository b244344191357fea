"""What a benchmark found, as values: medians, minima and ratios paired by round.

The ratio of a rival is the median over rounds of (its median in the round / our median in the same
round): both were measured within a second or so of each other, so that what the machine did in
that round cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from statistics import median, quantiles
from typing import Any

Rounds = tuple[tuple[float, ...], ...]
"""Seconds per call, by round."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one contestant left behind when the run ended."""

    name: str
    rounds: Rounds
    error: float | None = None
    failure: str | None = None
    way: str = ""
    ways: tuple[tuple[str, float | str], ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class ContestantResult:
    """The times of one contestant, or why there are none.

    `p10_s`, `p90_s`: what a tenth of the calls stay below, and a tenth above; far apart, there may
    be two groups of calls, and the median of neither. `ratio`: its time over ours (above 1: we are
    faster). `bandwidth_fraction`: bytes of arguments and outputs per second, over the stream
    bandwidth of the same round. `error`: the norm of its outputs' error against float64, over
    theirs. `spread`: the slowest round's median over the fastest one's. `way`: which of its ways to
    run the program it is; `ways`: seconds of each in a first trial, or why not. `source`: what it
    ran, where that was made from the program.
    """

    name: str
    rounds: Rounds
    median_s: float | None
    min_s: float | None
    p10_s: float | None
    p90_s: float | None
    ratio: float | None
    bandwidth_fraction: float | None
    spread: float | None
    error: float | None
    failure: str | None
    way: str
    ways: tuple[tuple[str, float | str], ...]
    source: str


@dataclass(frozen=True, slots=True)
class BenchResult:
    """A whole run: what was timed, on what, and every contestant, ours first."""

    program: str
    sizes: tuple[tuple[str, int], ...]
    dtype: str
    threads: int
    byte_count: int
    stream_gbps: float | None
    stream_rounds: Rounds
    contestants: tuple[ContestantResult, ...]
    warnings: tuple[str, ...]

    @property
    def ours(self) -> ContestantResult:
        """Our own row."""
        return self.contestants[0]

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data; sizes as an object."""
        rows = [{**asdict(row), "ways": dict(row.ways)} for row in self.contestants]
        return {**asdict(self), "sizes": dict(self.sizes), "contestants": rows}


@dataclass(frozen=True, slots=True)
class Stream:
    """The stream's turns, and the bytes that one call of it reads."""

    rounds: Rounds
    byte_count: int

    @property
    def bytes_per_s(self) -> float | None:
        """What the median call reached."""
        calls = tuple(chain.from_iterable(self.rounds))
        return self.byte_count / median(calls) if calls else None

    def fraction(self, rounds: Rounds, byte_count: int) -> float | None:
        """The bandwidth of others over the stream's, paired by round like the ratios.

        What a machine shares with its neighbours changes from second to second (measured: between
        35 and 57 GB/s), so the median of one over the median of the other would be of no machine.
        """
        ratio = paired_ratio(self.rounds, rounds)
        return ratio * byte_count / self.byte_count if ratio and self.byte_count else None


def summarize(
    measured: Measured, ours: Rounds, byte_count: int, stream: Stream
) -> ContestantResult:
    """One contestant's row from its rounds, ours and the stream's."""
    calls = tuple(chain.from_iterable(measured.rounds))
    middle = median(calls) if calls else None
    low, high = tenths(calls)
    return ContestantResult(
        name=measured.name,
        rounds=measured.rounds,
        median_s=middle,
        min_s=min(calls, default=None),
        p10_s=low,
        p90_s=high,
        ratio=paired_ratio(measured.rounds, ours),
        bandwidth_fraction=stream.fraction(measured.rounds, byte_count),
        spread=spread_of(measured.rounds),
        error=measured.error,
        failure=measured.failure,
        way=measured.way,
        ways=measured.ways,
        source=measured.source,
    )


def tenths(calls: Sequence[float]) -> tuple[float, float] | tuple[None, None]:
    """The first and the last tenth of some times; None for fewer than two."""
    if len(calls) < 2:
        return None, None
    cuts = quantiles(calls, n=10, method="inclusive")
    return cuts[0], cuts[-1]


def paired_ratio(rounds: Rounds, ours: Rounds) -> float | None:
    """Median over the rounds both took part in of their medians' ratio, or None without any."""
    ratios = [
        median(theirs) / median(own) for theirs, own in zip(rounds, ours, strict=False) if own
    ]
    return median(ratios) if ratios else None


def spread_of(rounds: Rounds) -> float | None:
    """The slowest round over the fastest, by their medians; None for fewer than two."""
    medians = [median(calls) for calls in rounds]
    return max(medians) / min(medians) if len(medians) > 1 and min(medians) > 0 else None
