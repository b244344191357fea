"""The end of a run: who of its trials wins.

Where kernels run, the fastest few (`prism.tune.entries`) are gathered in one place and timed in
turns; paired medians choose. A winner has passed every case: one that was checked on the first
alone (`prism.tune.runner`) is checked on all of them now, and if it fails the next one takes its
place. What only a record says is right is checked before it is timed.

Where kernels are compiled only, the best prediction wins, once what stands in for it is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prism.errors import KernelError
from prism.protocols import KernelSource
from prism.record import Outcome
from prism.tune.cases import CheckData
from prism.tune.check import CheckResult
from prism.tune.conclude import finite
from prism.tune.entries import Candidate, Entry, contending, front
from prism.tune.pool import Answer
from prism.tune.runner import Runner
from prism.tune.spending import Spending, timing_s
from prism.tune.task import Best, Budget, Task
from prism.tune.timing import Timing, best_of
from prism.tune.worker import Build, Built, Check, Rehearse, Time


@dataclass(frozen=True, slots=True)
class _Finalist:
    """A trial whose kernel is built in the place of the finals."""

    entry: Entry
    source: KernelSource
    timing: Timing | None = None

    @property
    def number(self) -> int:
        return self.entry.candidate.number

    def best(self) -> Best:
        """The finalist as the winner, with its times of the finals if it was timed there."""
        best = self.entry.best(self.source)
        if self.timing is None:
            return best
        return replace(best, median_s=self.timing.median_s, min_s=self.timing.min_s)


def leader(entries: Sequence[Entry], task: Task) -> Best | None:
    """The best by single timings of those checked on every case, without asking the workers.

    What only a record says is right was not checked in this run: it cannot lead.
    """
    for entry in (e for e in entries if e.is_checked):
        try:
            source = task.target.emit(entry.candidate.mu, task.dtype)
        except KernelError:
            continue
        return entry.best(source)
    return None


class Finals:
    """The finals of a run, at the place its runner has for them."""

    def __init__(
        self, task: Task, budget: Budget, runner: Runner, spending: Spending, scratch: Path
    ) -> None:
        self._task = task
        self._budget = budget
        self._runner = runner
        self._spending = spending
        self._scratch = scratch
        self.notes: tuple[str, ...] = ()
        self.refuted: list[tuple[Entry, CheckResult]] = []
        """Trials that turned out to be wrong."""

    # --- where kernels run

    def measured(self, entries: Sequence[Entry], data: CheckData) -> Best | None:
        """The winner of the fastest few; `entries` are those that compete, best first.

        Where no time is left, the fastest of the trials stands.
        """
        if self._spending.left_s <= 0 and (first := leader(entries, self._task)) is not None:
            return first
        for finalist in self._ranked(self._gathered(entries, data), data):
            entry = finalist.entry
            # what only a record says is right was checked when it was gathered
            if entry.is_checked or entry.is_resumed or self._is_right(entry, data):
                return finalist.best()
        return None

    def _gathered(self, entries: Sequence[Entry], data: CheckData) -> list[_Finalist]:
        """The fastest few, built in one place, as many as the time allows."""
        ready: list[_Finalist] = []
        near = {e.candidate.number for e in contending(entries)}
        for entry in entries:
            if ready and not (entry.candidate.number in near and self._allows(ready, entry)):
                break
            built = self._built(entry.candidate)
            if isinstance(built, Built) and (not entry.is_resumed or self._is_right(entry, data)):
                text = entry.candidate.path.read_text(encoding="utf-8")
                ready.append(_Finalist(entry, KernelSource(text, built.meta)))
            if len(ready) == self._budget.finalists:
                break
        return ready

    def _allows(self, ready: Sequence[_Finalist], entry: Entry) -> bool:
        """Whether there is time for another finalist."""
        entries = [*(finalist.entry for finalist in ready), entry]
        is_kept = self._runner.keeps(entry.candidate.number)
        build_s = 0.0 if is_kept else entry.build_s
        return self._spending.allows_final(build_s, timing_s(entries, self._rounds(entries)))

    def _rounds(self, entries: Sequence[Entry]) -> int:
        return self._spending.final_rounds(entries, 2 * self._budget.repeats)

    def _ranked(self, ready: list[_Finalist], data: CheckData) -> list[_Finalist]:
        """Finalists, the winner first; where they cannot be timed together, as they came."""
        if not ready:
            return []
        numbers = tuple(finalist.number for finalist in ready)
        rounds = self._rounds([finalist.entry for finalist in ready])
        request = Time(numbers, data, rounds, is_final=True)
        timings = self._runner.ask(request, self._budget.run_timeout_s * len(ready))
        match timings:
            case (Timing(), *_):
                left = [replace(f, timing=t) for f, t in zip(ready, timings, strict=True)]
                ranked: list[_Finalist] = []
                while left:
                    ranked.append(left.pop(best_of([f.timing for f in left if f.timing])))
                return ranked
            case _:  # those that were right and timed before stand
                return ready

    def _built(self, candidate: Candidate) -> Answer:
        build = Build(candidate.number, candidate.mu, self._task.dtype, candidate.path)
        return self._runner.ask(build, self._budget.compile_timeout_s)

    def _is_right(self, entry: Entry, data: CheckData) -> bool:
        """Check a kernel on every case in the place of the finals."""
        candidate = entry.candidate
        if not isinstance(self._built(candidate), Built):
            return False
        checked = self._runner.ask(Check(candidate.number, data), self._budget.run_timeout_s)
        match checked:
            case CheckResult(outcome=Outcome.OK):
                return True
            case CheckResult():
                self.refuted.append((entry, checked))
                return False
            case _:
                return False

    # --- where kernels are compiled only

    def predicted(self, entries: Sequence[Entry]) -> Best | None:
        """The best by prediction; what a record says of a kernel is seen again first."""
        ready: dict[int, KernelSource] = {}
        seen: list[Entry] = []
        for entry in entries:
            candidate = entry.candidate
            built = self._built(candidate)
            if not isinstance(built, Built):
                continue
            text = candidate.path.read_text(encoding="utf-8")
            ready[candidate.number] = KernelSource(text, built.meta)
            predicted_s = finite(built.predicted_s)
            trial = replace(entry.trial, predicted_s=predicted_s, facts=built.facts)
            seen.append(replace(entry, trial=trial))
            if len(ready) == self._budget.finalists:
                break
        for entry in front(seen, is_measured=False):
            chosen = entry.best(ready[entry.candidate.number])
            rehearsed = self._rehearsed(chosen)
            if rehearsed is not None:
                return rehearsed
        return None

    def _rehearsed(self, chosen: Best) -> Best | None:
        """The winner with the error of what stands in for it here; None if that is wrong."""
        task = self._task
        request = Rehearse(chosen.mu, task.dtype, task.seed, self._scratch)
        answer = self._runner.ask(request, self._budget.run_timeout_s)
        match answer:
            case CheckResult(outcome=Outcome.OK):
                return replace(chosen, max_error=finite(answer.max_error))
            case CheckResult():
                self.notes += (f"{chosen.config} is wrong at small sizes: {answer.detail}",)
                return None
            case _:
                self.notes += ("the kernel was not checked",)
                return chosen
