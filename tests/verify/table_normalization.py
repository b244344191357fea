"""RMSNorm with a contraction: where its mean and its division are taken."""

from __future__ import annotations

from verify.cases import Case, into

CASES: list[Case] = []
right, wrong = into(CASES)

FUSED = """
    grid x, y
    loop i
    map m[out0,n,x] m[out0,h,y]
    map m[x,n,x] m[x,d,i]
    map m[w,h,y] m[w,d,i]
    once:
      %0 = size[d]
    body:
      x = load x[n, d]
      w = load w[d, h]
      %3 = square(x)
      %4 = sum[d](%3)
      %5 = matmul[d](x, w)
    after:
      %6 = accumulate[i] sum(%4)
      %7 = accumulate[i] sum(%5)
      %8 = div(%6, %0)
      %9 = sqrt(%8)
      %10 = div(%7, %9)
      save %10 as out0[n, h]
"""

right("the division moves after the loop", "rmsnorm", FUSED)
wrong(
    "the copies of a loop that partitions nothing are summed",
    "rmsnorm",
    FUSED.replace(" m[x,d,i]", "").replace(" m[w,d,i]", ""),
)
wrong("the mean lacks its size", "rmsnorm", FUSED.replace("%9 = sqrt(%8)", "%9 = sqrt(%6)"))
wrong(
    "the largest instead of the sum",
    "rmsnorm",
    FUSED.replace("%7 = accumulate[i] sum(%5)", "%7 = accumulate[i] max(%5)"),
)
wrong(
    "operands of the division swapped",
    "rmsnorm",
    FUSED.replace("%10 = div(%7, %9)", "%10 = div(%9, %7)"),
)
wrong(
    "the root is summed over the loop, not its operand",
    "rmsnorm",
    """
    grid x
    loop i
    map m[out0,n,x]
    map m[x,n,x] m[x,d,i]
    map m[w,d,i]
    once:
      %0 = size[d]
    body:
      x = load x[n, d]
      w = load w[d, h]
      %3 = square(x)
      %4 = sum[d](%3)
      %5 = div(%4, %0)
      %6 = sqrt(%5)
      %7 = matmul[d](x, w)
    after:
      %8 = accumulate[i] sum(%6)
      %9 = accumulate[i] sum(%7)
      %10 = div(%9, %8)
      save %10 as out0[n, h]
""",
)
right(
    "no loop",
    "rmsnorm",
    """
    grid x
    map m[out0,n,x]
    map m[x,n,x]
    x = load x[n, d]
    w = load w[d, h]
    %2 = square(x)
    %3 = mean[d](%2)
    %4 = sqrt(%3)
    %5 = div(x, %4)
    %6 = matmul[d](%5, w)
    save %6 as out0[n, h]
""",
)
LOCAL_MEAN = """
    loop i
    map m[x,d,i]
    map m[w,d,i]
    body:
      x = load x[n, d]
      w = load w[d, h]
      %2 = square(x)
      %3 = mean[d](%2)
      %4 = matmul[d](x, w)
    after:
      %5 = accumulate[i] sum(%3)
      %6 = accumulate[i] sum(%4)
      %7 = sqrt(%5)
      %8 = div(%6, %7)
      save %8 as out0[n, h]
"""
right("the mean of a tile divides by the whole size", "rmsnorm", LOCAL_MEAN)
wrong(
    "the mean of a tile is put in place of the sum",
    "rmsnorm",
    LOCAL_MEAN.replace("mean[d](%2)", "sum[d](%2)"),
)
