"""Mapping problems for the tests of encodings: named ones, seeded and generated ones, an oracle."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from prism.ir import GRID_DIMS, LOOP_DIM, Assignment, MappedTensor, MappingProblem
from prism_constraints.symmetry import is_smallest


def problem(tensors, equal, *, grid=2, loop=True, must_partition=True):
    """`tensors`: name -> dims, those called out... are outputs; `equal`: "X.d W.d" pairs."""
    return MappingProblem(
        tuple(MappedTensor(n, tuple(ds), n.startswith("out")) for n, ds in tensors.items()),
        GRID_DIMS[:grid],
        (LOOP_DIM,) if loop else (),
        frozenset(
            (tuple(left.split(".")), tuple(right.split(".")))
            for left, right in (pair.split() for pair in equal)
        ),
        must_partition,
    )


RMSNORM = (
    {"X": "nd", "W": "dh", "out0": "nh"},
    ["X.d W.d", "X.n out0.n", "W.h out0.h"],
)
GATED = (
    {"X": "nd", "g": "d", "V": "dh", "W": "dh", "out0": "nh"},
    ["X.d g.d", "X.d V.d", "X.d W.d", "V.h W.h", "X.n out0.n", "V.h out0.h"],
)
ATTENTION = (
    {"Q": "bqe", "K": "bke", "V": "bkv", "out0": "bqv"},
    ["Q.b K.b", "Q.b V.b", "Q.e K.e", "K.k V.k", "Q.b out0.b", "Q.q out0.q", "V.v out0.v"],
)
NAMED = {
    f"{name}-{grid}-{'loop' if loop else 'noloop'}": problem(*spec, grid=grid, loop=loop)
    for name, spec in (("rmsnorm", RMSNORM), ("gated", GATED), ("attention", ATTENTION))
    for grid in (0, 1, 2, 3)
    for loop in (False, True)
}


@st.composite
def mapping_problems(draw, max_variables=12):
    """Small problems of any shape, also odd ones: no dims, dims tied within one tensor."""
    grid = draw(st.integers(0, 3))
    loop = draw(st.booleans())
    tensors, budget = {}, max_variables
    for index in range(draw(st.integers(0, 4))):
        is_output = draw(st.booleans())
        width = grid + (loop and not is_output)
        most = min(3, budget // width if width else 3)
        dims = draw(st.lists(st.sampled_from("abcd"), max_size=most, unique=True))
        budget -= width * len(dims)
        tensors[f"{'out' if is_output else 'T'}{index}"] = dims
    where = [f"{t}.{d}" for t, dims in tensors.items() for d in dims]
    pairs = []
    if where:
        place = st.sampled_from(where)
        pairs = draw(st.lists(st.tuples(place, place).map(" ".join), max_size=4))
    return problem(tensors, pairs, grid=grid, loop=loop, must_partition=draw(st.booleans()))


def brute_force(p):
    """All assignments, by trying every one of the 2^n and reading the constraints literally."""
    variables = p.variables()
    known = set(variables)
    found = []
    for bits in product((False, True), repeat=len(variables)):
        true = frozenset(v for v, bit in zip(variables, bits, strict=True) if bit)
        if is_allowed(p, true, known) and is_smallest(p, Assignment(true)):
            found.append(Assignment(true))
    return found


def is_allowed(p, true, known):
    grid = {g.name for g in p.grid}

    def count(**wanted):
        return sum(all(getattr(v, k) == x for k, x in wanted.items()) for v in true)

    def alike(left, right, par):
        ours = [v for v in known if (v.tensor, v.dim) in (left, right) and v.par == par]
        return len(ours) < 2 or len({v in true for v in ours}) == 1

    return (
        all(count(tensor=v.tensor, par=v.par) <= 1 for v in known)
        and all(
            sum(v.tensor == t.name and v.dim == d and v.par in grid for v in true) <= 1
            for t in p.tensors
            for d in t.dims
        )
        and all(alike(a, b, q.name) for a, b in p.equal for q in (*p.grid, *p.loops))
        and (not p.must_partition or all(count(par=g) >= 1 for g in grid))
    )
