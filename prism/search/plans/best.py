"""The best plans: compared at each profile, the most promising chains of cuts first.

What a chain takes at least is known before any piece of it is made (`floors`), and what a piece
takes at least before the encoding is asked for its mappings. So chains come in the order of their
floors, a sequence of pieces is left as soon as what is known of it costs more than the plans kept,
and only what may be among the best is looked at in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from prism.search.plans.cuts import Chain, Cut
from prism.search.plans.profiles import Profiles, Row
from prism.search.plans.sequences import CutDag, Pieces, Sequences

KEPT = 3
"""Plans kept per profile."""

WORTHWHILE, PROMISING = 1.1, 0.97
"""A plan is kept where it takes no longer than this, relative to the best single kernel; what at
best takes longer than this, relative to the plans kept so far, is not looked into."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Pieces that were among the best at a profile, and where they come from."""

    seconds: float
    pieces: Pieces
    dag: CutDag
    chain: Chain


@dataclass(frozen=True, slots=True)
class _Offered:
    """A chain of cuts, and what each of its kernels takes at least."""

    dag: CutDag
    chain: Chain
    floors: tuple[Row, ...]
    least: Row


class BestPlans:
    """The best plans at each profile among those that were offered.

    `best_single` are the seconds of the best single kernel at each profile.
    """

    def __init__(
        self,
        sequences: Sequences,
        profiles: Profiles,
        best_single: Row,
        is_late: Callable[[], bool],
    ) -> None:
        self.cut_count = self.bounded_count = 0
        self.is_cut = False
        """Whether time ran out before all chains were looked at."""
        self.kept: list[list[Kept]] = [[] for _ in range(profiles.count)]
        self._sequences = sequences
        self._limits = WORTHWHILE * best_single
        self._worst = np.full(profiles.count, np.inf)
        self._is_late = is_late

    def search(self, dags: Sequence[CutDag], max_kernels: int) -> None:
        """Two kernels, then more: the best plans cut once more."""
        self.offer((dag, (cut,)) for dag in dags for cut in dag.cuts)
        for _ in range(max_kernels - 2):
            best = {(k.dag.wired.roots, k.chain): k for kept in self.kept for k in kept}
            longer = [(k.dag, _with(k.chain, cut)) for k in best.values() for cut in k.dag.cuts]
            self.offer((dag, c) for dag, c in longer if all(map(_is_within, pairwise(c))))

    def offer(self, chains: Iterable[tuple[CutDag, Chain]]) -> None:
        """Offer the plans of chains of one length, those that may be fastest first."""
        for offered in self._in_order(chains):
            if self._is_late():
                self.is_cut = True
                return
            self.cut_count += 1
            if not self._is_promising(offered.least):
                self.bounded_count += 1
                continue
            dag, chain = offered.dag, offered.chain
            pieces_of = self._sequences.of(
                dag,
                chain,
                is_idle=any(map(dag.table.is_idle, chain)),
                may_pay=partial(self._may_pay, offered.floors),
            )
            for pieces in pieces_of:
                self.compare(dag, chain, pieces)

    def compare(self, dag: CutDag, chain: Chain, pieces: Pieces) -> None:
        """Keep a plan wherever it is among the best."""
        # what is known already comes first: it may settle the question
        for piece in sorted(pieces, key=lambda piece: not piece.is_known):
            if not piece.options or not self._is_promising(_total(p.bound for p in pieces), 1.0):
                return
        seconds = _total(piece.least for piece in pieces)
        for p in np.flatnonzero(seconds < self._limit(1.0)):
            kept = self.kept[p]
            kept.append(Kept(float(seconds[p]), pieces, dag, chain))
            kept.sort(key=lambda k: k.seconds)
            del kept[KEPT:]
            if len(kept) == KEPT:
                self._worst[p] = kept[-1].seconds

    def _in_order(self, chains: Iterable[tuple[CutDag, Chain]]) -> list[_Offered]:
        """The chains with their floors, the most promising first."""
        by_dag: dict[CutDag, list[Chain]] = {}
        for dag, chain in dict.fromkeys(chains):
            by_dag.setdefault(dag, []).append(chain)
        found: list[_Offered] = []
        for dag, its in by_dag.items():
            rows = dag.floors.of(its)
            least = _total(rows)
            found.extend(
                _Offered(dag, chain, tuple(row[i] for row in rows), least[i])
                for i, chain in enumerate(its)
            )
        return sorted(found, key=lambda one: float((one.least / self._limits).min()))

    def _may_pay(self, floors: Sequence[Row], first: Pieces) -> bool:
        """Whether a plan that begins with these pieces may be worth it."""
        rest = floors[len(first) :]
        return self._is_promising(_total((*(piece.bound for piece in first), *rest)))

    def _is_promising(self, least: Row, share: float = PROMISING) -> bool:
        """Whether something that takes at least this may be among the best somewhere."""
        return bool((least < self._limit(share)).any())

    def _limit(self, share: float) -> Row:
        """What a plan must stay below: the limit, and a share of the worst plan that is kept."""
        return np.minimum(self._limits, share * self._worst)


def _is_within(pair: tuple[Cut, Cut]) -> bool:
    """Whether the second cut contains the first, and more."""
    inner, outer = pair
    return inner != outer and not inner & ~outer


def _with(chain: Chain, cut: Cut) -> Chain:
    """The chain with one more cut, smaller ones first."""
    return tuple(sorted((*chain, cut), key=int.bit_count))


def _total(rows: Iterable[Row]) -> Row:
    return np.asarray(sum(rows))
