from __future__ import annotations

import pytest
from tune.fake_target import FakeTarget
from tune.graphs import MATMUL, matmul_graph

from prism.record import Outcome, Trial
from prism.tune import (
    ESTIMATE_SHARE,
    Budget,
    DeferredStrategy,
    Ended,
    Estimates,
    Spending,
    Task,
    Tuner,
    build_space,
)
from prism.tune.check import CheckResult
from prism.tune.entries import Entry
from prism.tune.strategies import ModelStrategy
from prism.tune.timing import Timing
from prism.tune.worker import Built, Check, Time

SIZES = {"n": 4, "d": 96, "h": 100}


def kernel_s(trial):
    """Every kernel is faster than those before it: strategies go on."""
    return 1e-3 * 0.95**trial


class Clock:
    """Stands still, but for what costs time."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class SlowTarget(FakeTarget):
    """Every estimate takes its time."""

    def __init__(self, clock, estimate_s):
        super().__init__()
        self.clock, self.estimate_s = clock, estimate_s

    def estimate(self, mu, dtype):
        self.clock.now += self.estimate_s
        return super().estimate(mu, dtype)


class SlowRunner:
    """Two places, whose rounds and finals take their time; every kernel is right.

    Where a check takes `check_s` the first kernel alone is checked on every case.
    """

    notes = ()

    def __init__(self, clock, round_s, compile_s, check_s):
        self.clock, self.round_s, self.compile_s, self.check_s = clock, round_s, compile_s, check_s
        self.tried, self.built, self.checked = 0, 0, 0

    def __enter__(self):
        return self

    def __exit__(self, *ended):
        pass

    def __len__(self):
        return 2

    def run(self, attempts, best_s):
        self.clock.now += self.round_s
        self.tried += len(attempts)
        for attempt in attempts:
            timed = (Timing((kernel_s(attempt.build.trial),) * 3),)
            fine = CheckResult(Outcome.OK, 1e-7)
            is_whole = not self.check_s or attempt.build.trial == 0
            check_s = self.check_s if is_whole else None
            yield Ended(timed, self._built(attempt.build), fine, "", is_whole, check_s)

    def _built(self, build):
        return Built(f"source {build.trial}", {}, self.compile_s, {}, None)

    def get_ready(self):
        pass

    def keeps(self, trial):
        return False

    def ask(self, request, timeout_s):
        match request:
            case Check():
                self.clock.now += self.check_s
                self.checked += 1
                return CheckResult(Outcome.OK, 1e-7)
            case Time(trials=trials):
                return tuple(Timing((kernel_s(trial),) * 3) for trial in trials)
            case build:
                self.clock.now += self.compile_s
                self.built += 1
                build.path.write_text(f"# {build.trial}\n")
                return self._built(build)


def spent(budget_s, *, estimate_s=0.0, round_s=1.0, compile_s=0.5, check_s=0.0):
    """A run on a clock of its own: the result, its runner, notes on estimates, the seconds."""
    clock = Clock()
    target, runner = SlowTarget(clock, estimate_s), SlowRunner(clock, round_s, compile_s, check_s)
    space = build_space((("g0", matmul_graph()), ("g1", matmul_graph())), SIZES, target)
    spending = Spending(budget_s, clock)
    task = Task(MATMUL, SIZES, "slow", target, "float32", 0, space, Budget(budget_s))

    def ranked():
        estimates = Estimates(space, target, "float32", spending.is_within(ESTIMATE_SHARE))
        strategy = ModelStrategy(space, estimates, 0)
        estimates.ranked()
        target.estimate_s = 0.0
        return strategy, estimates.notes

    deferred = DeferredStrategy(ranked)
    result = Tuner(task, deferred, None, None, spending, runner=runner).run()
    return result, runner, deferred.notes, clock.now - 100.0


def test_a_run_with_time_enough_ends_within_its_budget_with_all_finalists():
    result, runner, _, elapsed_s = spent(20.0)
    assert result.best is not None
    assert runner.built == Budget().finalists
    assert runner.tried > 20
    assert 16.0 < elapsed_s <= 20.0
    assert result.stopped == "budget"


@pytest.mark.parametrize("budget_s", [5.0, 10.0, 20.0, 60.0])
@pytest.mark.parametrize("slow", [1.0, 4.0])
def test_no_run_takes_more_than_its_budget_but_for_its_first_round(budget_s, slow):
    result, _, _, elapsed_s = spent(
        budget_s, estimate_s=2e-3 * slow, round_s=1.0 * slow, compile_s=0.4 * slow
    )
    assert result.best is not None
    assert elapsed_s <= max(budget_s, 1.25 * slow + ESTIMATE_SHARE * budget_s)


@pytest.mark.parametrize("check_s", [1.0, 4.0, 8.0])
def test_time_is_left_to_check_the_winner_on_every_case(check_s):
    result, runner, _, elapsed_s = spent(20.0, check_s=check_s)
    assert runner.checked == 1
    assert result.best.median_s < kernel_s(0)
    assert 16.0 < elapsed_s <= 20.0


def test_slow_estimates_leave_most_of_the_budget_for_trials():
    _, runner, notes, _ = spent(20.0, estimate_s=0.1)
    assert any(note.startswith("the budget allowed 51 estimates, ") for note in notes)
    assert runner.tried >= 20


@pytest.mark.parametrize("budget_s", [0.01, 1.0])
def test_the_first_trial_is_reached_whatever_the_budget(budget_s):
    result, runner, _, _ = spent(budget_s, estimate_s=0.5, round_s=3.0)
    assert runner.tried == 2
    assert runner.built == 0
    assert result.best is not None


def test_where_little_time_is_left_fewer_kernels_reach_the_finals():
    _, runner, _, elapsed_s = spent(4.0, round_s=2.0, compile_s=1.3)
    assert runner.tried == 2
    assert runner.built == 1
    assert elapsed_s <= 4.0


def test_where_no_time_is_left_a_few_estimates_are_made_all_the_same():
    clock = Clock()
    spending = Spending(20.0, clock)
    clock.now += 30.0
    goes_on = spending.is_within(ESTIMATE_SHARE)
    clock.now += 1.0
    assert goes_on()
    clock.now += 0.1
    assert not goes_on()


def test_the_finals_need_time_to_check_what_is_not_checked_on_every_case():
    spending = Spending(10.0, Clock())
    ok = Trial(None, "matmul", "g0", 0, Outcome.OK, median_s=1e-3)
    whole, first_only = (Entry(None, ok, is_resumed=False, is_whole=w) for w in (True, False))
    resumed = Entry(None, ok, is_resumed=True)
    assert spending.checks_s([first_only, resumed]) == 0.0  # nothing is known yet
    spending.checked(2.0)
    assert spending.checks_s([whole]) == 0.0
    assert spending.checks_s([whole, first_only, first_only]) == 2.0  # the winner alone
    assert spending.checks_s([resumed, first_only, resumed]) == 6.0
    assert spending.allows_final(3.0, 4.0, 2.0)
    assert not spending.allows_final(3.0, 4.0, 4.0)


def test_rounds_that_become_slower_end_the_run_earlier():
    clock = Clock()
    spending = Spending(10.0, clock)
    assert spending.allows_round(1.0)
    for seconds in (1.0, 2.0, 3.0):
        with spending.round():
            clock.now += seconds
    assert spending.round_s == 2.0
    assert spending.left_s == 4.0
    assert spending.allows_round(1.0)
    assert not spending.allows_round(2.5)
