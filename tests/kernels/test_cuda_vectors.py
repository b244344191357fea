"""Several neighbours moved at once: only where they are proved to be aligned, and always right."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from kernels.cases import CONTRACTIONS, SHARED_NEST, contraction
from kernels.legal import mugraph
from kernels.lockstep_kernels import fault_of, kernel, launch, numbers
from kernels.programs import random_arguments
from kernels.simulated import SHARED_LIMIT, assert_computes, bits_of, numbers_of

from prism.ir import bind_sizes, parse_program
from prism_kernels.cuda.alignment import contiguous_dim, widest
from prism_kernels.cuda.compile import kernel_ptx
from prism_kernels.cuda.dialect import DTYPES, VECTORS
from prism_kernels.cuda.emit import emit, plan_kernels
from prism_kernels.cuda.plan import Place
from prism_kernels.lockstep import FaultKind
from prism_kernels.tile import Axis, GridDim, Loop, TileProgram, operands

ELEMENTWISE = parse_program("""
program elementwise
  dims n, d
  args x[n, d], y[n, d], s[d]
  x = input x[n, d]
  y = input y[n, d]
  s = input s[d]
  %3 = mul(x, y)
  %4 = add(%3, s)
  return %4[n, d]
""")

ROWS = parse_program("""
program rows
  dims n, d
  args x[n, d], s[d]
  x = input x[n, d]
  s = input s[d]
  %2 = mul(x, s)
  %3 = square(%2)
  %4 = sum[d](%3)
  %5 = max[d](x)
  return %4[n]
  return %5[n]
""")

THREADS_ONLY = 1
"""Schedule option `C`: contractions without tensor cores."""


def vector_kernel(body, parameters="x, out"):
    """A kernel in the dialect that has the vector statements too, and 16 registers `r`."""
    imports = f"from prism_kernels.cuda.vectors import {', '.join(VECTORS)}\n\n\ndef kernel"
    text = kernel(f"r = cuda.local.array(16, f32)\n{body}", parameters)
    return text.replace("\ndef kernel", imports)


def copying(load, count, first=0):
    """Statements by which each thread copies its neighbours through registers."""
    store = load.replace("load", "store")
    return (
        f"{load}(r, u32({first}), x, u32(tid * {count}))\n"
        f"{store}(out, u32(tid * {count}), r, u32({first}))"
    )


def widths(mu, dtype, **schedule):
    """How many elements a muGraph's kernel moves at once: of loads, of stores."""
    text = emit(replace(mu, schedule=tuple(schedule.items())), dtype, SHARED_LIMIT, "sm_90").text
    return tuple(
        {int(n) for n in re.findall(rf"\b{action}([248])_\w+\(", text)}
        for action in ("load", "store")
    )


def assert_right(mu, dtype, **schedule):
    bound = bind_sizes(mu.graph.program, dict(mu.sizes))
    arguments = random_arguments(mu.graph.program, bound, np.random.default_rng(5))
    assert_computes(mu, arguments, dtype, **schedule)


# -- statements


@pytest.mark.parametrize("name", [name for name in VECTORS if name.startswith("load")])
def test_neighbours_are_read_and_written_as_they_are(name):
    dtype, count = VECTORS[name]
    body = copying(name, count, first=3)
    given = numbers(32 * count)
    x = bits_of(given) if dtype == "bfloat16" else given.astype(dtype)
    out, _ = launch(vector_kernel(body), (x,), 32 * count, dtype=dtype)
    np.testing.assert_array_equal(out, x)


def test_stored_numbers_are_rounded():
    body = """\
for j in range(8):
    r[j] = f32(1.0) + f32(0.0009765625) / f32(2.0)
if tid == 0:
    store8_bfloat16(out, u32(0), r, u32(0))
"""
    out, _ = launch(vector_kernel(body, "out"), (), 8, dtype="bfloat16")
    np.testing.assert_array_equal(numbers_of(out), np.ones(8))


@pytest.mark.parametrize(
    ("body", "kind", "element"),
    [
        ("load4_float32(r, u32(0), x, u32(2))", FaultKind.MISALIGNED, 2),
        ("load4_float32(r, u32(0), x, u32(32))", FaultKind.OUT_OF_BOUNDS, 32),
        ("load4_float32(r, u32(14), x, u32(0))", FaultKind.OUT_OF_BOUNDS, 16),
        ("store4_float32(out, u32(0), r, u32(0))", FaultKind.UNWRITTEN_READ, 0),
        ("load4_float32(r, u32(0), x, u32(0))\nstore4_float32(out, u32(28), r, u32(0))",
         FaultKind.RACE, 28),
        ("load2_float32(r, u32(0), x, u32(0))\nstore2_float32(x, u32(0), r, u32(0))",
         FaultKind.INPUT_WRITE, None),
    ],
)  # fmt: skip
def test_each_neighbour_is_an_access_of_its_own(body, kind, element):
    fault = fault_of(vector_kernel(body), (numbers(32),))
    assert (fault.kind, fault.element) == (kind, element)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", [n for n, (d, c) in VECTORS.items() if n.startswith("load")])
def test_a_group_is_one_instruction(name, arch, cuda_extra):
    dtype, count = VECTORS[name]
    words = count * DTYPES[dtype] // 4
    body = copying(name, count)
    one = {"kernel": "kernel", "parameters": [dtype, dtype], "threads": 32}
    ptx = kernel_ptx(vector_kernel(body), one, arch)
    vector = f".v{words}" if words > 1 else ""
    for action in ("ld", "st"):
        assert len(re.findall(rf"{action}\.global{vector}\.[ufb]32", ptx)) == 1
        assert len(re.findall(rf"{action}\.global", ptx)) == 1
    assert ".local" not in ptx


# -- alignment


def tile_program(sizes, grid=(), loops=()):
    return TileProgram((), (), (), sizes, grid, loops, {}, {})


def array(sizes, dtype="float16", **options):
    """A C-contiguous array of these sizes."""
    strides, stride = {}, 1
    for dim in reversed(list(sizes)):
        strides[dim] = stride
        stride *= sizes[dim]
    return Place("x", strides, dtype, "x", **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("sizes", "most"), [((3, 64), 8), ((3, 12), 4), ((4, 6), 2), ((4, 7), 1), ((1, 64), 8)]
)
def test_rows_decide_how_many_neighbours_are_aligned(sizes, most, dtype):
    sizes = dict(zip("nd", sizes, strict=True))
    found = widest(tile_program(sizes), array(sizes, dtype), [Axis("n"), Axis("d")])
    assert found == min(most, 16 // DTYPES[dtype])


@pytest.mark.parametrize(("blocks", "iterations", "most"), [(4, 1, 8), (4, 4, 4), (16, 1, 4),
                                                            (16, 2, 2), (22, 1, 1)])  # fmt: skip
def test_tiles_decide_too(blocks, iterations, most):
    sizes, tile = {"n": 3, "d": 64}, -(-64 // blocks)
    grid = (GridDim("x", blocks, "d", tile),)
    loops = (Loop("i", iterations, "d", -(-tile // iterations)),) if iterations > 1 else ()
    axes = [Axis("n"), Axis("d", "x", looped=iterations > 1)]
    assert widest(tile_program(sizes, grid, loops), array(sizes), axes) == most


def test_what_lies_apart_is_read_apart():
    sizes = {"n": 8, "d": 64}
    program, axes = tile_program(sizes), [Axis("n"), Axis("d")]
    assert contiguous_dim(array({"d": 64, "n": 8}), axes, program) == "n"
    assert widest(program, replace(array(sizes), strides={"n": 64, "d": 2}), axes) == 1
    assert widest(program, replace(array(sizes), pointer=""), axes) == 1
    assert widest(program, array(sizes, stack=("x", 4)), axes) == 4


# -- kernels


@pytest.mark.parametrize("dtype", DTYPES)
def test_elementwise_kernels_move_as_much_as_one_instruction_can(dtype):
    mu = mugraph(ELEMENTWISE, {"n": 6, "d": 512}, {"x": "n"}, None, {"x": 2})
    most = 16 // DTYPES[dtype]
    assert widths(mu, dtype, T=128) == ({most}, {most})
    assert_right(mu, dtype, T=128)


@pytest.mark.parametrize(("size", "width"), [(120, 8), (124, 4), (126, 2), (127, None)])
def test_sizes_that_allow_less_move_less(size, width):
    mu = mugraph(ELEMENTWISE, {"n": 16, "d": size}, {"x": "n"}, None, {"x": 2})
    found = {width} if width else set()
    assert widths(mu, "float16", T=64) == (found, found)
    assert_right(mu, "float16", T=64)


def test_threads_have_work_before_they_take_several_elements():
    few = mugraph(ELEMENTWISE, {"n": 2, "d": 128}, {}, None)
    assert widths(few, "float16", T=128) == ({2}, {2})
    assert widths(few, "float16", T=256) == (set(), set())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loop", [None, "d"])
def test_reductions_read_their_rows_in_groups(dtype, loop):
    mu = mugraph(ROWS, {"n": 3, "d": 768}, {}, loop, {"i": 2})
    assert max(widths(mu, dtype, T=32)[0]) == 16 // DTYPES[dtype]
    assert_right(mu, dtype, T=32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", CONTRACTIONS)
def test_contractions_read_the_larger_operand_in_groups(layout, dtype):
    sizes = dict.fromkeys("bnmck", 8) | {"k": 24, "m": 16}
    mu = mugraph(contraction(layout), sizes)
    for threads in (32, 128):
        assert_right(mu, dtype, T=threads, S=1, C=THREADS_ONLY)


@pytest.mark.parametrize(
    ("layout", "grid", "loop", "counts"),
    [
        ("both operands stored along k last, batch first", {"x": "m"}, "k", {"x": 3, "i": 2}),
        ("both operands stored along k last, batch first", {"x": "b"}, "m", {"x": 2, "i": 3}),
        ("k is the slow axis of both", {"x": "m"}, "k", {"x": 2, "i": 5}),
        ("k is the slow axis of both", {"x": "k"}, None, {"x": 1}),
    ],
)
def test_tiles_of_streamed_operands_are_read_in_groups(layout, grid, loop, counts):
    mu = mugraph(contraction(layout), {"b": 2, "n": 3, "m": 512, "k": 40}, grid, loop, counts)
    assert widths(mu, "float16", S=1, C=THREADS_ONLY)[0] & {4, 8}
    for dtype in DTYPES:
        assert_right(mu, dtype, T=64, S=1, C=THREADS_ONLY)


def test_an_operand_that_is_staged_for_other_readers_is_not_read_in_groups():
    mu = mugraph(SHARED_NEST, {"n": 8, "d": 64, "h": 2})
    plan = plan_kernels(replace(mu, schedule=(("T", 32), ("C", 1))), "float16", SHARED_LIMIT)
    (plan,) = (kernel.plan for kernel in plan.kernels)
    staged = [
        is_vector and v in plan.staged
        for i, tiling in plan.tilings.items()
        for v, is_vector in zip(operands(plan.program.nodes[i]), tiling.vectors, strict=True)
    ]
    assert any(staged)
    assert_right(mu, "float16", T=32, C=THREADS_ONLY)
