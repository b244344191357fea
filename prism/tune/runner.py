"""Where a run's trials run: the contract of a runner, and the one of this machine.

A trial is one *attempt*: build a candidate, check it, time it. The tuner hands a runner as many
attempts as it has places for (a round) and gets what came of each, in their order. The finals are
single requests, all to one place, where the kernels built before are kept.

To check a kernel on large inputs takes longer than to time it, and only the winner has to be right
on every case. So where the inputs are large an attempt is *staged*: its kernel is checked as drawn,
timed, and checked on the other cases if it is faster than all before it. Each new leader has passed
every case; of the others it is asked if one wins the finals.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from prism.record import Outcome
from prism.tune.cases import CheckData
from prism.tune.check import CheckResult
from prism.tune.pool import Answer, Died, Pool, TimedOut
from prism.tune.timing import BEHIND, Timing
from prism.tune.worker import Build, Built, Check, Drop, Request, Time

MOST_KEPT = 4
"""Kernels that a worker keeps for the finals."""

MOST_KEPT_BYTES = 1 << 30
"""Memory of the kernels that a worker keeps; the fastest stays whatever it takes. One alone may
hold twice as much, and there are a few workers."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A candidate to build, check and time, with the seconds that each step may take.

    `data` is None where nothing can be run: then building is all.
    """

    build: Build
    data: CheckData | None
    compile_s: float
    run_s: float
    repeats: int
    is_staged: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of an attempt: the last answer, what was built and checked before, and where."""

    answer: Answer
    built: Built | None = None
    checked: CheckResult | None = None
    host: str = ""
    """The machine's name; empty for this one."""
    is_whole: bool = True
    """Whether it was checked on every case."""
    check_s: float | None = None
    """What it took to check it on every case, where that was apart from its first check."""


class Runner(Protocol):
    """Where trials run; used as a context manager."""

    def __enter__(self) -> Self:
        """The runner, ready.

        Raises:
            PrismError: there is no place to run anything.
        """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End everything that was started."""

    def __len__(self) -> int:
        """How many attempts run at once: the size of a round."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the result should say about where trials ran."""

    def get_ready(self) -> None:
        """Attempts are about to come: the reference is computed."""

    def run(self, attempts: Sequence[Attempt], best_s: Callable[[], float]) -> Iterator[Ended]:
        """What came of each attempt, in their order; `best_s` is what a kernel has to beat.

        Raises:
            ClusterLostError: there is no place left.
        """

    def ask(self, request: Request, timeout_s: float) -> Answer:
        """One request to the place of the finals."""

    def keeps(self, trial: int) -> bool:
        """Whether a trial's kernel is at the place of the finals: to build it takes no time."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A kernel that a worker has kept."""

    built: Built
    median_s: float


class LocalRunner:
    """This machine: attempts are built and checked side by side, and timed one by one.

    Each worker keeps its fastest kernels; the one that has the fastest of all is the place of the
    finals.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, target: str, count: int) -> None:
        self._pool = Pool(target, count)
        self._kept: list[dict[int, _Kept]] = [{} for _ in range(count)]
        self._finals: int | None = None

    def __enter__(self) -> Self:
        """The runner itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the workers."""
        self._pool.__exit__(kind, error, trace)

    def __len__(self) -> int:
        """The number of workers."""
        return len(self._pool)

    def get_ready(self) -> None:
        """Start the workers; before, they would have been in the way of the reference."""
        self._pool.start()

    def run(self, attempts: Sequence[Attempt], best_s: Callable[[], float]) -> Iterator[Ended]:
        """See `Runner`."""
        answers = self._pool.ask_chains([_chain(attempt) for attempt in attempts])
        for kept, given in zip(self._kept, answers, strict=False):
            if given and isinstance(given[-1], TimedOut | Died):
                kept.clear()
        for worker, (attempt, given) in enumerate(zip(attempts, answers, strict=True)):
            yield self._ended(worker, attempt, given, best_s)

    def _ended(
        self,
        worker: int,
        attempt: Attempt,
        given: tuple[Answer, ...],
        best_s: Callable[[], float],
    ) -> Ended:
        match given:
            case (Built() as built, CheckResult(outcome=Outcome.OK) as checked):
                return self._timed(worker, attempt, built, checked, best_s())
            case (Built() as built, answer):
                if not isinstance(answer, TimedOut | Died):
                    self._drop(worker, attempt.build.trial, attempt.run_s)
                return Ended(answer, built)
            case (Built() as built,):
                self._drop(worker, attempt.build.trial, attempt.run_s)
                return Ended(built, built)
            case (answer,):
                return Ended(answer)
            case _:
                raise AssertionError(given)

    def _timed(
        self, worker: int, attempt: Attempt, built: Built, checked: CheckResult, best_s: float
    ) -> Ended:
        """Time a kernel that is right, check it on what is left to check, and keep it."""
        number, data, run_s = attempt.build.trial, attempt.data, attempt.run_s
        assert data is not None
        timed = self._asked(worker, Time((number,), data, attempt.repeats, best_s), run_s)
        is_whole, check_s = not attempt.is_staged, None
        match timed:
            case (Timing(median_s=median_s),) if median_s < best_s and not is_whole:
                begun = time.monotonic()
                answer = self._asked(worker, Check(number, data), run_s)
                match answer:
                    case CheckResult(outcome=Outcome.OK):
                        checked, is_whole = answer, True
                        check_s = time.monotonic() - begun
                    case _:
                        timed = answer
            case _:
                pass
        match timed:
            case (Timing(median_s=median_s),) if median_s < BEHIND * best_s:
                self._keep(worker, number, _Kept(built, median_s), run_s)
            case _:
                self._drop(worker, number, run_s)
        return Ended(timed, built, checked, is_whole=is_whole, check_s=check_s)

    def _keep(self, worker: int, trial: int, kept: _Kept, timeout_s: float) -> None:
        """Keep a kernel, and let the slowest go where there are too many or they are too large."""
        mine = self._kept[worker]
        mine[trial] = kept
        while len(mine) > 1 and (len(mine) > MOST_KEPT or _held(mine) > MOST_KEPT_BYTES):
            slowest = max(mine, key=lambda number: mine[number].median_s)
            del mine[slowest]
            self._drop(worker, slowest, timeout_s)

    def _drop(self, worker: int, trial: int, timeout_s: float) -> None:
        self._asked(worker, Drop((trial,)), timeout_s)

    def _asked(self, worker: int, request: Request, timeout_s: float) -> Answer:
        """Ask a worker; one that has to be started again has kept nothing."""
        answer = self._pool.ask(worker, request, timeout_s)
        if isinstance(answer, TimedOut | Died):
            self._kept[worker].clear()
        return answer

    def ask(self, request: Request, timeout_s: float) -> Answer:
        """See `Runner`: a kernel that was kept is not built again."""
        if self._finals is None:
            self._finals = self._leading
        match request:
            case Build(trial=trial) if trial in self._kept[self._finals]:
                return self._kept[self._finals][trial].built
            case Build(trial=trial):
                answer = self._asked(self._finals, request, timeout_s)
                if isinstance(answer, Built):
                    self._kept[self._finals][trial] = _Kept(answer, math.inf)
                return answer
            case _:
                return self._asked(self._finals, request, timeout_s)

    def keeps(self, trial: int) -> bool:
        """See `Runner`."""
        place = self._leading if self._finals is None else self._finals
        return trial in self._kept[place]

    @property
    def _leading(self) -> int:
        """The worker that has kept the fastest kernel; the first one if none has."""

        def fastest_s(worker: int) -> float:
            return min((kept.median_s for kept in self._kept[worker].values()), default=math.inf)

        return min(range(len(self._kept)), key=fastest_s)


def _held(kept: Mapping[int, _Kept]) -> int:
    return sum(one.built.held_bytes for one in kept.values())


def _chain(attempt: Attempt) -> tuple[tuple[Request, float], ...]:
    build = (attempt.build, attempt.compile_s)
    if attempt.data is None:
        return (build,)
    check = Check(attempt.build.trial, attempt.data, is_whole=not attempt.is_staged)
    return (build, (check, attempt.run_s))
