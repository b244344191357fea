"""Lists the op DAGs of a cone: one operator for each class that is needed, each choice once.

The walk goes backwards from the roots. A partial DAG is the set of classes still needed, as a bit
mask over the cone's topological order; its highest bit is a class whose readers are all decided,
so choosing its operator here is the only place where this DAG can get it: every DAG comes out
exactly once, and where every class is computable there are no dead ends (measured: a million per
second). DAGs come in the order of how many operators differ from the preferred ones, so that a
walk that is cut short has seen the program's own DAG and its neighbourhood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from prism.search.cone import Cone
from prism.search.macros import ClassId, Operator

OpDag = tuple[tuple[ClassId, Operator], ...]
"""The classes of a DAG and the operator chosen for each, children first."""

_DEAD_END = 1
"""The lowest bit stands for every class that cannot be computed: no operator answers it."""


@dataclass(slots=True)
class Steps:
    """How many partial DAGs a walk visited, and whether `limit` stopped it."""

    limit: int
    visited: int = 0
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class DagTable:
    """The choices of a cone by bit: for each, its operators and the classes they need."""

    classes: tuple[ClassId, ...]
    choices: tuple[tuple[tuple[Operator, int], ...], ...]
    roots: int


class _Partial(NamedTuple):
    """A partial DAG: classes still needed, operators left, and the choice made last."""

    need: int
    left: int
    chosen: _Chosen | None


class _Chosen(NamedTuple):
    """A linked list of choices, shared by all partial DAGs that begin with them."""

    cls: ClassId
    operator: Operator
    rest: _Chosen | None


def dag_table(cone: Cone, keep: Callable[[Operator], bool]) -> DagTable:
    """The table of the operators that `keep` lets through."""
    bit = {cls: 2 << i for i, cls in enumerate(cone.order)}
    bit |= dict.fromkeys(cone.leaves, 0)
    rows = [
        tuple(
            (operator, _union(bit.get(c, _DEAD_END) for c in operator.children))
            for operator in cone.choices[cls]
            if keep(operator)
        )
        for cls in cone.order
    ]
    return DagTable(
        (-1, *cone.order), ((), *rows), _union(bit.get(root, _DEAD_END) for root in cone.roots)
    )


def _union(masks: Iterator[int]) -> int:
    out = 0
    for mask in masks:
        out |= mask
    return out


def op_dags(table: DagTable, max_operators: int, steps: Steps) -> Iterator[OpDag]:
    """Every op DAG of at most `max_operators` operators, once, closest to preferred first."""
    if table.roots.bit_count() > max_operators:
        return
    buckets = [[_Partial(table.roots, max_operators, None)]]
    distance = 0
    while distance < len(buckets):
        bucket = buckets[distance]
        if not bucket:
            distance += 1
            continue
        partial = bucket.pop()
        if not partial.need:
            yield _listed(partial.chosen)
            continue
        steps.visited += 1
        if steps.visited > steps.limit:
            steps.is_cut = True
            return
        _extend(table, partial, buckets, distance)


def _extend(
    table: DagTable, partial: _Partial, buckets: list[list[_Partial]], distance: int
) -> None:
    """Choose an operator for the highest class needed, in every way."""
    top = partial.need.bit_length() - 1
    rest, left = partial.need ^ (1 << top), partial.left - 1
    # reversed: a bucket is a stack, and the first choice shall come out first
    for index in reversed(range(len(table.choices[top]))):
        operator, mask = table.choices[top][index]
        need = rest | mask
        if need.bit_count() <= left:
            target = distance + (index > 0)
            if target == len(buckets):
                buckets.append([])
            buckets[target].append(
                _Partial(need, left, _Chosen(table.classes[top], operator, partial.chosen))
            )


def _listed(chosen: _Chosen | None) -> OpDag:
    """The linked list, last chosen (deepest class) first."""
    out: list[tuple[ClassId, Operator]] = []
    while chosen is not None:
        out.append((chosen.cls, chosen.operator))
        chosen = chosen.rest
    return tuple(out)
