"""Who wins a run: never a kernel that has not passed every case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tune.fake_target import FakeTarget
from tune.graphs import MATMUL, matmul_graph

from prism.record import Outcome, Trial
from prism.tune import Budget, Spending, Task, build_space, instantiate
from prism.tune.check import CheckResult
from prism.tune.entries import Candidate, Entry, contending, front
from prism.tune.finals import MOST_HELD_BYTES, Finals, leader
from prism.tune.task import Identity
from prism.tune.timing import Timing
from prism.tune.worker import Build, Built, Check, Failed, Time

SIZES = {"n": 4, "d": 12, "h": 10}
FINE = CheckResult(Outcome.OK, 1e-7)
WRONG = CheckResult(Outcome.WRONG, 1.0, "on large inputs: out0: norm error 1")


def task_of(**budget):
    target = FakeTarget()
    space = build_space((("g0", matmul_graph(grid=0, loop=False)),), SIZES, target)
    return Task(MATMUL, SIZES, "fake", target, "float32", 0, space, Budget(**budget))


TASK = task_of()


def entry(number, median_s, *, min_s=None, is_whole=True, is_resumed=False):
    """A trial that was timed once."""
    graph = TASK.space.graphs[0]
    config = graph.config(number)
    key = Identity.of(TASK).key(config)
    trial = Trial(key, "matmul", "g0", 0, Outcome.OK, median_s=median_s, min_s=min_s or median_s)
    path = Path("unused") / f"{number}.py"
    candidate = Candidate(number, config, instantiate(graph, config), key, path)
    return Entry(candidate, trial, is_resumed, is_whole)


class Place:
    """The place of the finals: kernels take `seconds`, those of `wrong` fail the whole check.

    Those of `racy` are wrong while they are timed; a check takes `check_s` of the clock.
    """

    def __init__(self, seconds, wrong=(), *, racy=(), can_time=True, check_s=0.0):
        self.seconds, self.wrong, self.racy, self.can_time = seconds, wrong, racy, can_time
        self.check_s, self.now, self.held_bytes, self.limits = check_s, 0.0, 0, []
        self.checked, self.timed = [], []

    def keeps(self, trial):
        return False

    def ask(self, request, timeout_s):
        match request:
            case Build(trial=trial, path=path):
                path.write_text(f"# {trial}\n")
                return Built(f"source {trial}", {}, 0.1, {}, None, self.held_bytes)
            case Check(trial=trial, is_whole=is_whole):
                assert is_whole
                self.checked.append(trial)
                self.limits.append(timeout_s)
                self.now += self.check_s
                return WRONG if trial in self.wrong else FINE
            case Time(trials=trials) if set(trials) & set(self.racy):
                return Failed(Outcome.WRONG, "right in the check, not while timed")
            case Time(trials=trials) if self.can_time:
                self.timed = list(trials)
                return tuple(Timing((self.seconds[trial],) * 5) for trial in trials)
            case Time():
                return Failed(Outcome.ERROR, "no timing")


def finals_of(entries, place, tmp_path, *, seconds=60.0):
    """The finals, and their winner."""
    placed = [
        replace(e, candidate=replace(e.candidate, path=tmp_path / e.candidate.path.name))
        for e in entries
    ]
    spending = Spending(seconds, lambda: place.now)
    finals = Finals(TASK, TASK.budget, place, spending, tmp_path)
    return finals, finals.measured(front(placed, is_measured=True), None)


def held(entries, place, tmp_path):
    """The winner's number (None: nobody) and the numbers of those refuted."""
    finals, best = finals_of(entries, place, tmp_path)
    number = None if best is None else int(best.source.split()[1])
    return number, [e.candidate.number for e, _ in finals.refuted]


def test_a_finalist_that_is_wrong_on_another_case_gives_way_to_the_next(tmp_path):
    entries = [entry(0, 1.0), entry(1, 1.05, is_whole=False), entry(2, 1.1, is_whole=False)]
    place = Place({0: 1.0, 1: 0.8, 2: 0.9}, wrong={1})
    assert held(entries, place, tmp_path) == (2, [1])
    assert place.checked == [1, 2]


def test_where_every_other_finalist_is_wrong_the_one_that_was_checked_wins(tmp_path):
    entries = [entry(0, 1.0), entry(1, 1.05, is_whole=False), entry(2, 1.1, is_whole=False)]
    place = Place({0: 1.0, 1: 0.8, 2: 0.9}, wrong={1, 2})
    assert held(entries, place, tmp_path) == (0, [1, 2])


def test_what_passed_every_case_is_not_checked_again(tmp_path):
    place = Place({0: 1.0, 1: 0.9})
    assert held([entry(0, 1.0), entry(1, 1.05)], place, tmp_path) == (1, [])
    assert not place.checked


def test_where_nobody_is_right_nobody_wins(tmp_path):
    place = Place({0: 1.0}, wrong={0})
    assert held([entry(0, 1.0, is_whole=False)], place, tmp_path) == (None, [0])


def test_where_finalists_cannot_be_timed_together_the_first_one_that_is_right_wins(tmp_path):
    entries = [entry(0, 1.0, is_whole=False), entry(1, 1.1)]
    place = Place({}, wrong={0}, can_time=False)
    assert held(entries, place, tmp_path) == (1, [0])


def test_what_only_a_record_says_is_right_is_checked_before_it_is_timed(tmp_path):
    entries = [entry(0, 0.9, is_resumed=True), entry(1, 1.0)]
    place = Place({0: 0.9, 1: 1.0}, wrong={0})
    assert held(entries, place, tmp_path) == (1, [0])
    assert place.timed == [1]


def test_those_far_behind_are_not_in_the_finals(tmp_path):
    place = Place({0: 1.0, 1: 1.1, 2: 2.0})
    held([entry(0, 1.0), entry(1, 1.1), entry(2, 2.0)], place, tmp_path)
    assert place.timed == [0, 1]


def test_without_time_left_the_fastest_that_passed_every_case_stands(tmp_path):
    entries = [entry(0, 1.0, is_whole=False), entry(1, 1.1)]
    place = Place({0: 0.5})
    finals = Finals(TASK, TASK.budget, place, Spending(-1.0), tmp_path)
    assert finals.measured(entries, None).median_s == 1.1
    assert not place.timed


@pytest.mark.parametrize(
    "other", [{"is_whole": False}, {"is_resumed": True}], ids=["first case only", "on record"]
)
def test_a_kernel_that_was_not_checked_in_this_run_does_not_lead(other):
    assert leader([entry(0, 1.0, **other)], TASK) is None
    assert leader([entry(0, 1.0, **other), entry(1, 1.1)], TASK).median_s == 1.1


def test_one_disturbed_median_does_not_put_a_kernel_out_of_contention():
    disturbed = entry(1, 3.0, min_s=1.01)
    assert contending([entry(0, 1.0), disturbed, entry(2, 3.0)]) == [entry(0, 1.0), disturbed]


def test_a_kernel_that_is_wrong_while_it_is_timed_does_not_win(tmp_path):
    place = Place({0: 1.0, 1: 1.1, 2: 1.05}, racy={0})
    entries = [entry(0, 1.0), entry(1, 1.1), entry(2, 1.05)]
    assert held(entries, place, tmp_path) == (2, [0])


def test_the_only_finalist_does_not_win_if_it_is_wrong_while_it_is_timed(tmp_path):
    place = Place({0: 1.0}, racy={0})
    finals, best = finals_of([entry(0, 1.0)], place, tmp_path)
    assert best is None
    ((_, result),) = finals.refuted
    assert result == CheckResult(Outcome.WRONG, None, "right in the check, not while timed")


def test_the_winner_has_the_error_of_its_check_on_every_case(tmp_path):
    place = Place({0: 1.0})
    _, best = finals_of([entry(0, 1.0, is_whole=False)], place, tmp_path)
    assert best.max_error == FINE.max_error


def test_checks_end_with_the_budget_where_a_kernel_that_passed_every_case_can_win(tmp_path):
    entries = [entry(n, 1.0 + n / 100, is_whole=n == 0) for n in range(3)]
    place = Place({0: 1.0, 1: 0.8, 2: 0.9}, wrong={1, 2}, check_s=40.0)
    _, best = finals_of(entries, place, tmp_path, seconds=25.0)
    assert place.checked == [1]
    assert place.limits == [25.0]  # not the whole of a run's time limit
    assert best.source == "# 0\n"


def test_where_nothing_else_can_win_checks_go_on_beyond_the_budget(tmp_path):
    entries = [entry(n, 1.0 + n / 100, is_whole=False) for n in range(3)]
    place = Place({0: 0.8, 1: 0.9, 2: 1.0}, wrong={0, 1}, check_s=40.0)
    assert held(entries, place, tmp_path) == (2, [0, 1])
    assert set(place.limits) == {TASK.budget.run_timeout_s}


def test_finalists_are_as_many_as_memory_holds(tmp_path):
    place = Place({0: 1.0, 1: 1.1, 2: 1.1})
    place.held_bytes = MOST_HELD_BYTES // 2 + 1
    held([entry(0, 1.0), entry(1, 1.1), entry(2, 1.1)], place, tmp_path)
    assert place.timed == [0, 1]
