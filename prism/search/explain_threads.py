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
    ThreadKey,
    thread_graphs,
    thread_kernel,
    thread_key,
)
from prism.search.explain import explain


class ThreadExplainer:
    """Explains the thread graphs of many graphs; those of a block graph that several share once."""

    def __init__(self) -> None:
        self._known: dict[ThreadKey, str | None] = {}

    def explain(self, graph: SGraph) -> str | None:
        """The reason why some thread graph cannot be right, or None where no fault is found."""
        for k, kernel in enumerate(graph.kernels):
            fault = self._of(graph, kernel)
            if fault is not None:
                return f"kernel {k}, {fault}" if len(graph.kernels) > 1 else fault
        return None

    def _of(self, graph: SGraph, kernel: GraphOp) -> str | None:
        key = thread_key(kernel)
        if key not in self._known:
            faults = (explain_threads(graph, kernel, one) for one in thread_graphs(kernel))
            self._known[key] = next((fault for fault in faults if fault is not None), None)
        return self._known[key]


def explain_threads(graph: SGraph, kernel: GraphOp, threads: ThreadGraph) -> str | None:
    """The reason why a thread graph of one of the graph's kernels cannot be right, or None."""
    fault = explain(SGraph(graph.program, (thread_kernel(kernel, threads),)))
    if fault is None:
        return None
    return f"threads that share {', '.join(f'%{i}' for i in threads.nodes)}, {fault}"
