"""The space of graphs of several kernels: stack dims, bounds, order."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
import stacked
from ortools.sat.python import cp_model
from tune.fake_target import FakeTarget
from tune.test_space import Collector, split

from prism.errors import GraphError
from prism.ir import bind_sizes, check_mugraph, evaluate, evaluate_graph, stack_dims
from prism.tune import Config, build_space, instantiate
from prism.tune.space import graph_choices, is_legal, ranked_choices, stack_sizes
from prism_kernels.lower import tile_programs

SIZES = {"n": 7, "d": 101, "h": 37, "f": 43, "q": 5, "e": 13, "k": 83}
MOST = 1024


def sizes_of(graph, sizes=SIZES):
    return bind_sizes(graph.program, {d: sizes[d] for d in graph.program.size_names})


@pytest.fixture(params=stacked.RIGHT)
def graph(request):
    return stacked.RIGHT[request.param]


@pytest.mark.parametrize("threads", [1, 2, 132])
def test_every_config_is_legal_and_no_stack_is_of_one(graph, threads):
    sizes, stacks = sizes_of(graph), stack_dims(graph)
    choices = graph_choices(graph, sizes, threads)
    assert 1 <= len(choices) <= MOST
    assert len(set(choices)) == len(choices)
    for chosen in choices:
        found = dict(sizes)
        for k, (op, counts) in enumerate(zip(graph.kernels, chosen, strict=True)):
            assert is_legal(op, dict(counts), found)
            found |= stack_sizes(graph, k, counts)
        assert all(dict(chosen[k])[par] == found[dim] >= 2 for dim, (k, par) in stacks.items())


def test_the_first_config_has_as_few_chunks_as_may_be(graph):
    stacked_pars = set(stack_dims(graph).values())
    first, *rest = graph_choices(graph, sizes_of(graph), 2)
    for k, counts in enumerate(first):
        assert {p: 2 if (k, p) in stacked_pars else 1 for p, _ in counts} == dict(counts)
    assert any(math.prod(c for _, c in counts) > 1 for chosen in rest for counts in chosen)


@pytest.mark.parametrize("threads", [2, 16, 132])
def test_each_kernel_is_offered_a_block_for_every_thread(graph, threads):
    """Or close to it, where the sizes allow; loops aside."""
    sizes = sizes_of(graph, dict.fromkeys(SIZES, 4096))
    for choices in zip(*graph_choices(graph, sizes, threads), strict=True):
        grids = ([c for p, c in counts if p != "i"] for counts in choices)
        blocks = {math.prod(grid) for grid in grids}
        assert blocks == {1} or any(threads / 1.5 <= b <= 1.5 * threads for b in blocks)


def test_few_parts_are_offered_beside_many_columns():
    op = stacked.RIGHT["split k"].kernels[0]
    choices = ranked_choices(op, {"n": 8, "d": 4096, "h": 4096}, 132)
    pairs = {(dict(c)["x"], dict(c)["y"]) for c in choices[:32]}
    assert {x for x, _ in pairs} >= {2, 4, 8}


def test_configs_are_instantiated_lowered_and_right(graph):
    sizes, random = sizes_of(graph), Random(0)
    (space,) = build_space((("g0", graph),), sizes, FakeTarget()).graphs
    rng = np.random.default_rng(0)
    given = {
        a.name: rng.standard_normal([sizes[d] for d in a.axes]) for a in graph.program.arguments
    }
    (want,) = evaluate(graph.program, given)
    for index in random.sample(range(len(space)), 12):
        mu = instantiate(space, space.config(index))
        check_mugraph(mu)
        tile_programs(mu)
        if index % 4 == 0:
            np.testing.assert_allclose(evaluate_graph(mu, given)[0], want, rtol=1e-9)


@pytest.mark.parametrize("size", [2, 7, 12, 13, 24])
def test_legality_of_a_loop_over_parts_agrees_with_a_cp_sat_model(size):
    """split rmsnorm: x splits d in parts, the loop of kernel 1 the parts."""
    model = cp_model.CpModel()
    parts, _, _ = split(model, size, size, "x")
    model.add(parts >= 2)
    loop, _, _ = split(model, parts, size, "i")
    solver, collector = cp_model.CpSolver(), Collector((parts, loop))
    solver.parameters.enumerate_all_solutions = True
    solver.parameters.num_workers = 1
    assert solver.solve(model, collector) == cp_model.OPTIMAL

    graph = stacked.RIGHT["split rmsnorm"]
    first, second = graph.kernels
    sizes = {"n": 3, "d": size, "h": 4}
    legal = {
        (x, i)
        for x in range(1, size + 1)
        for i in range(1, size + 1)
        if is_legal(first, {"x": x, "y": 1, "i": 1}, sizes)
        and is_legal(second, {"x": 1, "i": i}, sizes | {"s": x})
    }
    assert legal == collector.found
    tried = {
        (dict(one)["x"], dict(two)["i"]) for one, two in graph_choices(graph, sizes, threads=2)
    }
    assert tried <= legal


def test_a_graph_too_small_to_be_stacked_is_left_out():
    graphs = (("g0", stacked.RIGHT["split k"]), ("g1", stacked.RIGHT["split k"]))
    assert not build_space(graphs, {"n": 4, "d": 1, "h": 8}, FakeTarget()).graphs
    assert len(build_space(graphs, {"n": 4, "d": 2, "h": 8}, FakeTarget()).graphs) == 2


def test_a_stack_of_one_is_no_mu_graph():
    graph = stacked.RIGHT["split k"]
    (space,) = build_space((("g0", graph),), sizes_of(graph), FakeTarget()).graphs
    config = Config("g0", ((("x", 1), ("y", 3)), (("x", 2),)), ())
    with pytest.raises(GraphError, match="a stack of size 1"):
        instantiate(space, config)


def test_a_config_shows_which_counts_are_of_which_kernel():
    config = Config("g3", ((("x", 4), ("i", 2)), (), (("x", 3),)), (("KB", 8),))
    assert str(config) == "g3 x=4 i=2 | | x=3 KB=8"


def test_dims_of_size_one_are_taken_out_of_each_kernel():
    graph = stacked.RIGHT["split rmsnorm"]
    (space,) = build_space((("g0", graph),), sizes_of(graph), FakeTarget()).graphs
    counts = ((("x", 2), ("y", 1), ("i", 1)), (("x", 1), ("i", 2)))
    mu = instantiate(space, Config("g0", counts, ()))
    assert mu.par_sizes == ((("x", 2),), (("i", 2),))
    check_mugraph(mu)
    counts = ((("x", 2), ("y", 3), ("i", 1)), (("x", 1), ("i", 1)))
    mu = instantiate(space, Config("g0", counts, ()))
    assert stack_dims(mu.graph) == {"s": (0, "x")}
    check_mugraph(mu)
