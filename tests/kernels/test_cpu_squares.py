"""Sums of squares of what a contraction streams are made by the contraction."""

from __future__ import annotations

import re

import numpy as np
import pytest
from kernels.legal import mugraph
from kernels.programs import TOLERANCE, assert_computes, random_arguments

from prism.ir import parse_program

SQUARES = """
program squares
  dims b, n, s, d
  args q[b, n, d], k[b, s, d]
  q = input q[b, n, d]
  k = input k[b, s, d]
  %2 = {square}
  %3 = sum[d](%2)  # [b, s]
  %4 = matmul[d](q, k)  # [b, n, s]
  %5 = div(%4, %3)  # [b, n, s]
  return %5[b, n, s]{more}
"""

NARROW = {"float16": 2e-3}


@pytest.mark.parametrize("grid", [{}, {"x": "s"}, {"x": "b"}], ids=["whole", "cut", "batch"])
@pytest.mark.parametrize("square", ["square(k)", "mul(k, k)"])
@pytest.mark.parametrize("rows", [1, 4, 5, 19])
def test_squares_of_a_stream_are_summed_where_it_is_multiplied(  # noqa: PLR0917 - fixtures
    cpu, compiled, rng, rows, square, grid
):
    program = parse_program(SQUARES.format(square=square, more=""))
    sizes = {"b": 3, "n": rows, "s": 37, "d": 67}
    mu = mugraph(program, sizes, grid, None, dict.fromkeys(grid, 2))
    text = cpu.emit(mu, "float32").text
    assert len(re.findall(r"_squares\(", text)) >= 1
    for dtype in ("float32", "float64"):
        arguments = random_arguments(program, sizes, rng, dtype)
        assert_computes(compiled(mu, dtype), program, arguments, TOLERANCE[dtype])


@pytest.mark.parametrize("rows", [4, 19])
def test_squares_of_a_narrow_stream_are_summed_as_wide_as_the_rest(cpu, compiled, rng, rows):
    program = parse_program(SQUARES.format(square="square(k)", more=""))
    sizes = {"b": 3, "n": rows, "s": 37, "d": 67}
    mu = mugraph(program, sizes, {"x": "s"}, None, {"x": 2})
    assert "_squares(" in cpu.emit(mu, "float16").text
    arguments = random_arguments(program, sizes, rng, "float16")
    assert_computes(compiled(mu, "float16"), program, arguments, NARROW["float16"])


@pytest.mark.parametrize(("loop", "is_merged"), [("s", True), ("d", False)])
def test_squares_in_a_loop_are_right(cpu, compiled, rng, loop, is_merged):
    """A sum that grows over the loop is no row's sum in any iteration."""
    program = parse_program(SQUARES.format(square="square(k)", more=""))
    sizes = {"b": 2, "n": 4, "s": 37, "d": 67}
    mu = mugraph(program, sizes, {"x": "b"}, loop, {"x": 2, "i": 3})
    assert ("_squares(" in cpu.emit(mu, "float32").text) is is_merged
    assert_computes(
        compiled(mu), program, random_arguments(program, sizes, rng), TOLERANCE["float32"]
    )


def test_squares_that_are_needed_themselves_are_not_left_to_the_product(cpu, compiled, rng):
    program = parse_program(SQUARES.format(square="square(k)", more="\n  return %2[b, s, d]"))
    sizes = {"b": 2, "n": 4, "s": 37, "d": 67}
    mu = mugraph(program, sizes)
    assert "_squares(" not in cpu.emit(mu, "float32").text
    assert_computes(
        compiled(mu), program, random_arguments(program, sizes, rng), TOLERANCE["float32"]
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("axes", ["b, s", "s, b"])
def test_sums_of_squares_may_be_results(cpu, compiled, rng, axes, dtype):
    program = parse_program(SQUARES.format(square="square(k)", more=f"\n  return %3[{axes}]"))
    sizes = {"b": 3, "n": 4, "s": 37, "d": 67}
    mu = mugraph(program, sizes, {"x": "b"}, None, {"x": 2})
    assert "_squares(" in cpu.emit(mu, dtype).text
    arguments = random_arguments(program, sizes, rng, dtype)
    assert_computes(compiled(mu, dtype), program, arguments, (TOLERANCE | NARROW)[dtype])


CONTRACTED = """
program contracted
  dims b, n, s, d, e
  args q[b, n, d], k[b, s, d], v[b, e, s]
  q = input q[b, n, d]
  k = input k[b, s, d]
  v = input v[b, e, s]
  %3 = square(k)
  %4 = sum[d](%3)  # [b, s]
  %5 = matmul[d](q, k)  # [b, n, s]
  %6 = matmul[s](%4, v)  # [b, e]
  return %5[b, n, s]
  return %6[b, e]
  return %4[s, b]
"""


def test_sums_of_squares_of_which_a_copy_is_made_are_made_before_it(cpu, compiled, rng):
    program = parse_program(CONTRACTED)
    sizes = {"b": 3, "n": 4, "s": 37, "d": 67, "e": 80}
    mu = mugraph(program, sizes)
    text = cpu.emit(mu, "float32").text
    assert "dense copy" in text
    assert "_squares(" not in text
    assert_computes(
        compiled(mu), program, random_arguments(program, sizes, rng), TOLERANCE["float32"]
    )


RELATIVE = """
program relative
  dims b, n, s, d, f
  args q[b, n, d], x[b, s, d, f]
  q = input q[b, n, d]
  x = input x[b, s, d, f]
  %2 = exp(x)
  %3 = sum[f](%2)  # [b, s, d]
  %4 = square(%3)
  %5 = sum[d](%4)  # [b, s]
  %6 = matmul[d](q, %3)  # [b, n, s]
  %7 = sum[s](%6)  # [b, n]
  %8 = square(%7)
  %9 = div(%5, %8)  # [b, n, s]
  %10 = div(%6, %7)  # [b, n, s]
  return %9[b, n, s]
  return %10[b, n, s]
"""


def test_sums_of_squares_that_are_rescaled_over_a_loop_are_not_left_to_the_product(
    cpu, compiled, rng
):
    program = parse_program(RELATIVE)
    sizes = {"b": 3, "n": 2, "s": 26, "d": 35, "f": 5}
    mu = mugraph(program, sizes, {"x": "b"}, "s", {"x": 1, "i": 2})
    assert "_squares(" not in cpu.emit(mu, "float32").text
    q, x = random_arguments(program, sizes, rng)
    rising = np.linspace(0, 4, sizes["s"], dtype="float32")[:, None, None]
    assert_computes(compiled(mu), program, (abs(q), x + rising), TOLERANCE["float32"])
