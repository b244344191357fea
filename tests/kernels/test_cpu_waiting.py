"""How threads wait for a launch: how long awake, on which core, and whether they are woken."""

from __future__ import annotations

import ctypes
import os
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from kernels.test_cpu_team import MOST, Noted

from prism.errors import UsageError
from prism_kernels.cpu import memory
from prism_kernels.cpu import team as team_module
from prism_kernels.cpu.launch import address_of
from prism_kernels.cpu.team import Team, kernel_table
from prism_kernels.cpu.waiting import SPIN

MS, S = 1_000_000, 1_000_000_000
LEAST = 100_000
WAIT_S = 20.0


def code(name, arguments):
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arguments)
    return kind(team_module._CODE[name])


def word(team, place):
    return ctypes.c_int64.from_address(team.address + place)


def row(number, place):
    return memory.ROWS + number * memory.ROW + place


def until(claim):
    end = time.monotonic() + WAIT_S
    while not claim():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture
def spin(monkeypatch):
    """Sets for how many microseconds threads wait awake."""
    return lambda us: monkeypatch.setenv(SPIN, str(us))


@pytest.fixture
def started():
    made = []

    def start(threads):
        made.append(Noted(threads))
        return made[-1]

    yield start
    for noted in made:
        noted.team.stop()


@pytest.mark.parametrize(
    ("us", "gap", "expected"),
    [
        (5000, 0, LEAST),
        (5000, LEAST, 2 * LEAST),
        (5000, 2 * MS, 4 * MS),
        (5000, 4 * MS, 5 * MS),
        (5000, 5 * MS + 1, LEAST),  # a wait that long is given up
        (5000, 10_000 * MS, LEAST),
        (20, 10_000, 20_000),
        (20, MS, 20_000),
        (0, 0, 0),
        (0, MS, 0),
    ],
)
def test_a_thread_waits_awake_for_twice_the_last_gap_if_that_was_short(
    spin, started, us, gap, expected
):
    spin(us)
    assert code("patience", 2)(started(2).team.address, gap) == expected


@pytest.mark.parametrize("text", ["-1", "soon", "1.5", "1000000000000"])
def test_a_time_that_is_none_is_refused_before_any_thread_starts(spin, text):
    spin(text)
    team = Team(3)
    with pytest.raises(UsageError, match=f"PRISM_CPU_SPIN_US is '{text}': it may be a number"):
        team.start()
    spin(7)
    assert team.start()
    assert word(team, memory.MOST_SPIN).value == 7000
    team.stop()


@pytest.mark.parametrize("us", [0, 1, 1_000_000])
@pytest.mark.parametrize("pause_s", [0.0, 0.001])
def test_every_block_runs_once_however_long_threads_wait(spin, started, us, pause_s):
    spin(us)
    noted = started(3)
    for _ in range(50):
        noted.run(17, 1, 5)
        time.sleep(pause_s)
    assert noted.calls[:17].tolist() == [150, *[100] * 4, *[50] * 12]


class Known:
    """A kernel of which is known how long it takes."""

    def __init__(self, noted, blocks, ns):
        self.noted = noted
        self.table = kernel_table([(noted.address, blocks)])
        self.table[0, memory.KERNEL_ALONE // 8] = ns

    def run(self):
        with self.noted.team.turn:
            self.noted.team.run(address_of(self.table), 1, address_of(self.noted.arrays))

    @property
    def alone_ns(self):
        return int(self.table[0, memory.KERNEL_ALONE // 8])


def sleeping(noted):
    """Wait until all other threads sleep or say that they are about to."""
    awake = [word(noted.team, row(k, memory.AWAKE)) for k in range(1, noted.team.threads)]
    until(lambda: not any(each.value for each in awake))


@contextmanager
def counted_wakes(team):
    """The semaphores of the threads that are woken meanwhile."""
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    place, woken = word(team, memory.POST), []
    before = place.value
    real = kind(before)

    def post(semaphore):
        woken.append(semaphore)
        return real(semaphore)

    counting = kind(post)
    place.value = ctypes.cast(counting, ctypes.c_void_p).value
    try:
        yield woken
    finally:
        place.value = before


def test_a_short_launch_after_a_long_pause_wakes_nobody(spin, started):
    spin(0)
    noted = started(3)
    sleeping(noted)
    kernel = Known(noted, 30, 5000)
    with counted_wakes(noted.team) as woken:
        kernel.run()
    assert not woken  # one that was only about to sleep may have taken part
    assert (noted.calls[:30] == 1).all()
    assert kernel.alone_ns > 0


@pytest.mark.parametrize("ns", [0, 100 * MS])
def test_a_launch_that_is_long_or_unknown_wakes_them(spin, started, ns):
    spin(0)
    noted = started(3)
    sleeping(noted)
    kernel = Known(noted, MOST, ns)
    assert code("is_worth_waking", 3)(noted.team.address, address_of(kernel.table), 1) == 1
    kernel.run()
    assert (noted.calls == 1).all()


def test_a_short_launch_wakes_those_that_will_be_awake_at_the_next(spin, started):
    spin(10**8)
    noted = started(2)
    worth, table = code("is_worth_waking", 3), kernel_table([(noted.address, 30)])
    table[0, 2] = 5000
    now = code("now", 2)(noted.team.address, noted.team.address + memory.ROWS)
    word(noted.team, memory.ENDED).value = now - 200 * S  # they wait awake for 100 s
    assert worth(noted.team.address, address_of(table), 1) == 0
    noted.run(30)
    assert worth(noted.team.address, address_of(table), 1) == 1


def test_what_several_kernels_take_is_added_up(spin, started):
    spin(0)
    noted = started(2)
    worth = code("is_worth_waking", 3)
    table = kernel_table([(noted.address, 30)] * 3)
    table[:, 2] = 80_000
    assert worth(noted.team.address, address_of(table), 2) == 0
    assert worth(noted.team.address, address_of(table), 3) == 1


def test_kernels_of_one_block_do_not_count(spin, started):
    spin(0)
    noted = started(2)
    worth = code("is_worth_waking", 3)
    table = kernel_table([(noted.address, 1), (noted.address, 30), (noted.address, 1)])
    assert worth(noted.team.address, address_of(table), 3) == 1  # the second is not known
    table[1, 2] = 5000
    assert worth(noted.team.address, address_of(table), 3) == 0


def thread_ids():
    return {int(folder.name) for folder in Path("/proc/self/task").iterdir()}


@pytest.fixture
def placed(started):
    """A team of two, and the system's number of its second thread."""
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("threads cannot be placed here, or there is one core")
    before = thread_ids()
    noted = started(2)
    (number,) = thread_ids() - before
    assert os.sched_getaffinity(number) == os.sched_getaffinity(0)
    return noted, number


def meet(noted):
    """Launch as if the other thread had last been where we are; which core that was."""
    where, place = ctypes.CDLL(None).sched_getcpu, word(noted.team, row(1, memory.PLACE))
    for _ in range(100):
        here = where()
        place.value = here + 1
        noted.run(30)
        if where() == here and place.value != here + 1:
            return here
    raise AssertionError("moved from core to core all the time")


def test_a_thread_that_was_on_the_callers_core_is_kept_off_it(placed):
    noted, number = placed
    here = meet(noted)
    assert os.sched_getaffinity(number) == os.sched_getaffinity(0) - {here}
    assert (noted.calls[:30] > 0).all()


def test_no_thread_is_moved_where_the_caller_has_one_core(placed):
    noted, number = placed
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        meet(noted)
        assert os.sched_getaffinity(number) == allowed
    finally:
        os.sched_setaffinity(0, allowed)


def test_without_a_way_to_place_them_threads_stay_where_they_are(placed):
    noted, number = placed
    word(noted.team, memory.WHERE).value = 0
    place = word(noted.team, row(1, memory.PLACE))
    for cpu in os.sched_getaffinity(0):
        place.value = cpu + 1
        noted.run(30)
    assert os.sched_getaffinity(number) == os.sched_getaffinity(0)
    assert np.all(noted.calls[:30] > 0)
