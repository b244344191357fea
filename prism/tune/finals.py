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
from prism.tune.worker import Build, Built, Check, Failed, Rehearse, Time

MOST_HELD_BYTES = 2 << 30
"""No finalist is added once those there hold more memory than this: all are loaded at once."""


@dataclass(frozen=True, slots=True)
class _Finalist:
    """A trial whose kernel is built in the place of the finals."""

    entry: Entry
    source: KernelSource
    timing: Timing | None = None
    checked: CheckResult | None = None
    """What the check in the finals said."""

    @property
    def number(self) -> int:
        return self.entry.candidate.number

    def best(self) -> Best:
        """The finalist as the winner, with what the finals found out about it."""
        best = self.entry.best(self.source)
        if self.checked is not None:
            best = replace(best, max_error=finite(self.checked.max_error))
        if self.timing is not None:
            best = replace(best, median_s=self.timing.median_s, min_s=self.timing.min_s)
        return best


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

        Where no time is left, the fastest that has passed every case stands.
        """
        if self._is_over(entries):
            return self._leader(entries)
        for finalist in self._ranked(self._gathered(entries, data), data):
            # what only a record says is right was checked when it was gathered
            if finalist.entry.is_checked or finalist.checked is not None:
                return finalist.best()
            if self._is_over(entries):
                continue
            checked = self._check(finalist.entry, data, entries)
            if checked is not None:
                return replace(finalist, checked=checked).best()
        return self._leader(entries)

    def _leader(self, entries: Sequence[Entry]) -> Best | None:
        """The fastest of the trials that has passed every case and was not refuted since."""
        wrong = {entry.candidate.number for entry, _ in self.refuted}
        return leader([e for e in entries if e.candidate.number not in wrong], self._task)

    def _is_over(self, entries: Sequence[Entry]) -> bool:
        """Whether no time is left, and there is a winner without it."""
        return self._spending.left_s <= 0 and self._leader(entries) is not None

    def _gathered(self, entries: Sequence[Entry], data: CheckData) -> list[_Finalist]:
        """The fastest few, built in one place, as many as time and memory allow."""
        ready: list[_Finalist] = []
        held_bytes = 0
        near = {e.candidate.number for e in contending(entries)}
        for entry in entries:
            if self._is_over(entries):
                break
            if ready and not (entry.candidate.number in near and self._allows(ready, entry)):
                break
            built = self._built(entry.candidate)
            if not isinstance(built, Built):
                continue
            checked = self._check(entry, data, entries) if entry.is_resumed else None
            if checked is not None or not entry.is_resumed:
                text = entry.candidate.path.read_text(encoding="utf-8")
                ready.append(_Finalist(entry, KernelSource(text, built.meta), checked=checked))
                held_bytes += built.held_bytes
            if len(ready) == self._budget.finalists or held_bytes > MOST_HELD_BYTES:
                break
        return ready

    def _allows(self, ready: Sequence[_Finalist], entry: Entry) -> bool:
        """Whether there is time for another finalist."""
        entries = [*(finalist.entry for finalist in ready), entry]
        is_kept = self._runner.keeps(entry.candidate.number)
        build_s = 0.0 if is_kept else entry.build_s
        unchecked = [*(f.entry for f in ready if f.checked is None), entry]
        return self._spending.allows_final(
            build_s,
            timing_s(entries, self._rounds(entries)),
            self._spending.checks_s(unchecked),
        )

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
            case Failed(outcome=Outcome.WRONG | Outcome.INACCURATE) as failed:
                if len(ready) > 1:
                    return self._sound(ready, data, rounds)
                self._refute(ready[0], failed)
                return []
            case _:  # those that were right and timed before stand
                return ready

    def _sound(self, ready: Sequence[_Finalist], data: CheckData, rounds: int) -> list[_Finalist]:
        """One of these was wrong while they were timed: those that are right when timed alone.

        Where no time is left, those that were not timed again do not stand.
        """
        right: list[tuple[float, _Finalist]] = []
        for finalist in ready:
            if right and self._spending.left_s <= 0:
                break
            self._built(finalist.entry.candidate)  # again, if the one before was the worker's end
            request = Time((finalist.number,), data, rounds)
            match self._runner.ask(request, self._budget.run_timeout_s):
                case (Timing() as timing,):
                    right.append((timing.median_s, replace(finalist, timing=timing)))
                case Failed(outcome=Outcome.WRONG | Outcome.INACCURATE) as failed:
                    self._refute(finalist, failed)
                case _:
                    pass
        return [finalist for _, finalist in sorted(right, key=lambda pair: pair[0])]

    def _refute(self, finalist: _Finalist, failed: Failed) -> None:
        self.refuted.append((finalist.entry, CheckResult(failed.outcome, None, failed.detail)))

    def _built(self, candidate: Candidate) -> Answer:
        build = Build(candidate.number, candidate.mu, self._task.dtype, candidate.path)
        return self._runner.ask(build, self._budget.compile_timeout_s)

    def _check(self, entry: Entry, data: CheckData, entries: Sequence[Entry]) -> CheckResult | None:
        """Check a kernel on every case in the place of the finals; None if it is not right.

        Beyond the budget by a little only, where another of the entries can win without it.
        """
        candidate = entry.candidate
        if not isinstance(self._built(candidate), Built):
            return None
        limit_s = self._budget.run_timeout_s
        if self._leader(entries) is not None:
            limit_s = min(limit_s, self._spending.longest_s)
        begun = self._spending.elapsed_s
        checked = self._runner.ask(Check(candidate.number, data), limit_s)
        match checked:
            case CheckResult(outcome=Outcome.OK):
                self._spending.checked(self._spending.elapsed_s - begun)
                return checked
            case CheckResult():
                self.refuted.append((entry, checked))
                return None
            case _:
                return None

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
