"""An sGraph as JSON-able data and as one line: operators in order, loop stages, mappings.

JSON names a mapping by tensor and parallelization dim, `imap["w"]["x"] = "h"`, with null where the
tensor is replicated; people get the paper's `m[w,h,x]`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prism.ir import (
    Accumulator,
    Apply,
    BlockGraph,
    BlockNode,
    Const,
    GraphOp,
    InputLoader,
    LoopStage,
    OutputSaver,
    SGraph,
    SizeOf,
    loop_stages,
)


def graph_json(graph_id: str, graph: SGraph, verdict: str) -> dict[str, Any]:
    """One graph as JSON-able data."""
    return {
        "id": graph_id,
        "verdict": verdict,
        "kernels": [kernel_json(kernel) for kernel in graph.kernels],
    }


def kernel_json(kernel: GraphOp) -> dict[str, Any]:
    """One kernel: its operators in order with their stages, and its maps."""
    grid, loops = [p.name for p in kernel.grid], [p.name for p in kernel.loops]
    inputs = [loader.source for loader in kernel.block.loaders]
    outputs = [saver.target for saver in kernel.block.savers]
    return {
        "grid": grid,
        "loops": loops,
        "operators": [
            {"id": i, **node_json(kernel.block, i), "stage": stage.value}
            for i, stage in enumerate(loop_stages(kernel))
        ],
        "imap": _map(kernel, inputs, grid),
        "fmap": _map(kernel, inputs, loops),
        "omap": _map(kernel, outputs, grid),
    }


def node_json(block: BlockGraph, i: int) -> dict[str, Any]:
    """A block node: what it does, to which nodes, over which dimension."""
    return {"op": _name(block.nodes[i]), "operands": list(block.operands(i)), **_facts(block, i)}


def graph_line(graph: SGraph) -> str:
    """One line per graph: per kernel, the operators by stage in the order they run."""
    return " ; ".join(_kernel_line(kernel) for kernel in graph.kernels)


def mapping_line(graph: SGraph) -> str:
    """The mapping variables that are true, kernel by kernel."""
    return " ; ".join(str(kernel.mapping) or "replicated" for kernel in graph.kernels)


def _kernel_line(kernel: GraphOp) -> str:
    when = loop_stages(kernel)
    parts = []
    for stage in LoopStage:
        names = [
            _name(node)
            for node, own in zip(kernel.block.nodes, when, strict=True)
            if own is stage and isinstance(node, Apply | Accumulator)
        ]
        if names:
            parts.append(f"{stage.value}: {' '.join(names)}")
    return " | ".join(parts) or "copy"


def _map(
    kernel: GraphOp, tensors: Iterable[str], pars: list[str]
) -> dict[str, dict[str, str | None]]:
    return {t: {p: kernel.mapping.dim_of(t, p) for p in pars} for t in tensors}


def _name(node: BlockNode) -> str:
    match node:
        case InputLoader():
            return "load"
        case Const():
            return "const"
        case SizeOf():
            return "size"
        case Apply(op=op):
            return op
        case Accumulator(kind=kind):
            return f"accumulate-{kind.value}"
        case OutputSaver():
            return "save"


def _facts(block: BlockGraph, i: int) -> dict[str, Any]:
    match block.nodes[i]:
        case InputLoader(source=tensor, dims=dims) | OutputSaver(target=tensor, dims=dims):
            return {"tensor": tensor, "dims": list(dims)}
        case Const(value=value):
            return {"value": value}
        case SizeOf(dim=dim):
            return {"dim": dim}
        case Apply(dim=None):
            return {}
        case Apply(dim=dim):
            return {"dim": dim}
        case Accumulator(par=par, dim=dim):
            return {"par": par, "dim": dim}
