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
    difference: float | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class ContestantResult:
    """The times of one contestant, or why there are none.

    `ratio`: its time over ours (above 1: we are faster). `bandwidth_fraction`: bytes of arguments
    and outputs per median second, over the stream bandwidth of the same run. `difference`: norm of
    (its outputs - ours) over the norm of ours.
    """

    name: str
    rounds: Rounds
    median_s: float | None
    min_s: float | None
    ratio: float | None
    bandwidth_fraction: float | None
    difference: float | None
    failure: str | None


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
        return {**asdict(self), "sizes": dict(self.sizes)}


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
        difference=measured.difference,
        failure=measured.failure,
    )


def paired_ratio(rounds: Rounds, ours: Rounds) -> float | None:
    """Median over the rounds both took part in of their medians' ratio, or None without any."""
    ratios = [
        median(theirs) / median(own) for theirs, own in zip(rounds, ours, strict=False) if own
    ]
    return median(ratios) if ratios else None


def stream_rate(rounds: Sequence[Sequence[float]], byte_count: int) -> float | None:
    """Bytes per second that the stream reached in the median call."""
    calls = tuple(chain.from_iterable(rounds))
    return byte_count / median(calls) if calls else None
