"""What makes two graphs the same: a short hash of operators, wiring, loop stages and mappings."""

from __future__ import annotations

import hashlib
from typing import assert_never

from prism.ir import (
    Accumulator,
    Apply,
    BlockGraph,
    Const,
    InputLoader,
    OutputSaver,
    SGraph,
    SizeOf,
)

PROGRAM_ID = "program"
"""The id of a program's own graph: one block, no loop."""


def graph_id(graph: SGraph) -> str:
    """A short hash of what a graph is, not of the order its nodes were listed in.

    Equal for graphs with the same operators and wiring, loop stages and mappings.
    """
    digest = hashlib.sha256()
    for kernel in graph.kernels:
        saved = sorted(_node_texts(kernel.block))
        pars = " ".join(p.name for p in (*kernel.grid, *kernel.loops))
        digest.update("\n".join((*saved, pars, str(kernel.mapping), "")).encode())
    return digest.hexdigest()[:10]


def _node_texts(block: BlockGraph) -> list[str]:
    """One line per saver, in which every operand stands for its own hash."""
    out: list[str] = []
    hashes: list[str] = []
    for node in block.nodes:
        match node:
            case Apply(op=op, operands=operands, dim=dim):
                text = " ".join((op, *(hashes[i] for i in operands), str(dim)))
            case Accumulator(operand=operand, kind=kind, par=par, dim=dim):
                text = f"accumulate {kind.value} {hashes[operand]} {par} {dim}"
            case OutputSaver(operand=operand, target=target, dims=dims):
                text = f"save {hashes[operand]} {target} {' '.join(dims)}"
                out.append(text)
            case InputLoader() | Const() | SizeOf():
                text = repr(node)
            case _:
                assert_never(node)
        hashes.append(hashlib.sha256(text.encode()).hexdigest())
    return out
