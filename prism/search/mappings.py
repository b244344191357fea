"""The mappings of an op DAG: states the mapping problem, asks the encoding, once per signature.

Every mapping of the search comes from the encoding that was selected. With named dims the problem
depends only on the inputs' dims, on which of them are matched and on how many grid dims there are,
so many op DAGs share one; its canonical form is the key under which answers are kept. A problem for
a stronger encoding also states what placement knows of the op DAG (`legality`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from prism.ir import (
    GRID_DIMS,
    LOOP_DIMS,
    Assignment,
    Enumeration,
    Legality,
    MappedTensor,
    MappingProblem,
    ParDim,
    ParKind,
    Place,
    output_name,
)
from prism.protocols import Encoding, StrongerEncoding
from prism.search.answers import checked_answer
from prism.search.grid import Column, Stacking
from prism.search.legality import Judges, legality
from prism.search.placement import REPLICATED, State
from prism.search.pruning import Equality
from prism.search.wiring import Arena, Wired

MAX_ASSIGNMENTS = 5_000
"""Per problem; reaching it is reported."""

MAX_VALUES = 2_000_000
"""Values of variables per problem: programs of hundreds of inputs get fewer assignments."""


Names = tuple[tuple[str, ...], tuple[str, ...]]
"""Of an arena: its dims and its inputs, in order."""


@dataclass(frozen=True, slots=True)
class MappedDims:
    """An assignment, read by parallel dim.

    `grid` columns in order, `loop` states of the inputs, `inner` the same for a loop inside it.
    """

    assignment: Assignment
    grid: tuple[Column, ...]
    loop: tuple[State, ...]
    inner: tuple[State, ...] | None = None

    @property
    def has_inner(self) -> bool:
        """Whether something is divided along an inner loop."""
        return self.inner is not None and any(state != REPLICATED for state in self.inner)


@dataclass(slots=True)
class EncodingCount:
    """What the encoding did in one search: `problems` it was asked for, `models` it had to solve.

    The other answers were known.
    """

    problems: int = 0
    models: int = 0
    assignments: int = 0
    seconds: float = 0.0


class Answers:
    """What the selected encoding said in one search, with its counters."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self.count = EncodingCount()
        self._known: dict[MappingProblem, Enumeration] = {}
        self.read: dict[tuple[MappingProblem, Names], tuple[MappedDims, ...]] = {}
        """Answers read for arenas whose dims and inputs have these names."""

    def to(self, problem: MappingProblem) -> Enumeration:
        """All mappings of a problem in canonical form, as far as the limits allow."""
        known = self._known.get(problem)
        if known is None:
            start = time.perf_counter()
            most = max(1, MAX_VALUES // max(1, len(problem.variables())))
            known = checked_answer(self.encoding, problem, min(MAX_ASSIGNMENTS, most))
            self._known[problem] = known
            self.count.seconds += time.perf_counter() - start
            self.count.models += 1
            self.count.assignments += len(known.assignments)
        return known


class Mappings:
    """The mappings of op DAGs of one arena."""

    def __init__(
        self,
        answers: Answers,
        arena: Arena,
        stacking: Stacking | None = None,
        loops: tuple[ParDim, ...] = LOOP_DIMS[:1],
        *,
        apart: bool = False,
    ) -> None:
        self.is_cut = False
        self._apart = apart
        self._loops = loops
        self._answers = answers
        self._stacking = stacking
        self._arena = arena
        self._known: dict[MappingProblem, tuple[MappedDims, ...]] = {}
        self._input_place = {name: i for i, name in enumerate(arena.input_names)}
        self._output_place = {output_name(i): i for i in range(len(arena.program.outputs))}

    def legality(
        self,
        wired: Wired,
        equal: frozenset[Equality],
        is_legal_on_grid: Callable[[Column], bool],
        has_stage: Callable[[tuple[State, ...]], bool],
    ) -> Legality:
        """What placement knows of an op DAG; nothing where the encoding would not use it."""
        if not isinstance(self._answers.encoding, StrongerEncoding):
            return Legality()
        judges = Judges(
            grid=lambda places: is_legal_on_grid(self._column(places)),
            loop=lambda places: has_stage(self._column(places).inputs),
        )
        return legality(self._problem(wired, equal, GRID_DIMS[:1]), judges)

    def columns(self, wired: Wired, equal: frozenset[Equality]) -> Iterator[Column]:
        """Everything one grid dim may do to an op DAG's inputs and outputs, lazily."""
        for places in self._problem(wired, equal, GRID_DIMS[:1]).columns(ParKind.GRID):
            yield self._column(places)

    def of(
        self,
        wired: Wired,
        equal: frozenset[Equality],
        grid_count: int,
        legal: Legality = Legality(),  # noqa: B008 - a frozen value
    ) -> tuple[MappedDims, ...]:
        """All mappings of an op DAG over so many grid dims and the loops, used or not."""
        problem = self._problem(wired, equal, GRID_DIMS[:grid_count])
        return self._all(replace(problem, legal=legal))

    def fitting(
        self,
        wired: Wired,
        equal: frozenset[Equality],
        grid_count: int,
        legal: Legality,
        fits: Callable[[tuple[Column, ...]], bool],
    ) -> Iterator[MappedDims]:
        """The mappings whose grid fits.

        No constraint ties grid dims to loops. Where they are asked for `apart`, the encoding has
        two small problems to solve, and a mapping is an answer to each.
        """
        if not self._apart:
            yield from (d for d in self.of(wired, equal, grid_count, legal) if fits(d.grid))
            return
        problem = replace(self._problem(wired, equal, GRID_DIMS[:grid_count]), legal=legal)
        in_loops = self._all(replace(problem, grid=()))
        for grid in self._all(replace(problem, loops=())):
            if fits(grid.grid):
                yield from (_joined(grid, loops) for loops in in_loops)

    def _all(self, problem: MappingProblem) -> tuple[MappedDims, ...]:
        """The mappings that solve one problem."""
        self._answers.count.problems += 1
        known = self._known.get(problem)
        if known is None:
            # one DAG may tie the same places together by other equalities
            canonical = problem.canonical()
            known = self._known.get(canonical)
            if known is None:
                known = self._known[canonical] = self._asked(canonical)
            self._known[problem] = known
        return known

    def _asked(self, problem: MappingProblem) -> tuple[MappedDims, ...]:
        """The encoding's answer."""
        result = self._answers.to(problem)
        self.is_cut = self.is_cut or not result.complete
        key = (problem, (self._arena.dim_names, self._arena.input_names))
        if key not in self._answers.read:
            read = tuple(self._decoded(problem, a) for a in result.assignments)
            self._answers.read[key] = read
        return self._answers.read[key]

    def _problem(
        self, wired: Wired, equal: frozenset[Equality], grid: tuple[ParDim, ...]
    ) -> MappingProblem:
        terms = self._arena.terms
        used = 0
        for root in wired.roots:
            used |= terms[root].inputs
        inputs = [
            MappedTensor(node.name, node.dims)
            for i, node in enumerate(self._arena.program.inputs)
            if used >> i & 1
        ]
        outputs = []
        for index, (root, output) in enumerate(
            zip(wired.roots, self._arena.program.outputs, strict=True)
        ):
            # a dim that the output only repeats along is never partitioned
            dims = tuple(
                d
                for d in output.axes
                if d is not None and terms[root].dims >> self._arena.dim_index(d) & 1
            )
            if self._stacking is not None and index in self._stacking.outputs:
                dims = (self._stacking.dim, *dims)
            outputs.append(MappedTensor(output_name(index), dims, is_output=True))
        return MappingProblem((*inputs, *outputs), grid, self._loops, equal)

    def _decoded(self, problem: MappingProblem, assignment: Assignment) -> MappedDims:
        places: dict[str, list[Place]] = {p.name: [] for p in (*problem.grid, *problem.loops)}
        for var in assignment.true:
            places[var.par].append((var.tensor, var.dim))
        grid = tuple(self._column(places[p.name]) for p in problem.grid)
        loops = [self._column(places[p.name]).inputs for p in problem.loops]
        return MappedDims(assignment, grid, *(loops or [self._column(()).inputs]))

    def _column(self, places: Iterable[Place]) -> Column:
        """The states of inputs and outputs along a parallel dim that partitions the places."""
        inputs = [REPLICATED] * len(self._input_place)
        outputs = [REPLICATED] * len(self._output_place)
        for tensor, dim in places:
            if tensor in self._input_place:
                inputs[self._input_place[tensor]] = self._arena.dim_index(dim)
            else:
                outputs[self._output_place[tensor]] = self._arena.dim_index(dim)
        return Column(tuple(inputs), tuple(outputs))


def _joined(grid: MappedDims, loops: MappedDims) -> MappedDims:
    """A mapping along grid dims and one along loops as one."""
    true = grid.assignment.true | loops.assignment.true
    return MappedDims(Assignment(true), grid.grid, loops.loop, loops.inner)
