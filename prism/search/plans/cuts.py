"""Kernel cuts: which operators of an op DAG the earlier kernels compute, and what crosses.

A cut is a set of operators closed downwards: with an operator it has all those it reads. Those of
its values that the rest reads, or that are outputs, cross: they are saved, and loaded later. A DAG
in k kernels is a chain of k - 1 cuts. The set of all operators is a cut too: what is left for the
kernel above it is to put together the outputs that blocks leave partial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prism.ir import OPS, OpKind
from prism.search.wiring import Arena, TermId, Wired

MAX_CROSSING = 3
"""Values that earlier kernels compute and save: those that cross, and outputs."""


class CutTable:
    """The cuts of one op DAG; `wide_count` are those left out because too many values cross."""

    def __init__(self, arena: Arena, wired: Wired) -> None:
        self._arena = arena
        self._wired = wired
        self.wide_count = 0
        self._readers: Mapping[TermId, list[TermId]] = {term: [] for term in wired.nodes}
        for term in wired.nodes:
            for operand in set(arena.terms[term].operands):
                if operand in self._readers:
                    self._readers[operand].append(term)

    def cuts(self, most: int) -> Iterator[frozenset[TermId]]:
        """Every cut that few values cross, at most `most` of them.

        Each set comes once: operators are decided in order, and one that reads an operator left out
        is left out.
        """
        nodes, terms = self._wired.nodes, self._arena.terms
        stack: list[tuple[int, frozenset[TermId]]] = [(0, frozenset())]
        inside = frozenset(nodes)
        found = 0
        while stack and found < most:
            place, below = stack.pop()
            if place < len(nodes):
                stack.append((place + 1, below))
                if all(t in below or t not in inside for t in terms[nodes[place]].operands):
                    stack.append((place + 1, below | {nodes[place]}))
            elif below and len(self.crossing(below)) > MAX_CROSSING:
                self.wide_count += 1
            elif below:
                found += 1
                yield below

    def crossing(self, below: frozenset[TermId]) -> tuple[TermId, ...]:
        """The values of a set of operators that are read outside it, or are outputs."""
        roots = set(self._wired.roots)
        return tuple(
            t
            for t in self._wired.nodes
            if t in below and (t in roots or any(r not in below for r in self._readers[t]))
        )

    def is_idle(self, below: frozenset[TermId]) -> bool:
        """Whether nothing is gained but by leaving values partial.

        Nothing is above the cut, or an elementwise operator above it could go below at no cost: it
        replaces what it reads, and nothing larger crosses. Where blocks stack partial values it may
        have to stay: then it waits for their sum.
        """
        if len(below) == len(self._wired.nodes):
            return True
        terms = self._arena.terms
        for term in self._wired.nodes:
            value = terms[term]
            if term in below or OPS[value.op].kind is not OpKind.ELEMENTWISE:
                continue
            read = [t for t in value.operands if t in below]
            if len(read) < sum(terms[t].leaf is None for t in value.operands) or not read:
                continue
            replaced = [
                t for t in read if self._readers[t] == [term] and t not in self._wired.roots
            ]
            if any(value.dims & ~terms[t].dims == 0 for t in replaced):
                return True
        return False
