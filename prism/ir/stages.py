"""When each node of a block graph runs: before, in or after the loops. Derived, never stored.

With one loop a value that reads nothing partitioned along it is the same in every iteration
(*once*); one that depends on an accumulator exists only *after* the loop; the rest is the *body*.

Two loops are a nest, and the *level* of a value is how many of them surround it: 0 outside both, 1
in the outer loop, 2 in the inner one. A loader stands in the innermost loop it is mapped along, an
operator in that of its operands. An accumulator over a loop stands where the loop stands, and so
does what reads it: over the inner loop it starts anew in each iteration of the outer one, and what
depends on it runs *between* two rounds of the inner loop. What runs in the outer loop and waits for
nothing is *outer*.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from prism.ir.graph import Accumulator, GraphOp, InputLoader, SGraph


class LoopStage(Enum):
    """When a node runs."""

    ONCE = "once"
    """Loop-invariant; may be read in the body and after."""
    OUTER = "outer"
    """In the outer of two loops, before the inner one, whose body may read it."""
    BODY = "body"
    BETWEEN = "between"
    """In the outer of two loops, after the inner one."""
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class LoopPlace:
    """Where a node stands in the nest of loops.

    `level`: how many loops surround it. `ended`: the outermost loop over which something it depends
    on was accumulated, by number; None for what waits for no loop.
    """

    level: int
    ended: int | None = None

    def stage(self, loop_count: int) -> LoopStage:
        """The stage in a nest of so many loops."""
        if self.ended is not None:
            return LoopStage.AFTER if self.ended == 0 else LoopStage.BETWEEN
        if self.level == 0:
            return LoopStage.ONCE
        return LoopStage.BODY if self.level == loop_count else LoopStage.OUTER


def loop_places(graph_op: GraphOp) -> tuple[LoopPlace, ...]:
    """Where each node stands.

    Of a graph that breaks the rules it says where a node would have to stand: an operand may be
    further in than what reads it. An accumulator over no loop of the kernel stands outside all.
    """
    block = graph_op.block
    number = {p.name: k for k, p in enumerate(graph_op.loops)}
    inner: dict[str, int] = {}
    for var in graph_op.mapping.true:
        if var.par in number:
            inner[var.tensor] = max(inner.get(var.tensor, 0), number[var.par] + 1)
    out: list[LoopPlace] = []
    for i, node in enumerate(block.nodes):
        read = [out[j] for j in block.operands(i)]
        ended = [place.ended for place in read if place.ended is not None]
        if isinstance(node, Accumulator):
            ended.append(number.get(node.par, 0))
        if ended:
            out.append(LoopPlace(min(ended), min(ended)))
        elif isinstance(node, InputLoader):
            out.append(LoopPlace(inner.get(node.source, 0)))
        else:
            out.append(LoopPlace(max((place.level for place in read), default=0)))
    return tuple(out)


def varies_along(graph_op: GraphOp, par: str) -> tuple[bool, ...]:
    """For each node, whether its value differs from one iteration of a loop to the next."""
    block = graph_op.block
    out: list[bool] = []
    for i, node in enumerate(block.nodes):
        if isinstance(node, InputLoader):
            out.append(graph_op.mapping.dim_of(node.source, par) is not None)
        else:
            is_end = isinstance(node, Accumulator) and node.par == par
            out.append(not is_end and any(out[j] for j in block.operands(i)))
    return tuple(out)


def loop_stages(graph_op: GraphOp) -> tuple[LoopStage, ...]:
    """The stage of each node; without a loop everything is ONCE."""
    count = len(graph_op.loops)
    return tuple(place.stage(count) for place in loop_places(graph_op))


def stage_names(graph: SGraph) -> tuple[str, ...]:
    """Per kernel, the stage of every node by name, joined by blanks."""
    return tuple(" ".join(s.value for s in loop_stages(kernel)) for kernel in graph.kernels)
