"""Every fault that a kernel can have is caught, with the right kind, line, threads and element."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from kernels.lockstep_kernels import fault_of, kernel, launch, line_of, metadata, numbers

from prism_kernels.lockstep import FaultKind, LockstepFault, simulate
from prism_kernels.lockstep.faults import spans

SEEDS = range(6)

# -- threads that do not come


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_that_some_threads_pass_by_is_divergent(seed):
    text = kernel(
        """
        if tid < 20:
            cuda.syncthreads()
        store_float32(out, tid, f32(0.0))
        """,
        "out",
    )
    fault = fault_of(text, seed=seed)
    assert fault.kind is FaultKind.DIVERGENT_BARRIER
    assert fault.line == line_of(text, "syncthreads")
    assert fault.threads == tuple(range(20))
    assert "threads 0-19 wait at cuda.syncthreads" in fault.message
    assert "threads 20-31 have finished" in fault.message


def test_threads_at_two_barriers_are_divergent():
    text = kernel(
        """
        if tid < 32:
            cuda.syncthreads()  # one
        else:
            cuda.syncthreads()  # other
        store_float32(out, tid, f32(0.0))
        """,
        "out",
    )
    fault = fault_of(text, shape=64, threads=64)
    assert fault.kind is FaultKind.DIVERGENT_BARRIER
    for part in ("# one", "# other"):
        assert f"line {line_of(text, part)}" in fault.message


@pytest.mark.parametrize(
    "collective",
    [
        "r = cuda.shfl_xor_sync(0xffffffff, r, 1)",
        "cuda.syncwarp()",
        "cuda.any_sync(0xffffffff, True)",
    ],
)
def test_a_collective_that_some_lanes_pass_by_is_divergent(collective):
    text = kernel(
        f"""
        r = f32(tid)
        if tid != 37:
            {collective}
        store_float32(out, tid, r)
        """,
        "out",
    )
    fault = fault_of(text, shape=64, threads=64)
    assert fault.kind is FaultKind.DIVERGENT_COLLECTIVE
    assert fault.line == line_of(text, collective)
    assert "warp 1 of block 0" in fault.message
    assert "threads 37 have finished" in fault.message


def test_lanes_at_two_shuffles_are_divergent():
    text = kernel(
        """
        r = f32(tid)
        if tid < 16:
            r = cuda.shfl_xor_sync(0xffffffff, r, 1)
        else:
            r = cuda.shfl_xor_sync(0xffffffff, r, 2)
        store_float32(out, tid, r)
        """,
        "out",
    )
    assert fault_of(text).kind is FaultKind.DIVERGENT_COLLECTIVE


def test_lanes_at_a_shuffle_while_others_wait_at_the_barrier_are_divergent():
    text = kernel(
        """
        r = f32(tid)
        if tid < 16:
            r = cuda.shfl_xor_sync(0xffffffff, r, 1)
        cuda.syncthreads()
        store_float32(out, tid, r)
        """,
        "out",
    )
    fault = fault_of(text)
    assert fault.kind is FaultKind.DIVERGENT_COLLECTIVE
    assert "threads 16-31 wait at cuda.syncthreads" in fault.message


def test_a_warp_that_is_not_full_takes_part_in_no_shuffle():
    text = kernel("store_float32(out, tid, cuda.shfl_xor_sync(0xffffffff, f32(tid), 1))", "out")
    fault = fault_of(text, shape=48, threads=48)
    assert fault.kind is FaultKind.DIVERGENT_COLLECTIVE
    assert "the warp has 16 threads, not 32" in fault.message


# -- memory


def test_shared_memory_that_nobody_wrote_is_not_read():
    text = kernel(
        """
        if tid != 9:
            shared[tid] = f32(tid)
        cuda.syncthreads()
        store_float32(out, tid, shared[u32(31 - tid)])
        """,
        "out",
    )
    fault = fault_of(text)
    assert fault.kind is FaultKind.UNWRITTEN_READ
    assert (fault.memory, fault.element, fault.threads) == ("shared", 9, (22,))
    assert fault.line == line_of(text, "store_float32(out")


def test_shared_memory_holds_nothing_from_the_block_before():
    text = kernel(
        """
        if block == 0:
            shared[tid] = f32(tid)
        store_float32(out, u32(block * 32 + tid), shared[tid])
        """,
        "out",
    )
    fault = fault_of(text, shape=64, blocks=2)
    assert fault.kind is FaultKind.UNWRITTEN_READ
    assert fault.block == 1


@pytest.mark.parametrize("name", ["out", "workspace"])
def test_outputs_and_workspace_hold_nothing_at_first(name):
    text = kernel(f"store_float32(out, tid, load_float32({name}, tid))", "out, workspace")
    fault = fault_of(text, workspace=32)
    assert fault.kind is FaultKind.UNWRITTEN_READ
    assert fault.memory == name


@pytest.mark.parametrize("use", ["r = h[k]", "h[k] += f32(1.0)", "h[1] *= f32(2.0)"])
def test_local_elements_hold_nothing_at_first(use):
    text = kernel(
        f"""
        h = cuda.local.array(4, f32)
        h[0] = f32(0.0)
        k = remainder(tid, 4)
        if k == 1:
            {use}
        store_float32(out, tid, f32(0.0))
        """,
        "out",
    )
    fault = fault_of(text)
    assert fault.kind is FaultKind.UNWRITTEN_READ
    assert (fault.memory, fault.element, fault.line) == ("h", 1, line_of(text, use))
    assert fault.threads[0] % 4 == 1


def test_a_variable_that_was_not_assigned_on_the_way_is_undefined():
    text = kernel("if tid < 8:\n    r = f32(1.0)\nstore_float32(out, tid, r)", "out")
    fault = fault_of(text)
    assert fault.kind is FaultKind.UNDEFINED
    assert fault.line == line_of(text, "store_float32(out")
    assert "reads r," in fault.message
    assert fault.threads[0] >= 8


@pytest.mark.parametrize(
    ("statement", "memory", "element", "thread"),
    [
        ("r = load_float32(x, u32(tid + 10))", "x", 41, 31),
        ("r = load_float32(x, u32(30 - tid))", "x", 2**32 - 1, 31),
        ("r = load_float32(x, 30 - block - 32)", "x", -2, None),
        ("r = shared[u32(tid * 8 + 1)]", "shared", 249, 31),
        ("shared[u32(tid * 8 + 1)] = r", "shared", 249, 31),
        ("shared[tid * 8 - 1] = r", "shared", -1, 0),
        ("shared[tid - 1] += r", "shared", -1, 0),
        ("r = h[u32(tid - 28)]", "h", 3, 31),
        ("h[u32(tid - 28)] = r", "h", 3, 31),
        ("h[tid - 32] = r", "h", -1, None),
        ("h[tid - 32] += r", "h", -1, None),
        ("r = h[tid - 32]", "h", -1, None),
        ("store_float32(out, u32(tid + 1), r)", "out", 32, 31),
        ("r = load_float32(out, u32(tid + 1))", "out", 32, 31),
        ("atomic_add_float32(out, u32(tid + 1), r)", "out", 32, 31),
    ],
)
def test_no_index_goes_out_of_bounds(statement, memory, element, thread):
    own = f"if tid == {thread}:\n    {statement}" if thread is not None else statement
    text = kernel(
        "r = f32(tid)\nh = cuda.local.array(3, f32)\nshared[tid] = r\nstore_float32(out, tid, r)\n"
        "cuda.syncthreads()\n" + own
    )
    fault = fault_of(text, [numbers(32)], shared=249)
    assert fault.kind is FaultKind.OUT_OF_BOUNDS
    assert fault.memory == memory
    assert fault.line == line_of(text, statement)
    if thread is not None:
        assert (fault.element, fault.threads) == (element, (thread,))
    else:
        assert fault.element <= -1


def test_an_unwritten_tail_is_reported_with_its_first_element():
    text = kernel("if tid < 30:\n    store_float32(out, tid, f32(1.0))", "out")
    fault = fault_of(text)
    assert fault.kind is FaultKind.UNWRITTEN_OUTPUT
    assert (fault.memory, fault.element) == ("out", 30)
    assert "2 of 32 elements of out were never written" in fault.message


def test_an_input_is_not_written():
    text = kernel("store_float32(x, tid, f32(1.0))")
    fault = fault_of(text, [numbers(32)])
    assert fault.kind is FaultKind.INPUT_WRITE
    assert (fault.memory, fault.line) == ("x", line_of(text, "store_float32(x"))


# -- loops and numbers


@pytest.mark.parametrize(
    "loop",
    [
        "for i in range(4294967295):\n    r = r + f32(1.0)",
        "for i in range(0, u32(tid - 31), 1):\n    r = r + f32(1.0)",
        "for i in range(100):\n    for j in range(100):\n        r = r + f32(1.0)",
        "for i in range(9999999):\n    cuda.syncthreads()",
    ],
)
def test_an_endless_loop_ends_at_the_limit(loop):
    text = kernel(f"r = f32(0.0)\n{loop}\nstore_float32(out, tid, r)", "out")
    fault = fault_of(text, step_limit=5000)
    assert fault.kind is FaultKind.ENDLESS
    innermost = loop.splitlines()[-2].strip()
    assert fault.line == line_of(text, innermost)
    assert "5000" in fault.message


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("k = quotient(tid, u32(tid - 7))", "divides by zero"),
        ("k = remainder(tid, u32(tid - 7))", "divides by zero"),
        ("k = tid // u32(tid - 7)", "divides by zero"),
        ("for k in range(0, 3, u32(tid - 7)):\n    pass", "step of 0"),
    ],
)
def test_integers_are_not_divided_by_zero(statement, what):
    body = "\n".join(f"    {line}" for line in statement.splitlines())
    text = kernel(f"if tid == 7:\n{body}\nstore_float32(out, tid, f32(1.0))", "out")
    fault = fault_of(text)
    assert fault.kind is FaultKind.ARITHMETIC
    assert what in fault.message
    assert fault.threads == (7,)


# -- what is reported


def test_outputs_hold_what_was_written_before_a_fault():
    text = kernel("store_float32(out, tid, f32(tid))\nr = load_float32(x, u32(tid + 1))")
    out = np.full(32, -1, np.float32)
    with pytest.raises(LockstepFault):
        simulate(text, metadata(), [numbers(32)], [out])
    assert out[31] == 31
    assert set(out) <= {-1, *range(32)}


def test_without_checks_races_pass_but_bounds_and_unwritten_elements_do_not():
    race = kernel("shared[0] = f32(tid)\nstore_float32(out, tid, f32(1.0))", "out")
    launch(race, checks=False)
    for body, kind in (
        ("store_float32(out, u32(tid + 1), f32(1.0))", FaultKind.OUT_OF_BOUNDS),
        ("store_float32(out, tid, shared[tid])", FaultKind.UNWRITTEN_READ),
    ):
        assert fault_of(kernel(body, "out"), checks=False).kind is kind


def test_a_fault_survives_the_way_between_processes():
    text = kernel("store_float32(out, 0, f32(tid))", "out")
    with pytest.raises(LockstepFault) as caught:
        launch(text, shape=1)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.fault == caught.value.fault
    assert str(again) == caught.value.fault.message


def test_messages_quote_the_line():
    text = kernel("store_float32(out, u32(tid + 1), f32(1.0))", "out")
    fault = fault_of(text)
    assert f"line {fault.line} `store_float32(out, u32(tid + 1), f32(1.0))`" in fault.message
    assert "thread 31 of block 0 writes out[32], but there are 32 elements" in fault.message


def test_many_threads_are_listed_in_spans():
    assert spans([3, 0, 1, 2, 9]) == "0-3, 9"
    assert spans(range(0, 64, 2)).endswith("14, ..")
