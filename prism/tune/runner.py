"""Where a run's trials run: the contract of a runner, and the one of this machine.

A trial is one *attempt*: build a candidate, check it, time it. The tuner hands a runner as many
attempts as it has places for (a round) and gets what came of each, in their order. The finals are
single requests, all to one place, where the kernels built before are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from prism.record import Outcome
from prism.tune.cases import CheckData
from prism.tune.check import CheckResult
from prism.tune.pool import Answer, Pool
from prism.tune.worker import Build, Built, Check, Drop, Request, Time


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


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of an attempt: the last answer, what was built and checked before, and where."""

    answer: Answer
    built: Built | None = None
    checked: CheckResult | None = None
    host: str = ""
    """The machine's name; empty for this one."""


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

    def run(self, attempts: Sequence[Attempt], best_s: Callable[[], float]) -> Iterator[Ended]:
        """What came of each attempt, in their order; `best_s` is what a kernel has to beat.

        Raises:
            ClusterLostError: there is no place left.
        """

    def ask(self, request: Request, timeout_s: float) -> Answer:
        """One request to the place of the finals."""


class LocalRunner:
    """This machine: attempts are built and checked side by side, and timed one by one."""

    notes: tuple[str, ...] = ()

    def __init__(self, target: str, count: int) -> None:
        self._pool = Pool(target, count)

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

    def run(self, attempts: Sequence[Attempt], best_s: Callable[[], float]) -> Iterator[Ended]:
        """See `Runner`."""
        answers = self._pool.ask_chains([_chain(attempt) for attempt in attempts])
        for worker, (attempt, given) in enumerate(zip(attempts, answers, strict=True)):
            yield self._ended(worker, attempt, given, best_s)

    def _ended(
        self,
        worker: int,
        attempt: Attempt,
        given: tuple[Answer, ...],
        best_s: Callable[[], float],
    ) -> Ended:
        number, data, run_s = attempt.build.trial, attempt.data, attempt.run_s
        match given:
            case (Built() as built, CheckResult(outcome=Outcome.OK) as checked):
                assert data is not None
                request = Time((number,), data, attempt.repeats, best_s())
                timed = self._pool.ask(worker, request, run_s)
                self._pool.ask(worker, Drop((number,)), run_s)
                return Ended(timed, built, checked)
            case (Built() as built, answer):
                return Ended(answer, built)
            case (Built() as built,):
                self._pool.ask(worker, Drop((number,)), run_s)
                return Ended(built, built)
            case (answer,):
                return Ended(answer)
            case _:
                raise AssertionError(given)

    def ask(self, request: Request, timeout_s: float) -> Answer:
        """See `Runner`: the first worker is the place of the finals."""
        return self._pool.ask(0, request, timeout_s)


def _chain(attempt: Attempt) -> tuple[tuple[Request, float], ...]:
    build = (attempt.build, attempt.compile_s)
    if attempt.data is None:
        return (build,)
    return (build, (Check(attempt.build.trial, attempt.data), attempt.run_s))
