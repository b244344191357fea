"""Storage in float16 and bfloat16 on the CPU: every element is converted as NumPy does it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from kernels.legal import mugraph
from kernels.programs import LINEAR, MATMUL, relative_error
from numba import cfunc

from prism.dtypes import TOLERANCES
from prism_kernels.cpu import formats as formats_module
from prism_kernels.cpu.copies import narrow_into, widened
from prism_kernels.cpu.intrinsics import (
    FASTMATH,
    argument,
    argument_of,
    load,
    signature,
    store,
)
from prism_kernels.cpu.launch import launch

STORED = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
EVERY = 1 << 16
WAYS = ["float16", "float16 by integers", "bfloat16"]
"""Formats and how they are converted; integers stand in where the processor cannot."""


def every_pattern(dtype):
    """All numbers of a format, NaN and infinities included."""
    return np.arange(EVERY, dtype=np.uint16).view(dtype)


def hard_to_round(dtype):
    """Halfway cases, their neighbours in float32, and both ends of the range; positive ones."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        finite = np.sort(every_pattern(dtype)[: EVERY // 2].astype(np.float64))
    finite = finite[np.isfinite(finite)]
    largest = finite[-1]
    beyond = 2 * largest - finite[-2]  # the number after the largest, if there were one
    steps = np.append(finite, beyond)
    middle = ((steps[:-1] + steps[1:]) / 2).astype(np.float32)
    assert np.array_equal(middle, (steps[:-1] + steps[1:]) / 2)
    around = [np.nextafter(middle, np.float32(to)) for to in (0, np.inf)]
    ends = np.array([np.inf, np.finfo(np.float32).max, 1e-45, 1e-39, 2.0**-126], np.float32)
    return np.concatenate([finite.astype(np.float32), middle, *around, ends])


@pytest.fixture(params=WAYS)
def stored(request, monkeypatch):
    """The name of a format; the conversion is the one that the parameter names."""
    if "integers" in request.param:
        monkeypatch.setattr(formats_module, "converts_float16", lambda: False)
    return request.param.split()[0]


@pytest.fixture
def kernel_of(compiled, stored):
    """`compiled`, once the way of converting is chosen."""
    del stored
    return compiled


def run(function, *arrays):
    """Compile a block function and run it once."""
    made = cfunc(signature("float32"), fastmath=set(FASTMATH), error_model="numpy")(function)
    launch([(made.address, 1)], arrays)


def assert_same_bits(found, expected):
    """Equal to the bit, but that a NaN may be any NaN."""
    kind = {2: np.uint16, 4: np.uint32}[found.dtype.itemsize]
    is_nan = np.isnan(expected.astype(np.float32))
    assert np.isnan(found.astype(np.float32))[is_nan].all()
    np.testing.assert_array_equal(found.view(kind)[~is_nan], expected.view(kind)[~is_nan])


def test_every_bit_pattern_is_widened_exactly(stored):
    narrow = argument_of(stored)

    def widen(index, thread, arrays):
        source, target = narrow(arrays, 0), argument(arrays, 1)
        for i in range(EVERY):
            store(target, i, load(source, i))

    numbers = every_pattern(STORED[stored])
    wide = np.empty(EVERY, np.float32)
    run(widen, numbers, wide)
    assert_same_bits(wide, numbers.astype(np.float32))


def test_every_bit_pattern_survives_a_copy(stored):
    narrow = argument_of(stored)

    def copy(index, thread, arrays):
        source, target = narrow(arrays, 0), narrow(arrays, 1)
        for i in range(EVERY):
            store(target, i, load(source, i))

    numbers = every_pattern(STORED[stored])
    out = np.empty_like(numbers)
    run(copy, numbers, out)
    assert_same_bits(out, numbers)


def narrowed(numbers, stored):
    """Numbers stored in a format by an emitted kernel's own means."""
    narrow, size = argument_of(stored), numbers.size

    def copy(index, thread, arrays):
        source, target = argument(arrays, 0), narrow(arrays, 1)
        for i in range(size):
            store(target, i, load(source, i))

    out = np.empty(size, STORED[stored])
    run(copy, numbers, out)
    return out


def in_numpy(numbers, dtype):
    with np.errstate(all="ignore"):
        return numbers.astype(dtype)


def test_what_lies_halfway_is_rounded_to_even(stored):
    dtype = STORED[stored]
    positive = hard_to_round(dtype)
    numbers = np.concatenate([positive, -positive, np.array([np.nan], np.float32)])
    assert_same_bits(narrowed(numbers, stored), in_numpy(numbers, dtype))


def test_random_float32_numbers_are_rounded_as_numpy_does(stored, rng):
    numbers = rng.integers(0, 1 << 32, 1 << 18, np.uint32).view(np.float32)
    assert_same_bits(narrowed(numbers, stored), in_numpy(numbers, STORED[stored]))


def test_one_third_of_the_way_is_rounded_down_and_two_thirds_up():
    one, step = np.float32(1), np.float32(2.0**-10)
    numbers = np.array([one + step / 3, one + step / 2, one + step * 1.5, one + step * 2 / 3])
    expected = [1, 1, 1 + 2 * step, 1 + step]
    np.testing.assert_array_equal(narrowed(np.float32(numbers), "float16"), np.float16(expected))


# -- in the vectors of the micro-kernels


@pytest.mark.parametrize("missing", [0, 3], ids=["whole vectors", "a masked one at the end"])
def test_axpy_widens_every_bit_pattern_exactly(kernel_of, stored, missing):
    w = every_pattern(STORED[stored])[missing:].reshape(1, -1)
    kernel = kernel_of(mugraph(MATMUL, {"n": 1, "d": 1, "h": w.size}), stored)
    (out,) = kernel(np.ones((1, 1), w.dtype), w)
    assert_same_bits(np.abs(out), np.abs(w))  # 0 + -0 is 0


def test_dot_widens_every_bit_pattern_exactly(kernel_of, stored):
    depth = 19  # a whole vector and a masked one, or several
    w = np.zeros((EVERY, depth), STORED[stored])
    w[np.arange(EVERY), np.arange(EVERY) % depth] = every_pattern(w.dtype)
    kernel = kernel_of(mugraph(LINEAR, {"n": 1, "d": depth, "h": EVERY}), stored)
    (out,) = kernel(np.ones((1, depth), w.dtype), w)
    assert_same_bits(np.abs(out[0]), np.abs(every_pattern(w.dtype)))


def test_a_row_operand_that_is_too_large_to_copy_is_widened_where_it_is(kernel_of, stored, rng):
    sizes = {"n": 300, "d": 1000, "h": 20}
    x, w = (rng.standard_normal(s).astype(STORED[stored]) for s in ((300, 1000), (1000, 20)))
    (out,) = kernel_of(mugraph(MATMUL, sizes), stored)(x, w)
    exact = x.astype(np.float64) @ w.astype(np.float64)
    assert relative_error(out.astype(np.float64), exact) < TOLERANCES[stored]


# -- whole arrays, for the library


@pytest.mark.parametrize("size", [1, 4095, EVERY, EVERY + 1])
@pytest.mark.parametrize("dtype", STORED)
def test_copies_of_whole_arrays_are_exact(dtype, size):
    numbers = np.resize(every_pattern(STORED[dtype]), size)
    wide = widened(numbers)
    assert_same_bits(wide, numbers.astype(np.float32))
    back = np.zeros_like(numbers)
    narrow_into(back, wide)
    assert_same_bits(back, numbers)
    assert widened(wide) is wide


def test_copies_take_any_strides_and_shapes(rng):
    numbers = rng.standard_normal((70, 130)).astype(np.float16)
    np.testing.assert_array_equal(widened(numbers.T), numbers.T.astype(np.float32))
    out = np.zeros(70 * 130, np.float16)
    narrow_into(out, widened(numbers).T)
    np.testing.assert_array_equal(out, numbers.T.reshape(-1))
