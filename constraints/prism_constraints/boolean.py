"""The paper's encoding: one Boolean per mapping variable, enumerated by CP-SAT (section 4).

    for every T, p:        at most one m[T,d,p] over d                            (1)
    for every T, d:        at most one m[T,d,p] over grid dims p                  (2)
    for matched T.d, U.e:  m[T,d,p] = m[U,e,p] for every p both have              (3)
    for neighbouring p, q: column q <= column p, read as binary numbers           (4)

and every grid dim partitions something, where the problem asks for that. There are no auxiliary
variables: an undetermined one would repeat solutions.
"""

from __future__ import annotations

from ortools.sat.python import cp_model

from prism.ir import Enumeration, MappingProblem, MapVar, ParDim, Place
from prism_constraints.cpsat import Variables, branch_in_order, enumerate_in_order
from prism_constraints.symmetry import places

_MAX_BITS = 60
"""A column of more places does not fit the 64-bit coefficients of one linear constraint."""


class BooleanEncoding:
    """Mapping variables as CP-SAT Booleans named `m[T,d,p]`."""

    name = "boolean"

    def enumerate(self, problem: MappingProblem, *, limit: int | None = None) -> Enumeration:
        """All assignments up to symmetry, sorted; with a limit the first `limit` of them."""
        model, variables = build_model(problem)
        return enumerate_in_order(model, variables, limit)


def build_model(problem: MappingProblem) -> tuple[cp_model.CpModel, Variables]:
    """The CP-SAT model of a mapping problem, and its variables."""
    model = cp_model.CpModel()
    variables = {v: model.new_bool_var(str(v)) for v in problem.variables()}
    _one_dim_per_par(model, variables, problem)
    _one_grid_dim_per_place(model, variables, problem)
    _dimension_matching(model, variables, problem)
    _symmetry(model, variables, problem)
    if problem.must_partition:
        for p in problem.grid:
            model.add_bool_or(_column(variables, places(problem), p))
    branch_in_order(model, variables)
    return model, variables


def _one_dim_per_par(
    model: cp_model.CpModel, variables: Variables, problem: MappingProblem
) -> None:
    """(1) for every T, p: at most one d."""
    for t in problem.tensors:
        for p in (*problem.grid, *(() if t.is_output else problem.loops)):
            model.add_at_most_one(variables[MapVar(t.name, d, p.name)] for d in t.dims)


def _one_grid_dim_per_place(
    model: cp_model.CpModel, variables: Variables, problem: MappingProblem
) -> None:
    """(2) for every T, d: at most one grid dim."""
    for tensor, dim in places(problem):
        model.add_at_most_one(variables[MapVar(tensor, dim, p.name)] for p in problem.grid)


def _dimension_matching(
    model: cp_model.CpModel, variables: Variables, problem: MappingProblem
) -> None:
    """(3) matched dims are mapped alike; along the loop only where both can be."""
    for (t, d), (u, e) in sorted(problem.equal):
        for p in (*problem.grid, *problem.loops):
            left, right = MapVar(t, d, p.name), MapVar(u, e, p.name)
            if left in variables and right in variables:
                model.add(variables[left] == variables[right])


def _symmetry(model: cp_model.CpModel, variables: Variables, problem: MappingProblem) -> None:
    """(4) columns of neighbouring grid dims do not increase."""
    rows = places(problem)
    for p, q in zip(problem.grid, problem.grid[1:], strict=False):
        earlier, later = _column(variables, rows, p), _column(variables, rows, q)
        if len(rows) <= _MAX_BITS:
            weights = [1 << (len(rows) - 1 - i) for i in range(len(rows))]
            model.add(
                cp_model.LinearExpr.weighted_sum(later, weights)
                <= cp_model.LinearExpr.weighted_sum(earlier, weights)
            )
        else:
            # the same by clauses: q partitions a place only when p partitions an earlier one
            # (p cannot partition the same place, by (2))
            for i, literal in enumerate(later):
                model.add_bool_or([literal.negated(), *earlier[:i]])


def _column(variables: Variables, rows: tuple[Place, ...], par: ParDim) -> list[cp_model.IntVar]:
    """All variables of one grid dim, in order of places."""
    return [variables[MapVar(t, d, par.name)] for t, d in rows]
