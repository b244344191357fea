"""Residuals, several outputs and biases: values that lack a dimension of others."""

from __future__ import annotations

from verify.cases import Case, into

CASES: list[Case] = []
right, wrong = into(CASES)

RESIDUAL = """
    grid x
    loop i
    map m[out0,n,x]
    map m[x,n,x] m[x,d,i]
    map m[r,n,x]
    map m[w,d,i]
    once:
      r = load r[n, h]
    body:
      x = load x[n, d]
      w = load w[d, h]
      %3 = matmul[d](x, w)
    after:
      %4 = accumulate[i] sum(%3)
      %5 = sub(r, %4)
      save %5 as out0[n, h]
"""
right("the residual after the loop", "residual", RESIDUAL)
wrong(
    "operands of the difference swapped", "residual", RESIDUAL.replace("sub(r, %4)", "sub(%4, r)")
)
wrong("the residual of other rows", "residual", RESIDUAL.replace("m[r,n,x]", "m[r,h,x]"))
wrong(
    "the residual added in every iteration",
    "residual",
    """
    loop i
    map m[x,d,i]
    map m[w,d,i]
    once:
      r = load r[n, h]
    body:
      x = load x[n, d]
      w = load w[d, h]
      %3 = matmul[d](x, w)
      %4 = sub(r, %3)
    after:
      %5 = accumulate[i] sum(%4)
      save %5 as out0[n, h]
""",
)

BOTH = """
    grid x
    map m[out0,n,x]
    map m[out1,n,x]
    map m[x,n,x]
    x = load x[n, d]
    w = load w[d, h]
    %2 = exp(x)
    %3 = matmul[d](x, w)
    save %2 as out0[n, d]
    save %3 as out1[n, h]
"""
right("two outputs", "both", BOTH)
wrong("one of two outputs is wrong", "both", BOTH.replace("matmul[d](x, w)", "matmul[d](%2, w)"))
wrong("one of two outputs is not mapped", "both", BOTH.replace("map m[out1,n,x]\n", ""))

right(
    "whole rows",
    "centred",
    """
    grid x
    map m[out0,n,x]
    map m[x,n,x]
    x = load x[n, d]
    %1 = mean[d](x)
    %2 = sub(x, %1)
    save %2 as out0[n, d]
""",
)
wrong(
    "the mean of each tile",
    "centred",
    """
    grid x
    map m[out0,d,x]
    map m[x,d,x]
    x = load x[n, d]
    %1 = mean[d](x)
    %2 = sub(x, %1)
    save %2 as out0[n, d]
""",
)

ROWS = """
    loop i
    map m[x,d,i]
    once:
      b = load b[n]
    body:
      x = load x[n, d]
      %2 = add(x, b)
      %3 = sum[d](%2)
    after:
      %4 = accumulate[i] sum(%3)
      save %4 as out0[n]
"""
right("a bias that lacks the summed dimension", "rows_sum", ROWS)
right(
    "the bias times the size",
    "rows_sum",
    """
    loop i
    map m[x,d,i]
    once:
      b = load b[n]
      %1 = size[d]
      %2 = mul(b, %1)
    body:
      x = load x[n, d]
      %4 = sum[d](x)
    after:
      %5 = accumulate[i] sum(%4)
      %6 = add(%5, %2)
      save %6 as out0[n]
""",
)
wrong(
    "the bias times the size in every iteration",
    "rows_sum",
    """
    loop i
    map m[x,d,i]
    once:
      b = load b[n]
      %1 = size[d]
      %2 = mul(b, %1)
    body:
      x = load x[n, d]
      %4 = sum[d](x)
      %5 = add(%4, %2)
    after:
      %6 = accumulate[i] sum(%5)
      save %6 as out0[n]
""",
)
wrong(
    "tiles of different blocks are added up before the bias",
    "rows_sum",
    """
    loop i
    map m[x,d,i]
    once:
      b = load b[n]
    body:
      x = load x[n, d]
    after:
      %2 = accumulate[i] sum(x)
      %3 = add(%2, b)
      %4 = sum[d](%3)
      save %4 as out0[n]
""",
)
