from __future__ import annotations

from dataclasses import replace
from itertools import islice, product
from random import Random
from typing import ClassVar

import numpy as np
import pytest
import search_programs as programs
from hypothesis import given
from hypothesis import strategies as st
from ortools.sat.python import cp_model
from strategies import random_arrays, random_sgraph, random_sizes
from tune.fake_target import FakeTarget
from tune.graphs import mapping, matmul_graph, nested_graph

from prism.errors import GraphError
from prism.ir import (
    Accumulator,
    AccumulatorKind,
    Apply,
    BlockGraph,
    InputLoader,
    MuGraph,
    OutputSaver,
    bind_sizes,
    check_mugraph,
    chunk,
    evaluate_graph,
    is_legal_count,
)
from prism.search import SearchOptions, search
from prism.tune import build_space, instantiate
from prism.tune.instantiate import mu_identity
from prism.tune.space import (
    Config,
    Extent,
    GraphSpace,
    candidate_counts,
    is_legal,
    legal_choices,
    uses_local_size,
)
from prism_kernels.lower import tile_programs

sizes_in = st.integers(1, 5000)


def extents(size: int, count: int) -> list[int]:
    """The chunks of a dimension, one by one."""
    step = chunk(size, count)
    return [min(step, size - start) for start in range(0, count * step, step)]


@given(sizes_in, st.integers(1, 64), st.integers(1, 4096))
def test_candidate_counts_leave_no_chunk_empty_and_start_with_one(size, threads, near):
    counts = candidate_counts(frozenset({Extent(size, size)}), threads, near=near, most=16)
    assert counts[0] == 1
    assert len(set(counts)) == len(counts) <= 16
    for count in counts:
        chunks = extents(size, count)
        assert min(chunks) >= 1
        assert sum(chunks) == size


@given(sizes_in, st.integers(1, 64))
def test_candidate_counts_offer_every_thread_a_block_where_the_size_allows(size, threads):
    if not is_legal_count(size, threads):
        return
    assert threads in candidate_counts(
        frozenset({Extent(size, size)}), threads, near=threads, most=6
    )


@given(st.integers(1, 700), st.integers(1, 8))
def test_choices_of_a_nested_dim_leave_no_tile_empty(size, threads):
    op = nested_graph().kernels[0]
    choices = legal_choices(op, {"n": size}, threads)
    assert choices[0] == (("x", 1), ("i", 1))
    for choice in choices:
        counts = dict(choice)
        assert is_legal(op, counts, {"n": size})
        blocks = extents(size, counts["x"])
        tile = chunk(blocks[0], counts["i"])
        tiles = [min(tile, b - i * tile) for b in blocks for i in range(counts["i"])]
        assert min(tiles) >= 1
        assert sum(tiles) == size


class Collector(cp_model.CpSolverSolutionCallback):
    def __init__(self, variables):
        super().__init__()
        self.variables, self.found = variables, set()

    def on_solution_callback(self):
        self.found.add(tuple(self.value(v) for v in self.variables))


def split(model, extent, most, name):
    """Count and tile of `extent` in chunks of which none is empty, as a CP-SAT model."""
    count, tile = model.new_int_var(1, most, name), model.new_int_var(1, most, f"{name} tile")
    covered, spared = (model.new_int_var(0, most * most, f"{name} {s}") for s in ("all", "but one"))
    model.add_multiplication_equality(covered, (count, tile))
    model.add(spared == covered - tile)
    model.add(covered >= extent)  # the chunks cover the extent ...
    model.add(spared < extent)  # ... and the last one is not empty
    model.add(covered - count < extent)  # no smaller tile would do
    return count, tile, extent - spared


@pytest.mark.parametrize("size", [1, 2, 7, 12, 13, 24, 30])
def test_legality_of_a_nested_dim_agrees_with_a_cp_sat_model(size):
    model = cp_model.CpModel()
    grid, tile, last = split(model, size, size, "x")
    loop, inner, _ = split(model, tile, size, "i")
    before_last = model.new_int_var(0, size * size, "all but the last tile")
    model.add_multiplication_equality(before_last, (loop - 1, inner))
    model.add(before_last < last)
    solver, collector = cp_model.CpSolver(), Collector((grid, loop))
    solver.parameters.enumerate_all_solutions = True
    solver.parameters.num_workers = 1
    assert solver.solve(model, collector) == cp_model.OPTIMAL

    op = nested_graph().kernels[0]
    pairs = [(x, i) for x in range(1, size + 1) for i in range(1, size + 1)]
    legal = {(x, i) for x, i in pairs if is_legal(op, {"x": x, "i": i}, {"n": size})}
    assert legal == collector.found
    assert {(dict(c)["x"], dict(c)["i"]) for c in legal_choices(op, {"n": size}, 2)} <= legal


def test_a_dim_that_partitions_nothing_has_one_chunk():
    op = replace(matmul_graph().kernels[0], mapping=mapping("w h x", "out0 h x"))
    assert {dict(c)["i"] for c in legal_choices(op, {"n": 8, "d": 64, "h": 64}, 2)} == {1}


def test_grid_limits_bound_the_second_grid_dim():
    op = matmul_graph(grid=2).kernels[0]
    sizes = {"n": 200_000, "d": 4, "h": 64}
    assert is_legal(op, {"x": 2, "y": 50_000, "i": 1}, sizes)
    assert not is_legal(op, {"x": 2, "y": 100_000, "i": 1}, sizes)


class Scheduled(FakeTarget):
    options: ClassVar = {"fault": (0, 1), "delay_ms": (1, 2, 3)}


def test_a_space_counts_and_indexes_its_configs():
    sizes = bind_sizes(matmul_graph().program, {"n": 8, "d": 60, "h": 77})
    graphs = (("g0", matmul_graph()), ("g1", matmul_graph(loop=False)))
    space = build_space(graphs, sizes, Scheduled())
    configs = list(space)
    assert len(configs) == len(space) == len(set(configs))
    assert configs == [space.config(i) for i in range(len(space))]
    assert len(space) == 6 * sum(len(g.counts) for g in space.graphs)
    assert str(configs[0]) == "g0 x=1 i=1 fault=0 delay_ms=1"


def test_a_mu_graph_carries_every_size_and_the_counts_of_its_config():
    sizes = bind_sizes(matmul_graph().program, {"n": 8, "d": 64, "h": 64})
    space = build_space((("g0", matmul_graph()),), sizes, Scheduled())
    for config in islice(space, 5):
        mu = instantiate(space.graphs[0], config)
        assert dict(mu.sizes) == sizes
        assert mu.par_sizes == (tuple(c for c in config.par_sizes[0] if c[1] > 1),)


def test_parallelization_dims_of_size_one_are_taken_out():
    sizes = bind_sizes(matmul_graph().program, {"n": 8, "d": 64, "h": 64})
    space = build_space((("g0", matmul_graph(grid=2)),), sizes, FakeTarget())
    config = Config("g0", ((("x", 1), ("y", 4), ("i", 1)),), ())
    mu = instantiate(space.graphs[0], config)
    (kernel,) = mu.graph.kernels
    assert str(kernel.mapping) == "m[out0,n,x] m[x,n,x]"
    assert mu.par_sizes == ((("x", 4),),)
    assert kernel.loops == ()
    assert kernel.block == matmul_graph(loop=False).kernels[0].block


def test_configs_that_differ_in_dims_of_size_one_alone_run_the_same():
    sizes = bind_sizes(matmul_graph().program, {"n": 8, "d": 64, "h": 64})
    graphs = {f"g{i}": g for i, g in enumerate((matmul_graph(), matmul_graph(loop=False)))}
    looped, plain = build_space(tuple(graphs.items()), sizes, FakeTarget()).graphs
    same = instantiate(looped, Config("g0", ((("x", 2), ("i", 1)),), ()))
    assert mu_identity(same) == mu_identity(instantiate(plain, Config("g1", ((("x", 2),),), ())))
    other = instantiate(looped, Config("g0", ((("x", 2), ("i", 2)),), ()))
    assert mu_identity(other) != mu_identity(same)


@pytest.mark.parametrize("seed", range(60))
def test_taking_out_dims_of_size_one_keeps_the_meaning(seed):
    graph = random_sgraph(seed)
    random = Random(seed)
    sizes = bind_sizes(graph.program, random_sizes(graph.program, random, 5))
    (kernel,) = graph.kernels
    for counts in product((1, 2), repeat=len(kernel.grid) + len(kernel.loops)):
        named = dict(zip((p.name for p in (*kernel.grid, *kernel.loops)), counts, strict=True))
        if not is_legal(kernel, named, sizes):
            continue
        whole = MuGraph(graph, tuple(sizes.items()), (tuple(named.items()),))
        config = Config("g0", whole.par_sizes, ())
        smaller = instantiate(GraphSpace("g0", graph, whole.sizes, (), ()), config)
        check_mugraph(smaller)
        arrays = random_arrays(graph.program, sizes, seed)
        try:
            expected = evaluate_graph(whole, arrays)
        except GraphError:  # a random graph may be wrong; then so is the smaller one
            with pytest.raises(GraphError):
                evaluate_graph(smaller, arrays)
            continue
        for one, other in zip(expected, evaluate_graph(smaller, arrays), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_an_illegal_config_is_no_mu_graph():
    space = build_space((("g0", matmul_graph()),), {"n": 8, "d": 64, "h": 64}, Scheduled())
    config = replace(space.config(0), par_sizes=((("x", 65), ("i", 1)),))
    with pytest.raises(GraphError, match="tile would be empty"):
        instantiate(space.graphs[0], config)


def count_graph():
    """A sum over the loop of a value that is the same in every iteration: it counts iterations."""
    block = BlockGraph(
        (
            InputLoader("x", ("n",)),
            Apply("square", (0,)),
            Accumulator(1, AccumulatorKind.SUM, "i"),
            OutputSaver(2, "out0", ("n",)),
        )
    )
    graph = nested_graph()
    op = replace(graph.kernels[0], mapping=mapping("x n x", "out0 n x", "y n i"), block=block)
    return replace(graph, kernels=(op,))


def test_a_sum_of_replicated_values_is_tried_at_equal_chunks_only():
    graph = count_graph()
    assert uses_local_size(graph.kernels[0])
    assert not uses_local_size(matmul_graph().kernels[0])
    assert not uses_local_size(nested_graph().kernels[0])
    counts = [dict(c.par_sizes[0]) for c in build_space((("g0", graph),), {"n": 13}, FakeTarget())]
    assert {c["x"] for c in counts} == {c["i"] for c in counts} == {1, 13}


def attention(x: "s m", w: "m d", o: "d m"):
    return (x @ w) @ o


def cubed(w: "d d"):
    return w @ w @ w


LOWERED = (
    attention,
    cubed,
    programs.matmul,
    programs.rmsnorm,
    programs.stable_softmax_matmul,
    programs.two_outputs,
    programs.residual,
    programs.gram,
)


@pytest.fixture(scope="module")
def searched():
    options = SearchOptions(max_graphs=60, budget_s=None)
    return {f: search(programs.trace(f), options).graphs for f in LOWERED}


@pytest.mark.parametrize("function", LOWERED)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_legal_here_is_lowered(searched, function, seed):
    """Every config of every graph; `x m` over a grid dim and `m` over the loop among them."""
    random = Random(seed)
    graphs = searched[function]
    roots = {d.size for d in graphs[0].graph.program.dims}
    sizes = bind_sizes(
        graphs[0].graph.program, {d: random.choice((1, 3, 13, 17, 23, 131)) for d in sorted(roots)}
    )
    space = build_space(tuple((g.id, g.graph) for g in graphs), sizes, FakeTarget())
    for graph in space.graphs:
        for index in random.sample(range(len(graph)), min(len(graph), 25)):
            tile_programs(instantiate(graph, graph.config(index)))


def test_a_loop_over_a_dim_that_the_grid_splits_elsewhere_fits_its_chunks():
    """x over n of the output, the loop over n of x: at most as many tiles as a chunk holds."""
    op = replace(matmul_graph().kernels[0], mapping=mapping("out0 n x", "x n i"))
    sizes = {"n": 23, "d": 4, "h": 4}
    counts = {p.name: 1 for p in (*op.grid, *op.loops)}
    assert is_legal(op, {**counts, "x": 8, "i": 3}, sizes)
    assert not is_legal(op, {**counts, "x": 8, "i": 6}, sizes)


def test_a_parallel_dim_over_two_dims_has_one_chunk():
    op = replace(matmul_graph().kernels[0], mapping=mapping("x n x", "w h x", "x d i", "w d i"))
    sizes = {"n": 8, "d": 64, "h": 8}
    assert {dict(c)["x"] for c in legal_choices(op, sizes, 2)} == {1}
    assert not is_legal(op, {"x": 2, "i": 1}, sizes)
