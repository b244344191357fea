"""What placement knows about a mapping problem, stated as facts for encodings that use them.

Along one parallel dim an op DAG stands or falls with its column of the mapping (see `grid` and
`stages`), so the facts are the legal columns: along a grid dim those that leave every output as
mapped, along the loop those with a loop stage. The judges are the search's own, pruners included,
and remember what they judged: stating the facts costs what using the mappings would cost anyway.

Facts only restrict. The mappings still come from the encoding, which may ignore them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from prism.ir import Column, Legality, MappingProblem, ParKind

MAX_COLUMNS = 256
"""Columns of one kind that are judged; where there are more, nothing is stated about that kind."""


@dataclass(frozen=True, slots=True)
class Judges:
    """Whether a column is legal for one op DAG, along a grid dim and along the loop."""

    grid: Callable[[Column], bool]
    loop: Callable[[Column], bool]


def legality(problem: MappingProblem, judges: Judges) -> Legality:
    """The facts of a problem, for any number of grid dims."""
    return Legality(
        grid=_legal(problem.columns(ParKind.GRID), judges.grid),
        loop=_legal(problem.columns(ParKind.LOOP), judges.loop),
    )


def _legal(
    columns: Iterator[Column], is_legal: Callable[[Column], bool]
) -> frozenset[Column] | None:
    first = list(islice((column for column in columns if column), MAX_COLUMNS + 1))
    return frozenset(filter(is_legal, first)) if len(first) <= MAX_COLUMNS else None
