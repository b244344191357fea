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

from prism.ir import Enumeration, MappingProblem, MapVar, ParDim
from prism_constraints.symmetry import Place, ordered, places

_MAX_BITS = 60
"""A column of more places does not fit the 64-bit coefficients of one linear constraint."""

Variables = dict[MapVar, cp_model.IntVar]


class BooleanEncoding:
    """Mapping variables as CP-SAT Booleans named `m[T,d,p]`."""

    name = "boolean"

    def enumerate(self, problem: MappingProblem, *, limit: int | None = None) -> Enumeration:
        """All assignments up to symmetry, sorted; at most `limit` of them."""
        model, variables = build_model(problem)
        collector = _Collector(variables, limit)
        status = _solver().solve(model, collector)
        # OPTIMAL says that the enumeration ran to its end, FEASIBLE that it was stopped
        complete = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE) and not collector.stopped
        return Enumeration(ordered(problem, collector.found)[:limit], complete)


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


def _solver() -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.enumerate_all_solutions = True
    # with more workers CP-SAT loses solutions and still answers OPTIMAL (google/or-tools#1186)
    parameters.num_workers = 1
    parameters.random_seed = 0
    # fastest on models of this size
    parameters.cp_model_presolve = False
    parameters.linearization_level = 0
    return solver


class _Collector(cp_model.CpSolverSolutionCallback):
    """Collects solutions; stops at the first one beyond the limit."""

    def __init__(self, variables: Variables, limit: int | None) -> None:
        super().__init__()
        self._named = [(variable.index, name) for name, variable in variables.items()]
        self._limit = limit
        self.found: set[frozenset[MapVar]] = set()
        self.stopped = False

    def on_solution_callback(self) -> None:
        """Called by CP-SAT at each solution."""
        # reading the response once is twice as fast as asking for each variable
        values = self.response_proto.solution
        self.found.add(frozenset(name for index, name in self._named if values[index]))
        if self._limit is not None and len(self.found) > self._limit:
            self.stopped = True
            self.stop_search()
