"""What a launch in the simulator takes, and that a seed decides all that is random in it."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.lockstep_kernels import HEAD, fault_of, kernel, launch, metadata, numbers

from prism.errors import KernelError
from prism_kernels.lockstep import simulate

RACE_FOR_LAST = kernel("store_float32(out, 0, f32(tid))", "out")


def test_the_order_of_threads_comes_from_the_seed():
    last = [launch(RACE_FOR_LAST, shape=1, seed=s, checks=False)[0][0] for s in range(12)]
    again = [launch(RACE_FOR_LAST, shape=1, seed=s, checks=False)[0][0] for s in range(12)]
    assert last == again
    assert len(set(last)) > 4


def test_the_order_of_blocks_comes_from_the_seed():
    text = kernel("store_float32(out, 0, f32(block))", "out")
    last = [
        launch(text, shape=1, threads=1, blocks=20, seed=s, checks=False)[0][0] for s in range(12)
    ]
    assert len(set(last)) > 4


def test_the_same_fault_is_reported_for_the_same_seed():
    assert fault_of(RACE_FOR_LAST, shape=1, seed=4) == fault_of(RACE_FOR_LAST, shape=1, seed=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arguments": [{"name": "x"}]}, "arguments must list shapes"),
        ({"arguments": [{"shape": [31]}]}, "must hold 31 numbers"),
        ({"outputs": []}, "takes must list arrays from 0 to 0"),
        ({"between": None}, "between must list shapes"),
        ({"dtype": "float64"}, "dtype must be one of float32"),
        ({"workspace_elements": -1}, "workspace_elements must be 0 to"),
        ({"launches": []}, "launches must list the kernels"),
        ({"launches": ["kernel"]}, "launches must list the kernels"),
    ],
)
def test_metadata_that_does_not_fit_is_refused(change, message):
    text = HEAD + "\ndef kernel(x, out):\n    pass\n"
    with pytest.raises(KernelError, match=message):
        simulate(text, {**metadata(), **change}, [numbers(32)], [numbers(32)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks": 0}, "blocks must be 1 to"),
        ({"threads": 2048}, "threads must be 1 to 1024"),
        ({"threads": True}, "threads must be 1 to 1024"),
        ({"shared_bytes": None}, "shared_bytes must be 0 to"),
        ({"takes": None}, "takes and parameters must be lists"),
        ({"takes": [0, -1]}, "arrays from 0 to 1"),
        ({"takes": [0, 2]}, "arrays from 0 to 1"),
        ({"takes": [1, 0]}, "once and in order"),
        ({"takes": [0], "parameters": ["float32"]}, "2 parameters, its metadata 1"),
        ({"parameters": ["float64"] * 2}, "of these arrays are float32, float32"),
        ({"parameters": ["float32"]}, "of these arrays are float32, float32"),
        ({"kernel": "kernel1"}, "one function `kernel1`"),
    ],
)
def test_a_launch_that_does_not_fit_is_refused(change, message):
    text = HEAD + "\ndef kernel(x, out):\n    pass\n"
    with pytest.raises(KernelError, match=message):
        simulate(text, metadata(**change), [numbers(32)], [numbers(32)])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((32, 2), np.float32)[:, 0], "C-contiguous"),
        (np.zeros(32, np.float64), "numbers of float32"),
        (np.zeros(32, ">f4"), "numbers of float32"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(array, message):
    text = HEAD + "\ndef kernel(x, out):\n    pass\n"
    with pytest.raises(KernelError, match=message):
        simulate(text, metadata(), [array], [numbers(32)])
