"""Sums of squares of what a contraction streams are made by the contraction."""

from __future__ import annotations

import re

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


@pytest.mark.parametrize("loop", ["s", "d"])
def test_squares_in_a_loop_are_right(compiled, rng, loop):
    program = parse_program(SQUARES.format(square="square(k)", more=""))
    sizes = {"b": 2, "n": 4, "s": 37, "d": 67}
    mu = mugraph(program, sizes, {"x": "b"}, loop, {"x": 2, "i": 3})
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
