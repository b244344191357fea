"""Tune mode: what it keeps is enough, and what it drops is beaten.

The oracle (`priced`) shares nothing with the fronts: it reads finished sGraphs node by node and
prices them with plain numbers. Every graph that the list of all graphs has must be matched, at
random sizes, tiles, machine balances and memory limits, by one that tune mode keeps.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from random import Random

import pytest
import search_programs as programs
from priced import Point, SizedPoint, priced
from strategies import random_program

from prism.egraph import Limits as SaturationLimits
from prism.egraph import load_axioms, saturate
from prism.ir import bind_sizes
from prism.search.answers import load_encoding
from prism.search.assemble import build_graph
from prism.search.cone import build_cone
from prism.search.fronts import FrontGenerator
from prism.search.generate import ConeGenerator, Materials, preferred_dag
from prism.search.mapper import Cuts, Limits
from prism.search.mappings import Answers
from prism.search.pruning import Gate, load_pruners
from prism.search.situation import Situation
from prism.search.wiring import Arena

# ---------------------------------------------------------------------------------- the two lists


@cache
def axioms():
    return load_axioms(("prism",))


def materials_for(program, cone, max_ops, accumulators=4, sizes=None):
    if max_ops is None:
        max_ops = len(program.inputs) + len(preferred_dag(cone)) + 4
    limits = Limits(max_ops, accumulators, 3, 10**9)
    gate = Gate(load_pruners(()))
    answers = Answers(load_encoding("factorised"))
    given = None if sizes is None else tuple(sizes.items())
    situation = Situation.of(program, given, None)
    return Materials(Arena(program), gate, answers, limits, Cuts(), situation)


def graphs_of(make, program, cone, max_ops, sizes=None):
    materials = materials_for(program, cone, max_ops, sizes=sizes)
    found = make(materials).candidates(cone, lambda _share: False, lambda _count: None)
    assert not materials.cuts.sentences
    return [build_graph(materials.arena, ranked.candidate) for ranked in found]


@lru_cache(maxsize=1)
def everything(program, max_ops):
    """The cone of a program, and all its graphs: they are compared with several lists."""
    cone = build_cone(program, saturate(program, axioms(), SaturationLimits(seconds=20)))
    return cone, [priced(g) for g in graphs_of(ConeGenerator, program, cone, max_ops)]


def both(program, max_ops=None, seed=0, sizes=None):
    cone, listed = everything(program, max_ops)
    kept = graphs_of(lambda m: FrontGenerator(m, seed), program, cone, max_ops, sizes)
    return listed, [priced(g) for g in kept]


def one_size(program, loop):
    """Whether a loop divides dims of one size only; tune mode tries no other loops."""
    root = {d.name: d.size for d in program.dims}
    return len({root[d] for _, d in loop}) < 2


def assert_nothing_lost(program, listed, kept, random, samples, *, sizes=None):
    """At every point some kept graph does no more work, in about the same memory."""
    dims = [d.name for d in program.dims]
    columns = sorted({c for p in (*listed, *kept) for c in p.grid}, key=sorted)
    for loop in sorted({p.loop for p in listed if one_size(program, p.loop)}, key=sorted):
        ours = [p for p in kept if p.loop == loop or not loop]
        for _ in range(samples):
            if sizes is None:
                point = Point(random, dims, columns, loop)
            else:
                point = SizedPoint(random, bind_sizes(program, sizes), columns, loop)
            memory = 2 ** random.uniform(4, 24)
            best = {}
            for p in listed:
                if p.loop == loop:
                    work, tiles, _ = p.cost(point)
                    if tiles <= memory:
                        best[p.grid] = min(best.get(p.grid, math.inf), work)
            costs = [(p.grid, *p.cost(point)) for p in ours]
            for grid, wanted in best.items():
                # tiles count as equal within a quarter of all, inputs included
                got = min(
                    work
                    for larger, work, tiles, inputs in costs
                    if grid <= larger and 4 * tiles <= 5 * memory + inputs
                )
                assert got <= wanted * (1 + 1e-9), (loop, grid)


# ------------------------------------------------------------------------------- nothing is lost

PROGRAMS = [
    programs.rmsnorm_paper,
    programs.rmsnorm,
    programs.softmax_matmul,
    programs.stable_softmax_matmul,
    programs.swiglu,
    programs.layernorm_linear,
    programs.two_outputs,
    programs.residual,
    programs.elementwise,
    programs.row_max,
    programs.late_softmax_matmul,
    programs.biased,
    programs.gram,
]


@pytest.fixture(scope="module", params=PROGRAMS, ids=lambda f: f.__name__)
def program(request):
    """pytest runs the tests of one program together, so that `everything` is asked once."""
    return programs.trace(request.param)


def test_the_best_graph_at_any_size_is_kept(program):
    listed, kept = both(program)
    assert 0 < len(kept) <= max(3, len(listed) / 3)
    assert_nothing_lost(program, listed, kept, Random(1), samples=25)


@pytest.mark.parametrize("block", range(6))
def test_generated_programs_lose_nothing_either(block):
    for seed in range(block * 12, block * 12 + 12):
        random = Random(seed)
        program = random_program(seed, random.randint(2, 4))
        listed, kept = both(program)
        assert len(kept) <= len(listed)
        if len(listed) < 600:
            assert_nothing_lost(program, listed, kept, random, samples=6)


def some_sizes(program, random):
    return {d: random.choice((2, 3, 8, 17, 64, 1000, 4096)) for d in program.size_names}


def test_at_given_sizes_the_best_graph_is_kept_among_fewer(program):
    random = Random(3)
    _, symbolic = both(program)
    for _ in range(3):
        sizes = some_sizes(program, random)
        listed, kept = both(program, sizes=sizes)
        assert 0 < len(kept) <= len(symbolic)
        assert_nothing_lost(program, listed, kept, random, samples=25, sizes=sizes)


@pytest.mark.parametrize("block", range(4))
def test_nor_do_generated_programs_lose_any_at_given_sizes(block):
    for seed in range(block * 10, block * 10 + 10):
        random = Random(seed)
        program = random_program(seed, random.randint(2, 4))
        sizes = some_sizes(program, random)
        listed, kept = both(program, sizes=sizes)
        if len(listed) < 600:
            assert_nothing_lost(program, listed, kept, random, samples=12, sizes=sizes)


def test_the_oracle_misses_what_is_taken_away():
    """The comparison above can fail."""
    program = programs.trace(programs.rmsnorm)
    listed, kept = both(program)
    for loop in {p.loop for p in kept if one_size(program, p.loop)}:
        fewer = [p for p in kept if p.loop != loop]
        with pytest.raises((AssertionError, ValueError)):
            assert_nothing_lost(program, listed, fewer, Random(2), samples=10)
    missed = 0
    for i in range(len(kept)):
        try:
            assert_nothing_lost(program, listed, kept[:i] + kept[i + 1 :], Random(2), samples=40)
        except (AssertionError, ValueError):
            missed += 1
    assert missed > 4


@pytest.mark.parametrize("seed", [1, 2])
def test_the_seed_changes_the_order_of_the_search_and_no_more(seed):
    program = programs.trace(programs.rmsnorm)
    listed, kept = both(program, seed=seed)
    assert_nothing_lost(program, listed, kept, Random(seed), samples=25)


def test_what_time_cut_is_counted():
    clock = iter([False] * 40 + [True] * 10**6)
    program = programs.trace(programs.rmsnorm)
    cone = build_cone(program, saturate(program, axioms(), SaturationLimits(seconds=20)))
    materials = materials_for(program, cone, None)
    found = FrontGenerator(materials, 0).candidates(
        cone, lambda _share: next(clock), lambda _count: None
    )
    assert found
    assert materials.cuts.counts["budget_s"] > 0
    assert any("time" in sentence for sentence in materials.cuts.sentences)
