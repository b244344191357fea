"""Contractions in chunks and in blocks, of products and quotients too."""

from __future__ import annotations

from verify.cases import Case, into

CASES: list[Case] = []
right, wrong = into(CASES)

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
