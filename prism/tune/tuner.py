"""The tuning run: ask the strategy, build and check in workers, time one at a time, record, choose.

Rounds of as many candidates as the runner has places: on this machine (`prism.tune.runner`) each
worker emits, compiles and checks one, all at once; then the survivors are timed one after the other
while the rest are idle. On a cluster each has a machine of its own. The fastest few of the run
(trials resumed from the record included) are timed in turns in one place (`prism.tune.finals`);
paired medians choose the winner.

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
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from prism.errors import ClusterLostError, KernelError
from prism.record import Outcome, RecordFile, Trial, digest, now
from prism.tune.cases import CheckData, prepare
from prism.tune.conclude import concluded, finite
from prism.tune.entries import Candidate, Entry, contending, front
from prism.tune.finals import Finals, leader
from prism.tune.instantiate import instantiate, mu_identity
from prism.tune.pool import TimedOut
from prism.tune.runner import Attempt, Ended, LocalRunner, Runner
from prism.tune.space import Config
from prism.tune.spending import Spending, finals_s
from prism.tune.strategies import Strategy
from prism.tune.task import Best, Identity, Progress, Task, TuneResult
from prism.tune.worker import Build, Failed

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

    def __init__(  # noqa: PLR0913 - what a run is given, and where it goes
        self,
        task: Task,
        strategy: Strategy,
        records: RecordFile | None = None,
        progress: Progress | None = None,
        spending: Spending | None = None,
        *,
        runner: Runner | None = None,
    ) -> None:
        """`spending`: the budget's time, if it runs already; from now on by default.

        `runner`: where trials run; workers on this machine by default.
        """
        self._task = task
        self._strategy = strategy
        self._runner = runner
        self._budget = task.budget
        self._records = records
        self._progress = progress or (lambda *_: None)
        self._spending = spending or Spending(task.budget.seconds)
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
            self._place() as runner,
        ):
            self._scratch = Path(scratch)
            try:
                data = self._prepare(self._scratch) if self._measures else None
                self._notes = self._not_run() if data is None else data.notes
                runner.get_ready()
                stopped = self._explore(runner, data)
                best = self._winner(runner, data)
            except KeyboardInterrupt:
                stopped, best = "interrupted", leader(self._front(), self._task)
            except ClusterLostError as error:
                stopped, best = "cluster lost", leader(self._front(), self._task)
                self._notes += (str(error),)
            self._notes += runner.notes
        return self._result(best, stopped, self._notes)

    def _place(self) -> Runner:
        if self._runner is not None:
            return self._runner
        return LocalRunner(self._task.target_name, self._budget.workers)

    def _result(self, best: Best | None, stopped: str, notes: tuple[str, ...]) -> TuneResult:
        if best is None:
            notes += self._reasons()
        return TuneResult(
            best,
            dict(Counter(entry.trial.outcome.value for entry in self._entries)),
            self._resumed,
            len(self._task.space),
            self._spending.elapsed_s,
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

    def _explore(self, runner: Runner, data: CheckData | None) -> str:
        while True:
            stopped = self._exhausted(runner)
            if stopped is not None:
                return stopped
            batch = self._next_batch(runner)
            if not batch:
                return self._exhausted(runner) or "strategy"
            with self._spending.round():
                self._try(runner, data, batch)

    def _exhausted(self, runner: Runner) -> str | None:
        if self._trials_left() <= 0:
            return "trials"
        finalists = contending(self._front())[: self._budget.finalists]
        is_tried = self._spending.has_begun or bool(finalists)
        rounds = self._spending.final_rounds(finalists, 2 * self._budget.repeats)
        needed_s = finals_s(finalists, rounds, runner.keeps) + self._spending.checks_s(finalists)
        return "budget" if is_tried and not self._spending.allows_round(needed_s) else None

    def _trials_left(self) -> float:
        """Refusals cost nothing and do not count."""
        limit = self._budget.trials
        run = sum(e.trial.outcome is not Outcome.REFUSED for e in self._entries)
        return math.inf if limit is None else limit - run

    def _total(self) -> float:
        return float(min(len(self._task.space), self._budget.trials or len(self._task.space)))

    def _next_batch(self, runner: Runner) -> list[Candidate]:
        """Candidates that have to be run, at most one for each of the runner's places.

        What is on record is told and passed by; what another config runs too is passed by.
        """
        batch: list[Candidate] = []
        most = min(len(runner), self._trials_left())
        while len(batch) < most and self._exhausted(runner) is None:
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
                self._finish(Entry(candidate, known, is_resumed=True))
                continue
            reason = self._task.target.refusal(candidate.mu, self._task.dtype)
            if reason is not None:
                self._conclude(candidate, self._limits(), Ended(Failed(Outcome.REFUSED, reason)))
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
        """The recorded trial of a candidate, unless the emitter or what may run has changed."""
        known = self._known.get(candidate.key)
        if known is None:
            return None
        reason = self._task.target.refusal(candidate.mu, self._task.dtype)
        if (known.outcome is Outcome.REFUSED) != (reason is not None):
            return None  # a library that kernels are left to was installed since, or is gone
        if known.source is None:
            return known
        if known.outcome is Outcome.OK and (known.median_s is not None) != self._measures:
            return None
        try:
            source = self._task.target.emit(candidate.mu, self._task.dtype)
        except KernelError:
            return None
        return known if digest(source.text) == known.source else None

    def _try(self, runner: Runner, data: CheckData | None, batch: list[Candidate]) -> None:
        """Build, check and time; building is all there is to know where nothing runs."""
        limits, repeats = self._limits(), self._budget.repeats
        is_staged = data is not None and data.is_large
        attempts = [
            Attempt(self._build(c), data, limits.compile_s, limits.run_s, repeats, is_staged)
            for c in batch
        ]
        ended = runner.run(attempts, self._to_beat)
        for candidate, one in zip(batch, ended, strict=True):
            self._conclude(candidate, limits, one, len(batch))

    def _limits(self) -> _Limits:
        """Time limits of a round: one hung candidate must not cost much more than the budget."""
        longest = self._spending.longest_s
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
        ended: Ended,
        at_once: int = 1,
    ) -> None:
        """Turn what came of a candidate into its trial."""
        begun = Trial(
            candidate.key, self._task.program.name, candidate.config.graph_id, self._task.seed,
            Outcome.ERROR, at=now(), host=ended.host, at_once=at_once,
        )  # fmt: skip
        trial = concluded(begun, ended.answer, ended.built, ended.checked)
        # what was cut short by the budget may be tried again when the run resumes
        is_recorded = limits.are_full or not isinstance(ended.answer, TimedOut)
        entry = Entry(candidate, trial, is_resumed=False, is_whole=ended.is_whole)
        if ended.check_s is not None:
            self._spending.checked(ended.check_s)
        self._finish(entry, is_recorded=is_recorded)

    def _finish(self, entry: Entry, *, is_recorded: bool = True) -> None:
        self._entries.append(entry)
        if is_recorded and not entry.is_resumed and self._records is not None:
            self._records.append(entry.trial)
        # one that spills is chosen when all do: the strategy shall look for another
        counts = entry.is_ok and (self._measures or not entry.spills)
        self._strategy.tell(entry.candidate.config, entry.seconds if counts else None)
        best = min((e.seconds for e in self._entries if e.is_ok), default=None)
        kind = "best" if self._measures else "best predicted"
        what = "no kernel yet" if best is None else f"{kind} {best * 1e3:.3f} ms"
        self._progress(len(self._entries), self._total(), what)

    def _to_beat(self) -> float:
        """Seconds of the fastest kernel that this run has checked on every case."""
        return min((e.seconds for e in self._entries if e.is_checked), default=math.inf)

    def _front(self) -> list[Entry]:
        return front(self._entries, is_measured=self._measures)

    def _winner(self, runner: Runner, data: CheckData | None) -> Best | None:
        """The winner of the finals; trials found wrong there are put on record as such."""
        finals = Finals(self._task, self._budget, runner, self._spending, self._scratch)
        if data is None:
            best = finals.predicted(self._front())
        else:
            best = finals.measured(self._front(), data)
        self._notes += finals.notes
        for entry, result in finals.refuted:
            wrong = replace(
                entry.trial, outcome=result.outcome, detail=result.detail, at=now(),
                median_s=None, min_s=None, max_error=finite(result.max_error),
            )  # fmt: skip
            self._entries[self._entries.index(entry)] = replace(entry, trial=wrong)
            if self._records is not None:
                self._records.append(wrong)
        return best
