"""Arrays for results: those that nobody can reach any more are used again.

A fresh array of many megabytes costs more than the kernel that fills it: the system clears every
page of it (row softmax of 67 MB: 10 ms, of which 5 are the kernel's). For a small one Python's and
NumPy's own code would have to be fetched into the caches (20 us). NumPy counts references to the
memory of an array in the array that owns it, whoever views it: one that only we refer to is free.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism_kernels.cpu.intrinsics import CACHE_LINE_BYTES
from prism_kernels.cpu.launch import address_of

KEPT = 2
"""Arrays kept per result: a caller in a loop holds the last one while the next is computed."""

Array = NDArray[np.generic]
Memory = NDArray[np.uint8]


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised array that starts on a cache line."""
    return _view(_memory(shape, dtype), shape, dtype)


class Result:
    """Makes one result of a kernel, call after call, for any number of threads.

    Each holds an array before it counts the references, so that two never find the same one free.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._shape, self._dtype = shape, dtype
        self._kept: list[tuple[Array, Memory]] = []

    def array(self) -> Array:
        """An uninitialised array that starts on a cache line and shares memory with no other."""
        intact = [pair for pair in self._kept if self._is_as_made(pair[0])]
        if len(intact) < len(self._kept):
            self._kept = intact
        return self.again()

    def again(self) -> Array:
        """As `array`, but who had it before may have changed its shape, type or flags in place."""
        for made, memory in self._kept:
            if sys.getrefcount(made) == _HELD and sys.getrefcount(memory) == _HELD + 1:
                return made
        memory = _memory(self._shape, self._dtype)
        made = _view(memory, self._shape, self._dtype)
        self._kept = [*self._kept, (made, memory)][-KEPT:]
        return made

    def _is_as_made(self, array: Array) -> bool:
        return (
            array.shape == self._shape
            and array.dtype == self._dtype
            and array.flags.c_contiguous
            and array.flags.writeable
        )


def _references_when_held() -> int:
    for made, _ in [(np.empty(0, np.uint8), None)]:
        return sys.getrefcount(made)
    raise AssertionError


_HELD = _references_when_held()
"""What is counted of an array that only a pair in a list and a variable refer to."""


def _memory(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Memory:
    return np.empty(math.prod(shape) * dtype.itemsize + CACHE_LINE_BYTES, np.uint8)


def _view(memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return np.ndarray(shape, dtype, memory, -address_of(memory) % CACHE_LINE_BYTES)
