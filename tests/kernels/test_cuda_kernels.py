"""Emitted CUDA kernels compute their programs, in the simulator: right, and free of races."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from kernels.cases import (
    BROADCAST,
    CONTRACTIONS,
    EXTREMES,
    GRAM,
    OUTPUTS,
    RMSNORM_FORMS,
    SCALARS,
    SHARED_NEST,
    SIX_DIMS,
    contraction,
    repeating,
    two_grids,
)
from kernels.legal import mugraph, random_mugraph
from kernels.programs import (
    ATTENTION,
    LINEAR,
    MATMUL,
    RMSNORM_DIVIDED_LAST,
    SOFTMAX_MATMUL,
    STABLE_SOFTMAX,
    random_arguments,
    relative_error,
)
from kernels.simulated import assert_computes, simulated
from strategies import random_arrays, random_program

from prism.errors import KernelError
from prism.ir import bind_sizes, evaluate, parse_program

SIZES = {
    "even": ({"n": 8, "d": 64, "h": 32}, {"x": 2, "y": 2, "i": 4}),
    "odd": ({"n": 7, "d": 45, "h": 21}, {"x": 3, "y": 4, "i": 3}),
    "prime": ({"n": 5, "d": 31, "h": 17}, {"x": 2, "y": 3, "i": 2}),
    "one row": ({"n": 1, "d": 40, "h": 33}, {"x": 1, "y": 1, "i": 1}),
    "one column": ({"n": 6, "d": 17, "h": 1}, {"x": 1, "y": 1, "i": 1}),
    "one of everything": ({"n": 1, "d": 1, "h": 1}, {"x": 1, "y": 1, "i": 1}),
}
NO_ROOM = 64
"""Bytes of shared memory: nearly every buffer goes to the workspace."""


@pytest.mark.parametrize("form", RMSNORM_FORMS)
@pytest.mark.parametrize("sizes", SIZES)
def test_every_form_of_rmsnorm_is_right_at_every_size(rng, form, sizes):
    program, grid, loop, in_body = RMSNORM_FORMS[form]
    extents, counts = SIZES[sizes]
    mu = mugraph(program, extents, grid, loop, counts, in_body=lambda i: in_body)
    assert_computes(mu, random_arguments(program, extents, rng))


@pytest.mark.parametrize("threads", [32, 64, 256])
@pytest.mark.parametrize("staging", [0, 1, 2])
@pytest.mark.parametrize("shared_limit", [NO_ROOM, 99 << 10])
def test_schedule_and_shared_memory_do_not_change_the_result(rng, threads, staging, shared_limit):
    sizes = {"n": 8, "d": 50, "h": 30}
    mu = mugraph(RMSNORM_DIVIDED_LAST, sizes, {"x": "h"}, "d", {"x": 2, "i": 3})
    arguments = random_arguments(RMSNORM_DIVIDED_LAST, sizes, rng)
    assert_computes(mu, arguments, shared_limit=shared_limit, T=threads, S=staging)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("program", [RMSNORM_DIVIDED_LAST, SOFTMAX_MATMUL])
def test_storage_in_half_precision_computes_in_single(rng, dtype, program):
    sizes = {"n": 4, "d": 48, "h": 20}
    mu = mugraph(program, sizes, {"x": "h"}, "d", {"x": 2, "i": 3})
    assert_computes(mu, random_arguments(program, sizes, rng), dtype)


@pytest.mark.parametrize(
    "shape", [(1, 100, 30), (30, 100, 1), (1, 7, 1), (13, 40, 33), (40, 8, 40)]
)
@pytest.mark.parametrize("program", [MATMUL, LINEAR], ids=["w[d, h]", "w[h, d]"])
def test_products_of_all_shapes_are_right(rng, program, shape):
    sizes = dict(zip("ndh", shape, strict=True))
    assert_computes(mugraph(program, sizes), random_arguments(program, sizes, rng))


@pytest.mark.parametrize(("loop", "count"), [(None, 1), ("k", 7)])
@pytest.mark.parametrize("layout", CONTRACTIONS)
def test_contractions_of_any_layout_are_right(rng, layout, loop, count):
    program = contraction(layout)
    sizes = {"b": 3, "n": 5, "m": 7, "c": 4, "k": 50}
    sizes = {d: s for d, s in sizes.items() if d in program.size_names}
    mu = mugraph(program, sizes, {}, loop, {"i": count})
    arguments = random_arguments(program, sizes, rng)
    for threads in (32, 128):
        assert_computes(mu, arguments, T=threads)


@pytest.mark.parametrize("loop", [None, *"abce"])
def test_values_of_six_dimensions_are_right(rng, loop):
    sizes = {"a": 3, "b": 2, "c": 4, "d": 5, "e": 2, "f": 3}
    grid = {"x": "f", "y": "d", **({"z": "a"} if loop != "a" else {})}
    mu = mugraph(SIX_DIMS, sizes, grid, loop, {"x": 2, "y": 3, "i": 2})
    assert_computes(mu, random_arguments(SIX_DIMS, sizes, rng))


@pytest.mark.parametrize("loop", [None, "n"])
def test_scalar_inputs_size_one_axes_and_scalar_outputs_are_right(rng, loop):
    mu = mugraph(SCALARS, {"n": 23}, {}, loop, {"i": 4})
    assert_computes(mu, random_arguments(SCALARS, {"n": 23}, rng))


@pytest.mark.parametrize("loop", [None, "d", "m"])
def test_an_argument_read_under_two_names_is_right(rng, loop):
    sizes = {"n": 11, "d": 20}
    mu = mugraph(GRAM, sizes, {"x": "n"}, loop, {"x": 3, "i": 2})
    assert_computes(mu, random_arguments(GRAM, sizes, rng))


@pytest.mark.parametrize("shared_limit", [NO_ROOM, 99 << 10])
@pytest.mark.parametrize("loop", [None, "d", "h", "n"])
def test_several_outputs_are_right_also_where_blocks_share_them(rng, loop, shared_limit):
    sizes = {"n": 6, "d": 19, "h": 20}
    mu = mugraph(OUTPUTS, sizes, {"x": "h"}, loop, {"x": 3, "i": 2})
    assert_computes(mu, random_arguments(OUTPUTS, sizes, rng), shared_limit=shared_limit)


@pytest.mark.parametrize("loop", [None, "n", "d", "h"])
def test_outputs_written_in_place_leave_their_nest_to_the_others(rng, loop):
    sizes = {"n": 4, "d": 9, "h": 5}
    mu = mugraph(SHARED_NEST, sizes, {}, loop, {"i": 2})
    assert_computes(mu, random_arguments(SHARED_NEST, sizes, rng))


@pytest.mark.parametrize("threads", [128, 512])
def test_many_results_of_several_dims_are_added_up_across_warps(rng, threads):
    program = parse_program("""
program products
  dims k, a, b
  args x[k, a, b], y[k, a, b]
  x = input x[k, a, b]
  y = input y[k, a, b]
  %2 = matmul[k](x, y)
  return %2[a, b]
""")
    sizes = {"k": 16, "a": 31, "b": 31}
    assert_computes(mugraph(program, sizes), random_arguments(program, sizes, rng), T=threads)


@pytest.mark.parametrize("threads", [0, 1, 48, 2048])
def test_a_block_has_a_power_of_two_of_threads(threads):
    with pytest.raises(KernelError, match=f"T = {threads}"):
        simulated(mugraph(MATMUL, {"n": 2, "d": 2, "h": 2}), (), T=threads)


@pytest.mark.parametrize("loop", [None, "n", "d", "h"])
def test_maxima_over_looped_and_other_dims_are_right(rng, loop):
    sizes = {"n": 5, "d": 13, "h": 9}
    grid = {"x": "n"} if loop != "n" else {}
    mu = mugraph(EXTREMES, sizes, grid, loop, {"x": 2, "i": 3})
    arguments = random_arguments(EXTREMES, sizes, rng)
    arguments[0][1, 3] -= 100.0
    assert_computes(mu, arguments)


@pytest.mark.parametrize("grid", [{}, {"x": "n"}])
@pytest.mark.parametrize("loop", [None, "n", "d", "h"])
def test_outputs_are_broadcast_over_dims_their_value_lacks(rng, grid, loop):
    sizes = {"n": 5, "d": 7, "h": 18}
    mu = mugraph(BROADCAST, sizes, grid, loop, {"x": 2, "i": 2})
    assert_computes(mu, random_arguments(BROADCAST, sizes, rng))


def test_blocks_and_iterations_that_split_nothing_repeat_the_same_work(rng):
    mu = repeating()
    x, w = random_arguments(MATMUL, dict(mu.sizes), rng)
    (out,) = simulated(mu, (x, w))
    np.testing.assert_allclose(out, 4 * (x @ w), rtol=1e-5)


def test_two_grid_dims_may_split_one_dim_of_different_tensors(rng):
    mu = two_grids()
    assert_computes(mu, random_arguments(mu.graph.program, dict(mu.sizes), rng))


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_row_longer_than_a_warp_is_reduced_by_several_warps(rng, rows, dtype):
    sizes = {"n": rows, "d": 500}
    mu = mugraph(STABLE_SOFTMAX, sizes)
    assert_computes(mu, random_arguments(STABLE_SOFTMAX, sizes, rng), dtype, T=256)


@pytest.mark.parametrize("shared_limit", [NO_ROOM, 99 << 10])
@pytest.mark.parametrize(
    ("program", "scale"), [(ATTENTION, 12.0), (SOFTMAX_MATMUL, 60.0)], ids=["attention", "softmax"]
)
def test_exponentials_stay_in_range_while_their_reference_moves(rng, program, scale, shared_limit):
    sizes = dict.fromkeys(program.size_names, 12)
    sizes["n" if "n" in sizes else "b"] = 3
    loop = "l" if "l" in sizes else "d"
    mu = mugraph(program, sizes, {"x": "n" if "n" in sizes else "b"}, loop, {"x": 2, "i": 4})
    arguments = random_arguments(program, sizes, rng, scale=scale)
    assert_computes(mu, arguments, tolerance=1e-4, shared_limit=shared_limit)


EXTENTS = (1, 2, 3, 5, 7, 8, 13, 16, 17, 19, 33, 64)


def check_seed(seed):
    random = Random(seed)
    program = random_program(seed, random.randint(1, 9))
    sizes = bind_sizes(program, {n: random.choice(EXTENTS) for n in program.size_names})
    arrays = {k: v.astype("float32") for k, v in random_arrays(program, sizes, seed).items()}
    outputs = simulated(
        random_mugraph(program, sizes, seed),
        [arrays[a.name] for a in program.arguments],
        seed=seed,
        shared_limit=random.choice((NO_ROOM, 99 << 10, 99 << 10)),
        S=random.choice((0, 1, 2)),
        T=random.choice((32, 64, 128)),
    )
    # random programs cancel now and then, so the bound is loose; structure faults are of order 1
    for out, reference in zip(outputs, evaluate(program, arrays), strict=True):
        error = relative_error(out, reference)
        assert error < 5e-4 or np.abs(out - reference).max() < 1e-6, f"seed {seed}: {error}"


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_random_graphs_are_right(first):
    for seed in range(first, first + 10):
        check_seed(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 10_600, 50))
def test_more_random_graphs_are_right(first):
    for seed in range(first, first + 50):
        check_seed(seed)
