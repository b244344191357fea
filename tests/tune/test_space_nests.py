"""The space of graphs with a loop inside a loop."""

from __future__ import annotations

from itertools import product

import nested
import pytest
from tune.fake_target import FakeTarget

from prism.ir import MuGraph, bind_sizes, check_mugraph, evaluate_graph
from prism.tune import build_space, instantiate
from prism.tune.instantiate import mu_identity
from prism.tune.space import MOST_COUNTS, MOST_TILES, graph_choices, is_legal, uses_local_size

SIZES = {"n": 7, "d": 101, "h": 37, "f": 43, "q": 5, "e": 13, "k": 83}
NESTS = [name for name in nested.RIGHT if name != "one dim split twice"]


def sizes_of(graph):
    return bind_sizes(graph.program, {d: SIZES[d] for d in graph.program.size_names})


@pytest.mark.parametrize("name", NESTS)
def test_choices_are_legal_and_few_and_both_loops_run_in_most(name):
    graph = nested.RIGHT[name]
    (op,) = graph.kernels
    sizes = sizes_of(graph)
    choices = [dict(counts) for (counts,) in graph_choices(graph, sizes, 2)]
    assert len(choices) <= MOST_COUNTS[len(op.grid)] * MOST_TILES[2] ** 2
    assert all(is_legal(op, counts, sizes) for counts in choices)
    assert set(choices[0].values()) == {1}
    assert sum(c["i"] > 1 and c["j"] > 1 for c in choices) > len(choices) / 2


def test_each_loop_has_its_own_tiles():
    graph = nested.RIGHT["matmul"]
    choices = [dict(counts) for (counts,) in graph_choices(graph, sizes_of(graph), 2)]
    pairs = {(c["i"], c["j"]) for c in choices}
    assert pairs == set(product({i for i, _ in pairs}, {j for _, j in pairs}))


def test_loops_over_one_dim_do_not_run():
    graph = nested.RIGHT["one dim split twice"]
    (op,) = graph.kernels
    assert [dict(c) for (c,) in graph_choices(graph, sizes_of(graph), 2)] == [{"i": 1, "j": 1}]
    assert not is_legal(op, {"i": 2, "j": 2}, sizes_of(graph))


@pytest.mark.parametrize("name", NESTS)
def test_a_nest_without_one_of_its_loops_is_a_graph_with_one(name):
    graph = nested.RIGHT[name]
    (space,) = build_space((("g", graph),), sizes_of(graph), FakeTarget()).graphs
    made = set()
    for config in (space.config(i) for i in range(len(space))):
        mu = instantiate(space, config)
        check_mugraph(mu)
        (kernel,) = mu.graph.kernels
        counts = dict(config.par_sizes[0])
        count = (counts["i"] > 1) + (counts["j"] > 1)
        assert [p.name for p in kernel.loops] == ["i", "j"][:count]
        made.add((count, mu_identity(mu)))
    assert {count for count, _ in made} == {0, 1, 2}


REPEATED = """\
kernel 0
  loop i, j
  map m[w,d,j] m[w,h,i]
  map m[x,d,j]
  x = load x[n, d]
  w = load w[d, h]
  %2 = matmul[d](x, w)
  %3 = sum[d](x)
  %4 = accumulate[j] sum(%2)
  %5 = accumulate[j] sum(%3)
  %6 = accumulate[i] concat[h](%4)
  %7 = accumulate[i] sum(%5)
  %8 = div(%6, %7)
  save %8 as out0[n, h]
"""


def test_a_sum_over_the_outer_loop_of_what_it_does_not_change_counts_its_iterations():
    repeated = nested.graph(nested.matmul, REPEATED)
    assert uses_local_size(repeated.kernels[0])
    assert not any(uses_local_size(g.kernels[0]) for g in nested.RIGHT.values())
    sizes = {"n": 2, "d": 4, "h": 6}
    ones = {"x": [[1.0] * 4] * 2, "w": [[1.0] * 6] * 4}
    for i in (2, 3):
        mu = MuGraph(repeated, tuple(sizes.items()), ((("i", i), ("j", 2)),))
        (out,) = evaluate_graph(mu, ones)
        assert (out == 1 / i).all()
