"""The dialect of words: what is compiled does what Python would."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from prism_kernels.cpu.words import (
    atomic_add,
    atomic_load,
    atomic_store,
    builtin,
    call,
    compiled,
    exchange,
    peek,
    peek_int,
    poke,
)

OFFSET = 8
LESS = -5


def function(code, count):
    (made,) = (compiled((code,))[code.__name__],)
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * count)(made)


def address(array):
    return array.__array_interface__["data"][0]


def digits(number: int, base: int) -> int:
    count = 0
    while number > 0 and count < 40:
        number = number // base
        count += 1
    return count


def mixed(a: int, b: int) -> int:
    if a == b:
        return a << 2
    if a > b:  # noqa: SIM108 - both branches are compiled
        c = a - b
    else:
        c = min(a, b) * 3 + (max(a + 5, b) >> 1)
    for k in range(a, b):
        c += k & 5
    for k in range(3):
        c = c | k
    return c


def early(a: int, b: int) -> int:
    for k in range(a):
        if k * k >= b:
            return k
    return a != b


@pytest.mark.parametrize("code", [digits, mixed, early])
def test_compiled_functions_do_what_python_does(code):
    made = function(code, 2)
    for a in range(12):
        for b in range(2, 12):
            assert made(a, b) == int(code(a, b)), (a, b)


def only_where_it_is(pointer: int) -> int:
    return pointer != 0 and peek(pointer + OFFSET) == 7


def test_and_looks_no_further_than_it_has_to():
    words = np.array([0, 7])
    made = function(only_where_it_is, 1)
    assert (made(address(words)), made(0)) == (1, 0)


def memory(words: int, ints: int) -> int:
    poke(words, peek(words) + 1)
    atomic_store(words + 8, atomic_load(words + 8) * 2)
    atomic_add(words + 16, LESS)
    done = exchange(words + 24, 4, 40) + 2 * exchange(words + 24, 4, 50)
    return 10 * done + peek_int(ints + 4)


def test_memory_is_read_and_written_in_place():
    words, ints = np.array([1, 2, 3, 4]), np.array([5, -6, 7], np.int32)
    assert function(memory, 2)(address(words), address(ints)) == 10 - 6
    assert words.tolist() == [2, 4, -2, 40]


def counted(word: int, times: int) -> None:
    for _ in range(times):
        atomic_add(word, 1)


def test_no_addition_is_lost_between_threads():
    word, made = np.zeros(1, np.int64), function(counted, 2)
    threads = [threading.Thread(target=made, args=(address(word), 20000)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert word[0] == 80000


def through(function: int, value: int) -> int:
    return call(function, value) + 1


def test_c_functions_are_called_by_address():
    @ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    def double(value):
        return 2 * value

    there = ctypes.cast(double, ctypes.c_void_p).value
    assert function(through, 2)(there, 21) == 43


def first_argument(self: int, arguments: int, count: int) -> int:
    found = self
    if count > 0:
        found = peek(arguments)
    call(HOLD, found)
    return found


HOLD = ctypes.cast(ctypes.pythonapi.Py_IncRef, ctypes.c_void_p).value


def test_a_builtin_gets_its_owner_and_arguments():
    owner, given = object(), object()
    made = builtin("first", compiled((first_argument,))["first_argument"], owner)
    for _ in range(1000):  # references are counted right
        assert made() is owner
        assert made(given, 1) is given


def unknown(a: int) -> int:
    return [a]


def test_what_the_dialect_lacks_is_named():
    with pytest.raises(AssertionError, match=r"unknown: no such thing here: \[a\]"):
        compiled((unknown,))
