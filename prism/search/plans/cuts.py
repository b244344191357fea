"""Kernel cuts: which operators of an op DAG the earlier kernels compute, and what crosses.

A cut is a set of operators closed downwards: with an operator it has all those it reads. Those of
its values that the rest reads, or that are outputs, cross: they are saved, and loaded later. A DAG
in k kernels is a chain of k - 1 cuts. The set of all operators is a cut too: what is left for the
kernel above it is to put together the outputs that blocks leave partial.

Sets of operators are bit masks, an operator's bit being its place in the op DAG.
"""

from __future__ import annotations

from collections.abc import Iterator

from prism.ir import OPS, OpKind
from prism.search.fronts.chains import bits
from prism.search.wiring import Arena, TermId, Wired

MAX_CROSSING = 3
"""Values that earlier kernels compute and save: those that cross, and outputs."""

Cut = int
"""A set of operators closed downwards."""

Chain = tuple[Cut, ...]
"""The cuts of an op DAG in several kernels, each containing the one before."""


class CutTable:
    """The cuts of one op DAG; `wide_count` are those left out because too many values cross."""

    def __init__(self, arena: Arena, wired: Wired) -> None:
        self._arena = arena
        self._wired = wired
        self.wide_count = 0
        place = {term: i for i, term in enumerate(wired.nodes)}
        self.every: Cut = (1 << len(place)) - 1
        self._roots = sum(1 << place[t] for t in dict.fromkeys(wired.roots) if t in place)
        self.operands: tuple[int, ...] = tuple(
            sum(1 << place[t] for t in dict.fromkeys(arena.terms[node].operands) if t in place)
            for node in wired.nodes
        )
        """The operators that each one reads."""
        readers = [0] * len(place)
        for i, read in enumerate(self.operands):
            for j in bits(read):
                readers[j] |= 1 << i
        self._readers = tuple(readers)

    def cuts(self, most: int) -> Iterator[Cut]:
        """Every cut that few values cross, at most `most` of them.

        Each set comes once: operators are decided in order, and one that reads an operator left out
        is left out.
        """
        stack: list[tuple[int, Cut]] = [(0, 0)]
        count = len(self.operands)
        found = 0
        while stack and found < most:
            place, below = stack.pop()
            if place < count:
                stack.append((place + 1, below))
                if not self.operands[place] & ~below:
                    stack.append((place + 1, below | 1 << place))
            elif below and self.crossing(below).bit_count() > MAX_CROSSING:
                self.wide_count += 1
            elif below:
                found += 1
                yield below

    def crossing(self, below: Cut) -> int:
        """The operators of a cut whose values are read outside it, or are outputs."""
        out = below & self._roots
        for i in bits(below & ~out):
            if self._readers[i] & ~below:
                out |= 1 << i
        return out

    def terms(self, operators: int) -> frozenset[TermId]:
        """The terms of a set of operators."""
        return frozenset(self._wired.nodes[i] for i in bits(operators))

    def is_idle(self, below: Cut) -> bool:
        """Whether nothing is gained but by leaving values partial.

        Nothing is above the cut, or an elementwise operator above it could go below at no cost: it
        replaces what it reads, and nothing larger crosses. Where blocks stack partial values it may
        have to stay: then it waits for their sum.
        """
        if below == self.every:
            return True
        return any(self._could_go_below(i, below) for i in bits(self.every & ~below))

    def _could_go_below(self, place: int, below: Cut) -> bool:
        terms, nodes = self._arena.terms, self._wired.nodes
        value, read = terms[nodes[place]], self.operands[place]
        if OPS[value.op].kind is not OpKind.ELEMENTWISE or not read or read & ~below:
            return False
        return any(
            self._readers[i] == 1 << place
            and not self._roots >> i & 1
            and value.dims & ~terms[nodes[i]].dims == 0
            for i in bits(read)
        )
