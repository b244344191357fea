"""Emitted CPU kernels compute their programs: all forms of graph, at sizes that divide or not."""

from __future__ import annotations

import re

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
    SIX_DIMS,
    contraction,
    repeating,
    two_grids,
)
from kernels.legal import mugraph
from kernels.programs import (
    ATTENTION,
    LINEAR,
    MATMUL,
    RMSNORM_DIVIDED_LAST,
    SOFTMAX,
    SOFTMAX_MATMUL,
    TOLERANCE,
    assert_computes,
    random_arguments,
    run_filled,
)

from prism.ir import evaluate_graph, parse_program
from prism_kernels.cpu import device, registers

SIZES = {
    "even": ({"n": 8, "d": 256, "h": 192}, {"x": 2, "y": 2, "i": 4}),
    "odd": ({"n": 7, "d": 333, "h": 203}, {"x": 3, "y": 4, "i": 3}),
    "prime": ({"n": 5, "d": 131, "h": 67}, {"x": 2, "y": 3, "i": 2}),
    "one row": ({"n": 1, "d": 96, "h": 33}, {"x": 1, "y": 1, "i": 1}),
    "one column": ({"n": 6, "d": 17, "h": 1}, {"x": 1, "y": 1, "i": 1}),
    "one of everything": ({"n": 1, "d": 1, "h": 1}, {"x": 1, "y": 1, "i": 1}),
}


@pytest.mark.parametrize("form", RMSNORM_FORMS)
@pytest.mark.parametrize("sizes", SIZES)
def test_every_form_of_rmsnorm_is_right_at_every_size(compiled, rng, form, sizes):
    program, grid, loop, in_body = RMSNORM_FORMS[form]
    extents, counts = SIZES[sizes]
    mu = mugraph(program, extents, grid, loop, counts, in_body=lambda i: in_body)
    dtype = "float32" if sizes in {"odd", "even"} else "float64"
    arguments = random_arguments(program, extents, rng, dtype)
    assert_computes(compiled(mu, dtype), program, arguments, TOLERANCE[dtype])


@pytest.mark.parametrize(
    "options", [{"KB": 4}, {"KB": 32}, {"KB": 16, "NV": 1}, {"NV": 4}, {"MR": 3}]
)
def test_schedule_options_do_not_change_the_result(compiled, rng, options):
    sizes = {"n": 8, "d": 500, "h": 1100}
    mu = mugraph(
        RMSNORM_DIVIDED_LAST, sizes, {"x": "h"}, "d", {"x": 2, "i": 2}, schedule=options.items()
    )
    arguments = random_arguments(RMSNORM_DIVIDED_LAST, sizes, rng)
    assert_computes(compiled(mu), RMSNORM_DIVIDED_LAST, arguments, TOLERANCE["float32"])


MATMUL_SHAPES = [
    (1, 1000, 300),
    (300, 1000, 1),
    (1, 7, 1),
    (13, 40, 33),
    (64, 64, 64),
    (100, 77, 93),
    (40, 600, 300),  # k-blocks of many rows
    (17, 2000, 100),
]


@pytest.mark.parametrize("shape", MATMUL_SHAPES)
@pytest.mark.parametrize("program", [MATMUL, LINEAR], ids=["w[d, h]", "w[h, d]"])
def test_products_of_all_shapes_are_right(compiled, rng, program, shape):
    sizes = dict(zip("ndh", shape, strict=True))
    arguments = random_arguments(program, sizes, rng)
    assert_computes(compiled(mugraph(program, sizes)), program, arguments, TOLERANCE["float32"])


@pytest.mark.parametrize("count", [1, 2, 4])
def test_linear_with_other_dot_kernels_is_right(compiled, rng, count):
    sizes = {"n": 3, "d": 50, "h": 23}
    mu = mugraph(LINEAR, sizes, schedule=[("U", count)])
    arguments = random_arguments(LINEAR, sizes, rng)
    assert_computes(compiled(mu), LINEAR, arguments, TOLERANCE["float32"])


@pytest.mark.parametrize("loop", ["n", "d", "h"])
@pytest.mark.parametrize("program", [MATMUL, LINEAR], ids=["w[d, h]", "w[h, d]"])
def test_tiles_of_one_element_are_right(compiled, rng, program, loop):
    sizes = {"n": 5, "d": 12, "h": 9}
    arguments = random_arguments(program, sizes, rng)
    for grid in ({}, {"x": "h" if loop == "n" else "n"}):
        split = next(iter(grid.values()), loop)
        mu = mugraph(program, sizes, grid, loop, {"x": sizes[split], "i": sizes[loop]})
        assert_computes(compiled(mu), program, arguments, TOLERANCE["float32"])


@pytest.mark.parametrize(("loop", "count"), [(None, 1), ("k", 7)])
@pytest.mark.parametrize("layout", CONTRACTIONS)
def test_contractions_of_any_layout_are_right(compiled, rng, layout, loop, count):
    program = contraction(layout)
    sizes = {
        d: s
        for d, s in {"b": 3, "n": 9, "m": 21, "c": 18, "k": 50}.items()
        if d in program.size_names
    }
    mu = mugraph(program, sizes, {}, loop, {"i": count})
    arguments = random_arguments(program, sizes, rng, "float64")
    assert_computes(compiled(mu, "float64"), program, arguments, TOLERANCE["float64"])


@pytest.mark.parametrize(
    "loop",
    [None, *(pytest.param(d, marks=pytest.mark.slow) for d in "abce")],  # compiles for seconds
)
def test_values_of_six_dimensions_are_right(compiled, rng, loop):
    sizes = {"a": 11, "b": 10, "c": 9, "d": 17, "e": 5, "f": 12}
    grid = {"x": "f", "y": "d", **({"z": "a"} if loop != "a" else {})}
    mu = mugraph(SIX_DIMS, sizes, grid, loop, {"x": 2, "y": 3, "i": 2})
    arguments = random_arguments(SIX_DIMS, sizes, rng, "float64")
    assert_computes(compiled(mu, "float64"), SIX_DIMS, arguments, TOLERANCE["float64"])


@pytest.mark.parametrize("loop", [None, "n"])
def test_scalar_inputs_size_one_axes_and_scalar_outputs_are_right(compiled, rng, loop):
    sizes = {"n": 23}
    mu = mugraph(SCALARS, sizes, {}, loop, {"i": 4})
    arguments = random_arguments(SCALARS, sizes, rng, "float64")
    assert_computes(compiled(mu, "float64"), SCALARS, arguments, TOLERANCE["float64"])


@pytest.mark.parametrize("loop", [None, "d", "m"])
def test_an_argument_read_under_two_names_is_right(compiled, rng, loop):
    sizes = {"n": 19, "d": 40}
    mu = mugraph(GRAM, sizes, {"x": "n"}, loop, {"x": 3, "i": 2})
    arguments = random_arguments(GRAM, sizes, rng)
    assert_computes(compiled(mu), GRAM, arguments, TOLERANCE["float32"])


@pytest.mark.parametrize("loop", [None, "d", "h", "n"])
def test_several_outputs_are_right_also_where_blocks_share_them(compiled, rng, loop):
    sizes = {"n": 6, "d": 37, "h": 40}
    mu = mugraph(OUTPUTS, sizes, {"x": "h"}, loop, {"x": 3, "i": 2})
    arguments = random_arguments(OUTPUTS, sizes, rng)
    assert_computes(compiled(mu), OUTPUTS, arguments, TOLERANCE["float32"])


@pytest.mark.parametrize("loop", [None, "n", "d", "h"])
def test_maxima_over_looped_and_other_dims_are_right(compiled, rng, loop):
    sizes = {"n": 5, "d": 23, "h": 18}
    grid = {"x": "n"} if loop != "n" else {}
    mu = mugraph(EXTREMES, sizes, grid, loop, {"x": 2, "i": 3})
    arguments = random_arguments(EXTREMES, sizes, rng)
    arguments[0][1, 3] -= 100.0
    assert_computes(compiled(mu), EXTREMES, arguments, TOLERANCE["float32"])


def test_a_block_index_past_the_clipped_chunk_never_writes_outside(compiled, rng):
    sizes = {"n": 7, "d": 20, "h": 101}
    mu = mugraph(MATMUL, sizes, {"x": "n", "y": "h"}, None, {"x": 4, "y": 6})
    kernel = compiled(mu)
    arguments = random_arguments(MATMUL, sizes, rng)
    guarded = np.full((9, 101), 7.0, np.float32)
    kernel.run_into(arguments, [guarded[1:8]])
    assert (guarded[[0, 8]] == 7.0).all()
    assert_computes(kernel, MATMUL, arguments, TOLERANCE["float32"])


@pytest.mark.parametrize("program", [ATTENTION, SOFTMAX_MATMUL], ids=["attention", "softmax"])
def test_the_graph_means_what_its_blocks_compute(compiled, rng, program):
    sizes = dict.fromkeys(program.size_names, 11)
    sizes["n" if "n" in sizes else "b"] = 4
    loop = "l" if "l" in sizes else "d"
    mu = mugraph(program, sizes, {"x": "n" if "n" in sizes else "b"}, loop, {"x": 2, "i": 3})
    arguments = random_arguments(program, sizes, rng, "float64")
    arrays = {a.name: x for a, x in zip(program.arguments, arguments, strict=True)}
    (expected,) = evaluate_graph(mu, arrays)
    (out,) = compiled(mu, "float64")(*arguments)
    np.testing.assert_allclose(out, expected, rtol=1e-12)


@pytest.mark.parametrize("grid", [{}, {"x": "n"}])
@pytest.mark.parametrize("loop", [None, "n", "d", "h"])
def test_outputs_are_broadcast_over_dims_their_value_lacks(compiled, rng, grid, loop):
    sizes = {"n": 5, "d": 7, "h": 18}
    mu = mugraph(BROADCAST, sizes, grid, loop, {"x": 2, "i": 2})
    arguments = random_arguments(BROADCAST, sizes, rng, "float64")
    assert_computes(compiled(mu, "float64"), BROADCAST, arguments, TOLERANCE["float64"])


def test_blocks_and_iterations_that_split_nothing_repeat_the_same_work(compiled, rng):
    mu = repeating()
    x, w = random_arguments(MATMUL, dict(mu.sizes), rng, "float64")
    (out,) = run_filled(compiled(mu, "float64"), (x, w))
    np.testing.assert_allclose(out, 4 * (x @ w), rtol=1e-12)
    np.testing.assert_allclose(out, evaluate_graph(mu, {"x": x, "w": w})[0], rtol=1e-12)


def test_two_grid_dims_may_split_one_dim_of_different_tensors(compiled, rng):
    mu = two_grids()
    arguments = random_arguments(mu.graph.program, dict(mu.sizes), rng)
    assert_computes(compiled(mu), mu.graph.program, arguments, TOLERANCE["float32"])


STREAMS = {
    "fetched in whole calls": {"n": 8, "d": 400, "h": 1024},
    "one row": {"n": 1, "d": 517, "h": 2000},
    "odd": {"n": 5, "d": 331, "h": 2063},
    "many rows": {"n": 16, "d": 300, "h": 768},
}


@pytest.mark.parametrize("grid", [{}, {"x": "h"}], ids=["whole", "cut"])
@pytest.mark.parametrize("sizes", STREAMS.values(), ids=STREAMS)
def test_streams_in_panels_that_fit_the_cache_are_right(compiled, rng, monkeypatch, sizes, grid):
    arguments = random_arguments(MATMUL, sizes, rng)
    for l2_kilobytes, loop in ((32, None), (1024, None), (32, "d")):
        monkeypatch.setattr(device, "l2_bytes", lambda size=l2_kilobytes << 10: size)
        mu = mugraph(MATMUL, sizes, grid, loop, dict.fromkeys(grid, 2) | ({"i": 3} if loop else {}))
        assert_computes(compiled(mu), MATMUL, arguments, TOLERANCE["float32"])


def test_a_stream_wider_than_the_cache_is_read_in_panels(cpu, monkeypatch):
    mu = mugraph(MATMUL, {"n": 8, "d": 400, "h": 1024})
    assert "panel" not in cpu.emit(mu, "float32").text
    monkeypatch.setattr(device, "l2_bytes", lambda: 32 << 10)
    assert "panel" in cpu.emit(mu, "float32").text


@pytest.mark.parametrize(("columns", "rows_are_far"), [(1024, True), (1040, False)])
def test_a_sum_that_grows_in_memory_is_no_output_with_far_rows(cpu, columns, rows_are_far):
    text = cpu.emit(mugraph(MATMUL, {"n": 8, "d": 400, "h": columns}), "float32").text
    assert ("_fetch(offset(out0," in text) is not rows_are_far


SHORT_ROWS = {
    "whole vectors": {"b": 2, "g": 4, "l": 96, "d": 16, "e": 128},
    "five rows in passes of two": {"b": 2, "g": 5, "l": 70, "d": 16, "e": 112},
    "a vector with a rest": {"b": 1, "g": 3, "l": 50, "d": 7, "e": 67},
}


@pytest.mark.parametrize("loop", [None, "l"])
@pytest.mark.parametrize("sizes", SHORT_ROWS.values(), ids=SHORT_ROWS)
def test_short_rows_are_met_in_blocks_that_the_first_cache_holds(  # noqa: PLR0917 - fixtures
    cpu, compiled, rng, monkeypatch, sizes, loop
):
    monkeypatch.setattr(registers, "LONG_STREAM_BYTES", 1 << 10)
    monkeypatch.setattr(registers, "PASS_BYTES", 4 << 10)
    mu = mugraph(ATTENTION, sizes, {"x": "b"}, loop, {"x": sizes["b"], "i": 2})
    if device.vector_registers() >= 32:
        assert re.search(r"for k\d+ in range", cpu.emit(mu, "float32").text)
    arguments = random_arguments(ATTENTION, sizes, rng)
    assert_computes(compiled(mu), ATTENTION, arguments, TOLERANCE["float32"])


@pytest.mark.parametrize(("rows", "columns"), [(1, 4000), (4, 900)])
def test_what_is_read_again_is_fetched_an_iteration_ahead(cpu, compiled, rng, rows, columns):
    sizes = {"n": 40 * rows, "d": columns}
    mu = mugraph(SOFTMAX, sizes, {"x": "n"}, "n", {"x": 2, "i": 20})
    assert "fetch(offset(" in cpu.emit(mu, "float32").text
    small = mugraph(SOFTMAX, {"n": 40, "d": 100}, {"x": "n"}, "n", {"x": 2, "i": 20})
    assert "fetch(" not in cpu.emit(small, "float32").text, "it sits in a cache"
    arguments = random_arguments(SOFTMAX, sizes, rng)
    assert_computes(compiled(mu), SOFTMAX, arguments, TOLERANCE["float32"])


@pytest.mark.parametrize("rows", [1, 5, 9])
@pytest.mark.parametrize("loop", ["d", "h"])
def test_pieces_of_rows_and_long_rows_are_fetched_ahead(  # noqa: PLR0917 - fixtures
    cpu, compiled, rng, monkeypatch, rows, loop
):
    """Whole rows in the order of memory: the vectors of one step follow each other."""
    monkeypatch.setattr(registers, "LONG_STREAM_BYTES", 1 << 10)
    monkeypatch.setattr(registers, "SHORT_ROW_BYTES", 256)
    sizes = {"n": rows, "d": 103, "h": 37}
    arguments = random_arguments(LINEAR, sizes, rng)
    mu = mugraph(LINEAR, sizes, {"x": "h"}, loop, {"x": 2, "i": 3})
    text = cpu.emit(mu, "float32").text
    apart = re.findall(r"dot_\d+x\d+_\w*?fetch\d\(.* (\d+)\)\n", text)
    assert set(apart) == {"103" if loop == "d" else str(device.vector_bits() // 32)}
    assert_computes(compiled(mu), LINEAR, arguments, TOLERANCE["float32"])


def test_short_whole_rows_are_left_to_the_processor(cpu, monkeypatch):
    monkeypatch.setattr(registers, "LONG_STREAM_BYTES", 1 << 10)
    mu = mugraph(LINEAR, {"n": 8, "d": 103, "h": 37}, {"x": "h"}, None, {"x": 2})
    assert "fetch" not in cpu.emit(mu, "float32").text


SCALED = parse_program("""
program scaled
  dims n, d
  args x[n, d], g[d]
  x = input x[n, d]
  g = input g[d]
  %2 = mul(x, g)
  return %2[n, d]
""")

LARGE = {
    "aligned": ({"n": 8, "d": 256}, {"x": 2}, None),
    "rows that start anywhere": ({"n": 7, "d": 333}, {"x": 2}, None),
    "a loop over rows": ({"n": 12, "d": 301}, {"x": 2, "i": 3}, "n"),
    "rows in pieces": ({"n": 5, "d": 701}, {"x": 2, "y": 2}, None),
    "long rows": ({"n": 4, "d": 3072}, {"x": 2, "i": 2}, "n"),
    "long rows that start anywhere": ({"n": 3, "d": 2311}, {"x": 2}, None),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE)
def test_rows_written_past_the_caches_are_right(compiled, rng, monkeypatch, case, dtype):
    monkeypatch.setattr(device, "l3_bytes", lambda: 1 << 10)
    sizes, counts, loop = case
    program = SOFTMAX if "y" not in counts else SCALED
    grid = {"x": "n"} | ({"y": "d"} if "y" in counts else {})
    mu = mugraph(program, sizes, grid, loop, counts)
    arguments = random_arguments(program, sizes, rng, dtype)
    assert_computes(compiled(mu, dtype), program, arguments, TOLERANCE[dtype])


@pytest.mark.skipif(not device.streams_stores(), reason="this machine has no such stores")
def test_what_fits_the_last_cache_is_written_as_usual(cpu, monkeypatch):
    mu = mugraph(SOFTMAX, {"n": 8, "d": 256}, {"x": "n"}, None, {"x": 2})
    assert "stream_row(" not in cpu.emit(mu, "float32").text
    monkeypatch.setattr(device, "l3_bytes", lambda: 1 << 10)
    assert "stream_row(" in cpu.emit(mu, "float32").text


@pytest.mark.parametrize("size", [8193, 100_003])
def test_long_sums_are_added_up_in_parts(compiled, size):
    program = parse_program("""
program moments
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = mean[d](x)
  %2 = max[d](x)
  %3 = square(x)
  %4 = sum[d](%3)
  return %1[n]
  return %2[n]
  return %4[n]
""")
    x = np.full((2, size), 333.3, np.float32)
    x[1, -1] = 1e4
    outputs = run_filled(compiled(mugraph(program, {"n": 2, "d": size})), (x,))
    exact = x.astype(np.float64)
    expected = (exact.mean(1), exact.max(1), (exact**2).sum(1))
    for out, reference in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(out, reference, rtol=2e-6)
