"""SGraphs with a loop inside a loop, written by hand: right ones, and wrong ones made from them.

Each is the text of its kernel over a program; i is the outer loop, j the inner one.
"""

from __future__ import annotations

from stacked import attention, graph, matmul, rmsnorm

from prism import frontend as pr


def total(x: "n d"):
    return pr.sum(x)


def largest_row(x: "n d"):
    return pr.max(pr.sum(x, axis=-1))


def scaled(x: "n d", g: "n"):
    return pr.exp(x) * pr.expand_dims(g, 1)


MATMUL = """\
kernel 0
  grid x
  loop i, j
  map m[out0,n,x]
  map m[w,d,j] m[w,h,i]
  map m[x,d,j] m[x,n,x]
  body:
    x = load x[n, d]
    w = load w[d, h]
    %2 = matmul[d](x, w)
  between:
    %3 = accumulate[j] sum(%2)
  after:
    %4 = accumulate[i] concat[h](%3)
    save %4 as out0[n, h]
"""

RMSNORM = """\
kernel 0
  grid x
  loop i, j
  map m[out0,n,x]
  map m[w,d,j] m[w,h,i]
  map m[x,d,j] m[x,n,x]
  once:
    %0 = size[d]
  body:
    x = load x[n, d]
    w = load w[d, h]
    %3 = matmul[d](x, w)
    %4 = square(x)
    %5 = sum[d](%4)
  between:
    %6 = accumulate[j] sum(%3)
    %7 = accumulate[j] sum(%5)
    %8 = div(%7, %0)
    %9 = sqrt(%8)
    %10 = div(%6, %9)
  after:
    %11 = accumulate[i] concat[h](%10)
    save %11 as out0[n, h]
"""

ATTENTION = """\
kernel 0
  grid x
  loop i, j
  map m[k,e,j] m[k,k,i]
  map m[out0,q,x]
  map m[q,e,j] m[q,q,x]
  map m[v,k,i]
  outer:
    v = load v[k, f]
  body:
    q = load q[q, e]
    k = load k[k, e]
    %3 = matmul[e](q, k)
  between:
    %4 = accumulate[j] sum(%3)
    %5 = exp(%4)
    %6 = matmul[k](%5, v)
    %7 = sum[k](%5)
  after:
    %8 = accumulate[i] sum(%6)
    %9 = accumulate[i] sum(%7)
    %10 = div(%8, %9)
    save %10 as out0[q, f]
"""

TOTAL = """\
kernel 0
  loop i, j
  map m[x,d,j] m[x,n,i]
  body:
    x = load x[n, d]
    %1 = sum[d](x)
    %2 = sum[n](%1)
  between:
    %3 = accumulate[j] sum(%2)
  after:
    %4 = accumulate[i] sum(%3)
    save %4 as out0[]
"""

LARGEST_ROW = """\
kernel 0
  loop i, j
  map m[x,d,j] m[x,n,i]
  body:
    x = load x[n, d]
    %1 = sum[d](x)
  between:
    %2 = accumulate[j] sum(%1)
    %3 = max[n](%2)
  after:
    %4 = accumulate[i] max(%3)
    save %4 as out0[]
"""

SCALED = """\
kernel 0
  loop i, j
  map m[g,n,i]
  map m[x,d,j] m[x,n,i]
  outer:
    g = load g[n]
  body:
    x = load x[n, d]
    %2 = exp(x)
    %3 = mul(%2, g)
  between:
    %4 = accumulate[j] concat[d](%3)
  after:
    %5 = accumulate[i] concat[n](%4)
    save %5 as out0[n, d]
"""

SPLIT_TWICE = """\
kernel 0
  loop i, j
  map m[w,d,i] m[w,d,j]
  map m[x,d,i] m[x,d,j]
  x = load x[n, d]
  w = load w[d, h]
  %2 = matmul[d](x, w)
  %3 = accumulate[j] sum(%2)
  %4 = accumulate[i] sum(%3)
  save %4 as out0[n, h]
"""

EARLY_EXPONENTIAL = """\
kernel 0
  loop i, j
  map m[k,e,j] m[k,k,i]
  map m[q,e,j]
  map m[v,k,i]
  v = load v[k, f]
  q = load q[q, e]
  k = load k[k, e]
  %3 = matmul[e](q, k)
  %4 = exp(%3)
  %5 = accumulate[j] sum(%4)
  %6 = matmul[k](%5, v)
  %7 = sum[k](%5)
  %8 = accumulate[i] sum(%6)
  %9 = accumulate[i] sum(%7)
  %10 = div(%8, %9)
  save %10 as out0[q, f]
"""

RIGHT = {
    "matmul": graph(matmul, MATMUL),
    "rmsnorm": graph(rmsnorm, RMSNORM),
    "attention": graph(attention, ATTENTION),
    "total": graph(total, TOTAL),
    "largest row": graph(largest_row, LARGEST_ROW),
    "scaled": graph(scaled, SCALED),
    "one dim split twice": graph(matmul, SPLIT_TWICE),
}

WRONG = {
    "the exponential of a partial sum": graph(attention, EARLY_EXPONENTIAL),
    "the sum of maxima": graph(
        largest_row, LARGEST_ROW.replace("accumulate[i] max", "accumulate[i] sum")
    ),
    "the largest of partial sums": graph(
        largest_row, LARGEST_ROW.replace("accumulate[j] sum", "accumulate[j] max")
    ),
    "replicated along the outer loop": graph(total, TOTAL.replace(" m[x,n,i]", "")),
}
