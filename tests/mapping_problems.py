"""Mapping problems for the tests of encodings: named ones, seeded and generated ones, an oracle."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, product

from hypothesis import strategies as st

from prism.ir import (
    GRID_DIMS,
    LOOP_DIMS,
    Assignment,
    Legality,
    MappedTensor,
    MappingProblem,
    MapVar,
    ParKind,
)
from prism_constraints.symmetry import is_smallest


def problem(tensors, equal, *, grid=2, loop=True, must_partition=True, legal=None):
    """`tensors`: name -> dims, those called out... are outputs; `equal`: "X.d W.d" pairs.

    `loop` is whether there is one, or how many.
    `legal`: "grid" or "loop" -> columns, each a text like "X.n out0.n".
    """
    facts = {
        kind: frozenset(
            frozenset(tuple(p.split(".")) for p in column.split()) for column in columns
        )
        for kind, columns in (legal or {}).items()
    }
    return MappingProblem(
        tuple(MappedTensor(n, tuple(ds), n.startswith("out")) for n, ds in tensors.items()),
        GRID_DIMS[:grid],
        LOOP_DIMS[: int(loop)],
        frozenset(
            (tuple(left.split(".")), tuple(right.split(".")))
            for left, right in (pair.split() for pair in equal)
        ),
        must_partition,
        Legality(**facts),
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
NAMED["rmsnorm-1-nest"] = problem(*RMSNORM, grid=1, loop=2)
NAMED["attention-2-nest"] = problem(*ATTENTION, grid=2, loop=2)


FACTS = {
    "rmsnorm": {
        "grid": ["X.n out0.n", "W.h out0.h"],
        "loop": ["X.d W.d", "X.n", "W.h"],
    },
    "gated": {
        "grid": ["X.n out0.n", "V.h W.h out0.h"],
        "loop": ["X.d g.d V.d W.d", "X.n"],
    },
    "attention": {
        "grid": ["Q.b K.b V.b out0.b", "Q.q out0.q", "V.v out0.v"],
        "loop": ["K.k V.k"],
    },
}
"""What placement says of each: a fact names some of the columns that the rules allow."""

SPECS = {"rmsnorm": RMSNORM, "gated": GATED, "attention": ATTENTION}
WITH_FACTS = {
    name: problem(*SPECS[name.split("-")[0]], grid=grid, loop=loop, legal=FACTS[name.split("-")[0]])
    for name, grid, loop in (
        ("rmsnorm-2-loop", 2, True),
        ("rmsnorm-1-nest", 1, 2),
        ("gated-1-loop", 1, True),
        ("attention-3-noloop", 3, False),
        ("attention-2-loop", 2, True),
    )
}


@st.composite
def mapping_problems(draw, max_variables=12):
    """Small problems of any shape, also odd ones: no dims, dims tied within one tensor.

    Half of them state facts: a part of the columns, or none.
    """
    grid = draw(st.integers(0, 3))
    loop = draw(st.integers(0, 2))
    tensors, budget = {}, max_variables
    for index in range(draw(st.integers(0, 4))):
        is_output = draw(st.booleans())
        width = grid + (0 if is_output else loop)
        most = min(3, budget // width if width else 3)
        dims = draw(st.lists(st.sampled_from("abcd"), max_size=most, unique=True))
        budget -= width * len(dims)
        tensors[f"{'out' if is_output else 'T'}{index}"] = dims
    where = [f"{t}.{d}" for t, dims in tensors.items() for d in dims]
    pairs = []
    if where:
        place = st.sampled_from(where)
        pairs = draw(st.lists(st.tuples(place, place).map(" ".join), max_size=4))
    found = problem(tensors, pairs, grid=grid, loop=loop, must_partition=draw(st.booleans()))
    return replace(found, legal=draw(legality(found))) if draw(st.booleans()) else found


@st.composite
def legality(draw, found):
    """Facts about a problem: some of its columns, or nothing known."""

    def part(kind):
        columns = [c for c in islice(found.columns(kind), 20) if c]
        some = st.sets(st.sampled_from(columns)) if columns else st.just(set())
        return draw(st.none() | some.map(frozenset))

    return Legality(part(ParKind.GRID), part(ParKind.LOOP))


def brute_force(p):
    """All assignments in order: every choice of a dim for each tensor and p, tried one by one."""
    variables = p.variables()
    pars = [(t, q.name) for t in p.tensors for q in (*p.grid, *(() if t.is_output else p.loops))]
    found = []
    for choice in product(*((None, *t.dims) for t, _ in pars)):  # (1)
        chosen = zip(pars, choice, strict=True)
        true = frozenset(MapVar(t.name, d, q) for (t, q), d in chosen if d is not None)
        if is_allowed(p, true, set(variables)) and is_smallest(p, Assignment(true)):
            found.append(Assignment(true))
    return sorted(found, key=lambda a: [v in a.true for v in variables])


def is_allowed(p, true, known):
    grid = {g.name for g in p.grid}

    def count(**wanted):
        return sum(all(getattr(v, k) == x for k, x in wanted.items()) for v in true)

    def alike(left, right, par):
        ours = [v for v in known if (v.tensor, v.dim) in (left, right) and v.par == par]
        return len(ours) < 2 or len({v in true for v in ours}) == 1

    return (
        all(
            sum(v.tensor == t.name and v.dim == d and v.par in grid for v in true) <= 1
            for t in p.tensors
            for d in t.dims
        )
        and all(alike(a, b, q.name) for a, b in p.equal for q in (*p.grid, *p.loops))
        and (not p.must_partition or all(count(par=g) >= 1 for g in grid))
    )


def is_legal(p, assignment):
    """Whether no parallel dim contradicts the facts, where they are known."""
    for q in (*p.grid, *p.loops):
        facts = p.legal.grid if q in p.grid else p.legal.loop
        column = {(v.tensor, v.dim) for v in assignment.true if v.par == q.name}
        if facts is not None and column and column not in facts:
            return False
    return True
