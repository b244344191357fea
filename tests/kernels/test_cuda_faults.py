"""Faults put into emitted CUDA kernels are caught by the simulator, each under its name."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from kernels.legal import mugraph
from kernels.programs import (
    ATTENTION,
    RMSNORM_DIVIDED_LAST,
    SOFTMAX_MATMUL,
    STABLE_SOFTMAX,
    random_arguments,
)
from kernels.simulated import SHARED_LIMIT, launched

from prism.ir import evaluate
from prism_kernels.cuda.emit import emit
from prism_kernels.lockstep import FaultKind, LockstepFault

KERNELS = {
    "rmsnorm": (RMSNORM_DIVIDED_LAST, {"n": 5, "d": 36, "h": 21}, {"x": "h"}, "d"),
    "softmax": (STABLE_SOFTMAX, {"n": 3, "d": 75}, {}, None),
    "softmax matmul": (SOFTMAX_MATMUL, {"n": 4, "d": 30, "h": 10}, {"x": "n"}, "d"),
    "attention": (ATTENTION, {"b": 2, "g": 3, "l": 20, "d": 8, "e": 8}, {"x": "b"}, "l"),
}
BARRIER = "cuda.syncthreads()"


def kernel_of(name, **schedule):
    """An emitted kernel and arguments for it."""
    program, sizes, grid, loop = KERNELS[name]
    mu = mugraph(program, sizes, grid, loop, {"x": 2, "i": 3})
    mu = replace(mu, schedule=tuple({"T": 64, **schedule}.items()))
    rng = np.random.default_rng(7)
    return emit(mu, "float32", SHARED_LIMIT, "lockstep"), random_arguments(program, sizes, rng)


def fault_of(source, arguments, text, seed=0):
    """What the simulator finds in a changed text."""
    assert text != source.text
    with pytest.raises(LockstepFault) as caught:
        launched(text, source.meta, arguments, seed=seed)
    return caught.value.fault


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_are_free_of_faults_as_emitted(name):
    source, arguments = kernel_of(name)
    launched(source.text, source.meta, arguments)


@pytest.mark.parametrize("staging", [0, 2])
@pytest.mark.parametrize("name", KERNELS)
def test_no_barrier_can_be_left_out(name, staging):
    source, arguments = kernel_of(name, S=staging)
    lines = source.text.splitlines(keepends=True)
    places = [k for k, line in enumerate(lines) if line.strip() == BARRIER]
    assert places
    found = set()
    for k in places:
        text = "".join(lines[:k] + lines[k + 1 :])
        found.add(fault_of(source, arguments, text).kind)
    assert found <= {FaultKind.RACE, FaultKind.UNWRITTEN_READ}


@pytest.mark.parametrize("name", KERNELS)
def test_a_barrier_that_some_threads_miss_is_divergent(name):
    source, arguments = kernel_of(name)
    text = f"{source.text}    if tid < 32:\n        cuda.syncthreads()\n"
    assert fault_of(source, arguments, text).kind is FaultKind.DIVERGENT_BARRIER


def test_a_shuffle_that_some_lanes_miss_is_divergent():
    source, arguments = kernel_of("softmax")
    text = re.sub(
        r"^( +)(r\d+ = .*shfl_xor_sync.*)$",
        r"\1if tid != 3:\n\1    \2",
        source.text,
        count=1,
        flags=re.MULTILINE,
    )
    assert fault_of(source, arguments, text).kind is FaultKind.DIVERGENT_COLLECTIVE


@pytest.mark.parametrize(
    ("pattern", "changed"),
    [
        (r"store_float32\(out0, u32\(", "store_float32(out0, u32(100000 + "),
        (r"load_float32\(in_x, u32\(", "load_float32(in_x, u32(100000 + "),
        (r"shared\[u32\((?=.*\] = )", "shared[u32(100000 + "),
    ],
)
def test_an_index_past_the_end_is_out_of_bounds(pattern, changed):
    source, arguments = kernel_of("rmsnorm", S=1)
    text = re.sub(pattern, changed, source.text, count=1)
    assert fault_of(source, arguments, text).kind is FaultKind.OUT_OF_BOUNDS


def test_an_output_that_is_not_written_whole_is_reported():
    source, arguments = kernel_of("softmax")
    last = source.text.rindex("store_float32(out0")
    start = source.text.rindex("\n", 0, last) + 1
    indent = " " * (last - start)
    text = f"{source.text[:start]}{indent}if tid > 2:\n    {source.text[start:]}"
    assert fault_of(source, arguments, text).kind is FaultKind.UNWRITTEN_OUTPUT


def test_a_wrong_index_within_bounds_gives_wrong_numbers_or_a_fault():
    source, arguments = kernel_of("rmsnorm")
    program = KERNELS["rmsnorm"][0]
    (expected,) = evaluate(
        program, {a.name: x for a, x in zip(program.arguments, arguments, strict=True)}
    )
    strides = sorted(set(re.findall(r" \* (36|21)\b", source.text)))
    assert strides
    for stride in strides:
        text = re.sub(rf" \* {stride}\b", f" * {int(stride) - 1}", source.text)
        try:
            (out,) = launched(text, source.meta, arguments)
        except LockstepFault:
            continue
        assert np.abs(out - expected).max() > 0.1
