"""What the kernels of a chain of cuts take at least, for all chains of an op DAG at once.

A cut says for each kernel which inputs it reads, which values it loads and which it saves. So an
input that two kernels read is paid for twice. The last kernel leaves nothing partial, so its blocks
are at most as many as the elements it saves, and repeat what they cannot share (`Demands`). The
rest is the roofline of `profiles`. No piece is made and no encoding is asked, so most chains end
here.

Sets of operators are rows of zeros and ones, and all is products of such matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism.ir import OPS, OpKind
from prism.search.plans.cuts import Chain, CutTable
from prism.search.plans.profiles import Demands, Load, Profiles, Row, least_at, work_of
from prism.search.wiring import Arena, Wired

Rows = NDArray[np.float64]
"""A row per chain, an entry per profile."""

Sets = NDArray[np.float64]
"""A set of operators per chain."""


class Floors:
    """The least seconds of the kernels that an op DAG may be cut into."""

    def __init__(self, arena: Arena, wired: Wired, table: CutTable, profiles: Profiles) -> None:
        terms, nodes, count = arena.terms, wired.nodes, len(wired.nodes)
        demands = Demands(arena, wired, profiles)
        read = [leaf for leaf in wired.leaves if terms[leaf].inputs]
        self._profiles = profiles
        self._count = count
        self._operands = _sets(table.operands, count)
        reads = [[leaf in terms[node].operands for leaf in read] for node in nodes]
        self._reads = np.array(reads, dtype=float).reshape(count, len(read))
        self._roots = np.array([node in wired.roots for node in nodes], dtype=float)
        self._alone = np.array([OPS[terms[n].op].kind is OpKind.CONTRACT for n in nodes])
        self._elements = _rows([profiles.elements(terms[n].dims) for n in nodes], profiles)
        self._inputs = _rows([profiles.elements(terms[n].dims) for n in read], profiles)
        self._work = _rows([work_of(arena, n, profiles) for n in nodes], profiles)
        self._shared_work = _rows([demands.work(n) for n in nodes], profiles)
        self._readers = [
            [(i, demands.read(leaf, node)) for i, node in enumerate(nodes) if reads[i][k]]
            for k, leaf in enumerate(read)
        ]
        """For each input its readers, and the elements that each has read at least."""

    def of(self, chains: Sequence[Chain]) -> list[Rows]:
        """For each kernel its least seconds in every chain; the chains are of one length.

        Kernels but the last may leave values partial, so any number of blocks may share their work.
        """
        ends = [_sets([c[k] for c in chains], self._count) for k in range(len(chains[0]))]
        ends.append(np.ones_like(ends[0]))
        below = np.zeros_like(ends[0])
        out = []
        for end in ends:
            out.append(self._kernel(below, end, is_last=end is ends[-1]))
            below = end
        return out

    def _kernel(self, below: Sets, end: Sets, *, is_last: bool) -> Rows:
        ours = end - below
        loaded = below * _any(ours @ self._operands)
        saved = ours * _any((1 - end) @ self._operands + self._roots)
        read, between = _any(ours @ self._reads), (loaded + saved) @ self._elements
        is_alone = (ours.sum(axis=1) == 1) & (ours @ self._alone > 0)
        bare = Load(ours @ self._work, read @ self._inputs + between)
        if not is_last:
            return least_at(self._profiles, bare, bare, None, is_alone[:, None])
        # outputs may be put together here that blocks left partial
        most = np.exp2((saved + below * self._roots) @ np.log2(self._elements))
        repeated = Load(ours @ self._shared_work, self._read_again(ours) + between)
        return least_at(self._profiles, bare, repeated, most, is_alone[:, None])

    def _read_again(self, ours: Sets) -> Rows:
        """Elements of inputs that are read: of each as many as its worst reader has read."""
        out = np.zeros((len(ours), self._profiles.count))
        for readers in self._readers:
            worst = np.zeros_like(out)
            for place, elements in readers:
                np.maximum(worst, ours[:, place, None] * elements, out=worst)
            out += worst
        return out


def _any(counts: NDArray[Any]) -> Sets:
    return (counts > 0).astype(float)


def _sets(masks: Sequence[int], count: int) -> Sets:
    """Bit masks as rows of zeros and ones."""
    return np.array([[mask >> i & 1 for i in range(count)] for mask in masks], dtype=float).reshape(
        len(masks), count
    )


def _rows(rows: Sequence[Row], profiles: Profiles) -> Rows:
    return np.array(rows, dtype=float).reshape(len(rows), profiles.count)
