"""Arrays for results: they are used again, but never one that somebody can reach."""

from __future__ import annotations

import gc
import sys
import warnings

import numpy as np
import pytest

from prism_kernels.cpu.results import KEPT, Result

SINGLE = np.dtype(np.float32)
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


def test_two_threads_that_look_at_the_same_time_get_different_arrays():
    """The second one looks when the first has just counted the references."""
    result, taken = Result((8,), SINGLE), []
    result.array()

    def look(_frame, event, called):
        if event == "c_return" and called is sys.getrefcount and not taken:
            taken.append(result.array())

    sys.setprofile(look)
    try:
        array = result.array()
    finally:
        sys.setprofile(None)
    assert len(taken) == 1
    assert not np.shares_memory(array, taken[0])
