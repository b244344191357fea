"""Arrays for results. Memory of large ones is used again once nobody can reach it.

A fresh array of many megabytes costs more than the kernel that fills it: the system clears every
page of it (row softmax of 67 MB: 10 ms, of which 5 are the kernel's). NumPy counts references to
the memory of an array in the array that owns it, whoever views it, so one that only we refer to is
free.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism_kernels.cpu.launch import address_of

REUSED_BYTES = 1 << 20
"""Smaller results come from memory that the C library reuses itself."""
KEPT = 2
"""Arrays kept per result: a caller in a loop holds the last one while the next is computed."""

_ALIGN = 64

Memory = NDArray[np.uint8]


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[np.generic]:
    """An uninitialised array that starts on a cache line."""
    return _view(_memory(shape, dtype), shape, dtype)


class Results:
    """Makes the results of one kernel, `count` in each call."""

    def __init__(self, count: int) -> None:
        self._most = KEPT * count
        self._kept: list[Memory] = []
        self._turn = threading.Lock()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[np.generic]:
        """An uninitialised array that starts on a cache line and shares memory with no other."""
        size = math.prod(shape) * dtype.itemsize
        if size < REUSED_BYTES:
            return aligned_empty(shape, dtype)
        with self._turn:
            for i in range(len(self._kept)):  # no name of ours may refer to what is counted
                if _references(self._kept, i) == _ALONE and self._kept[i].size == size + _ALIGN:
                    return _view(self._kept[i], shape, dtype)
            fresh = _memory(shape, dtype)
            self._kept = [*self._kept, fresh][-self._most :]
            return _view(fresh, shape, dtype)


def _references(arrays: Sequence[Memory], i: int) -> int:
    return sys.getrefcount(arrays[i])


_ALONE = _references([np.empty(0, np.uint8)], 0)
"""What `_references` says of an array that only the list holds."""


def _memory(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Memory:
    return np.empty(math.prod(shape) * dtype.itemsize + _ALIGN, np.uint8)


def _view(memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[np.generic]:
    return np.ndarray(shape, dtype, memory, -address_of(memory) % _ALIGN)
