"""Two threads that touch one element without order between them are found, in any order of both."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.lockstep_kernels import fault_of, kernel, launch, line_of, numbers

from prism_kernels.lockstep import FaultKind

SEEDS = range(6)

STAGED = """
for it in range(3):
    shared[tid] = load_float32(x, u32(it * 64 + tid))
    cuda.syncthreads()  # filled
    r = shared[u32(63 - tid)]
    store_float32(out, u32(it * 64 + tid), r)
    cuda.syncthreads()  # read
"""


@pytest.mark.parametrize("barrier", ["filled", "read"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_missing_barrier_is_a_race_in_any_order_of_threads(barrier, seed):
    x = numbers(192)
    out, _ = launch(kernel(STAGED), [x], 192, threads=64)
    np.testing.assert_array_equal(out, x.reshape(3, 64)[:, ::-1].ravel())
    text = kernel(STAGED.replace(f"cuda.syncthreads()  # {barrier}", "pass"))
    fault = fault_of(text, [x], 192, threads=64, seed=seed)
    assert fault.kind is FaultKind.RACE
    lines = {line_of(text, "shared[tid] ="), line_of(text, "r = shared[")}
    assert fault.line in lines
    assert fault.memory == "shared"
    assert sum(fault.threads) == 63
    assert f"line {max(lines)}" in fault.message
    assert f"line {min(lines)}" in fault.message
    assert "no cuda.syncthreads() between" in fault.message


@pytest.mark.parametrize("value", ["f32(tid)", "f32(1.0)"])
def test_two_threads_that_write_one_element_race_even_with_one_value(value):
    text = kernel(f"shared[quotient(tid, 2)] = {value}\nstore_float32(out, tid, f32(0.0))", "out")
    fault = fault_of(text)
    assert fault.kind is FaultKind.RACE
    assert fault.line == line_of(text, "shared[quotient")
    first, second = fault.threads
    assert first // 2 == second // 2 == fault.element


def test_shuffles_do_not_order_memory():
    text = kernel(
        """
        shared[tid] = load_float32(x, tid)
        r = cuda.shfl_xor_sync(0xffffffff, load_float32(x, tid), 1)
        store_float32(out, tid, r + shared[u32(tid ^ 1)])
        """
    )
    assert fault_of(text, [numbers(32)]).kind is FaultKind.RACE


def test_syncwarp_does_not_order_the_accesses_of_other_warps():
    body = """
        shared[tid] = load_float32(x, tid)
        cuda.syncwarp()
        store_float32(out, tid, shared[u32(tid ^ {})])
    """
    launch(kernel(body.format(1)), [numbers(64)], 64, threads=64)
    fault = fault_of(kernel(body.format(32)), [numbers(64)], 64, threads=64)
    assert fault.kind is FaultKind.RACE
    first, second = fault.threads
    assert first // 32 != second // 32


def test_lanes_race_between_two_syncwarps():
    text = kernel(
        """
        cuda.syncwarp()
        shared[u32(tid & 30)] = load_float32(x, tid)
        cuda.syncwarp()
        store_float32(out, tid, shared[u32(tid & 30)])
        """
    )
    fault = fault_of(text, [numbers(32)])
    assert fault.kind is FaultKind.RACE
    assert fault.line == line_of(text, "shared[u32(tid & 30)] =")


def test_threads_of_a_block_race_for_an_output():
    text = kernel("store_float32(out, u32(tid & 30), f32(tid))", "out")
    fault = fault_of(text)
    assert fault.kind is FaultKind.RACE
    assert fault.memory == "out"
    assert fault.element % 2 == 0
    assert set(fault.threads) == {fault.element, fault.element + 1}


def test_a_barrier_orders_global_memory_within_a_block():
    body = """
        store_float32(workspace, tid, load_float32(x, tid))
        cuda.syncthreads()
        store_float32(out, tid, load_float32(workspace, u32(31 - tid)))
    """
    x = numbers(32)
    out, _ = launch(kernel(body, "x, out, workspace"), [x], workspace=32)
    np.testing.assert_array_equal(out, x[::-1])
    text = kernel(body.replace("cuda.syncthreads()", "pass"), "x, out, workspace")
    assert fault_of(text, [x], workspace=32).kind is FaultKind.RACE


@pytest.mark.parametrize("seed", SEEDS)
def test_two_blocks_that_write_one_element_race(seed):
    text = kernel("store_float32(out, u32(quotient(block, 2) * 32 + tid), f32(tid))", "out")
    fault = fault_of(text, shape=64, blocks=4, seed=seed)
    assert fault.kind is FaultKind.RACE
    assert fault.line == line_of(text, "store_float32(out")
    assert "blocks run in any order" in fault.message
    assert fault.block // 2 == fault.element // 32


@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_that_reads_what_another_writes_races_in_any_order_of_blocks(seed):
    text = kernel(
        """
        store_float32(workspace, u32(block * 32 + tid), f32(tid))
        cuda.syncthreads()
        other = u32(3 - block)
        store_float32(out, u32(block * 32 + tid), load_float32(workspace, u32(other * 32 + tid)))
        """,
        "out, workspace",
    )
    fault = fault_of(text, shape=128, blocks=4, workspace=128, seed=seed)
    assert fault.kind is FaultKind.RACE
    assert fault.memory == "workspace"
    assert f"line {line_of(text, 'store_float32(workspace')}" in fault.message
    assert f"line {line_of(text, 'store_float32(out')}" in fault.message


def test_an_atomic_addition_races_with_a_plain_access_only():
    body = """
        if tid == 0:
            store_float32(workspace, 0, f32(0.0))
        cuda.syncthreads()
        atomic_add_float32(workspace, 0, f32(1.0))
        {}
        store_float32(out, tid, load_float32(workspace, 0))
    """
    out, _ = launch(kernel(body.format("cuda.syncthreads()"), "out, workspace"), workspace=1)
    assert (out == 32).all()
    text = kernel(body.format("pass"), "out, workspace")
    fault = fault_of(text, workspace=1)
    assert fault.kind is FaultKind.RACE
    assert "adds to workspace[0]" in fault.message
