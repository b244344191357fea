"""Generators of candidates, and the default one, which walks the cone backwards.

The steps nest as the paper's generation does: an op DAG is wired, its mappings come from the
encoding, each grid dim is placed, each loop mapping staged. Candidates come out the best looking
first, so that a budget on verification cuts the worst. What a limit cut is noted in `Cuts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Protocol

from prism.search.cone import Cone
from prism.search.dags import OpDag, Steps, dag_table, op_dags
from prism.search.grid import Stacking
from prism.search.macros import ClassId, Operator
from prism.search.mapper import Cuts, Late, Limits, Mapper
from prism.search.mappings import Answers
from prism.search.pruning import Gate, Matched, Offered
from prism.search.ranking import Ranked
from prism.search.situation import Situation
from prism.search.wiring import Arena, Wired

MAX_PARTIAL_DAGS = 100_000


@dataclass(frozen=True, slots=True)
class Materials:
    """What every generator is made from."""

    arena: Arena
    gate: Gate
    answers: Answers
    limits: Limits
    cuts: Cuts
    situation: Situation | None = None
    stacking: Stacking | None = None
    apart: bool = False
    """Whether the encoding is asked for grid dims and loops one after the other."""

    def mapper(self) -> Mapper:
        """A mapper of these."""
        parts = (self.arena, self.gate, self.answers, self.limits, self.cuts)
        return Mapper(*parts, self.stacking, apart=self.apart)


class Generator(Protocol):
    """What a search needs of a generator."""

    mapper: Mapper

    def candidates(
        self, cone: Cone, is_late: Late, progress: Callable[[int], None]
    ) -> list[Ranked]:
        """Every candidate within the budgets, the best looking first."""

    def instead(self, unproved: Iterable[Ranked]) -> list[Ranked]:
        """Candidates that were left out for some that verification did not prove."""

    def counters(self) -> dict[str, Any]:
        """What it did: `states` visited, `dags` completed, and what is its own."""


class ConeGenerator:
    """Lists the op DAGs of the cone and stages each; there are no dead ends.

    A state is a partial DAG visited, or one step in staging a DAG along the loop.
    """

    def __init__(self, materials: Materials) -> None:
        self.mapper = materials.mapper()
        self.steps = Steps(MAX_PARTIAL_DAGS)
        self._dag_count = 0
        self._arena = materials.arena
        self._gate = materials.gate
        self._limits = materials.limits
        self._cuts = materials.cuts

    def counters(self) -> dict[str, Any]:
        """What it did."""
        return {
            "states": self.steps.visited + self.mapper.stage_steps,
            "partial_dags": self.steps.visited,
            "dags": self._dag_count,
        }

    def candidates(
        self, cone: Cone, is_late: Late, progress: Callable[[int], None]
    ) -> list[Ranked]:
        """Every candidate within the budgets, the best looking first."""
        out: list[Ranked] = []
        seen: set[tuple[int, ...]] = set()
        own = self._arena.wire(cone, preferred_dag(cone))
        self.mapper.own = frozenset(() if own is None else own.nodes)
        for wired in self._wired_dags(cone):
            if wired.roots in seen:
                continue  # a macro beside its parts written out: the same terms
            seen.add(wired.roots)
            self._dag_count += 1
            # late, not even the rest of this one
            out.extend(takewhile(lambda _: not is_late(1.0), self._placed(wired)))
            progress(len(out))
            if len(out) >= self._limits.candidates:
                self._cuts.add("candidates", f"candidates: stopped after {len(out)}")
                break
            if is_late(1.0):
                self._cuts.out_of_time("not every op DAG was tried")
                break
        return sorted(out, key=lambda found: found.rank)

    def instead(self, unproved: Iterable[Ranked]) -> list[Ranked]:  # noqa: ARG002 - the protocol's
        """Nothing: all candidates were listed."""
        return []

    def _wired_dags(self, cone: Cone) -> Iterator[Wired]:
        """The op DAGs as terms, those that the pruners keep."""
        own = {operator for _, operator in preferred_dag(cone)}
        table = dag_table(cone, lambda o: self._gate.keeps(offered(cone, o, is_own=o in own)))
        for dag in op_dags(table, self._limits.max_ops, self.steps):
            wired = self._arena.wire(cone, dag)
            if wired is None or not fits_outputs(self._arena, wired.roots):
                self._cuts.add("malformed")
            elif self.mapper.op_count(wired, None) > self._limits.max_ops:
                self._cuts.add("max_ops")
            elif self._gate.keeps(Matched(self._arena, wired)):
                yield wired
        if self.steps.is_cut:
            limit = self.steps.limit
            self._cuts.add("partial_dags", f"op DAGs: stopped after {limit} partial ones")

    def _placed(self, wired: Wired) -> Iterator[Ranked]:
        """The candidates of one op DAG."""
        return self.mapper.candidates(wired, lambda loop: self.mapper.stages(wired, loop))


def fits_outputs(arena: Arena, roots: tuple[int, ...]) -> bool:
    """Whether every output varies along the dims the program's own does."""
    program = arena.program
    dims = program.tensor_dims()
    return all(
        arena.terms[root].dims == arena.mask(tuple(dims[output.tensor]))
        for root, output in zip(roots, program.outputs, strict=True)
    )


def offered(cone: Cone, operator: Operator, *, is_own: bool) -> Offered:
    """An operator as pruners see it."""
    return Offered(
        operator,
        tuple(c in cone.computable for c in operator.children),
        tuple(cone.dims.get(c, frozenset()) for c in operator.children),
        is_own,
    )


def preferred_dag(cone: Cone) -> OpDag:
    """The op DAG of preferred choices: the program's own."""
    needed = set(cone.roots)
    out: list[tuple[ClassId, Operator]] = []
    for cls in reversed(cone.order):
        if cls in needed and cone.choices[cls]:
            operator = cone.choices[cls][0]
            out.append((cls, operator))
            needed.update(operator.children)
    return tuple(reversed(out))
