"""What a round on this machine asks its workers, and which kernels they keep."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from prism.protocols import Device
from prism.record import Outcome
from prism.tune import Attempt, LocalRunner
from prism.tune.cases import Case, CheckData
from prism.tune.check import CheckResult
from prism.tune.pool import Died
from prism.tune.runner import MOST_KEPT, MOST_KEPT_BYTES
from prism.tune.timing import BEHIND, Timing
from prism.tune.worker import Build, Built, Check, Done, Drop, Failed, Time, held_bytes

DATA = CheckData(Path(), "float32", ("x",), 1, (Case("drawn", 1e-5), Case("large", 1e-5)))
FINE = CheckResult(Outcome.OK, 1e-7)
WRONG = CheckResult(Outcome.WRONG, 1.0, "on large inputs")


class StandIn:
    """Workers whose kernels take `seconds`; `wrong` ones are right on the first case alone."""

    def __init__(self, count, seconds, wrong=(), dies=()):
        self.count, self.seconds, self.wrong, self.dies = count, seconds, wrong, dies
        self.asked, self.held_bytes = [], 0

    def __len__(self):
        return self.count

    def ask(self, worker, request, timeout_s):
        self.asked.append((worker, request))
        match request:
            case Build(trial=trial):
                return Built(f"source {trial}", {}, 0.1, {}, None, self.held_bytes)
            case Check(trial=trial, is_whole=is_whole):
                return WRONG if is_whole and trial in self.wrong else FINE
            case Time(trials=(trial,)) if trial in self.dies:
                return Died("a fault")
            case Time(trials=trials):
                return tuple(Timing((self.seconds[trial],) * 3) for trial in trials)
            case Drop():
                return Done()

    def ask_chains(self, chains):
        return tuple(
            tuple(self.ask(worker, request, limit) for request, limit in chain)
            for worker, chain in enumerate(chains)
        )

    def kinds(self, kind):
        """The trials that requests of a kind were about, with the worker."""
        return [
            (worker, request.trials[0] if kind in {Time, Drop} else request.trial)
            for worker, request in self.asked
            if isinstance(request, kind)
        ]


def rounds(pool, *batches, is_staged=True):
    """Run rounds of trials, by their numbers; what came of each, and the runner."""
    runner = LocalRunner("unused", 0)
    runner._pool, runner._kept = pool, [{} for _ in range(pool.count)]
    times = [math.inf]
    ended = {}
    for batch in batches:
        attempts = [
            Attempt(Build(n, None, "float32", None), DATA, 1.0, 1.0, 3, is_staged) for n in batch
        ]
        for number, one in zip(batch, runner.run(attempts, lambda: min(times)), strict=True):
            ended[number] = one
            if isinstance(one.answer, tuple):
                times.append(one.answer[0].median_s)
    return ended, runner


def whole_checks(pool):
    return [r.trial for _, r in pool.asked if isinstance(r, Check) and r.is_whole]


def test_only_a_new_leader_is_checked_on_every_case_where_inputs_are_large():
    pool = StandIn(2, {0: 1.0, 1: 1.1, 2: 0.9, 3: 0.95})
    ended, _ = rounds(pool, [0, 1], [2, 3])
    assert whole_checks(pool) == [0, 2]
    assert [ended[n].is_whole for n in range(4)] == [True, False, True, False]
    assert [ended[n].check_s is not None for n in range(4)] == [True, False, True, False]


def test_elsewhere_every_kernel_is_checked_on_every_case_before_it_is_timed():
    pool = StandIn(2, {0: 1.0, 1: 1.1})
    ended, _ = rounds(pool, [0, 1], is_staged=False)
    assert whole_checks(pool) == [0, 1]
    assert all(one.is_whole for one in ended.values())


def test_a_leader_that_is_wrong_on_another_case_is_a_wrong_trial():
    pool = StandIn(1, {0: 1.0, 1: 0.5}, wrong={1})
    ended, runner = rounds(pool, [0], [1])
    assert ended[1].answer == WRONG
    assert pool.kinds(Drop) == [(0, 1)]
    assert runner.keeps(0)
    assert not runner.keeps(1)


def test_the_finals_are_where_the_fastest_kernel_is_and_do_not_build_it_again():
    pool = StandIn(2, {0: 1.0, 1: 0.9})
    _, runner = rounds(pool, [0, 1])
    builds = len(pool.kinds(Build))
    assert runner.keeps(1)
    assert not runner.keeps(0)
    for number in (1, 0, 0):
        answer = runner.ask(Build(number, None, "float32", None), 1.0)
        assert answer.source == f"source {number}"
    assert pool.kinds(Build)[builds:] == [(1, 0)]
    runner.ask(Time((1, 0), DATA, 3), 1.0)
    assert pool.asked[-1][0] == 1


def test_a_worker_keeps_few_kernels_and_only_those_that_may_yet_win():
    seconds = {n: 1.0 - 0.01 * n for n in range(MOST_KEPT + 1)} | {9: BEHIND * 1.1}
    pool = StandIn(1, seconds)
    _, runner = rounds(pool, *([n] for n in seconds))
    assert pool.kinds(Drop) == [(0, 0), (0, 9)]
    assert [runner.keeps(n) for n in seconds] == [False, *[True] * MOST_KEPT, False]


def test_a_worker_keeps_no_more_than_its_memory_allows_but_always_the_fastest():
    seconds = {0: 1.0, 1: 0.9, 2: 0.95}
    pool = StandIn(1, seconds)
    pool.held_bytes = MOST_KEPT_BYTES // 2
    _, runner = rounds(pool, *([n] for n in seconds))
    assert [runner.keeps(n) for n in seconds] == [False, True, True]
    pool.held_bytes = 2 * MOST_KEPT_BYTES
    _, runner = rounds(pool, *([n] for n in seconds))
    assert [runner.keeps(n) for n in seconds] == [False, True, False]


def test_what_a_kernel_holds_is_its_workspace_and_what_its_steps_hand_on():
    cpu = Device("cpu", 8, 256, 2**15, 2**20, 2**25, 20.0)
    gpu = replace(cpu, kind="gpu")
    meta = {"dtype": "float16", "between": [{"shape": [10, 10]}], "workspace_elements": 1000}
    assert held_bytes(meta, cpu) == 4 * (100 + 8 * 1000)  # computed in float32
    assert held_bytes(meta, gpu) == 4 * (100 + 1000)
    assert held_bytes({}, cpu) == 0


def test_a_worker_that_dies_has_kept_nothing():
    pool = StandIn(1, {0: 1.0, 1: 0.9}, dies={1})
    _, runner = rounds(pool, [0], [1])
    assert not runner.keeps(0)


@pytest.mark.parametrize("failure", [Failed(Outcome.COMPILE, "no"), Died("no")])
def test_what_fails_in_the_place_of_the_finals_is_not_kept(failure):
    pool = StandIn(1, {})
    _, runner = rounds(pool)
    pool.ask = lambda *_: failure
    assert runner.ask(Build(0, None, "float32", None), 1.0) == failure
    assert not runner.keeps(0)
