"""Arrays for results: they are used again, but never one that somebody can reach."""

from __future__ import annotations

import gc
import sys
import warnings
from itertools import count

import numpy as np
import pytest

from prism_kernels.cpu.results import KEPT, Result

SINGLE = np.dtype(np.float32)
MANY = 5
SHAPES = [(6, 8), (1 << 9, 1 << 10)]


@pytest.fixture(params=SHAPES, ids=["small", "large"])
def result(request):
    return Result(request.param, SINGLE)


def address(array):
    return array.__array_interface__["data"][0]


def views(array):
    """Ways to keep an array's memory without the array."""
    return {
        "slice": lambda: array[5:],
        "reshaped": lambda: array.reshape(2, -1),
        "view of a view": lambda: array[1:].view(np.int32)[::2],
        "dlpack": lambda: np.from_dlpack(array),
        "memoryview": lambda: memoryview(array),
        "transposed": lambda: array.T,
    }


def test_an_array_that_was_dropped_is_used_again(result):
    first = address(result.array())
    assert address(result.array()) == first


def test_a_loop_that_holds_one_result_takes_turns_between_two(result):
    held, seen = None, set()
    for _ in range(10):
        held = result.array()
        seen.add(address(held))
    assert len(seen) == KEPT


@pytest.mark.parametrize("how", views(np.empty((4, 4), np.float32)))
def test_memory_that_a_view_reaches_is_not_used_again(result, how):
    array = result.array()
    array[:] = 1.0
    view = views(array)[how]()
    del array
    gc.collect()
    for _ in range(3):
        other = result.array()
        other[:] = 2.0
        assert not np.shares_memory(np.asarray(view), other)
    assert (np.asarray(view).view(np.float32) == 1.0).all()


def test_results_that_are_held_are_all_different(result):
    held = [result.array() for _ in range(5)]
    assert len({address(array) for array in held}) == 5


def turned(array):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        array.shape = array.shape[::-1]


CHANGES = {
    "shape": turned,
    "dtype": lambda array: setattr(array, "dtype", np.int32),
    "locked": lambda array: array.setflags(write=False),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("how", CHANGES)
def test_an_array_that_was_changed_in_place_is_not_used_again(result, how):
    array = result.array()
    shape = array.shape
    CHANGES[how](array)
    del array
    again = result.array()
    assert (again.shape, again.dtype) == (shape, SINGLE)
    assert again.flags.writeable


@pytest.mark.parametrize("shape", [(3,), (), (0, 5), SHAPES[1]])
def test_every_result_starts_on_a_cache_line(shape):
    array = Result(shape, np.dtype(np.float64)).array()
    assert address(array) % 64 == 0
    assert array.shape == shape
    assert array.flags.writeable


def with_another_after(result, steps):
    """An array, and the one that another thread gets when this one has gone so many steps."""
    taken, gone = [], 0

    def trace(frame, _event, _arg):
        nonlocal gone
        frame.f_trace_opcodes = True
        gone += 1
        if gone == steps:
            taken.append(result.array())
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        array = result.array()
    finally:
        sys.settrace(before)
    return array, taken


def test_two_threads_that_look_at_the_same_time_get_different_arrays():
    """Wherever the one is interrupted by the other."""
    for steps in count(1):
        result = Result((8,), SINGLE)
        result.array()
        array, taken = with_another_after(result, steps)
        if not taken:
            break
        assert not np.shares_memory(array, taken[0])
    assert steps > MANY
