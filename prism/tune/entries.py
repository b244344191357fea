"""The trials of a run and their order: who is built again at the end, and who won.

Where kernels run, the fastest lead. Where they are only compiled, the best predicted lead, but one
that spills registers only where every other does: spills cost more than any prediction says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from prism.ir import MuGraph
from prism.protocols import KernelSource
from prism.record import Outcome, Trial, TrialKey
from prism.tune.space import Config
from prism.tune.task import Best
from prism.tune.timing import BEHIND


@dataclass(frozen=True, slots=True)
class Candidate:
    """A config to be tried, numbered within its run."""

    number: int
    config: Config
    mu: MuGraph
    key: TrialKey
    path: Path


@dataclass(frozen=True, slots=True)
class Entry:
    """A trial of a run with what it takes to build it again."""

    candidate: Candidate
    trial: Trial
    is_resumed: bool
    """Whether it was taken from the record: its kernel was not checked in this run."""
    is_whole: bool = True
    """Whether it was checked on every case; a record does not say."""

    @property
    def is_checked(self) -> bool:
        """Whether its kernel passed every case in this run."""
        return self.is_ok and self.is_whole and not self.is_resumed

    @property
    def is_ok(self) -> bool:
        """Whether it competes."""
        return self.trial.outcome is Outcome.OK

    @property
    def seconds(self) -> float:
        """The measured median, or the prediction where nothing was measured."""
        trial = self.trial
        given = trial.predicted_s if trial.median_s is None else trial.median_s
        return math.inf if given is None else given

    @property
    def build_s(self) -> float:
        """What building its kernel again takes."""
        return self.trial.compile_s or 0.0

    @property
    def spills(self) -> bool:
        """Whether the kernel keeps registers in memory."""
        return bool(self.trial.facts.get("spills"))

    def best(self, source: KernelSource) -> Best:
        """The entry as the winner of its run."""
        trial = self.trial
        return Best(
            self.candidate.config,
            self.candidate.mu,
            source.text,
            source.meta,
            trial.median_s,
            trial.min_s,
            trial.max_error,
            trial.predicted_s,
            dict(trial.facts),
        )


def front(entries: Sequence[Entry], *, is_measured: bool) -> list[Entry]:
    """The entries that compete, best first.

    Measured ones by median and by minimum in turns: another process disturbs the median of a good
    kernel, luck the minimum of a bad one.
    """
    ok = [entry for entry in entries if entry.is_ok]
    if not is_measured:
        return sorted(ok, key=lambda entry: (entry.spills, entry.seconds))
    by_median = sorted(ok, key=lambda entry: entry.seconds)
    by_min = sorted(ok, key=lambda entry: entry.trial.min_s or math.inf)
    turns = chain.from_iterable(zip(by_median, by_min, strict=True))
    return list({entry.candidate.number: entry for entry in turns}.values())


def contending(entries: Sequence[Entry]) -> list[Entry]:
    """Those of measured entries that may yet be the fastest, by median or by minimum."""
    median_s = BEHIND * min((e.seconds for e in entries), default=0.0)
    min_s = BEHIND * min((e.trial.min_s or 0.0 for e in entries), default=0.0)
    return [e for e in entries if e.seconds <= median_s or (e.trial.min_s or math.inf) <= min_s]
