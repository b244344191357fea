"""Graphs of several kernels, beside those of `stacked.py`: exponentials cut in every way."""

# Annotations are dims here, not types.

from __future__ import annotations

import stacked
from stacked import graph

import prism
from prism.ir import MuGraph, bind_sizes


def mu_of(sgraph, sizes, *counts, schedule=()):
    """The muGraph at sizes, with the counts of each kernel."""
    bound = bind_sizes(sgraph.program, {d: sizes[d] for d in sgraph.program.size_names})
    pars = tuple(tuple(c.items()) for c in counts)
    return MuGraph(sgraph, tuple(bound.items()), pars, tuple(schedule))


def bare(q: "q e", k: "k e", v: "k f"):
    """Attention as algebra has it: overflows in NumPy."""
    e = prism.exp(q @ k.T)
    return (e / prism.sum(e, axis=-1, keepdims=True)) @ v


def stable(q: "q e", k: "k e", v: "k f"):
    return prism.softmax(q @ k.T, axis=-1) @ v


ONE_PASS = stacked.FLASH_DECODING
"""The blocks of kernel 0 each take a part of the keys; kernel 1 sums over all parts at once."""

LOOP_OVER_PARTS = (
    ONE_PASS.split("kernel 1", maxsplit=1)[0]
    + """\
kernel 1
  grid x
  loop i
  map m[out0,f,x]
  map m[t0,f,x] m[t0,s,i]
  map m[t1,s,i]
  t0 = load t0[s, q, f]
  t1 = load t1[s, q]
  %2 = sum[s](t0)
  %3 = sum[s](t1)
  %4 = accumulate[i] sum(%2)
  %5 = accumulate[i] sum(%3)
  %6 = div(%4, %5)
  save %6 as out0[q, f]
"""
)

NO_LOOP = """\
kernel 0
  grid x, y
  map m[q,q,y]
  map m[k,k,x]
  map m[v,k,x]
  map m[t0,s,x] m[t0,q,y]
  map m[t1,s,x] m[t1,q,y]
  q = load q[q, e]
  k = load k[k, e]
  v = load v[k, f]
  %3 = matmul[e](q, k)
  %4 = exp(%3)
  %5 = matmul[k](%4, v)
  %6 = sum[k](%4)
  save %5 as t0[q, s, f]
  save %6 as t1[q, s]
kernel 1
  grid x
  map m[out0,q,x]
  map m[t0,q,x]
  map m[t1,q,x]
  t0 = load t0[q, s, f]
  t1 = load t1[q, s]
  %2 = sum[s](t0)
  %3 = sum[s](t1)
  %4 = div(%2, %3)
  save %4 as out0[q, f]
"""

THREE = (
    NO_LOOP.split("kernel 1", maxsplit=1)[0]
    + """\
kernel 1
  grid x
  map m[t0,s,x]
  map m[t1,s,x]
  map m[t2,r,x]
  map m[t3,r,x]
  t0 = load t0[q, s, f]
  t1 = load t1[q, s]
  %2 = sum[s](t0)
  %3 = sum[s](t1)
  save %2 as t2[r, q, f]
  save %3 as t3[r, q]
kernel 2
  t2 = load t2[r, q, f]
  t3 = load t3[r, q]
  %2 = sum[r](t2)
  %3 = sum[r](t3)
  %4 = div(%2, %3)
  save %4 as out0[q, f]
"""
)

SUM_APART = """\
kernel 0
  grid x
  map m[k,k,x]
  map m[t0,s,x]
  q = load q[q, e]
  k = load k[k, e]
  %2 = matmul[e](q, k)
  %3 = exp(%2)
  %4 = sum[k](%3)
  save %4 as t0[s, q]
kernel 1
  grid x
  map m[k,k,x]
  map m[v,k,x]
  map m[t1,r,x]
  q = load q[q, e]
  k = load k[k, e]
  v = load v[k, f]
  %3 = matmul[e](q, k)
  %4 = exp(%3)
  %5 = matmul[k](%4, v)
  save %5 as t1[r, q, f]
kernel 2
  t0 = load t0[s, q]
  t1 = load t1[r, q, f]
  %2 = sum[s](t0)
  %3 = sum[r](t1)
  %4 = div(%3, %2)
  save %4 as out0[q, f]
"""
"""The divisor and the quotient's numerator come from kernels of their own: two references."""

SCORES = """\
kernel 0
  grid x
  map m[k,k,x]
  map m[t0,k,x]
  q = load q[q, e]
  k = load k[k, e]
  %2 = matmul[e](q, k)
  save %2 as t0[q, k]
kernel 1
  loop i
  map m[t0,k,i]
  map m[v,k,i]
  t0 = load t0[q, k]
  v = load v[k, f]
  %2 = exp(t0)
  %3 = matmul[k](%2, v)
  %4 = sum[k](%2)
  %5 = accumulate[i] sum(%3)
  %6 = accumulate[i] sum(%4)
  %7 = div(%5, %6)
  save %7 as out0[q, f]
"""
"""The scores lie in memory; the exponentials are taken and summed in one kernel."""

WEIGHTS = """\
kernel 0
  grid x
  loop i
  map m[q,q,x]
  map m[k,k,i]
  map m[t0,q,x]
  map m[t1,q,x]
  q = load q[q, e]
  k = load k[k, e]
  %2 = matmul[e](q, k)
  %3 = exp(%2)
  %4 = sum[k](%3)
  %5 = accumulate[i] concat[k](%3)
  %6 = accumulate[i] sum(%4)
  save %5 as t0[q, k]
  save %6 as t1[q]
kernel 1
  grid x, y
  loop i
  map m[t0,k,i] m[t0,q,y]
  map m[t1,q,y]
  map m[v,k,i] m[v,f,x]
  map m[out0,f,x] m[out0,q,y]
  t0 = load t0[q, k]
  t1 = load t1[q]
  v = load v[k, f]
  %3 = matmul[k](t0, v)
  %4 = accumulate[i] sum(%3)
  %5 = div(%4, t1)
  save %5 as out0[q, f]
"""
"""The exponentials and their sums lie in memory, relative to a maximum that cancels."""

WEIGHTS_ALONE = """\
kernel 0
  grid x
  map m[q,q,x]
  map m[t0,q,x]
  q = load q[q, e]
  k = load k[k, e]
  %2 = matmul[e](q, k)
  %3 = exp(%2)
  save %3 as t0[q, k]
kernel 1
  grid x
  map m[v,f,x]
  map m[out0,f,x]
  t0 = load t0[q, k]
  v = load v[k, f]
  %2 = matmul[k](t0, v)
  %3 = sum[k](t0)
  %4 = div(%2, %3)
  save %4 as out0[q, f]
"""
"""The same, the sums taken where the exponentials are loaded."""

EXP_IN_MEMORY = """\
kernel 0
  grid x
  map m[k,k,x]
  map m[t0,k,x]
  q = load q[q, e]
  k = load k[k, e]
  %2 = matmul[e](q, k)
  %3 = exp(%2)
  save %3 as t0[q, k]
kernel 1
  t0 = load t0[q, k]
  v = load v[k, f]
  %2 = matmul[k](t0, v)
  %3 = sum[k](t0)
  %4 = div(%2, %3)
  save %4 as out0[q, f]
"""
"""Exponentials of which each block has a part of a row, and would need a maximum of its own."""


ATTENTION = {
    "one pass": (ONE_PASS, ({"x": 3, "i": 2}, {"x": 2})),
    "loop over the parts": (LOOP_OVER_PARTS, ({"x": 5, "i": 2}, {"x": 2, "i": 3})),
    "no loop, parts inside": (NO_LOOP, ({"x": 4, "y": 2}, {"x": 3})),
    "parts of parts": (THREE, ({"x": 6, "y": 2}, {"x": 3}, {})),
    "scores in memory": (SCORES, ({"x": 3}, {"i": 4})),
    "weights in memory": (WEIGHTS, ({"x": 2, "i": 4}, {"x": 2, "y": 3, "i": 2})),
    "weights alone in memory": (WEIGHTS_ALONE, ({"x": 3}, {"x": 2})),
}
"""Text, and counts of each kernel."""

MASKED = """\
kernel 0
  grid x
  loop i
  map m[a,k,x] m[a,k,i]
  map m[v,k,x] m[v,k,i]
  map m[t0,s,x]
  map m[t1,s,x]
  a = load a[q, k]
  v = load v[k, f]
  %2 = exp(a)
  %3 = matmul[k](%2, v)
  %4 = sum[k](%2)
  %5 = accumulate[i] sum(%3)
  %6 = accumulate[i] sum(%4)
  save %5 as t0[s, q, f]
  save %6 as t1[s, q]
"""


def from_logits(a: "q k", v: "k f"):
    """Attention whose logits, masked ones among them, are given."""
    return prism.softmax(a, axis=-1) @ v


def masked(name):
    """The graph of `from_logits` that puts its parts together as a row of ATTENTION does."""
    _, second = ATTENTION[name][0].split("kernel 1")
    return graph(from_logits, f"{MASKED}kernel 1{second}")
