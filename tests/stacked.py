"""SGraphs of several kernels, written by hand: right ones, and wrong ones made from them.

Each is the text of its kernels over a program; `t0`, `t1` are tensors between kernels, `s` is a dim
along which blocks stack partial values.
"""

from __future__ import annotations

from textwrap import dedent

from prism import frontend as pr
from prism.ir import SGraph, format_program, parse_sgraph


def matmul(x: "n d", w: "d h"):
    return x @ w


def rmsnorm(x: "n d", w: "d h"):
    return (x / pr.sqrt(pr.mean(x**2, axis=-1, keepdims=True))) @ w


def attention(q: "q e", k: "k e", v: "k f"):
    e = pr.exp(q @ k.T)
    return (e / pr.sum(e, axis=-1, keepdims=True)) @ v


def ffn(x: "n d", w: "d f", u: "d f", down: "f h"):
    return (pr.silu(x @ w) * (x @ u)) @ down


def largest(x: "n d"):
    return pr.max(x, axis=-1)


def graph(function, text) -> SGraph:
    """A graph of the program from the text of its kernels."""
    return parse_sgraph("sgraph\n" + format_program(pr.trace(function)) + dedent(text))


SPLIT_K = """\
kernel 0
  grid x, y
  map m[t0,h,y] m[t0,s,x]
  map m[w,d,x] m[w,h,y]
  map m[x,d,x]
  x = load x[n, d]
  w = load w[d, h]
  %2 = matmul[d](x, w)
  save %2 as t0[s, n, h]
kernel 1
  grid x
  map m[out0,h,x]
  map m[t0,h,x]
  t0 = load t0[s, n, h]
  %1 = sum[s](t0)
  save %1 as out0[n, h]
"""

SPLIT_RMSNORM = """\
kernel 0
  grid x, y
  loop i
  map m[t0,h,y] m[t0,s,x]
  map m[t1,s,x]
  map m[w,d,x] m[w,h,y] m[w,d,i]
  map m[x,d,x] m[x,d,i]
  x = load x[n, d]
  w = load w[d, h]
  %2 = matmul[d](x, w)
  %3 = square(x)
  %4 = sum[d](%3)
  %5 = accumulate[i] sum(%2)
  %6 = accumulate[i] sum(%4)
  save %5 as t0[s, n, h]
  save %6 as t1[s, n]
kernel 1
  grid x
  loop i
  map m[out0,h,x]
  map m[t0,h,x] m[t0,s,i]
  map m[t1,s,i]
  t0 = load t0[s, n, h]
  t1 = load t1[s, n]
  %2 = size[d]
  %3 = sum[s](t0)
  %4 = sum[s](t1)
  %5 = accumulate[i] sum(%3)
  %6 = accumulate[i] sum(%4)
  %7 = div(%6, %2)
  %8 = sqrt(%7)
  %9 = div(%5, %8)
  save %9 as out0[n, h]
"""

FLASH_DECODING = """\
kernel 0
  grid x
  loop i
  map m[k,k,x] m[k,k,i]
  map m[v,k,x] m[v,k,i]
  map m[t0,s,x]
  map m[t1,s,x]
  q = load q[q, e]
  k = load k[k, e]
  v = load v[k, f]
  %3 = matmul[e](q, k)
  %4 = exp(%3)
  %5 = matmul[k](%4, v)
  %6 = sum[k](%4)
  %7 = accumulate[i] sum(%5)
  %8 = accumulate[i] sum(%6)
  save %7 as t0[s, q, f]
  save %8 as t1[s, q]
kernel 1
  grid x
  map m[out0,f,x]
  map m[t0,f,x]
  t0 = load t0[s, q, f]
  t1 = load t1[s, q]
  %2 = sum[s](t0)
  %3 = sum[s](t1)
  %4 = div(%2, %3)
  save %4 as out0[q, f]
"""

FFN = """\
kernel 0
  grid x
  map m[w,f,x]
  map m[u,f,x]
  map m[t0,f,x]
  x = load x[n, d]
  w = load w[d, f]
  u = load u[d, f]
  %3 = matmul[d](x, w)
  %4 = silu(%3)
  %5 = matmul[d](x, u)
  %6 = mul(%4, %5)
  save %6 as t0[n, f]
kernel 1
  grid x
  loop i
  map m[t0,f,i]
  map m[down,f,i] m[down,h,x]
  map m[out0,h,x]
  t0 = load t0[n, f]
  down = load down[f, h]
  %2 = matmul[f](t0, down)
  %3 = accumulate[i] sum(%2)
  save %3 as out0[n, h]
"""

THREE = """\
kernel 0
  grid x
  map m[t0,s,x]
  map m[x,d,x]
  x = load x[n, d]
  %1 = square(x)
  %2 = sum[d](%1)
  save %2 as t0[s, n]
kernel 1
  t0 = load t0[s, n]
  %1 = sum[s](t0)
  %2 = size[d]
  %3 = div(%1, %2)
  %4 = sqrt(%3)
  save %4 as t1[n]
kernel 2
  grid x
  map m[w,h,x]
  map m[out0,h,x]
  x = load x[n, d]
  t1 = load t1[n]
  w = load w[d, h]
  %3 = div(x, t1)
  %4 = matmul[d](%3, w)
  save %4 as out0[n, h]
"""

LARGEST = """\
kernel 0
  grid x
  map m[x,d,x]
  map m[t0,s,x]
  x = load x[n, d]
  %1 = max[d](x)
  save %1 as t0[s, n]
kernel 1
  t0 = load t0[s, n]
  %1 = max[s](t0)
  save %1 as out0[n]
"""

RIGHT = {
    "split k": graph(matmul, SPLIT_K),
    "split rmsnorm": graph(rmsnorm, SPLIT_RMSNORM),
    "flash decoding": graph(attention, FLASH_DECODING),
    "ffn": graph(ffn, FFN),
    "three kernels": graph(rmsnorm, THREE),
    "largest": graph(largest, LARGEST),
}

WRONG = {
    "whole beside a stack": graph(
        matmul, SPLIT_K.replace("  map m[x,d,x]\n", "").replace("m[w,d,x] ", "")
    ),
    "a nonlinear operator before the sum": graph(
        rmsnorm,
        THREE.replace("  %1 = sum[s](t0)\n", "  %1 = sqrt(t0)\n")
        .replace("  %4 = sqrt(%3)", "  %4 = sum[s](%3)")
        .replace("div(%1, %2)", "div(%1, %2)"),
    ),
    "the largest of sums": graph(matmul, SPLIT_K.replace("sum[s]", "max[s]")),
    "the sum of maxima": graph(largest, LARGEST.replace("max[s]", "sum[s]")),
    "a quotient of each split": graph(
        attention,
        FLASH_DECODING.replace("%2 = sum[s](t0)", "%2 = div(t0, t1)")
        .replace("%3 = sum[s](t1)", "%3 = sum[s](%2)")
        .replace("%4 = div(%2, %3)", "%4 = abs(%3)"),
    ),
    "a nonlinear operator of what is stacked": graph(
        attention,
        FLASH_DECODING.replace("save %8 as", "%9 = square(%8)\n  save %9 as"),
    ),
}
