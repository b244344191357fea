"""When each node of a block graph runs: before, in or after the loop. Derived, never stored.

A value that reads nothing partitioned along the loop is the same in every iteration (*once*); one
that depends on an accumulator exists only *after* the loop; the rest is the loop's *body*.
"""

from __future__ import annotations

from enum import Enum

from prism.ir.graph import Accumulator, GraphOp, InputLoader, SGraph


class LoopStage(Enum):
    """When a node runs."""

    ONCE = "once"
    """Loop-invariant; may be read in the body and after."""
    BODY = "body"
    AFTER = "after"


def loop_stages(graph_op: GraphOp) -> tuple[LoopStage, ...]:
    """The stage of each node; without a loop everything is ONCE."""
    block = graph_op.block
    out: list[LoopStage] = []
    for i, node in enumerate(block.nodes):
        read = {out[j] for j in block.operands(i)}
        if isinstance(node, Accumulator) or LoopStage.AFTER in read:
            out.append(LoopStage.AFTER)
        elif LoopStage.BODY in read or (isinstance(node, InputLoader) and _varies(graph_op, node)):
            out.append(LoopStage.BODY)
        else:
            out.append(LoopStage.ONCE)
    return tuple(out)


def stage_names(graph: SGraph) -> tuple[str, ...]:
    """Per kernel, the stage of every node by name, joined by blanks."""
    return tuple(" ".join(s.value for s in loop_stages(kernel)) for kernel in graph.kernels)


def _varies(graph_op: GraphOp, loader: InputLoader) -> bool:
    return any(graph_op.mapping.dim_of(loader.source, p.name) is not None for p in graph_op.loops)
