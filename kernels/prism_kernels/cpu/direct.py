"""The short way into a kernel: machine code looks at the arguments and runs it.

What a call costs beside the kernel is cache misses: Python that looks at shapes, types, flags and
addresses touches some thousand lines of code and data, which a program that streams its weights has
always pushed out of the caches (measured: 150 us, where a small kernel takes 130). So the arguments
are compared with what the kernel was made for by reading NumPy's array structs. Their layout is its
binary interface, with which every extension module is compiled; that it is the one we know is tried
out once in each process. What does not fit, down to the last detail, goes the long way, where it is
converted or refused with a message.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from prism_kernels.cpu.launch import address_of
from prism_kernels.cpu.memory import RUN
from prism_kernels.cpu.team import TEAM, address_of_function, kernel_table
from prism_kernels.cpu.words import builtin, call, compiled, peek, peek_int, poke
from prism_kernels.signature import Signature

Array = NDArray[np.generic]

# PyObject and PyArrayObject_fields, in bytes
_TYPE, _DATA, _NDIM, _DIMS, _DESCR, _FLAGS = 8, 16, 24, 32, 56, 64
_HEADER_BYTES = 16
"""Of an object: a build of Python without the GIL has more."""
_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400

# a request: where to find what, and a row for each array
_TEAM, _KERNELS, _COUNT, _TABLE, _ARRAYS = 0, 8, 16, 24, 32
_SAVE, _RESTORE, _HOLD, _YES, _NO, _CLASS = 40, 48, 56, 64, 72, 80
_REQUEST = 88
_R_DESCR, _R_FLAGS, _R_NDIM, _R_DIMS, _ROW = 0, 8, 16, 24, 32


def is_as_made(array: int, kind: int, row: int) -> int:
    """Whether an object is an array of the type, shape and layout of a row."""
    if peek(array + _TYPE) != kind:
        return 0
    if peek(array + _DESCR) != peek(row + _R_DESCR):
        return 0
    flags = peek(row + _R_FLAGS)
    ndim = peek(row + _R_NDIM)
    if peek_int(array + _FLAGS) & flags != flags:
        return 0
    if peek_int(array + _NDIM) != ndim:
        return 0
    given = peek(array + _DIMS)
    wanted = peek(row + _R_DIMS)
    for axis in range(ndim):
        if peek(given + 8 * axis) != peek(wanted + 8 * axis):
            return 0
    return 1


def answer(request: int, place: int) -> int:
    """One of the objects True and False, as a builtin returns it."""
    found = peek(request + place)
    call(peek(request + _HOLD), found)
    return found


def run_direct(self: int, arrays: int, count: int) -> int:
    """Run the kernels of a request on arrays; whether they all fit it. A builtin of Python's."""
    request = peek(self + _DATA)
    if count != peek(request + _ARRAYS):
        return answer(request, _NO)
    table = peek(request + _TABLE)
    kind = peek(request + _CLASS)
    for k in range(count):
        array = peek(arrays + 8 * k)
        if is_as_made(array, kind, request + _REQUEST + k * _ROW) == 0:
            return answer(request, _NO)
        poke(table + 8 * k, peek(array + _DATA))
    team = peek(request + _TEAM)
    state = call(peek(request + _SAVE))  # others may run Python meanwhile
    call(peek(team + RUN), team, peek(request + _KERNELS), peek(request + _COUNT), table)
    call(peek(request + _RESTORE), state)
    return answer(request, _YES)


_CODE = compiled((is_as_made, answer, run_direct))
_READS = _CONTIGUOUS | _ALIGNED


class Direct:
    """Calls of one kernel: `kernels`, (address, blocks) each, on arrays and then on `rest`."""

    def __init__(
        self, kernels: Sequence[tuple[int, int]], signature: Signature, rest: Sequence[int]
    ) -> None:
        slots = (*signature.arguments, *signature.outputs)
        shapes, dtype = [slot.shape for slot in slots], signature.dtype
        self._dtype = dtype  # its address is compared with
        self._kernels = kernel_table(kernels)
        self._dims = [np.array([*shape, 0], np.int64) for shape in shapes]
        self._table = np.array([*[0] * len(shapes), *rest], np.int64)
        python = ctypes.pythonapi
        head = {
            _TEAM: TEAM.address,
            _KERNELS: address_of(self._kernels),
            _COUNT: len(kernels),
            _TABLE: address_of(self._table),
            _ARRAYS: len(shapes),
            _SAVE: address_of_function(python.PyEval_SaveThread),
            _RESTORE: address_of_function(python.PyEval_RestoreThread),
            _HOLD: address_of_function(python.Py_IncRef),
            _YES: id(np.True_.item()),
            _NO: id(np.False_.item()),
            _CLASS: id(np.ndarray),
        }
        words = [head[place] for place in sorted(head)]
        for k, (shape, dims) in enumerate(zip(shapes, self._dims, strict=True)):
            is_result = k >= len(signature.arguments)
            flags = _READS | _WRITEABLE if is_result else _READS
            words += [id(dtype), flags, len(shape), address_of(dims)]
        self._request = np.array(words, np.int64)
        self.run = builtin("run_direct", _CODE["run_direct"], self._request)
        """Run on arguments and results; False, and nothing has run, where one does not fit."""


@cache
def is_known_layout() -> bool:
    """Whether this Python and this NumPy lay out arrays as we read them."""
    if sys.implementation.name != "cpython" or object.__basicsize__ != _HEADER_BYTES:
        return False
    if np.ndarray.__basicsize__ < _FLAGS + 8:
        return False
    whole = np.zeros((3, 5), np.float32)
    locked = np.zeros((2, 3, 4), np.float64)
    locked.flags.writeable = False
    return all(
        map(_reads, (whole, whole.T, whole[1:, ::2], locked, locked[0, 0], locked[0, 0, :1]))
    )


def _reads(array: Array) -> bool:
    here = id(array)
    dims = _field(here, _DIMS)
    flags = _field(here, _FLAGS)
    wanted = {
        _CONTIGUOUS: array.flags.c_contiguous,
        _ALIGNED: array.flags.aligned,
        _WRITEABLE: array.flags.writeable,
    }
    return (
        _field(here, _TYPE) == id(np.ndarray)
        and _field(here, _DATA) == address_of(array)
        and _field(here, _DESCR) == id(array.dtype)
        and _field(here, _NDIM) == array.ndim
        and all(_field(dims, 8 * k) == extent for k, extent in enumerate(array.shape))
        and all(bool(flags & bit) == is_set for bit, is_set in wanted.items())
    )


def _field(start: int, place: int) -> int:
    kind = ctypes.c_int if place in {_NDIM, _FLAGS} else ctypes.c_int64
    return kind.from_address(start + place).value
