"""Arrays for results: large ones use memory again, but never memory that somebody can reach."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from prism_kernels.cpu.results import KEPT, REUSED_BYTES, Results

SHAPE = (REUSED_BYTES // 4,)
SINGLE = np.dtype(np.float32)


@pytest.fixture
def results():
    return Results(1)


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


def test_memory_of_a_dropped_result_is_used_again(results):
    first = address(results.empty(SHAPE, SINGLE))
    assert address(results.empty(SHAPE, SINGLE)) == first


def test_a_loop_that_holds_one_result_takes_turns_between_two(results):
    held, seen = None, set()
    for _ in range(10):
        held = results.empty(SHAPE, SINGLE)
        seen.add(address(held))
    assert len(seen) == KEPT


@pytest.mark.parametrize("how", views(np.empty(4, np.float32)))
def test_memory_that_a_view_reaches_is_not_used_again(results, how):
    array = results.empty(SHAPE, SINGLE)
    array[:] = 1.0
    view = views(array)[how]()
    del array
    gc.collect()
    for _ in range(3):
        other = results.empty(SHAPE, SINGLE)
        other[:] = 2.0
        assert not np.shares_memory(np.asarray(view), other)
    assert (np.asarray(view).view(np.float32) == 1.0).all()


def test_results_that_are_held_are_all_different(results):
    held = [results.empty(SHAPE, SINGLE) for _ in range(5)]
    assert len({address(array) for array in held}) == 5


def test_memory_of_another_size_is_not_used(results):
    results.empty(SHAPE, SINGLE)
    assert results.empty((2 * SHAPE[0],), SINGLE).shape == (2 * SHAPE[0],)


@pytest.mark.parametrize("shape", [(3,), (), (0, 5), SHAPE])
def test_every_result_starts_on_a_cache_line(results, shape):
    array = results.empty(shape, np.dtype(np.float64))
    assert address(array) % 64 == 0
    assert array.shape == shape
    assert array.flags.writeable
