"""Which graphs look best, before any size is known: the order of verification and of the result.

Every dim counts as 64 long, every parallel dim as 8 blocks or iterations. Graphs are compared by

  1. exponentials that the program does not take: exp(x) / exp(max) is exp(x - max), but overflows
  2. values kept whole though the loop had them in tiles (concatenating accumulators)
  3. elements computed per block: work that a grid dim does not divide is repeated in every block,
     an operator on unfinished sums in every iteration
  4. whether the loop does more than a larger grid would: some value is accumulated in it
  5. the size of all tiles, then the number of operators

Nothing here decides what is right or what is tuned; a budget that cuts should cut the worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prism.search.assemble import Candidate, Design
from prism.search.grid import Column, GridPlacement
from prism.search.placement import REPLICATED
from prism.search.stages import Stage
from prism.search.wiring import Arena, TermId

_DIM_BITS = 6
_PAR_BITS = 3

OVERFLOWING = frozenset({"exp"})
"""Operators whose result may leave the range of floating point though the program's does not."""

Rank = tuple[int, int, float, bool, float, int]


def rank(
    arena: Arena,
    placement: GridPlacement,
    candidate: Candidate,
    columns: tuple[Column, ...],
    own: frozenset[TermId],
) -> Rank:
    """The smaller the better looking; `own` are the program's own terms."""
    wired, stages = candidate.wired, candidate.stages
    foreign = sum(arena.terms[t].op in OVERFLOWING and t not in own for t in wired.nodes)
    concatenated = sum(stage.state(t) >= 0 for stage in stages for t in stage.accumulated)
    is_spatial = bool(stages) and not any(stage.accumulated for stage in stages)
    work = footprint = 0.0
    sharded = [placement.sharded(column) for column in columns]
    for term in (*wired.leaves, *wired.nodes):
        value = arena.terms[term]
        shared = sum([term in terms for terms in sharded])
        tile = _DIM_BITS * value.dims.bit_count() - _PAR_BITS * shared
        if value.leaf is None:
            space = value.dims | arena.terms[value.operands[0]].dims
            elements = _DIM_BITS * space.bit_count() - _PAR_BITS * shared
            work += 2.0 ** (elements + _PAR_BITS * _repeats(value.operands, term, stages))
        tiled = sum([_is_tiled(term, stage) for stage in stages])
        footprint += 2.0 ** (tile - _PAR_BITS * tiled)
    return foreign, concatenated, work, is_spatial, footprint, wired.operator_count


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate with its place in the order and its counts."""

    rank: Rank
    candidate: Design
    op_count: int
    accumulator_count: int


def best_looking(candidates: Sequence[Ranked], most: int) -> list[Ranked]:
    """The best of candidates that are in order, still in order.

    Half of them are chosen as if exponentials were harmless: a target that carries exponentials in
    range-safe form can use graphs that would overflow elsewhere, and they are often the fastest.
    """
    head, rest = candidates[: (most + 1) // 2], candidates[(most + 1) // 2 :]
    daring = sorted(rest, key=lambda found: found.rank[1:])[: most - len(head)]
    return sorted((*head, *daring), key=lambda found: found.rank)


def _is_tiled(term: TermId, stage: Stage) -> bool:
    """Whether an iteration of the loop holds only a tile."""
    return term not in stage.accumulated and stage.state(term) >= 0


def _repeats(operands: tuple[TermId, ...], term: TermId, stages: Sequence[Stage]) -> int:
    """The loops in whose iterations an operator does all its work again.

    It works on sums that are not finished; or it is computed in an outer loop, since an inner one
    divides it or what it reads, though it is the same in every iteration of the outer one.
    """
    late = sum([stage.is_late(term, operands) for stage in stages])
    if len(stages) > 1:
        outer, inner = stages
        late += outer.state(term) == REPLICATED != inner.state(term)
    return late
