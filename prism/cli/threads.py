"""Thread graphs for `prism show`: as JSON-able data and as text.

JSON names a mapping by value and block dim, `maps["%3"]["th0"] = "n"`, with null where the value is
replicated, as it names the maps of kernels by tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prism.ir import (
    GraphOp,
    InputLoader,
    OutputSaver,
    SGraph,
    ThreadGraph,
    format_thread_graph,
    thread_graphs,
    thread_kernel,
)


def threads_json(kernel: GraphOp) -> list[dict[str, Any]]:
    """The thread graphs of a kernel: operators by id, the grid of block dims, the maps."""
    return [_json(kernel, one) for one in thread_graphs(kernel)]


def threads_text(graph: SGraph) -> Iterator[str]:
    """The thread graphs of a graph, indented below a line for each."""
    for k, kernel in enumerate(graph.kernels):
        for n, one in enumerate(thread_graphs(kernel)):
            yield f"kernel {k}, thread graph {n}"
            yield from (f"  {line}" for line in format_thread_graph(kernel, one))


def _json(kernel: GraphOp, one: ThreadGraph) -> dict[str, Any]:
    shared = thread_kernel(kernel, one)
    reads = [n.source for n in shared.block.nodes if isinstance(n, InputLoader)]
    writes = [n.target for n in shared.block.nodes if isinstance(n, OutputSaver)]
    grid = [p.name for p in shared.grid]
    return {
        "operators": list(one.nodes),
        "grid": grid,
        "reads": reads,
        "writes": writes,
        "maps": {v: {p: shared.mapping.dim_of(v, p) for p in grid} for v in (*reads, *writes)},
    }
