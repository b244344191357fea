"""The generator of graphs of several kernels, on top of one that lists single kernels.

    op DAGs    those of the single kernels, the program's own first
    cuts       which operators an earlier kernel computes                        cuts
    pieces     each kernel as a program, with its mappings and loop stages       pieces
    plans      a piece and an option per kernel                                  plan

The number of plans is a product over cuts and pieces, so in tune mode they are not listed but
compared: at each of a few sizes and machines (`profiles`) only the best are kept, and a cut whose
bytes and launches alone cost more than what is known is not looked into. Three kernels come from
cutting the best plans of two once more. In count mode every plan is listed, up to the limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice, pairwise, product
from typing import Any

import numpy as np

from prism.ir import MAX_KERNELS, DataDim
from prism.search.assemble import Candidate
from prism.search.cone import Cone
from prism.search.generate import Generator, Materials, preferred_dag
from prism.search.mapper import Late
from prism.search.plans.cuts import CutTable
from prism.search.plans.pieces import Option, Piece, PieceKey, Stacked
from prism.search.plans.plan import Plan
from prism.search.plans.profiles import KernelCosts, Profiles, Row, least_seconds
from prism.search.ranking import Ranked
from prism.search.situation import Situation
from prism.search.wiring import TermId, Wired

BASE_SHARE = 0.6
"""The part of the time for generating that single kernels may take."""

MAX_CUTS = 1_000
"""Cuts of one op DAG."""

MAX_DAGS = 64
"""Op DAGs that are cut in tune mode."""

KEPT, OPTIONS = 3, 2
"""Plans kept per profile, and options of each of their pieces."""

WORTHWHILE, PROMISING = 1.1, 0.97
"""A plan is kept where it takes no longer than this, relative to the best single kernel; a cut is
looked into where at best it takes no longer than this, relative to the plans kept so far."""

Chain = tuple[frozenset[TermId], ...]
"""The cuts of an op DAG in several kernels, each containing the one before."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Pieces that were among the best at a profile, and where they come from."""

    seconds: float
    pieces: tuple[Piece, ...]
    dag: _Dag
    chain: Chain


@dataclass(frozen=True, slots=True, eq=False)
class _Dag:
    """An op DAG that is cut."""

    wired: Wired
    table: CutTable
    cuts: tuple[frozenset[TermId], ...]


class PlanGenerator:
    """Lists the single kernels of `base`, then plans of up to `max_kernels` kernels."""

    def __init__(
        self, base: Generator, materials: Materials, max_kernels: int, seed: int, *, is_best: bool
    ) -> None:
        self.mapper = base.mapper
        self._base = base
        self._materials = replace(materials, apart=is_best)
        self._max_kernels = max_kernels
        self._is_best = is_best
        situation = materials.situation or Situation(materials.arena.program)
        self._profiles = Profiles(situation, seed)
        self._limits: list[float] = [math.inf] * self._profiles.count
        self._kept: list[list[_Kept]] = [[] for _ in self._limits]
        self._pieces: dict[tuple[PieceKey, frozenset[TermId]], Piece] = {}
        self._count = {"plan_dags": 0, "cuts": 0, "bounded_cuts": 0, "plans": 0}
        self._stack_names = _stack_names(materials.arena.dim_names)
        self._is_late: Callable[[], bool] = lambda: False

    def candidates(
        self, cone: Cone, is_late: Late, progress: Callable[[int], None]
    ) -> list[Ranked]:
        """The single kernels, then the plans, the best looking first in each."""
        singles = self._base.candidates(cone, lambda s: is_late(s * BASE_SHARE), progress)
        self._is_late = lambda: is_late(1.0)
        arena = self._materials.arena
        own = arena.wire(cone, preferred_dag(cone))
        wired = [c.candidate.wired for c in singles if isinstance(c.candidate, Candidate)]
        dags = list({w.roots: w for w in (own, *wired) if w is not None}.values())
        plans = self._best(dags, singles) if self._is_best else self._all(dags)
        out = list(singles)
        for ranked in plans:
            out.append(ranked)
            self._count["plans"] += 1
            if self._count["plans"] % 64 == 0:
                progress(len(out))
            if len(out) >= self._materials.limits.candidates:
                self._materials.cuts.add("candidates", f"candidates: stopped after {len(out)}")
                break
        return out if self._is_best else sorted(out, key=lambda found: found.rank)

    def instead(self, unproved: Iterable[Ranked]) -> list[Ranked]:
        """What the base knows."""
        return self._base.instead(unproved)

    def counters(self) -> dict[str, Any]:
        """What both did."""
        compared = {"compared_at": self._profiles.count} if self._is_best else {}
        return {**self._base.counters(), **self._count, **compared, "pieces": len(self._pieces)}

    # ------------------------------------------------------------------------- every plan

    def _all(self, dags: Sequence[Wired]) -> Iterator[Ranked]:
        """Every plan of every op DAG, up to the limits."""
        for wired in dags:
            dag = self._dag(wired)
            for chain in self._chains(dag):
                for pieces in self._sequences(wired, chain, is_idle=False):
                    for chosen in product(*(piece.options for piece in pieces)):
                        yield self._ranked(wired, pieces, chosen)
                if self._is_late():
                    self._materials.cuts.out_of_time("not every kernel cut was tried")
                    return

    def _chains(self, dag: _Dag) -> Iterator[Chain]:
        """All chains of cuts for two kernels up to the most allowed."""
        chains: list[Chain] = [(cut,) for cut in dag.cuts]
        for _ in range(self._max_kernels - 1):
            yield from chains
            chains = [(*chain, cut) for chain in chains for cut in dag.cuts if chain[-1] < cut]

    # --------------------------------------------------------------------- the best plans

    def _best(self, dags: Sequence[Wired], singles: Sequence[Ranked]) -> Iterator[Ranked]:
        """The plans that are among the best at some profile."""
        self._set_limits(singles)
        if len(dags) > MAX_DAGS:
            left = len(dags) - MAX_DAGS
            self._materials.cuts.add("plan_dags", f"kernels: {left} op DAGs were not cut", left)
        cut_dags = [self._dag(wired) for wired in dags[:MAX_DAGS]]
        self._offer_all((dag, (cut,)) for dag in cut_dags for cut in dag.cuts)
        for _ in range(self._max_kernels - 2):
            best = {(k.dag.wired.roots, k.chain): k for kept in self._kept for k in kept}
            longer = [(k.dag, _with(k.chain, cut)) for k in best.values() for cut in k.dag.cuts]
            self._offer_all((dag, c) for dag, c in longer if all(a < b for a, b in pairwise(c)))
        yield from self._listed()

    def _set_limits(self, singles: Sequence[Ranked]) -> None:
        """The seconds of the best single kernel at each profile, and some more."""
        arena, placement = self._materials.arena, self.mapper.placement
        costs = KernelCosts(arena, placement, self._profiles)
        best = np.full(self._profiles.count, np.inf)
        for ranked in singles:
            found = ranked.candidate
            if isinstance(found, Candidate):
                best = np.minimum(best, costs.seconds(found.wired, found.stage, found.grid))
        self._limits = [WORTHWHILE * float(seconds) for seconds in best]

    def _offer_all(self, chains: Iterable[tuple[_Dag, Chain]]) -> None:
        """Offer the plans of these chains, those that may be fastest first."""
        limits = np.array(self._limits)
        bounded = [(self._least(dag, chain), dag, chain) for dag, chain in dict.fromkeys(chains)]
        bounded.sort(key=lambda entry: float((entry[0] / limits).min()))
        for least, dag, chain in bounded:
            if self._is_late():
                self._materials.cuts.out_of_time("not every kernel cut was tried")
                return
            self._count["cuts"] += 1
            if not any(s < self._limit(p, PROMISING) for p, s in enumerate(least)):
                self._count["bounded_cuts"] += 1
                continue
            is_idle = any(map(dag.table.is_idle, chain))
            for pieces in self._sequences(dag.wired, chain, is_idle=is_idle):
                self._offer(dag, chain, pieces)

    def _least(self, dag: _Dag, chain: Chain) -> Row:
        """The seconds of a chain at least: launches, bytes, and work that is perfectly shared."""
        crossing = [dag.table.crossing(cut) for cut in chain]
        return least_seconds(self._materials.arena, dag.wired, crossing, self._profiles)

    def _limit(self, p: int, share: float = 1.0) -> float:
        """What a plan must stay below at a profile: the limit, and a share of the worst kept."""
        kept = self._kept[p]
        enough = share * kept[-1].seconds if len(kept) == KEPT else math.inf
        return min(self._limits[p], enough)

    def _offer(self, dag: _Dag, chain: Chain, pieces: tuple[Piece, ...]) -> None:
        if not all(piece.options for piece in pieces):
            return
        rows = [piece.least for piece in pieces]
        for p, seconds in enumerate(np.add.reduce(rows).tolist()):
            if seconds < self._limit(p):
                kept = self._kept[p]
                kept.append(_Kept(seconds, pieces, dag, chain))
                kept.sort(key=lambda k: k.seconds)
                del kept[KEPT:]

    def _listed(self) -> list[Ranked]:
        """The kept plans with the best options of their pieces, the best looking first."""
        found: dict[tuple[int, ...], Ranked] = {}
        for p, kept in enumerate(self._kept):
            for k in kept:
                for chosen in product(*(piece.best(p, OPTIONS) for piece in k.pieces)):
                    found.setdefault(
                        tuple(id(option) for option in chosen),
                        self._ranked(k.dag.wired, k.pieces, chosen),
                    )
        return sorted(found.values(), key=lambda ranked: ranked.rank)

    # -------------------------------------------------------------------------- both

    def _dag(self, wired: Wired) -> _Dag:
        """The cuts of an op DAG."""
        self._count["plan_dags"] += 1
        table = CutTable(self._materials.arena, wired)
        cuts = tuple(table.cuts(MAX_CUTS))
        if table.wide_count:
            self._materials.cuts.add("crossing", count=table.wide_count)
        if len(cuts) == MAX_CUTS:
            self._materials.cuts.add("cuts", "kernels: one op DAG has too many cuts")
        return _Dag(wired, table, cuts)

    def _sequences(
        self, wired: Wired, chain: Chain, *, is_idle: bool
    ) -> Iterator[tuple[Piece, ...]]:
        """The pieces of a chain of cuts, for each choice of what earlier kernels leave partial.

        `is_idle`: only with something left partial, because another cut is better otherwise.
        """
        ends = [*chain, frozenset(wired.nodes)]
        stack: list[tuple[tuple[Piece, ...], dict[TermId, Stacked]]] = [((), {})]
        while stack:
            pieces, stacked = stack.pop()
            k = len(pieces)
            if k == len(ends):
                if stacked or not is_idle:
                    yield pieces
                continue
            below = chain[k - 1] if k else frozenset()
            partial = frozenset(wired.roots) & stacked.keys() if k == len(chain) else frozenset()
            key = self._key(wired, (below, ends[k]), k, stacked, partial)
            if not key.saved:
                continue  # nothing is left to do
            piece = self._piece(wired, key)
            stack.append(((*pieces, piece), stacked))
            if k < len(chain):
                for stacking in piece.stackings:
                    split = self._piece(wired, replace(key, stacking=stacking))
                    loads = {t: Stacked(key.stack_dim, state) for t, state in stacking}
                    stack.append(((*pieces, split), {**stacked, **loads}))

    def _key(
        self,
        wired: Wired,
        between: tuple[frozenset[TermId], frozenset[TermId]],
        index: int,
        stacked: Mapping[TermId, Stacked],
        partial: frozenset[TermId],
    ) -> PieceKey:
        """The kernel that computes what lies between two cuts and makes `partial` outputs whole."""
        terms, (below, end) = self._materials.arena.terms, between
        # an output that is an input is stored by the first kernel
        copied = [t for t in wired.roots if t not in wired.nodes] if index == 0 else []
        ours = end - below
        read = partial.union(*(terms[node].operands for node in ours))
        above = frozenset[TermId]().union(*(terms[t].operands for t in wired.nodes if t not in end))
        wanted = (ours & above.union(wired.roots)) | partial
        saved = (*dict.fromkeys(copied), *(t for t in wired.nodes if t in wanted))
        return PieceKey(
            saved=saved,
            target_count=sum(wired.roots.count(t) + (t in above) for t in saved),
            loaded=tuple((t, stacked.get(t)) for t in wired.nodes if t in below and t in read),
            stack_dim=self._stack_names[index],
        )

    def _piece(self, wired: Wired, key: PieceKey) -> Piece:
        inner = wired.inner - {term for term, _ in key.loaded}
        known = self._pieces.get((key, inner))
        if known is None:
            own = self.mapper.own
            known = Piece(key, inner, own, self._materials, self._profiles)
            self._pieces[key, inner] = known
        return known

    def _ranked(
        self, wired: Wired, pieces: tuple[Piece, ...], chosen: tuple[Option, ...]
    ) -> Ranked:
        """A plan with the sums of its pieces' counts and ranks."""
        ranks = [option.ranked.rank for option in chosen]
        foreign, concatenated, work, is_spatial, footprint, count = zip(*ranks, strict=True)
        rank = (
            sum(foreign),
            sum(concatenated),
            sum(work),
            any(is_spatial),
            sum(footprint),
            sum(count),
        )
        return Ranked(
            rank,
            Plan(pieces, chosen, wired.roots),
            sum(option.ranked.op_count for option in chosen),
            sum(option.ranked.accumulator_count for option in chosen),
        )


def _with(chain: Chain, cut: frozenset[TermId]) -> Chain:
    """The chain with one more cut, smaller ones first."""
    return tuple(sorted((*chain, cut), key=len))


def _stack_names(taken: Iterable[DataDim]) -> tuple[DataDim, ...]:
    """A name per kernel for the dim that its blocks stack along."""
    known = set(taken)
    fresh = (name for k in count() if (name := f"s{k}") not in known)
    return tuple(islice(fresh, MAX_KERNELS))
