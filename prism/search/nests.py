"""A loop inside a loop: which loop stages along the outer and the inner loop make one graph.

States along two loops never depend on each other, so a graph with two loops is a pair of `Stage`s
of one op DAG, one along each, from the same walk. They must fit the nest:

  * the two loops divide different dims
  * what runs after the outer loop runs after the inner one, or is the same in all its iterations
  * what was accumulated over the inner loop starts anew in each iteration of the outer one: it is
    read after the outer loop, or saved, through an accumulator over that loop alone. A value that
    is the same in every iteration of the outer loop has none, so it is not read there
"""

from __future__ import annotations

from prism.search.placement import AFTER, REPLICATED, State
from prism.search.stages import Stage, accumulator_operators
from prism.search.wiring import Arena, Wired


def divides_other_dims(outer: tuple[State, ...], inner: tuple[State, ...]) -> bool:
    """Whether mappings of the inputs along the loops use both, each for other dims."""
    first, second = ({s for s in states if s != REPLICATED} for states in (outer, inner))
    return bool(first) and bool(second) and first.isdisjoint(second)


def fits_nest(arena: Arena, wired: Wired, outer: Stage, inner: Stage) -> bool:
    """Whether stages along the outer and the inner loop make a graph."""
    ended = [term for term in wired.nodes if outer.state(term) == AFTER]
    if not all(inner.state(term) in (AFTER, REPLICATED) for term in ended):
        return False
    read = {operand for term in ended for operand in arena.terms[term].operands}
    return all(
        outer.state(term) != REPLICATED or inner.state(term) == REPLICATED
        for term in read.union(wired.roots)
    )


def accumulator_count(outer: Stage | None, inner: Stage | None) -> int:
    """How many accumulators hold a value on chip.

    What is stored tile by tile needs none, unless the outer loop accumulates it as well.
    """
    out = sum(len(stage.accumulated) for stage in (outer, inner) if stage is not None)
    if outer is not None and inner is not None:
        out += len(set(inner.stored) & set(outer.accumulated))
    return out


def nest_operators(arena: Arena, outer: Stage | None, inner: Stage | None) -> int:
    """How many operators the accumulators count as."""
    return sum(
        accumulator_operators(arena, stage.accumulated)
        for stage in (outer, inner)
        if stage is not None
    )
