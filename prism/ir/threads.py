"""Thread graphs: which elementwise operators of a block graph one thread computes in registers.

A thread graph joins elementwise operators of one loop stage and one set of dimensions that read
each other. It must be *convex*: no value outside it may lie between two of its members. In
exp(x) / sum(exp(x)) the division waits for a sum over the exponentials, so the two are apart.
Derived, never stored.
"""

from __future__ import annotations

from prism.ir.graph import GraphOp, ThreadGraph
from prism.ir.ops import OPS, OpKind
from prism.ir.program import Apply, TensorId
from prism.ir.stages import loop_stages


def thread_graphs(kernel: GraphOp) -> tuple[ThreadGraph, ...]:
    """The thread graphs of a kernel's block graph, each elementwise operator in exactly one."""
    block = kernel.block
    kinds = list(zip(loop_stages(kernel), block.tensor_dims(), strict=True))
    above: list[frozenset[TensorId]] = []
    groups: list[frozenset[TensorId]] = []
    for i, node in enumerate(block.nodes):
        operands = block.operands(i)
        above.append(frozenset(operands).union(*(above[j] for j in operands)))
        if not isinstance(node, Apply) or OPS[node.op].kind is not OpKind.ELEMENTWISE:
            continue
        joined = frozenset({i})
        for group in [g for g in groups if not g.isdisjoint(operands)]:
            is_alike = kinds[min(group)] == kinds[i]
            if is_alike and _is_convex(joined | group, above):
                groups.remove(group)
                joined |= group
        groups.append(joined)
    return tuple(ThreadGraph(tuple(sorted(g))) for g in sorted(groups, key=min))


def _is_convex(members: frozenset[TensorId], above: list[frozenset[TensorId]]) -> bool:
    """Whether no value outside lies between two members."""
    needed = frozenset().union(*(above[i] for i in members)) - members
    return all(members.isdisjoint(above[i]) for i in needed)
