"""Graphs of several kernels: tensors between them, dims along which blocks stack partial values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import stacked

from prism.errors import GraphError, ParseError
from prism.ir import (
    MuGraph,
    all_sizes,
    bind_sizes,
    check_mugraph,
    check_sgraph,
    evaluate,
    evaluate_graph,
    format_sgraph,
    parse_sgraph,
    stack_dims,
)


def instantiated(graph, count=3):
    """The muGraph with every parallel dim at `count`, at sizes that leave tails."""
    sizes = {name: 7 + i for i, name in enumerate(graph.program.size_names)}
    pars = tuple(
        (*((p.name, count) for p in kernel.grid), *((p.name, 2) for p in kernel.loops))
        for kernel in graph.kernels
    )
    return MuGraph(graph, tuple(bind_sizes(graph.program, sizes).items()), pars)


def arrays_for(mu, seed=0):
    rng = np.random.default_rng(seed)
    sizes = dict(mu.sizes)
    return {a.name: rng.normal(size=[sizes[d] for d in a.axes]) for a in mu.graph.program.arguments}


@pytest.mark.parametrize("name", stacked.RIGHT)
def test_right_graphs_are_well_formed_and_have_a_text(name):
    graph = stacked.RIGHT[name]
    check_sgraph(graph)
    assert parse_sgraph(format_sgraph(graph)) == graph


@pytest.mark.parametrize("name", stacked.RIGHT)
def test_kernel_by_kernel_and_block_by_block_they_compute_their_program(name):
    mu = instantiated(stacked.RIGHT[name])
    arrays = arrays_for(mu)
    (want,) = evaluate(mu.graph.program, arrays)
    (got,) = evaluate_graph(mu, arrays)
    np.testing.assert_allclose(got, want, rtol=1e-9)


@pytest.mark.parametrize("name", stacked.WRONG)
def test_wrong_graphs_compute_something_else(name):
    mu = instantiated(stacked.WRONG[name])
    arrays = arrays_for(mu)
    (want,) = evaluate(mu.graph.program, arrays)
    (got,) = evaluate_graph(mu, arrays)
    assert not np.allclose(got, want, rtol=1e-6)


def test_a_stack_dim_has_the_count_of_its_grid_dim():
    mu = instantiated(stacked.RIGHT["split k"], count=5)
    assert stack_dims(mu.graph) == {"s": (0, "x")}
    assert all_sizes(mu) == {**dict(mu.sizes), "s": 5}


def broken(old, new, text=stacked.SPLIT_K, function=stacked.matmul):
    assert old in text
    return lambda: stacked.graph(function, text.replace(old, new))


MALFORMED = {
    "not mapped": (broken(" m[t0,s,x]", ""), "unknown dimension 's'; a stack dim is mapped"),
    "two grid dims": (
        broken("m[t1,s,x]", "m[t1,s,y]", stacked.SPLIT_RMSNORM, stacked.rmsnorm),
        "the same for all tensors of the kernel",
    ),
    "two in one tensor": (
        broken("save %2 as t0[s, n, h]", "save %2 as t0[s, r, n, h]"),
        "t0 has two stack dims, s and r",
    ),
    "mean": (broken("sum[s]", "mean[s]"), "takes the mean over the stack dim s"),
    "size": (
        broken("%1 = sum[s](t0)", "%1 = size[s]\n  %2 = mul(t0, %1)\n  %3 = sum[s](%2)"),
        "size of 's', which is no dimension",
    ),
    "an output": (
        broken("save %1 as out0[n, h]", "save %1 as out0[n, h, r]"),
        "the unknown dimension 'r'",
    ),
    "other order": (broken("load t0[s, n, h]", "load t0[n, s, h]"), r"but it is \['s', 'n', 'h'\]"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_stacks_are_refused(name):
    check, message = MALFORMED[name]
    with pytest.raises(ParseError, match=message):
        check()


def test_a_graph_has_at_most_three_kernels():
    graph = stacked.RIGHT["three kernels"]
    with pytest.raises(GraphError, match="4 kernels; an sGraph has at most 3"):
        check_sgraph(replace(graph, kernels=(*graph.kernels, graph.kernels[0])))


def test_counts_are_checked_in_every_kernel():
    mu = instantiated(stacked.RIGHT["split k"], count=3)
    with pytest.raises(GraphError, match="kernel 1: x=10"):
        check_mugraph(replace(mu, par_sizes=(mu.par_sizes[0], (("x", 10),))))


LIBRARY = stacked.FFN.replace(
    stacked.FFN[stacked.FFN.index("kernel 1") :],
    """\
kernel 1 library
  t0 = load t0[n, f]
  down = load down[f, h]
  %2 = matmul[f](t0, down)
  save %2 as out0[n, h]
""",
)


def test_a_library_kernel_has_a_text_and_the_meaning_of_its_operator():
    graph = stacked.graph(stacked.ffn, LIBRARY)
    assert [k.library for k in graph.kernels] == [False, True]
    assert parse_sgraph(format_sgraph(graph)) == graph
    sizes = {name: 6 + i for i, name in enumerate(graph.program.size_names)}
    mu = MuGraph(graph, tuple(sizes.items()), ((("x", 2),), ()))
    arrays = arrays_for(mu)
    np.testing.assert_allclose(
        evaluate_graph(mu, arrays)[0], evaluate(graph.program, arrays)[0], rtol=1e-9
    )


NO_LIBRARY = {
    "a grid": ("kernel 1 library\n", "kernel 1 library\n  grid x\n", "no grid and no loop of ours"),
    "two operators": (
        "  save %2 as out0[n, h]",
        "  %3 = abs(%2)\n  save %3 as out0[n, h]",
        "is one contraction of two loaded tensors",
    ),
    "another word": ("library", "libary", "libary"),
}


@pytest.mark.parametrize("name", NO_LIBRARY)
def test_a_library_runs_one_contraction_alone(name):
    old, new, message = NO_LIBRARY[name]
    assert old in LIBRARY
    with pytest.raises(ParseError, match=message):
        stacked.graph(stacked.ffn, LIBRARY.replace(old, new))
