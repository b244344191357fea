"""Why the threads of a block cannot share a thread graph as its maps say: the second witness.

A thread graph is read as blocks read a kernel (`thread_kernel`), along each of its block dims, by
the same interpreter that reads kernels (`explain`), which knows no axiom. It names the values as
the block graph does.
"""

from __future__ import annotations

from prism.ir import (
    GraphOp,
    SGraph,
    ThreadGraph,
    ThreadShape,
    thread_graph,
    thread_kernel,
    thread_shapes,
)
from prism.search.explain import explain


class ThreadExplainer:
    """Explains the thread graphs of many graphs; those of one shape are read once."""

    def __init__(self) -> None:
        self._fine: set[ThreadShape] = set()

    def explain(self, graph: SGraph) -> str | None:
        """The reason why some thread graph cannot be right, or None where no fault is found."""
        for k, kernel in enumerate(graph.kernels):
            for nodes, shape in thread_shapes(kernel):
                if shape in self._fine:
                    continue
                fault = explain_threads(graph, kernel, thread_graph(kernel, nodes))
                if fault is not None:
                    return f"kernel {k}, {fault}" if len(graph.kernels) > 1 else fault
                self._fine.add(shape)
        return None


def explain_threads(graph: SGraph, kernel: GraphOp, threads: ThreadGraph) -> str | None:
    """The reason why a thread graph of one of the graph's kernels cannot be right, or None."""
    fault = explain(SGraph(graph.program, (thread_kernel(kernel, threads),)))
    if fault is None:
        return None
    return f"threads that share {', '.join(f'%{i}' for i in threads.nodes)}, {fault}"
