"""The tuning run: ask the strategy, build and check in workers, time one at a time, record, choose.

Rounds of as many candidates as there are workers: each worker emits, compiles and checks one, all
at once; then the survivors are timed one after the other while the rest of the pool is idle. The
fastest few of the run (trials resumed from the record included) are built again in one worker and
timed in turns; paired medians choose the winner.

Where the target cannot run its kernels, candidates are compiled only and compared by prediction;
nothing is checked or timed, and the result says so.

Only `ok` trials compete. An interrupt (Ctrl-C) ends the run early and keeps what it has: every
trial is on record as soon as it is over.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from prism.errors import KernelError
from prism.protocols import KernelSource
from prism.record import Outcome, RecordFile, Trial, digest, now
from prism.tune.cases import CheckData, prepare
from prism.tune.check import CheckResult
from prism.tune.conclude import concluded, finite
from prism.tune.entries import Candidate, Entry, front
from prism.tune.instantiate import instantiate, mu_identity
from prism.tune.pool import Answer, Pool, TimedOut
from prism.tune.space import Config
from prism.tune.strategies import Strategy
from prism.tune.task import Best, Identity, Progress, Task, TuneResult
from prism.tune.timing import Timing, best_of
from prism.tune.worker import Build, Built, Check, Drop, Failed, Rehearse, Time

GRACE_S = 10.0
"""What was begun within the budget may take this long beyond it."""


REASONS = 3
"""Kinds of failure that a run without a winner tells."""


@dataclass(frozen=True, slots=True)
class _Limits:
    """Seconds a request may take; `are_full` is false when the end of the budget shortens them."""

    compile_s: float
    run_s: float
    are_full: bool


class Tuner:
    """One run."""

    def __init__(
        self,
        task: Task,
        strategy: Strategy,
        records: RecordFile | None = None,
        progress: Progress | None = None,
        started: float | None = None,
    ) -> None:
        """`started`: when the budget began to run (monotonic clock); now by default."""
        self._task = task
        self._strategy = strategy
        self._budget = task.budget
        self._records = records
        self._progress = progress or (lambda *_: None)
        self._start = time.monotonic() if started is None else started
        self._numbers = count()
        self._entries: list[Entry] = []
        self._measures = task.target.measures
        self._scratch = Path()
        self._resumed = 0
        self._notes: tuple[str, ...] = ()
        self._seen: set[str] = set()
        self._known = {} if records is None else {t.key: t for t in records.read()}
        self._graphs = {space.graph_id: space for space in task.space.graphs}
        self._identity = Identity.of(task)

    def run(self) -> TuneResult:
        """Tune until the budget, the strategy or the user ends it.

        Raises:
            KernelError: no worker can start.
        """
        if not len(self._task.space):
            return self._result(None, "lack of graphs", ("no graph to tune",))
        with (
            tempfile.TemporaryDirectory(prefix="prism-tune-") as scratch,
            Pool(self._task.target_name, self._budget.workers) as pool,
        ):
            self._scratch = Path(scratch)
            try:
                data = self._prepare(self._scratch) if self._measures else None
                self._notes = self._not_run() if data is None else data.notes
                stopped = self._explore(pool, data)
                best = self._chosen(pool) if data is None else self._finals(pool, data)
            except KeyboardInterrupt:
                stopped, best = "interrupted", self._leader()
        return self._result(best, stopped, self._notes)

    def _result(self, best: Best | None, stopped: str, notes: tuple[str, ...]) -> TuneResult:
        if best is None:
            notes += self._reasons()
        return TuneResult(
            best,
            dict(Counter(entry.trial.outcome.value for entry in self._entries)),
            self._resumed,
            len(self._task.space),
            time.monotonic() - self._start,
            stopped,
            notes,
        )

    def _reasons(self) -> tuple[str, ...]:
        """What most trials failed of."""
        trials = (entry.trial for entry in self._entries if not entry.is_ok)
        counts = Counter((trial.outcome.value, trial.detail) for trial in trials)
        return tuple(
            f"{count} {outcome}: {detail}" if detail else f"{count} {outcome}"
            for (outcome, detail), count in counts.most_common(REASONS)
        )

    def _not_run(self) -> tuple[str, ...]:
        return (f"compiled for {self._task.target.name}, not run: times are predicted",)

    def _prepare(self, folder: Path) -> CheckData:
        """The reference; a program that is slow in NumPy gets longer limits for its kernels."""
        task = self._task
        self._progress(0, self._total(), "reference in float64")
        start = time.monotonic()
        data = prepare(task.program, dict(task.sizes), task.dtype, task.seed, folder)
        limit = max(self._budget.run_timeout_s, 5 * (time.monotonic() - start))
        self._budget = replace(self._budget, run_timeout_s=limit)
        return data

    def _explore(self, pool: Pool, data: CheckData | None) -> str:
        while True:
            stopped = self._exhausted()
            if stopped is not None:
                return stopped
            batch = self._next_batch(len(pool))
            if not batch:
                return self._exhausted() or "strategy"
            if data is None:
                self._compile(pool, batch)
            else:
                self._try(pool, data, batch)

    def _exhausted(self) -> str | None:
        if self._trials_left() <= 0:
            return "trials"
        if time.monotonic() - self._start >= self._budget.seconds:
            return "budget"
        return None

    def _trials_left(self) -> float:
        """Refusals cost nothing and do not count."""
        limit = self._budget.trials
        run = sum(e.trial.outcome is not Outcome.REFUSED for e in self._entries)
        return math.inf if limit is None else limit - run

    def _total(self) -> float:
        return float(min(len(self._task.space), self._budget.trials or len(self._task.space)))

    def _next_batch(self, most: int) -> list[Candidate]:
        """Up to `most` candidates that have to be run.

        What is on record is told and passed by; what another config runs too is passed by.
        """
        batch: list[Candidate] = []
        while len(batch) < min(most, self._trials_left()) and self._exhausted() is None:
            config = self._strategy.ask()
            if config is None:
                break
            candidate = self._candidate(config)
            identity = mu_identity(candidate.mu)
            if identity in self._seen:
                continue
            self._seen.add(identity)
            known = self._on_record(candidate)
            if known is not None:
                self._resumed += 1
                self._finish(candidate, known, is_resumed=True)
                continue
            reason = self._task.target.refusal(candidate.mu, self._task.dtype)
            if reason is not None:
                self._conclude(candidate, self._limits(), Failed(Outcome.REFUSED, reason))
                continue
            batch.append(candidate)
        return batch

    def _candidate(self, config: Config) -> Candidate:
        task = self._task
        mu = instantiate(self._graphs[config.graph_id], config)
        key = self._identity.key(config)
        name = digest(repr((key.graph, key.sizes, key.par_sizes, key.schedule, key.dtype)))[:16]
        path = self._scratch / f"{task.program.name}_{name}.py"
        return Candidate(next(self._numbers), config, mu, key, path)

    def _on_record(self, candidate: Candidate) -> Trial | None:
        """The recorded trial of a candidate, unless the emitter has changed since."""
        known = self._known.get(candidate.key)
        if known is None or known.source is None:
            return known
        if known.outcome is Outcome.OK and (known.median_s is not None) != self._measures:
            return None
        try:
            source = self._task.target.emit(candidate.mu, self._task.dtype)
        except KernelError:
            return None
        return known if digest(source.text) == known.source else None

    def _try(self, pool: Pool, data: CheckData, batch: list[Candidate]) -> None:
        """Build and check side by side, then time one by one."""
        limits = self._limits()
        chains = [
            ((self._build(c), limits.compile_s), (Check(c.number, data), limits.run_s))
            for c in batch
        ]
        answers = pool.ask_chains(chains)
        for worker, (candidate, given) in enumerate(zip(batch, answers, strict=True)):
            match given:
                case (Built() as built, CheckResult(outcome=Outcome.OK) as checked):
                    best = min(self._times(), default=math.inf)
                    request = Time((candidate.number,), data, self._budget.repeats, best)
                    timed = pool.ask(worker, request, limits.run_s)
                    self._conclude(candidate, limits, timed, built, checked)
                    pool.ask(worker, Drop((candidate.number,)), limits.run_s)
                case (Built() as built, answer):
                    self._conclude(candidate, limits, answer, built)
                case (answer,):
                    self._conclude(candidate, limits, answer)
                case _:
                    raise AssertionError(given)

    def _compile(self, pool: Pool, batch: list[Candidate]) -> None:
        """Build side by side: that is all there is to know where nothing runs."""
        limits = self._limits()
        chains = [((self._build(candidate), limits.compile_s),) for candidate in batch]
        answers = pool.ask_chains(chains)
        for worker, (candidate, (answer,)) in enumerate(zip(batch, answers, strict=True)):
            built = answer if isinstance(answer, Built) else None
            self._conclude(candidate, limits, answer, built)
            if built is not None:
                pool.ask(worker, Drop((candidate.number,)), limits.run_s)

    def _limits(self) -> _Limits:
        """Time limits of a round: one hung candidate must not cost much more than the budget."""
        left = self._budget.seconds - (time.monotonic() - self._start)
        longest = max(GRACE_S, left)
        compile_s = min(self._budget.compile_timeout_s, longest)
        run_s = min(self._budget.run_timeout_s, longest)
        full = (self._budget.compile_timeout_s, self._budget.run_timeout_s)
        return _Limits(compile_s, run_s, are_full=(compile_s, run_s) == full)

    def _build(self, candidate: Candidate) -> Build:
        return Build(candidate.number, candidate.mu, self._task.dtype, candidate.path)

    def _conclude(
        self,
        candidate: Candidate,
        limits: _Limits,
        answer: Answer,
        built: Built | None = None,
        checked: CheckResult | None = None,
    ) -> None:
        """Turn a candidate's last answer into its trial."""
        begun = Trial(
            candidate.key, self._task.program.name, candidate.config.graph_id, self._task.seed,
            Outcome.ERROR, at=now(),
        )  # fmt: skip
        trial = concluded(begun, answer, built, checked)
        # what was cut short by the budget may be tried again when the run resumes
        is_recorded = limits.are_full or not isinstance(answer, TimedOut)
        self._finish(candidate, trial, is_recorded=is_recorded)

    def _finish(
        self,
        candidate: Candidate,
        trial: Trial,
        *,
        is_recorded: bool = True,
        is_resumed: bool = False,
    ) -> None:
        entry = Entry(candidate, trial, is_resumed)
        self._entries.append(entry)
        if is_recorded and not is_resumed and self._records is not None:
            self._records.append(trial)
        # one that spills is chosen when all do: the strategy shall look for another
        counts = entry.is_ok and (self._measures or not entry.spills)
        self._strategy.tell(candidate.config, entry.seconds if counts else None)
        best = min(self._times(), default=None)
        kind = "best" if self._measures else "best predicted"
        what = "no kernel yet" if best is None else f"{kind} {best * 1e3:.3f} ms"
        self._progress(len(self._entries), self._total(), what)

    def _times(self) -> Iterator[float]:
        return (entry.seconds for entry in self._entries if entry.is_ok)

    def _front(self) -> list[Entry]:
        return front(self._entries, is_measured=self._measures)

    def _leader(self) -> Best | None:
        """The best by single timings, without asking the workers again.

        What only a record says is right was not checked in this run: it cannot lead.
        """
        for entry in (e for e in self._front() if not e.is_resumed):
            try:
                source = self._task.target.emit(entry.candidate.mu, self._task.dtype)
            except KernelError:
                continue
            return entry.best(source)
        return None

    def _chosen(self, pool: Pool) -> Best | None:
        """The best by prediction; what a record says of a kernel is seen again first."""
        ready: dict[int, KernelSource] = {}
        entries: list[Entry] = []
        for entry in self._front():
            candidate = entry.candidate
            built = pool.ask(0, self._build(candidate), self._budget.compile_timeout_s)
            if not isinstance(built, Built):
                continue
            text = candidate.path.read_text(encoding="utf-8")
            ready[candidate.number] = KernelSource(text, built.meta)
            predicted_s = finite(built.predicted_s)
            trial = replace(entry.trial, predicted_s=predicted_s, facts=built.facts)
            entries.append(replace(entry, trial=trial))
            if len(ready) == self._budget.finalists:
                break
        for entry in front(entries, is_measured=False):
            chosen = entry.best(ready[entry.candidate.number])
            rehearsed = self._rehearsed(pool, chosen)
            if rehearsed is not None:
                return rehearsed
        return None

    def _rehearsed(self, pool: Pool, chosen: Best) -> Best | None:
        """The winner with the error of what stands in for it here; None if that is wrong."""
        task = self._task
        request = Rehearse(chosen.mu, task.dtype, task.seed, self._scratch)
        answer = pool.ask(0, request, self._budget.run_timeout_s)
        match answer:
            case CheckResult(outcome=Outcome.OK):
                return replace(chosen, max_error=finite(answer.max_error))
            case CheckResult():
                self._notes += (f"{chosen.config} is wrong at small sizes: {answer.detail}",)
                return None
            case _:
                self._notes += ("the kernel was not checked",)
                return chosen

    def _is_right(self, pool: Pool, candidate: Candidate, data: CheckData) -> bool:
        """Check a kernel in the worker of the finals."""
        checked = pool.ask(0, Check(candidate.number, data), self._budget.run_timeout_s)
        return isinstance(checked, CheckResult) and checked.outcome is Outcome.OK

    def _finals(self, pool: Pool, data: CheckData) -> Best | None:
        """Build the fastest few in one worker, time them in turns, choose."""
        budget = self._budget
        ready: list[tuple[Entry, KernelSource]] = []
        for entry in self._front():
            candidate = entry.candidate
            built = pool.ask(0, self._build(candidate), budget.compile_timeout_s)
            if not isinstance(built, Built):
                continue
            if not entry.is_resumed or self._is_right(pool, candidate, data):
                text = candidate.path.read_text(encoding="utf-8")
                ready.append((entry, KernelSource(text, built.meta)))
            if len(ready) == budget.finalists:
                break
        if not ready:
            return None
        numbers = tuple(entry.candidate.number for entry, _ in ready)
        timings = pool.ask(
            0, Time(numbers, data, 2 * budget.repeats), budget.run_timeout_s * len(ready)
        )
        match timings:
            case (Timing(), *_):
                winner = best_of(timings)
                entry, source = ready[winner]
                median_s, min_s = timings[winner].median_s, timings[winner].min_s
                return replace(entry.best(source), median_s=median_s, min_s=min_s)
            case _:  # the first of the front was right and timed before: it stands
                entry, source = ready[0]
                return entry.best(source)
