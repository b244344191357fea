"""What a benchmark found, as values: medians, minima and ratios paired by round.

The ratio of a rival is the median over rounds of (its median in the round / our median in the same
round): both were measured within a second or so of each other, so that what the machine did in
that round cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from statistics import median
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

    `ratio`: its time over ours (above 1: we are faster). `bandwidth_fraction`: bytes of arguments
    and outputs per median second, over the stream bandwidth of the same run. `error`: the norm of
    its outputs' error against float64, over theirs. `spread`: the slowest round's median over the
    fastest one's. `way`: which of its ways to run the program it is; `ways`: seconds of each in a
    first trial, or why not. `source`: what it ran, where that was made from the program.
    """

    name: str
    rounds: Rounds
    median_s: float | None
    min_s: float | None
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


def summarize(
    measured: Measured, ours: Rounds, byte_count: int, bytes_per_s: float | None
) -> ContestantResult:
    """One contestant's row from its rounds and ours."""
    calls = tuple(chain.from_iterable(measured.rounds))
    middle = median(calls) if calls else None
    return ContestantResult(
        name=measured.name,
        rounds=measured.rounds,
        median_s=middle,
        min_s=min(calls, default=None),
        ratio=paired_ratio(measured.rounds, ours),
        bandwidth_fraction=byte_count / middle / bytes_per_s if middle and bytes_per_s else None,
        spread=spread_of(measured.rounds),
        error=measured.error,
        failure=measured.failure,
        way=measured.way,
        ways=measured.ways,
        source=measured.source,
    )


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


def stream_rate(rounds: Sequence[Sequence[float]], byte_count: int) -> float | None:
    """Bytes per second that the stream reached in the median call."""
    calls = tuple(chain.from_iterable(rounds))
    return byte_count / median(calls) if calls else None
