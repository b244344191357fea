"""Graphs of several kernels in the simulator: what they compute, faults between launches."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from kernels.cut import cut
from kernels.kernel_chains import (
    CHAINS,
    SPLIT_K,
    by_name,
    chain,
    drawn,
    random_chain,
)
from kernels.legal import mugraph, small_counts
from kernels.lockstep_kernels import HEAD, metadata
from kernels.programs import relative_error
from kernels.simulated import SHARED_LIMIT, assert_computes, launched, simulated
from strategies import random_arrays, random_program

from prism.ir import all_sizes, bind_sizes, check_mugraph, evaluate, evaluate_graph
from prism_kernels.cuda.emit import emit
from prism_kernels.cuda.target import LockstepTarget
from prism_kernels.lockstep import FaultKind, LockstepFault, simulate

DTYPES = ("float32", "float16", "bfloat16")


def source_of(mu, dtype="float32"):
    return emit(mu, dtype, SHARED_LIMIT, "lockstep")


# -- numbers


@pytest.mark.parametrize("name", CHAINS)
def test_kernels_in_a_row_compute_what_their_graph_says(name, rng):
    mu = CHAINS[name]
    arguments = drawn(mu, rng)
    expected = evaluate_graph(mu, by_name(mu, arguments))
    for out, reference in zip(simulated(mu, arguments), expected, strict=True):
        np.testing.assert_allclose(out, reference, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CHAINS)
def test_kernels_in_a_row_compute_the_program(name, dtype, rng):
    assert_computes(CHAINS[name], drawn(CHAINS[name], rng), dtype)


@pytest.mark.parametrize("name", CHAINS)
def test_a_shared_memory_that_holds_nothing_changes_no_result(name, rng):
    assert_computes(CHAINS[name], drawn(CHAINS[name], rng), shared_limit=0, T=32)


@pytest.mark.parametrize("first", range(0, 40, 8))
def test_random_sizes_and_counts_are_right(first):
    for seed in range(first, first + 8):
        mu = random_chain(seed)
        check_mugraph(mu)
        dtype = DTYPES[seed % 3]
        assert_computes(mu, drawn(mu, np.random.default_rng(seed)), dtype, seed=seed)


def check_cut(seed):
    """Whether a random program was cut in two kernels that run, and if so, that it is right."""
    random = Random(seed)
    program = random_program(seed, random.randint(2, 9))
    sizes = bind_sizes(program, {d: random.choice((3, 8, 13)) for d in program.size_names})
    dim = random.choice(sorted(sizes) or [""])
    count = random.choice(small_counts(sizes.get(dim, 1)))
    mu = cut(mugraph(program, sizes), dim, count, seed)
    if mu is None or LockstepTarget().refusal(mu, "float32"):
        return False
    arrays = {k: v.astype("float32") for k, v in random_arrays(program, sizes, seed).items()}
    outputs = simulated(
        mu,
        [arrays[a.name] for a in program.arguments],
        seed=seed,
        shared_limit=random.choice((64, SHARED_LIMIT)),
        T=random.choice((32, 64)),
    )
    # random programs cancel now and then, so the bound is loose; structure faults are of order 1
    for out, reference in zip(outputs, evaluate(program, arrays), strict=True):
        error = relative_error(out, reference)
        assert error < 5e-4 or np.abs(out - reference).max() < 1e-6, f"seed {seed}: {error}"
    return True


@pytest.mark.parametrize("first", range(0, 160, 40))
def test_graphs_cut_in_two_at_random_are_right(first):
    assert sum(map(check_cut, range(first, first + 40))) > 5


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 12_000, 200))
def test_more_graphs_cut_in_two_at_random_are_right(first):
    assert sum(map(check_cut, range(first, first + 200))) > 20


def test_partial_sums_beyond_half_precision_stay_finite():
    """Two halves of 300000 and -299999 do not fit in float16; their sum does."""
    mu = chain(SPLIT_K, {"n": 1, "d": 60, "h": 1}, {"x": 2, "y": 1, "i": 1}, {"x": 1})
    x = np.full((1, 60), 100, np.float16)
    w = np.full((60, 1), 100, np.float16)
    w[30:] = -w[30:]
    w[59] = -96
    (out,) = simulated(mu, (x, w), "float16")
    assert out.item() == 400


# -- what a file says


def test_every_kernel_takes_what_it_touches_and_intermediates_are_float32():
    source = source_of(CHAINS["FFN"], "bfloat16")
    assert "def kernel0(in_x, in_gate, in_up, mid_t0):" in source.text
    assert "def kernel1(in_down, mid_t0, mid_t1):" in source.text
    assert "def kernel2(out0, mid_t1):" in source.text
    assert [t["name"] for t in source.meta["between"]] == ["t0", "t1"]
    first, second, third = source.meta["launches"]
    assert (first["takes"], second["takes"], third["takes"]) == ([0, 1, 2, 5], [3, 5, 6], [4, 6])
    assert third["parameters"] == ["bfloat16", "float32"]
    assert "store_float32(mid_t1, " in source.text


def test_outputs_go_to_the_kernels_that_store_them():
    both = source_of(CHAINS["two outputs"]).meta["launches"]
    assert [launch["kernel"] for launch in both] == ["kernel0", "kernel1"]
    assert [launch["takes"] for launch in both] == [[0, 1, 2, 4, 5], [3, 4, 5]]


def test_an_index_along_a_grid_dim_of_one_block_is_not_written():
    mu = chain(SPLIT_K, {"n": 2, "d": 4, "h": 4}, {"x": 1, "y": 1, "i": 2}, {"x": 1})
    assert "block_x" not in source_of(mu).text
    assert all_sizes(mu)["s"] == 1


# -- faults between launches


def faulty(text, meta, arguments):
    with pytest.raises(LockstepFault) as caught:
        launched(text, meta, arguments)
    return caught.value.fault


def changed(meta, launch, **facts):
    """The metadata with other facts of a launch."""
    launches = list(meta["launches"])
    launches[launch] = {**launches[launch], **facts}
    return {**meta, "launches": launches}


@pytest.mark.parametrize("name", ["split-K", "split-K RMSNorm", "flash decoding"])
def test_an_intermediate_element_that_nobody_wrote_is_caught(name, rng):
    mu = CHAINS[name]
    source = source_of(mu)
    blocks = source.meta["launches"][0]["blocks"]
    fault = faulty(source.text, changed(source.meta, 0, blocks=blocks - 1), drawn(mu, rng))
    assert fault.kind is FaultKind.UNWRITTEN_READ
    assert fault.memory.startswith("mid_t")
    assert "which nobody has written" in fault.message


def test_a_launch_before_what_it_reads_is_caught(rng):
    mu = CHAINS["FFN"]
    source = source_of(mu)
    first, second, third = source.meta["launches"]
    swapped = {**source.meta, "launches": [second, first, third]}
    fault = faulty(source.text, swapped, drawn(mu, rng))
    assert (fault.kind, fault.memory) == (FaultKind.UNWRITTEN_READ, "mid_t0")


def test_blocks_that_leave_their_partial_sums_in_one_place_race(rng):
    mu = CHAINS["split-K"]
    source = source_of(mu)
    text = source.text.replace("block_x * 48", "0")
    assert text != source.text
    fault = faulty(text, source.meta, drawn(mu, rng))
    assert (fault.kind, fault.memory) == (FaultKind.RACE, "mid_t0")


TWO_LAUNCHES = f"""{HEAD}
def kernel0(x, held):
    tid = u32(cuda.threadIdx.x)
    store_float32(held, tid, load_float32(x, tid))


def kernel1(out, held):
    tid = u32(cuda.threadIdx.x)
    store_float32(out, tid, load_float32(held, u32(31 - tid)))
"""


def two_launches(**arrays):
    meta = {**metadata(), **arrays}
    (one,) = meta["launches"]
    parameters = {"parameters": ["float32", "float32"]}
    first = {**one, **parameters, "kernel": "kernel0", "takes": [0, 2]}
    return {**meta, "launches": [first, {**first, "kernel": "kernel1", "takes": [1, 2]}]}


def test_launches_are_in_order_so_that_threads_read_what_others_wrote():
    meta = two_launches(between=[{"name": "held", "shape": [32]}])
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    statistics = simulate(TWO_LAUNCHES, meta, [x], [out])
    np.testing.assert_array_equal(out, x[::-1])
    assert statistics.global_loads == {"x": 32, "held": 32}
    assert statistics.global_stores == {"held": 32, "out": 32}


def test_the_workspace_holds_nothing_from_launch_to_launch():
    meta = two_launches(workspace_elements=32)
    with pytest.raises(LockstepFault) as caught:
        simulate(TWO_LAUNCHES, meta, [np.ones(32, np.float32)], [np.zeros(32, np.float32)])
    assert caught.value.fault.kind is FaultKind.UNWRITTEN_READ
