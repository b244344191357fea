"""The benchmark itself: start the workers, let them take turns, and compare.

In every round each contestant has one turn (A B C, A B C, ...), ours first, the stream meter last.
Processes may be started anew during a run: the same binary varies by 10 to 15 % between processes,
with the physical pages it happens to get.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from prism.bench.accuracy import reference_of
from prism.bench.contestants import OURS, STREAM, contestant
from prism.bench.idle import others_share
from prism.bench.process import ContestantError, Worker
from prism.bench.results import BenchResult, Measured, Stream, spread_of, summarize
from prism.bench.stream import allowed_cpus
from prism.bench.task import Task, border_bytes
from prism.errors import KernelError, UsageError
from prism.ir import Program

PREPARE_LIMIT_S = 180.0
"""For imports, compilation and the first calls of a contestant."""
TURN_S = 0.25
"""A turn makes as many calls as the slowest contestant can in this time, within CALLS."""
CALLS = (3, 15)
BUSY_OTHERS = 0.1
"""Share of the CPUs in use while nothing of ours runs from which on the machine counts as busy."""
BUSY_SHARE = 0.85
"""CPU time per wall time of the stream's threads below which something else took the cores."""
BUSY_SPREAD = 1.4
"""Slowest over fastest round from which on something else was at work in some of them."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """How much to measure. `calls` per turn: chosen from the first calls when None.

    `ours` is the contestant that the others are compared with.
    """

    rounds: int = 7
    processes: int = 1
    calls: int | None = None
    ours: str = OURS


@dataclass(slots=True)
class _Runner:
    """A contestant during the run: what it measured so far."""

    name: str
    rounds: list[tuple[float, ...]] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    ready: dict[str, Any] = field(default_factory=dict)
    """What its worker said when it was prepared."""
    failure: str | None = None

    @property
    def byte_count(self) -> int:
        """Bytes that a call reads, for the stream."""
        count: int = self.ready.get("byte_count", 0)
        return count

    @property
    def warm_s(self) -> float:
        """About what a call takes."""
        seconds: float = self.ready.get("warm_s", 0.0)
        return seconds


def run_bench(
    program: Program,
    task: Task,
    against: Sequence[str],
    options: BenchOptions,
    progress: Callable[[int, int, str], None] | None = None,
) -> BenchResult:
    """Time our kernel and the named rivals side by side.

    `progress(done, total, what)` is called before each turn.

    Raises:
        UsageError: an unknown or doubled contestant, or more threads than CPUs.
        KernelError: our own kernel could not be timed.
    """
    cpus = _checked(task, against)
    report = progress or (lambda *_: None)
    runners = [_Runner(name) for name in (options.ours, *against, STREAM)]
    others: list[float | None] = []
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
        reference = Path(folder) / "reference.npz"
        report(0, options.rounds, "compute the reference")
        np.savez(reference, *reference_of(program, task))
        for rounds in _shares(options.rounds, options.processes):
            with _started(runners, cpus) as workers:
                for runner in runners:
                    report(rounds.start, options.rounds, f"start {runner.name}")
                    _prepare(runner, workers, task, cpus, reference)
                _require(runners[0], program)
                calls = options.calls or _calls(runners)
                others.append(others_share())
                for done in rounds:
                    for runner in runners:
                        report(done, options.rounds, runner.name)
                        _turn(runner, workers, calls)
                others.append(others_share())
        _require(runners[0], program)
        share = max((share for share in others if share is not None), default=0.0)
        return _result(program, task, runners[:-1], runners[-1], share)


def _checked(task: Task, against: Sequence[str]) -> list[int]:
    """The CPUs to pin to, once the request is known to make sense."""
    for name in against:
        contestant(name)
    if len(set(against)) != len(against) or {OURS, STREAM} & set(against):
        raise UsageError(f"each rival once, and only rivals: {', '.join(against)}")
    cpus = allowed_cpus()
    if not 1 <= task.threads <= len(cpus):
        raise UsageError(f"{task.threads} threads asked for, but this process has {len(cpus)} CPUs")
    return list(cpus[: task.threads])


def _shares(rounds: int, processes: int) -> Iterator[range]:
    """The rounds that each start of the processes runs, as even as can be."""
    for i in range(processes):
        share = range(rounds * i // processes, rounds * (i + 1) // processes)
        if share:
            yield share


@contextmanager
def _started(runners: Sequence[_Runner], cpus: Sequence[int]) -> Iterator[dict[str, Worker]]:
    """A worker for each contestant still in the run; all are ended on the way out."""
    workers: dict[str, Worker] = {}
    try:
        for runner in runners:
            if runner.failure is None:
                # the stream brings its own threads, so BLAS gets one
                threads = 1 if runner.name == STREAM else len(cpus)
                workers[runner.name] = Worker(cpus, threads)
        yield workers
    finally:
        for worker in workers.values():
            worker.close()


def _prepare(
    runner: _Runner, workers: dict[str, Worker], task: Task, cpus: list[int], reference: Path
) -> None:
    if runner.failure is not None:
        return
    request = {
        "op": "prepare",
        "contestant": runner.name,
        "task": task.to_json(),
        "cpus": cpus,
        "reference": str(reference),
    }
    try:
        runner.ready = workers[runner.name].ask(request, PREPARE_LIMIT_S)
    except ContestantError as error:
        runner.failure = str(error)


def _require(ours: _Runner, program: Program) -> None:
    """Without our own times there is nothing to compare with."""
    if ours.failure is not None:
        raise KernelError(f"our kernel for {program.name} cannot be timed: {ours.failure}")


def _calls(runners: Sequence[_Runner]) -> int:
    """Calls per turn: the same for all, so that a round gives each the same statistics."""
    slowest = max(r.warm_s for r in runners)
    low, high = CALLS
    return min(high, max(low, round(TURN_S / slowest) if slowest else high))


def _turn(runner: _Runner, workers: dict[str, Worker], calls: int) -> None:
    if runner.failure is not None:
        return
    limit = 30.0 + 20.0 * calls * runner.warm_s
    try:
        reply = workers[runner.name].ask({"op": "run", "calls": calls}, limit)
    except ContestantError as error:
        runner.failure = str(error)
    else:
        runner.rounds.append(tuple(reply["times"]))
        runner.cpu.extend(reply["cpu"])


def _result(
    program: Program, task: Task, runners: Sequence[_Runner], stream: _Runner, others: float
) -> BenchResult:
    byte_count = border_bytes(program, dict(task.sizes), task.dtype)
    read = Stream(tuple(stream.rounds), stream.byte_count)
    rate = read.bytes_per_s
    ours = runners[0]
    results = tuple(summarize(_measured(r), tuple(ours.rounds), byte_count, read) for r in runners)
    return BenchResult(
        program=program.name,
        sizes=task.sizes,
        dtype=task.dtype,
        threads=task.threads,
        byte_count=byte_count,
        stream_gbps=None if rate is None else rate / 1e9,
        stream_rounds=read.rounds,
        contestants=results,
        warnings=(
            *_busy(others, stream, ours, task.threads),
            *(f"{r.name}: {note}" for r in runners if (note := r.ready.get("note"))),
            *(f"{r.name} is not compared: {r.failure}" for r in results if r.failure),
        ),
    )


def _measured(runner: _Runner) -> Measured:
    ready = runner.ready
    return Measured(
        runner.name,
        tuple(runner.rounds),
        ready.get("norm_error"),
        runner.failure,
        ready.get("way", ""),
        tuple(ready.get("ways", {}).items()),
        ready.get("source", ""),
    )


def _busy(others: float, stream: _Runner, ours: _Runner, threads: int) -> Iterator[str]:
    """Signs that the machine did other work meanwhile."""
    if others > BUSY_OTHERS:
        yield f"the machine was busy: others took {others:.0%} of the CPUs; times may be high"
    walls = [t for r in stream.rounds for t in r]
    shares = [c / (w * threads) for c, w in zip(stream.cpu, walls, strict=True)]
    if shares and (share := median(shares)) < BUSY_SHARE:
        yield (
            f"the machine was busy during the run: {threads} reading threads got {share:.0%} of "
            "their CPUs; times may be high"
        )
    for runner, what in ((stream, "the stream"), (ours, "our kernel")):
        spread = spread_of(tuple(runner.rounds))
        if spread is not None and spread > BUSY_SPREAD:
            yield (
                f"the machine was busy during the run: the slowest round of {what} took "
                f"{spread:.1f} times the fastest; times may be high"
            )
