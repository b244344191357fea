"""The header of an emitted file: the graph, sizes and schedule it was made from, as text."""

from __future__ import annotations

from prism.ir import MuGraph, format_sgraph


def describe(mu: MuGraph, dtype: str) -> list[str]:
    """Lines, fit for a docstring, that say which muGraph a file computes."""
    sizes = ", ".join(f"{d} = {n}" for d, n in mu.sizes)
    chunks = ", ".join(f"{p} = {c}" for counts in mu.par_sizes for p, c in counts)
    options = ", ".join(f"{k} = {v}" for k, v in mu.schedule)
    lines = [
        f"dtype:    {dtype}",
        f"sizes:    {sizes or 'none'}",
        f"chunks:   {chunks or 'one block'}",
        f"schedule: {options or 'default'}",
        "",
        *format_sgraph(mu.graph).rstrip().splitlines(),
    ]
    return [line.replace("\\", "\\\\").replace('"', "'") for line in lines]
