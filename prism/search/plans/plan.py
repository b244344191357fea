"""A plan: one graph of several kernels, put together from pieces.

Each kernel is built from its piece like a graph of one kernel, then its tensors get their names in
the whole graph: outputs of the program theirs, tensors between kernels `t0`, `t1`, ... An output
that a later kernel reads is saved twice, in the order of its axes and for the reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from prism.ir import (
    BlockGraph,
    BlockNode,
    GraphOp,
    InputLoader,
    MapVar,
    OutputSaver,
    SGraph,
    output_name,
)
from prism.ir import Mapping as Maps
from prism.search.assemble import GraphBuilder
from prism.search.plans.pieces import Option, Piece
from prism.search.wiring import Arena, TermId


@dataclass(frozen=True, slots=True)
class Plan:
    """A piece and an option per kernel, in launch order; `roots` are the program's outputs."""

    pieces: tuple[Piece, ...]
    options: tuple[Option, ...]
    roots: tuple[TermId, ...]

    def build(self, builder: GraphBuilder) -> SGraph:
        """The sGraph; `builder` is of the search's arena."""
        arena = builder.arena
        loaded = {term for piece in self.pieces for term, _ in piece.key.loaded}
        saved = dict.fromkeys(t for piece in self.pieces for t in piece.key.saved if t in loaded)
        taken = {i.name for i in arena.program.inputs}
        fresh = (name for k in range(len(saved) + len(taken)) if (name := f"t{k}") not in taken)
        between = dict(zip(saved, fresh, strict=False))
        names = _Names(arena, self.roots, between)
        kernels = tuple(
            names.renamed(piece, option)
            for piece, option in zip(self.pieces, self.options, strict=True)
        )
        return SGraph(arena.program, kernels)


@dataclass(frozen=True, slots=True)
class _Names:
    """What the tensors of pieces are called in the whole graph."""

    arena: Arena
    roots: Sequence[TermId]
    between: Mapping[TermId, str]

    def renamed(self, piece: Piece, option: Option) -> GraphOp:
        """The kernel of a piece."""
        (kernel,) = piece.builder.graph(option.ranked.candidate).kernels
        loads = {name: self.between[term] for name, term in piece.key.load_names().items()}
        targets = {output_name(i): term for i, term in enumerate(piece.key.saved)}
        nodes: list[BlockNode] = []
        for node in kernel.block.nodes:
            match node:
                case InputLoader(source=source):
                    nodes.append(replace(node, source=loads.get(source, source)))
                case OutputSaver(target=target):
                    nodes.extend(self._savers(node, piece, targets[target]))
                case _:
                    nodes.append(node)
        true = frozenset(self._mapped(kernel, piece, loads, targets))
        return replace(kernel, mapping=Maps(true), block=BlockGraph(tuple(nodes)))

    def _outputs(self, piece: Piece, term: TermId) -> list[int]:
        """The outputs of the program that a kernel saves a term as: none where it is partial."""
        if term in dict(piece.key.stacking):
            return []
        return [i for i, root in enumerate(self.roots) if root == term]

    def _is_between(self, piece: Piece, term: TermId) -> bool:
        """Whether a later kernel loads what this one saves."""
        return term in self.between and term not in dict(piece.key.loaded)

    def _savers(self, saver: OutputSaver, piece: Piece, term: TermId) -> Iterator[OutputSaver]:
        for i in self._outputs(piece, term):
            dims = tuple(d for d in self.arena.program.outputs[i].axes if d is not None)
            yield replace(saver, target=output_name(i), dims=dims)
        if self._is_between(piece, term):
            yield replace(saver, target=self.between[term])

    def _mapped(
        self,
        kernel: GraphOp,
        piece: Piece,
        loads: Mapping[str, str],
        targets: Mapping[str, TermId],
    ) -> Iterator[MapVar]:
        for var in kernel.mapping.true:
            term = targets.get(var.tensor)
            if term is None:
                yield replace(var, tensor=loads.get(var.tensor, var.tensor))
                continue
            for i in self._outputs(piece, term):
                yield replace(var, tensor=output_name(i))
            if self._is_between(piece, term):
                yield replace(var, tensor=self.between[term])
