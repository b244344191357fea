"""Softmax with a contraction: its sums and its shift over blocks."""

from __future__ import annotations

from verify.cases import Case, into

CASES: list[Case] = []
right, wrong = into(CASES)

SOFTMAX = """
    grid x
    loop i
    map m[out0,n,x]
    map m[x,n,x] m[x,d,i]
    map m[w,d,i]
    body:
      x = load x[n, d]
      w = load w[d, h]
      %2 = exp(x)
      %3 = sum[d](%2)
      %4 = matmul[d](%2, w)
    after:
      %5 = accumulate[i] sum(%3)
      %6 = accumulate[i] sum(%4)
      %7 = div(%6, %5)
      save %7 as out0[n, h]
"""
right("numerator and denominator in one loop", "softmax_matmul", SOFTMAX)
right("a stable softmax without its shift", "stable_softmax_matmul", SOFTMAX)
right(
    "copies of the loop cancel in the quotient",
    "softmax_matmul",
    """
    grid x
    loop i
    map m[out0,n,x]
    map m[x,n,x]
    once:
      x = load x[n, d]
      w = load w[d, h]
      %2 = exp(x)
      %3 = sum[d](%2)
      %4 = matmul[d](%2, w)
    after:
      %5 = accumulate[i] sum(%3)
      %6 = accumulate[i] sum(%4)
      %7 = div(%6, %5)
      save %7 as out0[n, h]
""",
)
wrong(
    "the denominator is not summed over the loop",
    "softmax_matmul",
    SOFTMAX.replace("accumulate[i] sum(%3)", "accumulate[i] max(%3)"),
)
wrong(
    "the exponential of a sum",
    "softmax_matmul",
    """
    loop i
    map m[x,d,i]
    map m[w,d,i]
    body:
      x = load x[n, d]
      w = load w[d, h]
      %2 = exp(x)
      %3 = sum[d](x)
      %4 = matmul[d](%2, w)
    after:
      %5 = accumulate[i] sum(%3)
      %6 = accumulate[i] sum(%4)
      %7 = exp(%5)
      %8 = div(%6, %7)
      save %8 as out0[n, h]
""",
)
right(
    "the largest value found in an earlier pass",
    "stable_softmax_matmul",
    """
    grid x
    map m[out0,n,x]
    map m[x,n,x]
    x = load x[n, d]
    w = load w[d, h]
    %2 = max[d](x)
    %3 = sub(x, %2)
    %4 = exp(%3)
    %5 = sum[d](%4)
    %6 = matmul[d](%4, w)
    %7 = div(%6, %5)
    save %7 as out0[n, h]
""",
)
wrong(
    "the shift is in the numerator only",
    "stable_softmax_matmul",
    """
    grid x
    map m[out0,n,x]
    map m[x,n,x]
    x = load x[n, d]
    w = load w[d, h]
    %2 = max[d](x)
    %3 = sub(x, %2)
    %4 = exp(%3)
    %5 = exp(x)
    %6 = sum[d](%5)
    %7 = matmul[d](%4, w)
    %8 = div(%7, %6)
    save %8 as out0[n, h]
""",
)
