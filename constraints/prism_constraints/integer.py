"""The mapping as integers in CP-SAT: for every tensor and p, which dim is partitioned, if any.

    m[T,p] in 0 .. k     the index of the dim of T, which has k; k where none is partitioned
    for every T, p:      m[T,p] has one value, which is (1)
    for every T, p, q:   m[T,p] and m[T,q] differ, or both are none, for grid dims p, q        (2)
    for matched T.d, U.e:  m[T,p] = d exactly if m[U,p] = e, for every p both have             (3)
    for neighbouring p, q: (m[T,p] for all T) <= (m[T,q] for all T), read as numbers           (4)

The Booleans m[T,d,p] are there as well, each tied to its integer by a table: solutions are read off
them, in the same order as those of the other encodings. (4) reads an assignment tensor by tensor as
`symmetry.reading` does place by place: the first p to partition anything comes first.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from math import prod

from ortools.sat.python import cp_model

from prism.ir import Enumeration, MappedTensor, MappingProblem, MapVar, ParDim
from prism_constraints.cpsat import Variables, branch_in_order, enumerate_in_order

_MAX_NUMBER = 1 << 60
"""Larger numbers do not fit the 64-bit sums of a linear constraint."""

Integers = dict[tuple[str, str], cp_model.IntVar]
"""The variable of each (tensor, p)."""


class IntegerEncoding:
    """One CP-SAT integer per tensor and parallel dim."""

    name = "integer"

    def enumerate(self, problem: MappingProblem, *, limit: int | None = None) -> Enumeration:
        """All assignments up to symmetry, sorted; with a limit the first `limit` of them."""
        model, variables = build_model(problem)
        return enumerate_in_order(model, variables, limit)


def build_model(problem: MappingProblem) -> tuple[cp_model.CpModel, Variables]:
    """The CP-SAT model of a mapping problem, and its Boolean variables."""
    model = cp_model.CpModel()
    integers = {
        (t.name, p.name): model.new_int_var(0, len(t.dims), f"m[{t.name},{p.name}]")
        for t in problem.tensors
        for p in _pars(problem, t)
    }
    variables = {v: model.new_bool_var(str(v)) for v in problem.variables()}
    for t in problem.tensors:
        for p in _pars(problem, t):
            _one_dim_per_par(model, integers, variables, t, p)
        for p, q in combinations(problem.grid, 2):
            both = [(d, d) for d in range(len(t.dims))]
            if both:
                model.add_forbidden_assignments(
                    [integers[t.name, p.name], integers[t.name, q.name]], both
                )
    _dimension_matching(model, integers, problem)
    for p, q in pairwise(problem.grid):
        _symmetry(model, integers, problem, p, q)
    if problem.must_partition:
        places = sum(len(t.dims) for t in problem.tensors)
        for p in problem.grid:
            column = [integers[t.name, p.name] for t in problem.tensors]
            model.add(cp_model.LinearExpr.sum(column) < places)
    branch_in_order(model, variables)
    return model, variables


def _pars(problem: MappingProblem, tensor: MappedTensor) -> tuple[ParDim, ...]:
    """The parallel dims along which a tensor has a variable."""
    return (*problem.grid, *(() if tensor.is_output else problem.loops))


def _one_dim_per_par(
    model: cp_model.CpModel,
    integers: Integers,
    variables: Variables,
    tensor: MappedTensor,
    par: ParDim,
) -> None:
    """(1): the Booleans are the integer written out, at most one of them true."""
    count = len(tensor.dims)
    literals = [variables[MapVar(tensor.name, d, par.name)] for d in tensor.dims]
    rows = [(value, *(int(value == i) for i in range(count))) for value in range(count + 1)]
    model.add_allowed_assignments([integers[tensor.name, par.name], *literals], rows)


def _dimension_matching(
    model: cp_model.CpModel, integers: Integers, problem: MappingProblem
) -> None:
    """(3) matched dims are mapped alike; along the loop only where both can be."""
    dims_of = {t.name: t.dims for t in problem.tensors}
    for (t, d), (u, e) in sorted(problem.equal):
        if d not in dims_of.get(t, ()) or e not in dims_of.get(u, ()):
            continue
        index, other = dims_of[t].index(d), dims_of[u].index(e)
        allowed = [
            (a, b)
            for a in range(len(dims_of[t]) + 1)
            for b in range(len(dims_of[u]) + 1)
            if (a == index) == (b == other)
        ]
        for p in (*problem.grid, *problem.loops):
            if (t, p.name) not in integers or (u, p.name) not in integers:
                continue
            if t != u:
                model.add_allowed_assignments([integers[t, p.name], integers[u, p.name]], allowed)
            elif d != e:
                # two dims of one tensor, never both: so neither
                model.add(integers[t, p.name] != index)
                model.add(integers[t, p.name] != other)


def _symmetry(
    model: cp_model.CpModel, integers: Integers, problem: MappingProblem, p: ParDim, q: ParDim
) -> None:
    """(4) for neighbours p, q, each tensor's integer one digit of a number."""
    tensors = [t for t in problem.tensors if t.dims]
    bases = [len(t.dims) + 1 for t in tensors]
    first = [integers[t.name, p.name] for t in tensors]
    second = [integers[t.name, q.name] for t in tensors]
    if prod(bases) <= _MAX_NUMBER:
        weights = [prod(bases[i + 1 :]) for i in range(len(bases))]
        model.add(
            cp_model.LinearExpr.weighted_sum(first, weights)
            <= cp_model.LinearExpr.weighted_sum(second, weights)
        )
        return
    # digit by digit: q may be ahead of p only where p is in use already; a use is determined by
    # the integers, so no solution is repeated
    used: cp_model.IntVar | None = None
    for i, t in enumerate(tensors):
        count = len(t.dims)
        slack = 0 if used is None else count * used
        model.add(first[i] <= second[i] + slack)
        now = model.new_bool_var(f"used[{t.name},{p.name},{q.name}]")
        here = model.new_bool_var(f"here[{t.name},{p.name},{q.name}]")
        model.add(first[i] < count).only_enforce_if(here)
        model.add(first[i] == count).only_enforce_if(here.negated())
        model.add_max_equality(now, [here] if used is None else [here, used])
        used = now
