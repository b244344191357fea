"""The placement interpreter: readable reasons, never accepting what is wrong."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import search_programs as programs
from strategies import random_sgraph

from prism.ir import (
    GRID_DIMS,
    LOOP_DIM,
    Accumulator,
    AccumulatorKind,
    Apply,
    BlockGraph,
    GraphOp,
    InputLoader,
    Mapping,
    MapVar,
    OutputSaver,
    SGraph,
)
from prism.search import SearchOptions, explain, search

X, W = InputLoader("x", ("n", "d")), InputLoader("w", ("d", "h"))
SUM, CONCAT, MAX = AccumulatorKind.SUM, AccumulatorKind.CONCAT, AccumulatorKind.MAX


def graph(nodes, *mapped, function=programs.matmul, grid=0, loop=False):
    """A graph from nodes and mappings written as "x.n.i"."""
    true = frozenset(MapVar(*text.split(".")) for text in mapped)
    loops = (LOOP_DIM,) if loop else ()
    kernel = GraphOp(GRID_DIMS[:grid], loops, Mapping(true), BlockGraph(tuple(nodes)))
    return SGraph(programs.trace(function), (kernel,))


def product(*after, operand=2):
    """x @ w, then other nodes, then the saver of node `operand`."""
    return [X, W, Apply("matmul", (0, 1), "d"), *after, OutputSaver(operand, "out0", ("n", "h"))]


GOOD = {
    "no grid": graph(product()),
    "rows": graph(product(), "x.n.x", "out0.n.x", grid=1),
    "loop": graph(product(Accumulator(2, SUM, "i"), operand=3), "x.d.i", "w.d.i", loop=True),
    "rows by loop": graph(product(Accumulator(2, CONCAT, "i", "n"), operand=3), "x.n.i", loop=True),
}

BAD = {
    "partial output": (
        graph(product(), "x.d.x", "w.d.x", grid=1),
        "along x: out0 is partial over x",
    ),
    "half a contraction": (
        graph(product(), "x.d.x", grid=1),
        "along x: %2 = matmul of a tile along d and all of w[d, h], which has d too",
    ),
    "wrong omap": (
        graph(product(), "x.n.x", "out0.h.x", grid=1),
        "along x: out0 is a tile along n over x, but is saved as a tile along h",
    ),
    "no omap": (graph(product(), "x.n.x", grid=1), "but is saved as whole"),
    "no accumulator": (
        graph(product(), "x.d.i", "w.d.i", loop=True),
        "along i: out0 is partial over i, but is saved after the loop",
    ),
    "tiles summed": (
        graph(product(Accumulator(2, SUM, "i"), operand=3), "x.n.i", loop=True),
        "%3 accumulates %2 by sum as if it were partial, but it is a tile along n",
    ),
    "summands side by side": (
        graph(product(Accumulator(2, CONCAT, "i", "n"), operand=3), "x.d.i", "w.d.i", loop=True),
        "but it is partial",
    ),
    "whole values summed": (
        graph(product(Accumulator(2, SUM, "i"), operand=3), loop=True),
        "but it is whole",
    ),
    "partial into silu": (
        graph(
            product(Apply("silu", (2,)), Accumulator(3, SUM, "i"), operand=4),
            "x.d.i",
            "w.d.i",
            loop=True,
        ),
        "along i: partial value of %2 enters %3 = silu",
    ),
    "partial squared": (
        graph(product(Apply("mul", (2, 2)), operand=3), "x.d.x", "w.d.x", grid=1),
        "partial value of %2 enters %3 = mul",
    ),
    "tiles along two dims": (
        graph(product(), "x.n.x", "w.h.x", "out0.n.x", grid=1),
        "%2 = matmul of tiles along different dims: h, n",
    ),
    "read after the loop": (
        graph(
            product(Accumulator(2, CONCAT, "i", "n"), Apply("div", (3, 0)), operand=4),
            "x.n.i",
            loop=True,
        ),
        "along i: %4 reads x[n, d] after the loop, which is a tile along n in each iteration",
    ),
}


@pytest.mark.parametrize("good", GOOD.values(), ids=GOOD)
def test_nothing_is_wrong_with_a_right_graph(good):
    assert explain(good) is None
    assert programs.computes_its_program(good, seed=1)


@pytest.mark.parametrize(("bad", "reason"), BAD.values(), ids=BAD)
def test_the_reason_names_the_value_and_the_dim(bad, reason):
    assert reason in explain(bad)


def test_maxima_are_not_added():
    nodes = [X, Apply("max", (0,), "d"), Accumulator(1, SUM, "i"), OutputSaver(2, "out0", ("n",))]
    wrong = graph(nodes, "x.d.i", function=programs.row_max, loop=True)
    assert "but it is a maximum of a part" in explain(wrong)
    nodes[2] = Accumulator(1, MAX, "i")
    assert explain(graph(nodes, "x.d.i", function=programs.row_max, loop=True)) is None


def test_a_maximum_is_not_taken_of_partial_values_of_another_dim():
    nodes = [
        X,
        Apply("sum", (0,), "d"),
        Apply("max", (1,), "n"),
        Accumulator(2, MAX, "i"),
        OutputSaver(3, "out0", ()),
    ]
    wrong = graph(nodes, "x.d.x", "x.n.i", function=programs.total, grid=1, loop=True)
    assert "partial value of %1 enters %2 = max" in explain(wrong)


@pytest.mark.parametrize(
    "function", [programs.softmax_matmul, programs.layernorm_linear, programs.two_outputs]
)
def test_every_wrong_saver_of_a_right_graph_is_noticed(function):
    found = search(programs.trace(function), SearchOptions(max_graphs=20)).graphs
    for item in found:
        (kernel,) = item.graph.kernels
        outputs = {v for v in kernel.mapping.true if v.tensor.startswith("out")}
        for var in outputs:
            lost = replace(kernel, mapping=Mapping(kernel.mapping.true - {var}))
            assert explain(replace(item.graph, kernels=(lost,))) is not None


def test_what_is_accepted_computes_the_same_in_blocks_as_in_one_piece():
    # random graphs: structure sound, placement mostly wrong; accepted ones must not depend on
    # how many blocks and iterations there are
    accepted = 0
    for seed in range(600):
        made = random_sgraph(seed, 4)
        if explain(made) is None:
            accepted += 1
            assert programs.is_independent_of_counts(made, Random(seed))
    assert accepted > 50
