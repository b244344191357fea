"""Programs, and sGraphs written by hand that compute them or do not.

A case is a program, the text of one kernel and whether it is right. A wrong one stands next to the
right one it was made from.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent

from prism import frontend as pr
from prism.ir import SGraph, format_program, parse_sgraph


def matmul(x: "n d", w: "d h"):
    return x @ w


def rmsnorm(x: "n d", w: "d h"):
    return (x / pr.sqrt(pr.mean(x**2, axis=-1, keepdims=True))) @ w


def product(x: "n d", y: "n d", w: "d h"):
    return (x * y) @ w


def quotient(x: "n d", y: "n d", w: "d h"):
    return (x / y) @ w


def softmax_matmul(x: "n d", w: "d h"):
    e = pr.exp(x)
    return (e / pr.sum(e, axis=-1, keepdims=True)) @ w


def stable_softmax_matmul(x: "n d", w: "d h"):
    return pr.softmax(x, axis=-1) @ w


def swiglu(x: "n d", v: "d f", w: "d f"):
    return pr.silu(x @ v) * (x @ w)


def row_max(x: "n d"):
    return pr.max(x, axis=-1)


def scaled(x: "n d", s: "n 1", w: "d h"):
    return (x @ w) / s


def residual(x: "n d", w: "d h", r: "n h"):
    return r - x @ w


def both(x: "n d", w: "d h"):
    return pr.exp(x), x @ w


def centred(x: "n d"):
    return x - pr.mean(x, axis=-1, keepdims=True)


def rows_sum(x: "n d", b: "n"):
    return pr.sum(x + b[:, None], axis=-1)


PROGRAMS = {
    fn.__name__: pr.trace(fn)
    for fn in (
        matmul,
        rmsnorm,
        product,
        quotient,
        softmax_matmul,
        stable_softmax_matmul,
        swiglu,
        row_max,
        scaled,
        residual,
        both,
        centred,
        rows_sum,
    )
}


@dataclass(frozen=True)
class Case:
    """`is_right`: whether the kernel computes the program."""

    name: str
    program: str
    kernel: str
    is_right: bool

    @property
    def graph(self) -> SGraph:
        program = format_program(PROGRAMS[self.program]).rstrip()
        # the sections only help to read; a wrong graph made by an edit may have others
        lines = [line.strip() for line in self.kernel.strip().splitlines() if line[-1:] != ":"]
        kernel = indent("\n".join(lines), "  ")
        return parse_sgraph(f"sgraph\n{program}\nkernel 0\n{kernel}\n")


CASES: list[Case] = []


def right(name, program, kernel):
    CASES.append(Case(name, program, kernel, is_right=True))


def wrong(name, program, kernel):
    CASES.append(Case(name, program, kernel, is_right=False))


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

MATMUL = """
    grid x
    loop i
    map m[out0,h,x]
    map m[x,d,i]
    map m[w,h,x] m[w,d,i]
    body:
      x = load x[n, d]
      w = load w[d, h]
      %2 = matmul[d](x, w)
    after:
      %3 = accumulate[i] sum(%2)
      save %3 as out0[n, h]
"""
right("a contraction in chunks", "matmul", MATMUL)
wrong("the largest of partial products", "matmul", MATMUL.replace("sum(", "max("))
wrong("partial products side by side", "matmul", MATMUL.replace("sum(", "concat[h]("))
wrong(
    "a product in place of the contraction",
    "matmul",
    MATMUL.replace("matmul[d](x, w)", "sum[d](w)"),
)
wrong(
    "the output is mapped along another dimension",
    "matmul",
    MATMUL.replace("m[out0,h,x]", "m[out0,n,x]"),
)
wrong("only one operand is partitioned", "matmul", MATMUL.replace("m[x,d,i]", ""))
wrong(
    "operands are partitioned along different dimensions",
    "matmul",
    MATMUL.replace("m[x,d,i]", "m[x,n,i]"),
)
wrong("the output is not put together", "matmul", MATMUL.replace("map m[out0,h,x]\n", ""))
right(
    "every block computes everything",
    "matmul",
    MATMUL.replace("map m[out0,h,x]\n", "").replace("m[w,h,x] ", ""),
)
wrong(
    "partial over a grid dim that the output does not map",
    "matmul",
    """
    grid x
    map m[x,d,x]
    map m[w,d,x]
    x = load x[n, d]
    w = load w[d, h]
    %2 = matmul[d](x, w)
    save %2 as out0[n, h]
""",
)
right(
    "columns side by side",
    "matmul",
    """
    loop i
    map m[w,h,i]
    once:
      x = load x[n, d]
    body:
      w = load w[d, h]
      %2 = matmul[d](x, w)
    after:
      %3 = accumulate[i] concat[h](%2)
      save %3 as out0[n, h]
""",
)
wrong(
    "columns added up",
    "matmul",
    """
    loop i
    map m[w,h,i]
    once:
      x = load x[n, d]
    body:
      w = load w[d, h]
      %2 = matmul[d](x, w)
    after:
      %3 = accumulate[i] sum(%2)
      save %3 as out0[n, h]
""",
)
right(
    "grid and loop partition one dimension",
    "matmul",
    """
    grid x
    loop i
    map m[out0,n,x]
    map m[x,n,x] m[x,n,i]
    once:
      w = load w[d, h]
    body:
      x = load x[n, d]
      %2 = matmul[d](x, w)
    after:
      %3 = accumulate[i] concat[n](%2)
      save %3 as out0[n, h]
""",
)

PRODUCT = """
    grid x
    loop i
    map m[out0,n,x]
    map m[x,n,x] m[x,d,i]
    map m[y,n,x] m[y,d,i]
    map m[w,d,i]
    body:
      x = load x[n, d]
      y = load y[n, d]
      w = load w[d, h]
      %3 = mul(x, y)
      %4 = matmul[d](%3, w)
    after:
      %5 = accumulate[i] sum(%4)
      save %5 as out0[n, h]
"""
AFTER_PRODUCT = """
    loop i
    map m[x,d,i]
    map m[y,d,i]
    map m[w,d,i]
    body:
      x = load x[n, d]
      y = load y[n, d]
      w = load w[d, h]
      %3 = sum[d](y)
      %4 = matmul[d](x, w)
    after:
      %5 = accumulate[i] sum(%3)
      %6 = accumulate[i] sum(%4)
      %7 = mul(%6, %5)
      save %7 as out0[n, h]
"""
right("a product before the contraction", "product", PRODUCT)
wrong("a product with d moves past the contraction", "product", AFTER_PRODUCT)
wrong(
    "a factor is not partitioned with the others",
    "product",
    PRODUCT.replace("m[y,n,x] m[y,d,i]", "m[y,n,x]"),
)
right(
    "a product with the other operand",
    "product",
    PRODUCT.replace("mul(x, y)", "mul(y, w)").replace("matmul[d](%3, w)", "matmul[d](x, %3)"),
)
right("a quotient before the contraction", "quotient", PRODUCT.replace("mul(x, y)", "div(x, y)"))
wrong(
    "a quotient by d moves past the contraction",
    "quotient",
    AFTER_PRODUCT.replace("mul(%6, %5)", "div(%6, %5)"),
)
wrong(
    "a dividend and a divisor change places", "quotient", PRODUCT.replace("mul(x, y)", "div(y, x)")
)

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
