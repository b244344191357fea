"""SwiGLU, largest values and scaled rows: what does not commute with a sum."""

from __future__ import annotations

from verify.cases import Case, into

CASES: list[Case] = []
right, wrong = into(CASES)

SWIGLU = """
    grid x
    loop i
    map m[out0,f,x]
    map m[x,d,i]
    map m[v,f,x] m[v,d,i]
    map m[w,f,x] m[w,d,i]
    body:
      x = load x[n, d]
      v = load v[d, f]
      w = load w[d, f]
      %3 = matmul[d](x, v)
      %4 = matmul[d](x, w)
    after:
      %5 = accumulate[i] sum(%3)
      %6 = accumulate[i] sum(%4)
      %7 = silu(%5)
      %8 = mul(%7, %6)
      save %8 as out0[n, f]
"""
right("the gate after the loop", "swiglu", SWIGLU)
wrong(
    "the gate inside the loop, on partial values",
    "swiglu",
    """
    grid x
    loop i
    map m[out0,f,x]
    map m[x,d,i]
    map m[v,f,x] m[v,d,i]
    map m[w,f,x] m[w,d,i]
    body:
      x = load x[n, d]
      v = load v[d, f]
      w = load w[d, f]
      %3 = matmul[d](x, v)
      %4 = matmul[d](x, w)
      %5 = silu(%3)
    after:
      %6 = accumulate[i] sum(%5)
      %7 = accumulate[i] sum(%4)
      %8 = mul(%6, %7)
      save %8 as out0[n, f]
""",
)
wrong(
    "the product of partial values",
    "swiglu",
    """
    loop i
    map m[x,d,i]
    map m[v,d,i]
    map m[w,d,i]
    body:
      x = load x[n, d]
      v = load v[d, f]
      w = load w[d, f]
      %3 = matmul[d](x, v)
      %4 = matmul[d](x, w)
      %5 = silu(%3)
      %6 = mul(%5, %4)
    after:
      %7 = accumulate[i] sum(%6)
      save %7 as out0[n, f]
""",
)
wrong(
    "the gate on the other operand",
    "swiglu",
    SWIGLU.replace("silu(%5)", "silu(%6)").replace("mul(%7, %6)", "mul(%7, %5)"),
)

ROW_MAX = """
    loop i
    map m[x,d,i]
    body:
      x = load x[n, d]
      %1 = max[d](x)
    after:
      %2 = accumulate[i] max(%1)
      save %2 as out0[n]
"""
right("the largest of the tiles' largest", "row_max", ROW_MAX)
wrong("the sum of the tiles' largest", "row_max", ROW_MAX.replace("max(%1)", "sum(%1)"))
right(
    "rows side by side",
    "row_max",
    ROW_MAX.replace("m[x,d,i]", "m[x,n,i]").replace("max(%1)", "concat[n](%1)"),
)

SCALED = """
    loop i
    map m[x,d,i]
    map m[w,d,i]
    once:
      s = load s[n]
    body:
      x = load x[n, d]
      w = load w[d, h]
      %3 = matmul[d](x, w)
      %4 = div(%3, s)
    after:
      %5 = accumulate[i] sum(%4)
      save %5 as out0[n, h]
"""
right("a partial value divided by what does not vary", "scaled", SCALED)
wrong("a constant divided by a partial value", "scaled", SCALED.replace("div(%3, s)", "div(s, %3)"))
right(
    "the operand divided instead",
    "scaled",
    SCALED.replace("%3 = matmul[d](x, w)", "%3 = div(x, s)").replace(
        "%4 = div(%3, s)", "%4 = matmul[d](%3, w)"
    ),
)
