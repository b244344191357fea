"""What emitted files say about themselves: the graph they come from, and each node as a comment."""

from __future__ import annotations

from typing import assert_never

from prism.ir import MuGraph, format_sgraph
from prism_kernels.nests import Nests
from prism_kernels.tile import (
    Accumulate,
    Contract,
    Load,
    Map,
    Reduce,
    Running,
    Scalar,
    Store,
    TileProgram,
    ValueId,
)


def describe(mu: MuGraph, dtype: str) -> list[str]:
    """Lines, fit for a docstring, that say which muGraph a file computes."""
    sizes = ", ".join(f"{d} = {n}" for d, n in mu.sizes)
    per_kernel = [", ".join(f"{p} = {c}" for p, c in counts) for counts in mu.par_sizes]
    chunks = per_kernel[0] or "one block"
    if len(per_kernel) > 1:
        named = (f"kernel {k}: {text or 'one block'}" for k, text in enumerate(per_kernel))
        chunks = "; ".join(named)
    options = ", ".join(f"{k} = {v}" for k, v in mu.schedule)
    lines = [
        f"dtype:    {dtype}",
        f"sizes:    {sizes or 'none'}",
        f"chunks:   {chunks}",
        f"schedule: {options or 'default'}",
        "",
        *format_sgraph(mu.graph).rstrip().splitlines(),
    ]
    return [line.replace("\\", "\\\\").replace('"', "'") for line in lines]


def describe_node(program: TileProgram, nests: Nests, i: ValueId) -> str:
    """A node in a comment, e.g. `v4 = mul(v1, v2)`."""
    node = program.nodes[i]
    match node:
        case Store(target=target, operand=operand):
            return f"{target} = v{operand}"
        case Load(source=source):
            what = source
        case Scalar(value=value):
            what = str(value)
        case Accumulate(kind=kind, operand=operand):
            what = f"{kind.value} of v{operand} over the loop"
        case Running(operand=operand):
            what = f"running max of v{operand}"
        case Contract(left=left, right=right, dim=dim):
            what = f"matmul(v{left}, v{right}) over {dim}"
        case Reduce(op=op, operand=operand, dim=dim):
            what = f"{op}(v{operand}) over {dim}"
        case Map(op=op, operands=ids):
            what = f"{op}({', '.join(f'v{j}' for j in ids)})"
        case _:
            assert_never(node)
    into = nests.sinks.get(i)
    return f"v{i} = {what}" + (f", added to v{into}" if into is not None else "")
