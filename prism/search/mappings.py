"""The mappings of an op DAG: states the mapping problem, asks the encoding, once per signature.

Every mapping of the search comes from the encoding that was selected. With named dims the problem
depends only on the inputs' dims, on which of them are matched and on how many grid dims there are,
so many op DAGs share one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from prism.ir import (
    GRID_DIMS,
    LOOP_DIM,
    Assignment,
    MappedTensor,
    MappingProblem,
    ParDim,
    output_name,
)
from prism.protocols import Encoding
from prism.search.answers import checked_answer
from prism.search.grid import Column
from prism.search.placement import REPLICATED, State
from prism.search.pruning import Equality
from prism.search.wiring import Arena, Wired

MAX_ASSIGNMENTS = 5_000
"""Per problem; reaching it is reported."""

MAX_VALUES = 2_000_000
"""Values of variables per problem: programs of hundreds of inputs get fewer assignments."""


@dataclass(frozen=True, slots=True)
class MappedDims:
    """An assignment, read by parallel dim: `grid` columns in order, `loop` states of the inputs."""

    assignment: Assignment
    grid: tuple[Column, ...]
    loop: tuple[State, ...]

    @property
    def has_loop(self) -> bool:
        """Whether the loop partitions anything; if not, there is none."""
        return any(state != REPLICATED for state in self.loop)


@dataclass(slots=True)
class EncodingCount:
    """What the encoding did in one search."""

    models: int = 0
    assignments: int = 0
    seconds: float = 0.0


class Mappings:
    """The selected encoding with its memo and counters."""

    def __init__(self, encoding: Encoding, arena: Arena) -> None:
        self.count = EncodingCount()
        self.is_cut = False
        self._encoding = encoding
        self._arena = arena
        self._known: dict[MappingProblem, tuple[MappedDims, ...]] = {}

    def of(
        self, wired: Wired, equal: frozenset[Equality], grid_count: int
    ) -> tuple[MappedDims, ...]:
        """All mappings of an op DAG over so many grid dims and at most one loop."""
        problem = self._problem(wired, equal, GRID_DIMS[:grid_count])
        known = self._known.get(problem)
        if known is None:
            start = time.perf_counter()
            most = max(1, MAX_VALUES // max(1, len(problem.variables())))
            result = checked_answer(self._encoding, problem, min(MAX_ASSIGNMENTS, most))
            self.count.seconds += time.perf_counter() - start
            self.count.models += 1
            self.count.assignments += len(result.assignments)
            self.is_cut = self.is_cut or not result.complete
            known = tuple(self._decoded(problem, a) for a in result.assignments)
            self._known[problem] = known
        return known

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
            outputs.append(MappedTensor(output_name(index), dims, is_output=True))
        return MappingProblem((*inputs, *outputs), grid, (LOOP_DIM,), equal)

    def _decoded(self, problem: MappingProblem, assignment: Assignment) -> MappedDims:
        place = {name: i for i, name in enumerate(self._arena.input_names)}
        outputs = len(self._arena.program.outputs)
        target = {output_name(i): i for i in range(outputs)}
        inputs = {p.name: [REPLICATED] * len(place) for p in (*problem.grid, LOOP_DIM)}
        saved = {p.name: [REPLICATED] * outputs for p in problem.grid}
        for var in assignment.true:
            dim = self._arena.dim_index(var.dim)
            if var.tensor in place:
                inputs[var.par][place[var.tensor]] = dim
            else:
                saved[var.par][target[var.tensor]] = dim
        grid = tuple(Column(tuple(inputs[p.name]), tuple(saved[p.name])) for p in problem.grid)
        return MappedDims(assignment, grid, tuple(inputs[LOOP_DIM.name]))
