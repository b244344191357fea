"""A bound is never above what it bounds: every partial op DAG against every graph it becomes."""

from __future__ import annotations

import math
from random import Random

import pytest
import search_programs as programs
from strategies import random_program

from prism.egraph import Limits as SaturationLimits
from prism.egraph import load_axioms, saturate
from prism.search.answers import load_encoding
from prism.search.cone import build_cone
from prism.search.dags import Steps, op_dags
from prism.search.fronts.bounds import Bounds
from prism.search.fronts.chains import bits
from prism.search.fronts.costs import Cost, GraphCosts, looped_dims
from prism.search.fronts.generator import _Run
from prism.search.fronts.polynomials import exponents
from prism.search.generate import Materials, preferred_dag
from prism.search.mapper import Cuts, Limits
from prism.search.mappings import Answers
from prism.search.pruning import Gate, load_pruners
from prism.search.situation import Situation
from prism.search.wiring import Arena


def run_for(program, sizes=None):
    axioms = load_axioms(("prism",))
    cone = build_cone(program, saturate(program, axioms, SaturationLimits(seconds=20)))
    max_ops = len(program.inputs) + len(preferred_dag(cone)) + 4
    limits = Limits(max_ops, 4, 3, 10**9)
    gate = Gate(load_pruners(()))
    answers = Answers(load_encoding("factorised"))
    given = None if sizes is None else tuple(sizes.items())
    situation = Situation.of(program, given, None)
    materials = Materials(Arena(program), gate, answers, limits, Cuts(), situation)
    mapper = materials.mapper()
    run = _Run(materials, mapper, cone, 0)
    run._find_columns(lambda: False)
    costs = GraphCosts(materials.arena, run._prices, mapper.placement)
    return materials, cone, run, costs


def value(polynomial, at):
    return sum(
        c * math.prod(at[i] ** e for i, e in enumerate(exponents(m))) for m, c in polynomial.items()
    )


def prefixes(run, bounds, dag):
    """The partial DAGs on the way to a DAG: choices so far, classes needed, tiles certain."""
    choice_of = {
        (this.cls, choice.operator): choice for this in bounds.classes for choice in this.choices
    }
    number = {cls: i for i, cls in enumerate(run._table.classes)}
    need, tiles, chosen = run._table.roots, 0, []
    yield [], need, tiles
    for cls, operator in reversed(dag):
        choice = choice_of[cls, operator]
        rest = need ^ (1 << number[cls])
        tiles = bounds.tiles(tiles, number[cls], rest, choice)
        need = rest | choice.needs
        chosen.append(choice)
        yield list(chosen), need, tiles


def assert_bounds_hold(program, random, most):
    materials, cone, run, costs = run_for(program)
    bounds = Bounds(run._tables(), lambda: False)
    compared = 0
    for dag in op_dags(run._table, materials.limits.max_ops, Steps(2_000)):
        if random.random() * most > 1 and compared > most:
            continue
        wired = materials.arena.wire(cone, dag)
        if wired is None:
            continue
        for k, column in enumerate(run._columns):
            for stage in list(run._mapper.stages(wired, column.inputs))[:6]:
                looped = looped_dims(column.inputs)
                work, tiles = costs.of(wired, stage, looped, {})
                at = [random.randint(1, 20) for _ in range(run._prices.variable_count)]
                for chosen, need, certain in prefixes(run, bounds, dag):
                    bound = bounds.cost(chosen, need, certain, k)
                    assert all(choice.alive[k] for choice in chosen)
                    assert value(bound.work, at) <= value(work, at)
                    assert value(bound.footprint, at) <= value(tiles, at)
                    compared += 1
    return compared


@pytest.mark.parametrize(
    "function",
    [
        programs.rmsnorm_paper,
        programs.rmsnorm,
        programs.stable_softmax_matmul,
        programs.layernorm_linear,
        programs.two_outputs,
        programs.residual,
        programs.swiglu,
    ],
    ids=lambda f: f.__name__,
)
def test_the_bound_holds_for_every_graph(function):
    assert assert_bounds_hold(programs.trace(function), Random(1), 3_000) > 10


@pytest.mark.parametrize("block", range(4))
def test_it_holds_for_generated_programs(block):
    for seed in range(block * 10, block * 10 + 10):
        random = Random(seed)
        assert_bounds_hold(random_program(seed, random.randint(2, 5)), random, 300)


def row_of(bounds, chosen, need, tiles, column):
    """A bound as the walk adds it up."""
    units = 0
    for choice in chosen:
        units |= choice.units
    out = bounds.rows(need, tiles)[column].copy()
    for choice in chosen:
        out += choice.rows[column]
    for unit in bits(units):
        out += bounds.units[unit][1][column]
    for i in bits(tiles):
        out += bounds.classes[i].tile_rows[column]
    return out


@pytest.mark.parametrize(
    "function",
    [programs.rmsnorm, programs.stable_softmax_matmul, programs.residual, programs.swiglu],
    ids=lambda f: f.__name__,
)
def test_at_given_sizes_it_holds_at_every_corner(function):
    program, random = programs.trace(function), Random(1)
    sizes = {d: random.choice((2, 7, 64, 1000)) for d in program.size_names}
    materials, cone, run, costs = run_for(program, sizes)
    bounds = Bounds(run._tables(), lambda: False)
    compared = 0
    for dag in op_dags(run._table, materials.limits.max_ops, Steps(300)):
        wired = materials.arena.wire(cone, dag)
        for k, column in enumerate(run._columns):
            for stage in list(run._mapper.stages(wired, column.inputs))[:4]:
                cost = Cost(*costs.of(wired, stage, looped_dims(column.inputs), {}))
                assert run._scales[k].is_exact(cost)
                row = run._scales[k].row(cost)
                for chosen, need, certain in prefixes(run, bounds, dag):
                    # what dares more than the program is bounded apart
                    bound = row_of(bounds, chosen, need, certain, k)[:-1]
                    assert (bound <= row[:-1] * (1 + 1e-9)).all()
                    compared += 1
    assert compared > 10
