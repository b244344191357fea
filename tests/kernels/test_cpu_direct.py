"""The short way into a kernel: it takes what the kernel reads, and nothing else."""

from __future__ import annotations

import os
import signal
import sys
import threading

import numpy as np
import pytest
from kernels.legal import mugraph
from kernels.programs import MATMUL, random_arguments

from prism.errors import KernelError
from prism_kernels.cpu import direct as direct_module
from prism_kernels.cpu.direct import is_known_layout
from prism_kernels.cpu.launch import address_of

SIZES = {"n": 4, "d": 20, "h": 12}


@pytest.fixture(params=[1, 3], ids=["one block", "three blocks"])
def matmul(request, compiled):
    return compiled(mugraph(MATMUL, SIZES, {"x": "h"}, None, {"x": request.param}))


@pytest.fixture
def arguments(rng):
    return random_arguments(MATMUL, SIZES, rng)


class Matrix(np.ndarray):
    """A subclass may mean anything by its elements."""


def misaligned(array):
    memory = np.zeros(array.nbytes + 1, np.uint8)
    moved = np.ndarray(array.shape, array.dtype, memory, 1)
    moved[...] = array
    return moved


UNFIT = {
    "another shape": lambda x, w: (x[:2], w),
    "transposed": lambda x, w: (x, w.T),
    "another number of dims": lambda x, w: (x.reshape(-1), w),
    "another dtype": lambda x, w: (x.astype(np.float64), w),
    "as wide a dtype": lambda x, w: (x.view(np.int32), w),
    "another byte order": lambda x, w: (x.astype(">f4"), w),
    "strided": lambda x, w: (np.repeat(x, 2, axis=1)[:, ::2], w),
    "by columns": lambda x, w: (np.asfortranarray(x), w),
    "a subclass": lambda x, w: (x.view(Matrix), w),
    "misaligned": lambda x, w: (misaligned(x), w),
    "a list": lambda x, w: (x.tolist(), w),
    "a number": lambda x, w: (x, 1.0),
    "nothing": lambda x, w: (x, None),
    "too few": lambda x, w: (x,),
    "too many": lambda x, w: (x, w, w),
    "none": lambda x, w: (),
}


def test_the_layout_of_arrays_is_known_here():
    assert is_known_layout() == (sys.implementation.name == "cpython")


def test_the_short_way_computes_what_the_long_one_does(matmul, arguments):
    (expected,) = matmul(*arguments)
    (result,) = matmul.direct(arguments)
    np.testing.assert_array_equal(result, expected)


def test_arguments_that_cannot_be_written_are_taken(matmul, arguments):
    for array in arguments:
        array.flags.writeable = False
    before = [array.copy() for array in arguments]
    assert matmul.direct(arguments) is not None
    np.testing.assert_equal(list(arguments), before)


@pytest.mark.parametrize("how", UNFIT)
def test_what_does_not_fit_is_left_to_the_long_way(matmul, arguments, how):
    assert matmul.direct(UNFIT[how](*arguments)) is None
    assert matmul.direct(arguments) is not None


def test_results_that_are_held_are_all_different(matmul, arguments):
    held = [matmul.direct((2**k * arguments[0], arguments[1]))[0] for k in range(5)]
    for k, result in enumerate(held):
        np.testing.assert_array_equal(result, 2**k * held[0])


def test_a_result_that_its_owner_changed_is_not_written_to(matmul, arguments):
    (result,) = matmul.direct(arguments)
    expected = result.copy()
    result.flags.writeable = False
    del result
    outcome = matmul.direct(arguments)
    assert outcome is None  # the long way makes another one
    np.testing.assert_array_equal(matmul(*arguments)[0], expected)
    np.testing.assert_array_equal(matmul.direct(arguments)[0], expected)


def test_a_result_may_be_the_next_argument(compiled, rng):
    square = compiled(mugraph(MATMUL, {"n": 12, "d": 12, "h": 12}, {"x": "h"}, None, {"x": 3}))
    x = rng.standard_normal((12, 12)).astype(np.float32) / 4
    expected, found = x, x
    for _ in range(6):
        expected = expected @ x
        (found,) = square.direct((found, x))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_no_reference_is_lost_or_kept(matmul, arguments):
    before = [sys.getrefcount(value) for value in (*arguments, True, False, None)]
    for _ in range(100):
        matmul.direct(arguments)
        matmul.direct(arguments[:1])
    assert [sys.getrefcount(value) for value in (*arguments, True, False, None)] == before


def test_calls_from_several_threads_do_not_disturb_each_other(compiled, rng):
    sizes = {"n": 8, "d": 300, "h": 900}
    kernel = compiled(mugraph(MATMUL, sizes, {"x": "h"}, None, {"x": 4}))
    arguments = random_arguments(MATMUL, sizes, rng)
    expected = kernel.direct(arguments)[0].copy()
    wrong = []

    def work():
        for _ in range(20):
            result = kernel.direct(arguments)[0]
            if not np.array_equal(result, expected):
                wrong.append(result)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_finalizer_or_a_handler_may_call_the_kernel_that_is_being_called(matmul, arguments):
    """It runs on the thread that holds the lock."""
    expected, found = matmul(*arguments)[0].copy(), []

    def work():
        with matmul._launching():
            found.extend([matmul.direct(arguments)[0], matmul(*arguments)[0]])

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout=20)
    np.testing.assert_array_equal(found, [expected] * 2)


def test_a_call_between_the_steps_of_another_leaves_it_its_scratch(
    compiled, arguments, monkeypatch
):
    kernel = compiled(mugraph(MATMUL, SIZES, {"x": "h"}, None, {"x": 3}))
    seen = []

    def step(arrays):
        seen.append({address_of(array) for array in arrays[len(arguments) + 1 :]})
        if len(seen) == 1:
            kernel(*arguments)

    monkeypatch.setattr(kernel, "_steps", (step,))
    kernel(*arguments)
    kernel(*arguments)
    first, within, after = seen
    assert first == after
    assert not first & within


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_may_call_what_a_thread_of_its_parent_was_running(matmul, arguments):
    expected = matmul(*arguments)[0].copy()
    is_held, is_over = threading.Event(), threading.Event()

    def work():
        with matmul._turn, matmul._launching():
            is_held.set()
            is_over.wait()

    thread = threading.Thread(target=work)
    thread.start()
    is_held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        results = [matmul.direct(arguments)[0], matmul(*arguments)[0]]
        os._exit(0 if all(np.array_equal(result, expected) for result in results) else 1)
    is_over.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_where_arrays_are_laid_out_otherwise_there_is_only_the_long_way(
    cpu, monkeypatch, tmp_path, arguments
):
    monkeypatch.setattr("prism_kernels.cpu.kernel.is_known_layout", lambda: False)
    source = cpu.emit(mugraph(MATMUL, SIZES, {"x": "h"}, None, {"x": 3}), "float32")
    (tmp_path / "kernel.py").write_text(source.text, encoding="utf-8")
    kernel = cpu.load(tmp_path / "kernel.py", source.meta)
    assert kernel.direct(arguments) is None
    np.testing.assert_allclose(kernel(*arguments)[0], arguments[0] @ arguments[1], rtol=1e-5)
    with pytest.raises(KernelError, match="has shape"):
        kernel(arguments[0][:2], arguments[1])


@pytest.mark.parametrize("name", ["_TYPE", "_DATA", "_NDIM", "_DESCR", "_FLAGS"])
def test_a_field_elsewhere_is_noticed(monkeypatch, name):
    is_known_layout.cache_clear()
    monkeypatch.setattr(direct_module, name, getattr(direct_module, name) + 8)
    assert not is_known_layout()
    monkeypatch.undo()
    is_known_layout.cache_clear()
    assert is_known_layout()
