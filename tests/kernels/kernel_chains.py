"""Graphs of several kernels, written by hand: partial results, and what combines them."""

from __future__ import annotations

from random import Random

from kernels.legal import small_counts
from kernels.programs import random_arguments

from prism.ir import MuGraph, bind_sizes, chunk, parse_sgraph, stack_dims

SPLIT_K = parse_sgraph("""
sgraph
program matmul
  dims n, d, h
  args x[n, d], w[d, h]
  x = input x[n, d]
  w = input w[d, h]
  %2 = matmul[d](x, w)
  return %2[n, h]
kernel 0
  grid x, y
  loop i
  map m[t0,h,y] m[t0,s,x]
  map m[w,d,i] m[w,d,x] m[w,h,y]
  map m[x,d,i] m[x,d,x]
  body:
    x = load x[n, d]
    w = load w[d, h]
    %2 = matmul[d](x, w)
  after:
    %3 = accumulate[i] sum(%2)
    save %3 as t0[s, n, h]
kernel 1
  grid x
  map m[out0,h,x]
  map m[t0,h,x]
  t0 = load t0[s, n, h]
  %1 = sum[s](t0)
  save %1 as out0[n, h]
""")

SPLIT_K_RMSNORM = parse_sgraph("""
sgraph
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
  %7 = mean[d](%6)
  %8 = add(%7, %3)
  %9 = sqrt(%8)
  %10 = div(%5, %9)
  return %10[n, h]
kernel 0
  grid x, y
  map m[g,d,x]
  map m[t0,h,y] m[t0,s,x]
  map m[t1,s,x]
  map m[w,d,x] m[w,h,y]
  map m[x,d,x]
  x = load x[n, d]
  g = load g[d]
  w = load w[d, h]
  %3 = mul(x, g)
  %4 = matmul[d](%3, w)
  %5 = square(x)
  %6 = sum[d](%5)
  save %4 as t0[s, n, h]
  save %6 as t1[n, s]
kernel 1
  grid x
  loop i
  map m[out0,n,x]
  map m[t0,n,x] m[t0,s,i]
  map m[t1,n,x] m[t1,s,i]
  body:
    t0 = load t0[s, n, h]
    t1 = load t1[n, s]
    %2 = sum[s](t0)
    %3 = sum[s](t1)
  once:
    %4 = size[d]
    %5 = 1e-05
  after:
    %6 = accumulate[i] sum(%2)
    %7 = accumulate[i] sum(%3)
    %8 = div(%7, %4)
    %9 = add(%8, %5)
    %10 = sqrt(%9)
    %11 = div(%6, %10)
    save %11 as out0[n, h]
""")

FLASH_DECODING = parse_sgraph("""
sgraph
program attention
  dims b, g, l, d, e
  args q[b, g, d], k[b, l, d], v[b, l, e]
  q = input q[b, g, d]
  k = input k[b, l, d]
  v = input v[b, l, e]
  %3 = matmul[d](q, k)
  %4 = exp(%3)
  %5 = matmul[l](%4, v)
  %6 = sum[l](%4)
  %7 = div(%5, %6)
  return %7[b, g, e]
kernel 0
  grid x, y
  loop i
  map m[k,b,y] m[k,l,i] m[k,l,x]
  map m[q,b,y]
  map m[t0,b,y] m[t0,s,x]
  map m[t1,b,y] m[t1,s,x]
  map m[v,b,y] m[v,l,i] m[v,l,x]
  once:
    q = load q[b, g, d]
  body:
    k = load k[b, l, d]
    v = load v[b, l, e]
    %3 = matmul[d](q, k)
    %4 = exp(%3)
    %5 = matmul[l](%4, v)
    %6 = sum[l](%4)
  after:
    %7 = accumulate[i] sum(%5)
    %8 = accumulate[i] sum(%6)
    save %7 as t0[s, b, g, e]
    save %8 as t1[s, b, g]
kernel 1
  grid x
  map m[out0,b,x]
  map m[t0,b,x]
  map m[t1,b,x]
  t0 = load t0[s, b, g, e]
  t1 = load t1[s, b, g]
  %2 = sum[s](t0)
  %3 = sum[s](t1)
  %4 = div(%2, %3)
  save %4 as out0[b, g, e]
""")

FFN = parse_sgraph("""
sgraph
program ffn
  dims n, d, f, h
  args x[n, d], gate[d, f], up[d, f], down[f, h]
  x = input x[n, d]
  gate = input gate[d, f]
  up = input up[d, f]
  down = input down[f, h]
  %4 = matmul[d](x, gate)
  %5 = silu(%4)
  %6 = matmul[d](x, up)
  %7 = mul(%5, %6)
  %8 = matmul[f](%7, down)
  return %8[n, h]
kernel 0
  grid x
  loop i
  map m[gate,d,i] m[gate,f,x]
  map m[t0,f,x]
  map m[up,d,i] m[up,f,x]
  map m[x,d,i]
  body:
    x = load x[n, d]
    gate = load gate[d, f]
    up = load up[d, f]
    %3 = matmul[d](x, gate)
    %4 = matmul[d](x, up)
  after:
    %5 = accumulate[i] sum(%3)
    %6 = accumulate[i] sum(%4)
    %7 = silu(%5)
    %8 = mul(%7, %6)
    save %8 as t0[n, f]
kernel 1
  grid x, y
  loop i
  map m[down,f,i] m[down,f,x] m[down,h,y]
  map m[t0,f,i] m[t0,f,x]
  map m[t1,h,y] m[t1,s,x]
  body:
    t0 = load t0[n, f]
    down = load down[f, h]
    %2 = matmul[f](t0, down)
  after:
    %3 = accumulate[i] sum(%2)
    save %3 as t1[s, n, h]
kernel 2
  grid x
  map m[out0,h,x]
  map m[t1,h,x]
  t1 = load t1[s, n, h]
  %1 = sum[s](t1)
  save %1 as out0[n, h]
""")

TWO_OUTPUTS = parse_sgraph("""
sgraph
program residual_rmsnorm
  dims n, d
  args x[n, d], r[n, d]
  x = input x[n, d]
  r = input r[n, d]
  %2 = add(x, r)
  %3 = square(%2)
  %4 = mean[d](%3)
  %5 = rsqrt(%4)
  %6 = mul(%2, %5)
  return %2[n, d]
  return %6[d, n]
kernel 0
  grid x
  map m[out0,d,x]
  map m[r,d,x]
  map m[t0,d,x]
  map m[t1,s,x]
  map m[x,d,x]
  x = load x[n, d]
  r = load r[n, d]
  %2 = add(x, r)
  %3 = square(%2)
  %4 = sum[d](%3)
  save %2 as out0[n, d]
  save %2 as t0[n, d]
  save %4 as t1[s, n]
kernel 1
  grid x, y
  map m[out1,d,y] m[out1,n,x]
  map m[t0,d,y] m[t0,n,x]
  map m[t1,n,x]
  t0 = load t0[n, d]
  t1 = load t1[s, n]
  %2 = sum[s](t1)
  %3 = size[d]
  %4 = div(%2, %3)
  %5 = rsqrt(%4)
  %6 = mul(t0, %5)
  save %6 as out1[d, n]
""")


def chain(graph, sizes, *counts, **schedule):
    """A graph at sizes and counts (one dict for each kernel)."""
    bound = bind_sizes(graph.program, sizes)
    par_sizes = tuple(tuple(given.items()) for given in counts)
    return MuGraph(graph, tuple(bound.items()), par_sizes, tuple(schedule.items()))


CHAINS = {
    "split-K": chain(
        SPLIT_K, {"n": 6, "d": 16, "h": 8}, {"x": 2, "y": 2, "i": 2}, {"x": 4}
    ),
    "ragged split-K": chain(
        SPLIT_K, {"n": 3, "d": 23, "h": 5}, {"x": 3, "y": 2, "i": 3}, {"x": 5}
    ),
    "split-K RMSNorm": chain(
        SPLIT_K_RMSNORM, {"n": 4, "d": 32, "h": 8}, {"x": 4, "y": 2}, {"x": 2, "i": 2}
    ),
    "ragged split-K RMSNorm": chain(
        SPLIT_K_RMSNORM, {"n": 5, "d": 13, "h": 7}, {"x": 5, "y": 3}, {"x": 2, "i": 3}
    ),
    "flash decoding": chain(
        FLASH_DECODING,
        {"b": 2, "g": 2, "l": 16, "d": 4, "e": 8},
        {"x": 2, "y": 2, "i": 2},
        {"x": 2},
    ),
    "ragged flash decoding": chain(
        FLASH_DECODING,
        {"b": 3, "g": 1, "l": 29, "d": 5, "e": 7},
        {"x": 3, "y": 2, "i": 3},
        {"x": 1},
    ),
    "FFN": chain(
        FFN,
        {"n": 4, "d": 8, "f": 16, "h": 8},
        {"x": 2, "i": 2},
        {"x": 2, "y": 2, "i": 2},
        {"x": 2},
    ),
    "ragged FFN": chain(
        FFN,
        {"n": 3, "d": 7, "f": 11, "h": 5},
        {"x": 3, "i": 2},
        {"x": 2, "y": 3, "i": 3},
        {"x": 1},
    ),
    "two outputs": chain(TWO_OUTPUTS, {"n": 4, "d": 12}, {"x": 3}, {"x": 2, "y": 2}),
    "ragged two outputs": chain(TWO_OUTPUTS, {"n": 5, "d": 7}, {"x": 4}, {"x": 3, "y": 2}),
}  # fmt: skip


def drawn(mu, rng, dtype="float32"):
    """Random arguments of a graph."""
    return random_arguments(mu.graph.program, dict(mu.sizes), rng, dtype)


def by_name(mu, arguments):
    """The arguments as `evaluate_graph` takes them."""
    return {a.name: x for a, x in zip(mu.graph.program.arguments, arguments, strict=True)}


def random_chain(seed):
    """A chain at random legal sizes and counts."""
    random = Random(seed)
    graph = random.choice(list(CHAINS.values())).graph
    sizes = {dim: random.choice((1, 2, 3, 5, 8, 13, 24)) for dim in graph.program.size_names}
    known, stacks, counts = dict(sizes), stack_dims(graph), []
    for k, op in enumerate(graph.kernels):
        mine = {}
        for par in (*op.grid, *op.loops):
            split = {v.dim for v in op.mapping.true if v.par == par.name} & known.keys()
            outer = [
                chunk(known[v.dim], mine[v.par])
                for v in op.mapping.true
                if v.dim in split and v.par in mine
            ]
            size = min([known[dim] for dim in split] + outer, default=4)
            mine[par.name] = random.choice(small_counts(size))
        known |= {dim: mine[par] for dim, (kernel, par) in stacks.items() if kernel == k}
        counts.append(mine)
    options = {"S": random.choice((0, 1, 2)), "T": random.choice((32, 64, 128))}
    return chain(graph, sizes, *counts, **options)
