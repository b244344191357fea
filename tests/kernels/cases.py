"""Programs and graphs that reach every kind of code an emitter writes."""

from __future__ import annotations

from kernels.programs import MATMUL, RMSNORM, RMSNORM_DIVIDED_LAST

from prism.ir import (
    GRID_DIMS,
    LOOP_DIM,
    Accumulator,
    AccumulatorKind,
    Apply,
    BlockGraph,
    GraphOp,
    InputLoader,
    Mapping,
    MapVar,
    MuGraph,
    OutputSaver,
    SGraph,
    parse_program,
)

RMSNORM_FORMS = {
    "divided after the loop": (RMSNORM_DIVIDED_LAST, {"x": "h"}, "d", True),
    "divided before the product": (RMSNORM, {"x": "h"}, "d", True),
    "no loop": (RMSNORM, {"x": "h"}, None, True),
    "grid over rows and columns": (RMSNORM_DIVIDED_LAST, {"x": "n", "y": "h"}, "d", True),
    "everything after the loop": (RMSNORM, {"x": "h"}, "d", False),
    "loop over the columns": (RMSNORM, {"x": "n"}, "h", True),
    "loop over the rows": (RMSNORM, {}, "n", True),
    "grid and loop over the rows": (RMSNORM, {"x": "n"}, "n", True),
    "grid and loop over the columns": (RMSNORM_DIVIDED_LAST, {"x": "h"}, "h", True),
}

CONTRACTIONS = {
    "both operands stored along k last, batch first": ("b, n, k", "b, m, k", "b, n, m"),
    "k is the slow axis of both": ("k, n", "k, m", "n, m"),
    "batch is the fast axis of both": ("n, k, b", "k, m, b", "n, m, b"),
    "batch everywhere different": ("k, b, n", "m, b, k", "m, n, b"),
    "result transposed": ("n, k", "k, m", "m, n"),
    "two dims of rows and columns": ("b, n, k", "k, m, c", "b, n, m, c"),
    "result interleaved": ("b, n, k", "k, m, c", "m, b, c, n"),
    "rows in two places of an operand": ("b, k, n", "k, m", "b, n, m"),
    "outer product of matrix and vector": ("n, k", "k", "n"),
    "inner product": ("k", "k", ""),
    "only batch dims": ("b, k", "b, k", "b"),
}


def contraction(layout):
    """The program of a row of CONTRACTIONS."""
    left, right, result = CONTRACTIONS[layout]
    dims = sorted({d for d in f"{left}, {right}".split(", ") if d})
    return parse_program(f"""
program contraction
  dims {", ".join(dims)}
  args p[{left}], q[{right}]
  p = input p[{left}]
  q = input q[{right}]
  %2 = matmul[k](p, q)
  return %2[{result}]
""")


SIX_DIMS = parse_program("""
program six
  dims a, b, c, d, e, f
  args x[a, c, e, b], y[f, b, d], z[d, a]
  x = input x[a, c, e, b]
  y = input y[f, b, d]
  z = input z[d, a]
  %3 = mul(x, y)
  %4 = add(%3, z)
  %5 = sum[e](%4)
  %6 = max[c](%4)
  %7 = mean[b](%5)
  return %7[f, a, d, c]
  return %6[e, f, a, b, d]
""")

SCALARS = parse_program("""
program scalars
  dims n
  args x[n], s[], t[1]
  x = input x[n]
  s = input s[]
  t = input t[]
  %3 = mul(x, s)
  %4 = add(%3, t)
  %5 = sum[n](%4)
  %6 = size[n]
  %7 = div(%5, %6)
  %8 = sub(%4, %7)
  return %8[n]
  return %7[1, 1]
""")

GRAM = parse_program("""
program gram
  dims n, d, m = n
  args x[n, d]
  x = input x[n, d]
  y = input x[m, d]
  %2 = matmul[d](x, y)
  return %2[n, m]
""")

OUTPUTS = parse_program("""
program outputs
  dims n, d, h
  args x[n, d], w[d, h]
  x = input x[n, d]
  w = input w[d, h]
  %2 = matmul[d](x, w)
  %3 = sum[d](x)
  %4 = square(x)
  %5 = mul(%2, %3)
  return %2[n, h]
  return %3[n]
  return %4[d, n]
  return %5[h, n]
  return %2[h, n]
""")

EXTREMES = parse_program("""
program extremes
  dims n, d, h
  args x[n, d, h], y[d]
  x = input x[n, d, h]
  y = input y[d]
  %2 = max[d](x)
  %3 = mul(x, y)
  %4 = max[d](%3)
  %5 = max[h](%4)
  %6 = sub(%3, %4)
  return %2[h, n]
  return %5[n]
  return %6[n, d, h]
""")

BROADCAST = parse_program("""
program broadcast
  dims n, d, h
  args x[n, d], y[d, h]
  x = input x[n, d]
  y = input y[d, h]
  %2 = sum[d](x)
  %3 = 2.5
  %4 = sum[h](y)
  return %2[h, n]
  return %3[d]
  return %4[n, d, 1]
""")


def repeating():
    """A graph whose blocks and iterations split nothing: 5 x product - its maximum."""
    block = BlockGraph(
        (
            InputLoader("x", ("n", "d")),
            InputLoader("w", ("d", "h")),
            Apply("matmul", (0, 1), "d"),
            Accumulator(2, AccumulatorKind.MAX, "i"),
            Accumulator(2, AccumulatorKind.SUM, "i"),
            Apply("sub", (4, 3)),
            OutputSaver(5, "out0", ("n", "h")),
        )
    )
    kernel = GraphOp(GRID_DIMS[:2], (LOOP_DIM,), Mapping(frozenset()), block)
    sizes = (("n", 4), ("d", 9), ("h", 6))
    return MuGraph(SGraph(MATMUL, (kernel,)), sizes, ((("x", 3), ("y", 2), ("i", 5)),))


TWO_SQUARES = parse_program("""
program two_squares
  dims n
  args a[n], b[n]
  a = input a[n]
  b = input b[n]
  %2 = square(a)
  %3 = square(b)
  return %2[n]
  return %3[n]
""")


def two_grids():
    """A graph in which x splits n of one tensor and y splits n of the other."""
    block = BlockGraph(
        (
            InputLoader("a", ("n",)),
            InputLoader("b", ("n",)),
            Apply("square", (0,)),
            Apply("square", (1,)),
            OutputSaver(2, "out0", ("n",)),
            OutputSaver(3, "out1", ("n",)),
        )
    )
    split = {"a": "x", "out0": "x", "b": "y", "out1": "y"}
    mapping = Mapping(frozenset(MapVar(tensor, "n", p) for tensor, p in split.items()))
    kernel = GraphOp(GRID_DIMS[:2], (), mapping, block)
    return MuGraph(SGraph(TWO_SQUARES, (kernel,)), (("n", 7),), ((("x", 2), ("y", 4)),))


SHARED_NEST = parse_program("""
program shared_nest
  dims n, d, h
  args x[n, d], w[d, h]
  x = input x[n, d]
  w = input w[d, h]
  %2 = sum[d](x)
  %3 = max[d](x)
  %4 = div(x, %2)
  %5 = matmul[d](x, w)
  return %3[n]
  return %2[n]
  return %4[n, d]
  return %5[n, h]
  return %2[n, h]
""")
"""Several outputs of one space, of which the first needs no code of its own."""
