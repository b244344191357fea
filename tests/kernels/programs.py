"""Programs for kernel tests, as text, and what runs their graphs on the CPU."""

from __future__ import annotations

import numpy as np

from prism.ir import evaluate, parse_program

TOLERANCE = {"float32": 1e-5, "float64": 1e-12}

RMSNORM = parse_program("""
program rmsnorm
  dims n, d, h
  args x[n, d], g[d], w[d, h]
  x = input x[n, d]
  g = input g[d]
  w = input w[d, h]
  %3 = 1e-05
  %4 = mul(x, g)
  %5 = square(x)
  %6 = mean[d](%5)
  %7 = add(%6, %3)
  %8 = sqrt(%7)
  %9 = div(%4, %8)
  %10 = matmul[d](%9, w)
  return %10[n, h]
""")

RMSNORM_DIVIDED_LAST = parse_program("""
program rmsnorm
  dims n, d, h
  args x[n, d], g[d], w[d, h]
  x = input x[n, d]
  g = input g[d]
  w = input w[d, h]
  %3 = 1e-05
  %4 = mul(x, g)
  %5 = matmul[d](%4, w)
  %6 = square(x)
  %7 = sum[d](%6)
  %8 = size[d]
  %9 = div(%7, %8)
  %10 = add(%9, %3)
  %11 = sqrt(%10)
  %12 = div(%5, %11)
  return %12[n, h]
""")

MATMUL = parse_program("""
program matmul
  dims n, d, h
  args x[n, d], w[d, h]
  x = input x[n, d]
  w = input w[d, h]
  %2 = matmul[d](x, w)
  return %2[n, h]
""")

LINEAR = parse_program("""
program linear
  dims n, d, h
  args x[n, d], w[h, d]
  x = input x[n, d]
  w = input w[h, d]
  %2 = matmul[d](x, w)
  return %2[n, h]
""")

SOFTMAX = parse_program("""
program softmax
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = exp(x)
  %2 = sum[d](%1)
  %3 = div(%1, %2)
  return %3[n, d]
""")

STABLE_SOFTMAX = parse_program("""
program stable_softmax
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = max[d](x)
  %2 = sub(x, %1)
  %3 = exp(%2)
  %4 = sum[d](%3)
  %5 = div(%3, %4)
  return %5[n, d]
""")

SOFTMAX_MATMUL = parse_program("""
program softmax_matmul
  dims n, d, h
  args x[n, d], w[d, h]
  x = input x[n, d]
  w = input w[d, h]
  %2 = exp(x)
  %3 = sum[d](%2)
  %4 = matmul[d](%2, w)
  %5 = div(%4, %3)
  return %5[n, h]
""")

ATTENTION = parse_program("""
program attention
  dims b, g, l, d, e
  args q[b, g, d], k[b, l, d], v[b, l, e]
  q = input q[b, g, d]
  k = input k[b, l, d]
  v = input v[b, l, e]
  %3 = matmul[d](q, k)
  %4 = 0.125
  %5 = mul(%3, %4)
  %6 = exp(%5)
  %7 = matmul[l](%6, v)
  %8 = sum[l](%6)
  %9 = div(%7, %8)
  return %9[b, g, e]
""")


def random_arguments(program, sizes, rng, dtype="float32", scale=1.0):
    """Normal random arrays in argument order, of the dtype."""
    shapes = ([1 if d is None else sizes[d] for d in a.axes] for a in program.arguments)
    return tuple(np.asarray(rng.standard_normal(s) * scale, dtype) for s in shapes)


def run_filled(kernel, arguments):
    """The kernel's outputs, with all memory written pre-filled with NaN; inputs must stay."""
    copies = [a.copy() for a in arguments]
    outputs = [np.full_like(out, np.nan) for out in kernel(*arguments)]
    for memory in (kernel._workspace, *kernel._between):
        memory[...] = np.nan
    kernel.run_into(arguments, outputs)
    for array, copy in zip(arguments, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    return outputs


def assert_computes(kernel, program, arguments, tolerance):
    """The kernel's outputs equal the program's float64 value up to a relative norm."""
    arrays = {a.name: x for a, x in zip(program.arguments, arguments, strict=True)}
    expected = evaluate(program, arrays)
    for out, reference in zip(run_filled(kernel, arguments), expected, strict=True):
        assert out.shape == reference.shape
        assert relative_error(out, reference) <= tolerance


def relative_error(out, reference):
    """The norm of the difference over the norm of the reference (inf where out is not finite)."""
    if not np.isfinite(out).all():
        return np.inf
    scale = np.linalg.norm(reference)
    return np.linalg.norm(out - reference) / scale if scale else np.linalg.norm(out)
