"""Whole arrays copied to float32 and back, for a library that does not multiply narrower ones.

NumPy's own conversion of float16 takes as long as some products (0.3 elements a nanosecond); these
copies run at the speed of memory, on all threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import cfunc
from numpy.typing import NDArray

from prism_kernels.cpu.intrinsics import FASTMATH, argument, argument_of, load, signature, store
from prism_kernels.cpu.launch import launch

_CHUNK = 4096

Array = NDArray[np.generic]


def widened(array: Array) -> Array:
    """The array in float32: itself if it is one."""
    if array.dtype == np.float32:
        return array
    wide = np.empty(array.shape, np.float32)
    _copy(np.ascontiguousarray(array), wide, array.dtype.name, to_wide=True)
    return wide


def narrow_into(out: Array, values: Array) -> None:
    """Write float32 values, of any shape of as many elements, to a C-contiguous narrower array."""
    _copy(np.ascontiguousarray(values), out, out.dtype.name, to_wide=False)


def _copy(source: Array, target: Array, dtype: str, *, to_wide: bool) -> None:
    source, target = source.reshape(-1), target.reshape(-1)
    chunks = source.size // _CHUNK
    if chunks:
        launch([(_copier(dtype, to_wide=to_wide).address, chunks)], [source, target])
    with np.errstate(over="ignore", invalid="ignore"):
        target[chunks * _CHUNK :] = source[chunks * _CHUNK :].astype(target.dtype)


@cache
def _copier(dtype: str, *, to_wide: bool) -> Any:  # noqa: ANN401 - Numba has no annotations
    """A block function that copies a chunk."""
    narrow = argument_of(dtype)
    first, second = (narrow, argument) if to_wide else (argument, narrow)

    def copy(index, thread, arrays) -> None:  # noqa: ARG001 - as every block function
        source, target = first(arrays, 0), second(arrays, 1)
        for i in range(index * _CHUNK, (index + 1) * _CHUNK):
            store(target, i, load(source, i))

    compiled: Callable[..., Any] = cfunc(signature("float32"), fastmath=set(FASTMATH))(copy)
    return compiled
