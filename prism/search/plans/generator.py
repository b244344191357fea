"""The generator of graphs of several kernels, on top of one that lists single kernels.

    op DAGs    those of the single kernels, the program's own first
    cuts       which operators an earlier kernel computes                        cuts
    floors     what the kernels of a chain of cuts take at least                 floors
    pieces     each kernel as a program, with its mappings and loop stages       pieces, sequences
    plans      a piece and an option per kernel                                  plan, best

The number of plans is a product over cuts and pieces, so in tune mode they are not listed but
compared: at each of a few sizes and machines (`profiles`) only the best are kept, and a cut whose
bytes and launches alone cost more than what is known is not looked into. Three kernels come from
cutting the best plans of two once more. In count mode every plan is listed, up to the limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from prism.search.assemble import Candidate
from prism.search.cone import Cone
from prism.search.generate import Generator, Materials, preferred_dag
from prism.search.mapper import Late
from prism.search.plans.best import BestPlans
from prism.search.plans.cuts import Chain
from prism.search.plans.pieces import Option
from prism.search.plans.plan import Plan
from prism.search.plans.profiles import KernelCosts, Profiles, Row
from prism.search.plans.sequences import CutDag, Pieces, Sequences
from prism.search.ranking import Ranked
from prism.search.situation import Situation
from prism.search.wiring import Wired

BASE_SHARE = 0.6
"""The part of the time for generating that single kernels may take."""

MAX_DAGS = 64
"""Op DAGs that are cut in tune mode."""

OPTIONS = 2
"""Options of each piece of a plan that are listed."""


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
        self._sequences = Sequences(self._materials, self._profiles)
        self._count = {"plan_dags": 0, "cuts": 0, "bounded_cuts": 0, "plans": 0}
        self._is_late: Callable[[], bool] = lambda: False

    def candidates(
        self, cone: Cone, is_late: Late, progress: Callable[[int], None]
    ) -> list[Ranked]:
        """The single kernels, then the plans, the best looking first in each."""
        singles = self._base.candidates(cone, lambda s: is_late(s * BASE_SHARE), progress)
        self._is_late = lambda: is_late(1.0)
        self._sequences.own = self.mapper.own
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
        pieces = {"pieces": self._sequences.piece_count}
        return {**self._base.counters(), **self._count, **compared, **pieces}

    # ------------------------------------------------------------------------- every plan

    def _all(self, dags: Sequence[Wired]) -> Iterator[Ranked]:
        """Every plan of every op DAG, up to the limits."""
        for wired in dags:
            dag = self._dag(wired)
            for chain in self._chains(dag):
                for pieces in self._sequences.of(dag, chain, is_idle=False):
                    for chosen in product(*(piece.options for piece in pieces)):
                        yield _ranked(wired, pieces, chosen)
                if self._is_late():
                    self._materials.cuts.out_of_time("not every kernel cut was tried")
                    return

    def _dag(self, wired: Wired) -> CutDag:
        self._count["plan_dags"] += 1
        return self._sequences.dag(wired)

    def _chains(self, dag: CutDag) -> Iterator[Chain]:
        """All chains of cuts for two kernels up to the most allowed."""
        chains: list[Chain] = [(cut,) for cut in dag.cuts]
        for _ in range(self._max_kernels - 1):
            yield from chains
            chains = [
                (*chain, cut)
                for chain in chains
                for cut in dag.cuts
                if chain[-1] != cut and not chain[-1] & ~cut
            ]

    # --------------------------------------------------------------------- the best plans

    def _best(self, dags: Sequence[Wired], singles: Sequence[Ranked]) -> list[Ranked]:
        """The plans that are among the best at some profile, the best looking first."""
        if len(dags) > MAX_DAGS:
            left = len(dags) - MAX_DAGS
            self._materials.cuts.add("plan_dags", f"kernels: {left} op DAGs were not cut", left)
        cut_dags = [self._dag(wired) for wired in dags[:MAX_DAGS]]
        best = BestPlans(self._sequences, self._profiles, self._best_single(singles), self._is_late)
        best.search(cut_dags, self._max_kernels)
        self._count["cuts"], self._count["bounded_cuts"] = best.cut_count, best.bounded_count
        if best.is_cut:
            self._materials.cuts.out_of_time("not every kernel cut was tried")
        found: dict[tuple[int, ...], Ranked] = {}
        for p, kept in enumerate(best.kept):
            for k in kept:
                for chosen in product(*(piece.best(p, OPTIONS) for piece in k.pieces)):
                    key = tuple(id(option) for option in chosen)
                    found.setdefault(key, _ranked(k.dag.wired, k.pieces, chosen))
        return sorted(found.values(), key=lambda ranked: ranked.rank)

    def _best_single(self, singles: Sequence[Ranked]) -> Row:
        """The seconds of the best single kernel at each profile."""
        costs = KernelCosts(self._materials.arena, self.mapper.placement, self._profiles)
        best = np.full(self._profiles.count, np.inf)
        for ranked in singles:
            found = ranked.candidate
            if isinstance(found, Candidate):
                best = np.minimum(best, costs.seconds(found.wired, found.stage, found.grid))
        return best


def _ranked(wired: Wired, pieces: Pieces, chosen: tuple[Option, ...]) -> Ranked:
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
