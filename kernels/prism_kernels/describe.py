"""What emitted files say about themselves: the graph they come from, and each node as a comment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

from prism.ir import DataDim, MuGraph, format_sgraph, output_name
from prism_kernels.nests import Nests
from prism_kernels.tile import (
    Accumulate,
    Contract,
    Intermediate,
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


def array_metadata(mu: MuGraph, dtype: str, between: Sequence[Intermediate]) -> dict[str, Any]:
    """What a file's metadata say of its arrays: arguments, outputs, those between its kernels."""
    program, sizes = mu.graph.program, dict(mu.sizes)

    def array(name: str, axes: Sequence[DataDim | None]) -> dict[str, Any]:
        return {"name": name, "shape": [1 if d is None else sizes[d] for d in axes]}

    return {
        "program": program.name,
        "dtype": dtype,
        "arguments": [array(a.name, a.axes) for a in program.arguments],
        "outputs": [array(output_name(k), o.axes) for k, o in enumerate(program.outputs)],
        "between": [{"name": t.name, "shape": list(t.shape)} for t in between],
    }


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
