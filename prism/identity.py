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
    Mapping,
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
    return Identifier().graph_id(graph)


class Identifier:
    """Names many graphs; what they share (a block graph, a mapping) is written out once."""

    def __init__(self) -> None:
        # the block graphs are kept, so that no others get their ids
        self._blocks: dict[int, tuple[BlockGraph, str]] = {}
        self._mappings: dict[Mapping, str] = {}
        self._hashes: dict[str, str] = {}

    def graph_id(self, graph: SGraph) -> str:
        """See `graph_id`."""
        digest = hashlib.sha256()
        for kernel in graph.kernels:
            pars = " ".join(p.name for p in (*kernel.grid, *kernel.loops))
            pars += " library" * kernel.library
            mapping = self._mapping_text(kernel.mapping)
            digest.update(f"{self._block_text(kernel.block)}{pars}\n{mapping}\n".encode())
        return digest.hexdigest()[:10]

    def _block_text(self, block: BlockGraph) -> str:
        """The savers with all they depend on, one a line."""
        if id(block) not in self._blocks:
            lines = (f"{saved}\n" for saved in sorted(self._saved(block)))
            self._blocks[id(block)] = (block, "".join(lines))
        return self._blocks[id(block)][1]

    def _mapping_text(self, mapping: Mapping) -> str:
        if mapping not in self._mappings:
            self._mappings[mapping] = str(mapping)
        return self._mappings[mapping]

    def _saved(self, block: BlockGraph) -> list[str]:
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
            known = self._hashes.get(text)
            if known is None:
                known = self._hashes[text] = hashlib.sha256(text.encode()).hexdigest()
            hashes.append(known)
        return out
