"""The paper's encoding plus what placement knows: every column must be a legal one.

A partial value may not enter a nonlinear operator, a tile may not meet a whole of the same dim: the
search reads such rules off its placement interpreter and states, per kind of parallel dim, which
columns they leave (`MappingProblem.legal`). Here each is one table constraint:

    for every p:  (m[T,d,p] for all T, d) is one of the legal columns, or all zero             (5)

on top of (1) to (4) of `boolean`. So the solver never returns a mapping that the search would drop.
Where nothing is known this is `boolean`.
"""

from __future__ import annotations

from ortools.sat.python import cp_model

from prism.ir import Assignment, Column, Enumeration, MappingProblem, ParDim, Place
from prism_constraints import boolean
from prism_constraints.cpsat import Variables, enumerate_in_order


class PlacementEncoding:
    """Mapping variables as CP-SAT Booleans, columns of the mapping from a table."""

    name = "placement"
    check = "placement"

    def enumerate(self, problem: MappingProblem, *, limit: int | None = None) -> Enumeration:
        """All legal assignments up to symmetry, sorted; with a limit the first `limit` of them."""
        model, variables = build_model(problem)
        return enumerate_in_order(model, variables, limit)

    def keeps(self, problem: MappingProblem, assignment: Assignment) -> bool:
        """Whether every parallel dim has a legal column, read off the assignment."""
        for par in (*problem.grid, *problem.loops):
            legal = problem.legal.of(par)
            column = frozenset((v.tensor, v.dim) for v in assignment.true if v.par == par.name)
            if legal is not None and column and column not in legal:
                return False
        return True


def build_model(problem: MappingProblem) -> tuple[cp_model.CpModel, Variables]:
    """The model of `boolean` with (5) added, and its variables."""
    model, variables = boolean.build_model(problem)
    for par in (*problem.grid, *problem.loops):
        legal = problem.legal.of(par)
        if legal is not None:
            _one_of(model, variables, par, legal)
    return model, variables


def _one_of(
    model: cp_model.CpModel, variables: Variables, par: ParDim, legal: frozenset[Column]
) -> None:
    """(5) for one p; no column at all is legal too, where `must_partition` does not forbid it."""
    column: dict[Place, cp_model.IntVar] = {
        (v.tensor, v.dim): variable for v, variable in variables.items() if v.par == par.name
    }
    rows = sorted(
        tuple(int(place in chosen) for place in column)
        for chosen in {*legal, frozenset()}
        if chosen <= column.keys()
    )
    if column:
        model.add_allowed_assignments(list(column.values()), rows)
