from __future__ import annotations

import numpy as np
import pytest

from prism.tune import timing
from prism.tune.timing import WARM_UPS, Timing, best_of, time_kernels


class TimedKernel:
    """Takes the next of its durations, the last one for ever."""

    def __init__(self, log, name, *durations):
        self.log, self.name, self.durations = log, name, list(durations)

    def run_timed(self):
        self.log.append(self.name)
        return self.durations.pop(0) if len(self.durations) > 1 else self.durations[0]


def test_kernels_take_turns_and_caches_are_emptied_before_every_timed_run():
    log = []
    kernels = [TimedKernel(log, name, 0.01) for name in "ab"]
    time_kernels(kernels, lambda: log.append("flush"), 3)
    warm, timed = log[: 2 * WARM_UPS], log[2 * WARM_UPS :]
    assert warm == ["a"] * WARM_UPS + ["b"] * WARM_UPS
    assert timed == ["flush", "a", "flush", "b"] * 3


def test_warm_ups_do_not_count():
    kernel = TimedKernel([], "a", *[9.0] * WARM_UPS, 0.1, 0.2, 0.4)
    (found,) = time_kernels([kernel], lambda: None, 3)
    assert found.seconds == pytest.approx((0.1, 0.2, 0.4))
    assert found.median_s == pytest.approx(0.2)
    assert found.min_s == pytest.approx(0.1)


def test_slow_kernels_are_repeated_less():
    (found,) = time_kernels([TimedKernel([], "a", 5.0)], lambda: None, 100)
    assert len(found.seconds) == timing.FEWEST


@pytest.mark.parametrize(
    ("slower", "runs"),
    [
        (1.1, WARM_UPS + 9),
        (timing.BEHIND * 1.1, WARM_UPS + timing.FEWEST),
        (timing.HOPELESS * 0.9, WARM_UPS + timing.FEWEST),
        (timing.HOPELESS * 1.1, 1 + 1),
    ],
)
def test_the_further_behind_the_best_the_fewer_repeats(slower, runs):
    log = []
    time_kernels([TimedKernel(log, "a", slower * 0.02)], lambda: None, 9, best_s=0.02)
    assert log == ["a"] * runs


def test_one_fast_run_in_three_is_enough_to_go_on():
    log = []
    kernel = TimedKernel(log, "a", *[0.1] * WARM_UPS, 0.1, 0.1, 0.02, 0.1)
    time_kernels([kernel], lambda: None, 9, best_s=0.03)
    assert len(log) == WARM_UPS + 9


def test_in_the_finals_a_kernel_that_is_clearly_slower_drops_out():
    log = []
    seconds = {"a": 0.02, "b": 0.02 * timing.BEATEN * 1.1, "c": 0.0201}
    kernels = [TimedKernel(log, name, each) for name, each in seconds.items()]
    timings = time_kernels(kernels, lambda: None, 10, is_final=True)
    assert [len(t.seconds) for t in timings] == [10, timing.FEWEST + 1, 10]
    assert best_of(timings) == 0
    log.clear()
    time_kernels(kernels, lambda: None, 10)
    assert log.count("b") == WARM_UPS + 10


def test_of_kernels_that_beat_each_other_one_goes_on():
    log = []
    # after four runs the ratios of either to the other are 2, 2, 1/2, 1/2: their median is 1.25
    one = TimedKernel(log, "a", *[0.01] * WARM_UPS, 0.01, 0.01, 0.02, 0.02, 0.015)
    other = TimedKernel(log, "b", *[0.01] * WARM_UPS, 0.02, 0.02, 0.01, 0.01, 0.015)
    timings = time_kernels([one, other], lambda: None, 6, is_final=True)
    assert [len(t.seconds) for t in timings] == [6, 4]


def test_of_three_that_beat_each_other_in_a_cycle_one_goes_on():
    steps = (1.0, 1.3, 1.69)
    kernels = [
        TimedKernel(
            [], "k", *[0.01] * WARM_UPS, *(0.01 * steps[(k + turn) % 3] for turn in range(3)), 0.01
        )
        for k in range(3)
    ]
    timings = time_kernels(kernels, lambda: None, 8, is_final=True)
    assert 8 in {len(t.seconds) for t in timings}


def test_the_winner_is_best_in_most_repeats_whatever_the_machine_did_meanwhile():
    noise = np.linspace(1, 3, 9)  # the machine slows down while they run
    one, two, three = (Timing(tuple(t * noise)) for t in (1.05, 1.0, 1.1))
    assert best_of([one, two, three]) == 1
    assert best_of([two, two]) == 0
    disturbed = Timing((*(1.0 * noise)[:8], 100.0))
    assert best_of([one, disturbed]) == 1
