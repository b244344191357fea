"""The threads that share blocks: each block runs once, whoever is late, asleep or alone."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from prism_kernels.cpu import launch as launch_module
from prism_kernels.cpu import memory
from prism_kernels.cpu import team as team_module
from prism_kernels.cpu.launch import address_of, launch, read_all
from prism_kernels.cpu.team import Team, kernel_table
from prism_kernels.cpu.words import atomic_add, compiled, peek


def note(index: int, thread: int, arrays: int) -> None:
    """Count a call of this block, and note the thread."""
    atomic_add(peek(arrays) + 8 * index, 1)
    atomic_add(peek(arrays + 8) + 8 * thread, 1)


NOTE = compiled((note,))["note"]
MOST = 1000


class Noted:
    """What a team ran."""

    def __init__(self, threads):
        self.team = Team(threads)
        self.team.start()
        self.calls, self.by_thread = np.zeros(MOST, np.int64), np.zeros(threads, np.int64)
        self.address = NOTE
        self.arrays = np.array([address_of(self.calls), address_of(self.by_thread)])

    def run(self, *blocks):
        kernels = kernel_table([(NOTE, count) for count in blocks])
        with self.team.turn:
            self.team.run(address_of(kernels), len(blocks), address_of(self.arrays))


@pytest.fixture(params=[1, 2, 3, 8])
def noted(request):
    made = Noted(request.param)
    yield made
    made.team.stop()


def test_every_block_of_every_kernel_runs_once(noted):
    expected = np.zeros(MOST, np.int64)
    for count in (1, 2, 3, 7, 8, 64, MOST):
        noted.run(count, 1, count)
        expected[:count] += 2
        expected[0] += 1
    np.testing.assert_array_equal(noted.calls, expected)
    assert noted.by_thread.sum() == expected.sum()


def test_they_are_there_again_when_they_have_slept(noted):
    for _ in range(30):
        noted.run(17)
        time.sleep(0.002)
    assert (noted.calls[:17] == 30).all()


def test_a_hundred_thousand_launches_lose_nothing(noted):
    for _ in range(100):
        noted.run(*[noted.team.threads] * 1000)
    assert (noted.calls[: noted.team.threads] == 100_000).all()


def test_a_thread_that_is_held_up_runs_nothing_of_the_job_after():
    """It reads what the next job is, whose blocks are more, while the tickets are of its own."""
    noted, words = Noted(1), [ctypes.c_int64] * 5
    address = noted.team.address
    describe = ctypes.CFUNCTYPE(ctypes.c_int64, *words)(team_module._CODE["describe"])
    take_blocks = ctypes.CFUNCTYPE(None, *words[:3])(team_module._CODE["take_blocks"])

    def tickets(*words):
        for row, word in enumerate(words):
            place = address + memory.ROWS + row * memory.ROW
            ctypes.c_int64.from_address(place).value = word

    blocks, arrays = 4, address_of(noted.arrays)
    first = describe(address, NOTE, blocks, arrays, 2)
    done = ((first << 32) + 2, (first << 32) + 4)
    tickets((first << 32) + 1, done[1])
    take_blocks(address, 0, first)
    assert noted.calls.nonzero()[0].tolist() == [1]  # all the others had been taken
    assert describe(address, NOTE, MOST, arrays, 2) == first + 1
    tickets(*done)
    take_blocks(address, 0, first)
    assert noted.calls.sum() == 1


@pytest.mark.parametrize("most", [1, 2])
def test_ctrl_c_while_threads_start_leaves_signals_and_launches_as_they_were(monkeypatch, most):
    before, real, calls = signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.pthread_sigmask, []

    def interrupted(how, signals):
        result = real(how, signals)
        calls.append(how)
        if len(calls) == most:
            raise KeyboardInterrupt
        return result

    team = Team(3)
    monkeypatch.setattr(signal, "pthread_sigmask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        team.start()
    monkeypatch.undo()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert team.start()
    calls, by_thread = np.zeros(MOST, np.int64), np.zeros(3, np.int64)
    kernels = kernel_table([(NOTE, MOST)])
    arrays = np.array([address_of(calls), address_of(by_thread)])
    team.run(address_of(kernels), 1, address_of(arrays))
    assert (calls == 1).all()
    team.stop()


def test_a_limit_keeps_the_other_threads_out(noted):
    noted.team.limit(1)
    noted.run(MOST)
    assert noted.by_thread[0] == MOST
    noted.team.limit(100)
    noted.run(MOST)
    assert (noted.calls == 2).all()


def test_after_the_end_blocks_run_on_one_thread():
    noted = Noted(3)
    noted.team.stop()
    assert noted.team.start()
    noted.run(MOST)
    assert noted.by_thread.tolist() == [MOST, 0, 0]
    assert (noted.calls == 1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_has_threads_of_its_own():
    noted = Noted(3)
    noted.run(50)
    child = os.fork()
    if child == 0:
        noted.run(50)  # alone: nothing has been started here
        noted.team.start()
        noted.run(50)
        os._exit(0 if (noted.calls[:50] == 3).all() and len(noted.team._handles) == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    noted.run(50)
    assert (noted.calls[:50] == 2).all()
    noted.team.stop()


def test_a_process_that_just_launched_ends_well():
    code = (
        "import numpy as np\n"
        "from prism_kernels.cpu.launch import launch, nothing\n"
        "from prism_kernels.cpu.words import compiled\n"
        "launch([(compiled((nothing,))['nothing'], 64)], [np.zeros(1)])\n"
    )
    env = {**os.environ, "NUMBA_NUM_THREADS": "4"}
    done = subprocess.run([sys.executable, "-c", code], check=False, env=env, timeout=60)
    assert done.returncode == 0


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no such folder here")
def test_signals_are_left_to_pythons_threads():
    """A thread that slept in place of the main one would get its Ctrl-C."""
    team, before = Team(3), {*Path("/proc/self/task").iterdir()}
    team.start()
    ours = {*Path("/proc/self/task").iterdir()} - before
    for folder in ours:
        lines = (folder / "status").read_text(encoding="ascii").splitlines()
        blocked = int(dict(line.split(":\t", 1) for line in lines)["SigBlk"], 16)
        assert blocked >> (signal.SIGINT - 1) & 1
    team.stop()
    assert len(ours) == 2
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_where_there_are_no_such_threads_pythons_run_the_blocks(monkeypatch):
    team = Team(3)
    monkeypatch.setattr("prism_kernels.cpu.team._c_library", lambda: None)
    monkeypatch.setattr(launch_module, "TEAM", team)
    assert not team.start()
    calls, by_thread = np.zeros(MOST, np.int64), np.zeros(3, np.int64)
    launch([(NOTE, MOST), (NOTE, 2)], [calls, by_thread])
    assert calls[:2].tolist() == [2, 2]
    assert (calls[2:] == 1).all()
    assert (by_thread > 0).all()


@pytest.mark.parametrize("size", [0, 5, 1 << 16, (1 << 18) + 3])
@pytest.mark.parametrize("threads", [None, 1])
def test_arrays_are_read_to_their_end(size, threads):
    array = np.arange(size, dtype=np.float32) % 3
    assert read_all(array, threads) == pytest.approx(array.sum(dtype=np.float64))


def test_launches_of_several_threads_take_turns():
    calls, by_thread = np.zeros(8, np.int64), np.zeros(64, np.int64)

    def work():
        for _ in range(50):
            launch([(NOTE, 8)], [calls, by_thread])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (calls == 200).all()
    assert ctypes.sizeof(ctypes.c_void_p) == 8
