from __future__ import annotations

from dataclasses import replace

import pytest
from strategies import random_sgraph

from prism.errors import GraphError
from prism.ir import (
    GRID_DIMS,
    OPS,
    Apply,
    InputLoader,
    Mapping,
    MapVar,
    OpKind,
    OutputSaver,
    ParDim,
    ParKind,
    check_threads,
    format_thread_graph,
    loop_stages,
    parse_sgraph,
    thread_graphs,
    thread_kernel,
)

NORMALISED = """
sgraph
program p
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = exp(x)
  %2 = sum[d](%1)
  %3 = sqrt(%2)
  %4 = neg(%3)
  %5 = div(%1, %4)
  %6 = tanh(%5)
  return %6[n, d]
kernel 0
  x = load x[n, d]
  %1 = exp(x)
  %2 = sum[d](%1)
  %3 = sqrt(%2)
  %4 = neg(%3)
  %5 = div(%1, %4)
  %6 = tanh(%5)
  save %6 as out0[n, d]
"""

CROSSED = """
sgraph
program p
  dims n, d
  args x[n, d], y[n, d], g[n]
  x = input x[n, d]
  y = input y[n, d]
  g = input g[n]
  %3 = exp(x)
  %4 = sum[d](%3)
  %5 = sqrt(%4)
  %6 = neg(g)
  %7 = mul(y, %6)
  %8 = add(%3, %7)
  %9 = add(%5, %6)
  return %8[n, d]
  return %9[n]
kernel 0
  x = load x[n, d]
  y = load y[n, d]
  g = load g[n]
  %3 = exp(x)
  %4 = sum[d](%3)
  %5 = sqrt(%4)
  %6 = neg(g)
  %7 = mul(y, %6)
  %8 = add(%3, %7)
  %9 = add(%5, %6)
  save %8 as out0[n, d]
  save %9 as out1[n]
"""


def kernel_of(text):
    (kernel,) = parse_sgraph(text).kernels
    return kernel


def test_a_value_between_two_operators_keeps_them_apart():
    assert [g.nodes for g in thread_graphs(kernel_of(NORMALISED))] == [(1,), (3, 4), (5, 6)]


def test_thread_graphs_that_would_wait_for_each_other_stay_apart():
    # {3, 7, 8} reads 6, {5, 6, 9} reads a sum of 3: each is convex, and neither could be first
    kernel = kernel_of(CROSSED)
    found = thread_graphs(kernel)
    assert [g.nodes for g in found] == [(3, 7, 8), (5, 9), (6,)]
    check_threads(kernel, found)


@pytest.mark.parametrize("seed", range(100))
def test_thread_graphs_are_a_convex_partition_of_the_elementwise_operators(seed):
    (kernel,) = random_sgraph(seed, 8).kernels
    block, dims, stages = kernel.block, kernel.block.tensor_dims(), loop_stages(kernel)
    found = [set(g.nodes) for g in thread_graphs(kernel)]
    elementwise = [
        i
        for i, node in enumerate(block.nodes)
        if isinstance(node, Apply) and OPS[node.op].kind is OpKind.ELEMENTWISE
    ]
    assert sorted(i for group in found for i in group) == elementwise
    for group in found:
        assert len({(dims[i], stages[i]) for i in group}) == 1
        below: set[int] = set()
        for i in range(len(block.nodes)):
            reads = set(block.operands(i))
            if i in group:
                assert not reads & below, "a value outside lies between two members"
            elif reads & (group | below):
                below.add(i)


@pytest.mark.parametrize("seed", range(200))
def test_derived_thread_graphs_keep_every_rule(seed):
    (kernel,) = random_sgraph(seed, 10).kernels
    check_threads(kernel, thread_graphs(kernel))


@pytest.mark.parametrize("seed", range(50))
def test_every_dim_of_every_value_at_the_border_is_shared(seed):
    (kernel,) = random_sgraph(seed, 8).kernels
    for threads in thread_graphs(kernel):
        assert {p.kind for p in threads.grid} <= {ParKind.BLOCK}
        for node in thread_kernel(kernel, threads).block.nodes:
            if isinstance(node, InputLoader | OutputSaver):
                name = node.source if isinstance(node, InputLoader) else node.target
                mapped = {threads.mapping.dim_of(name, p.name) for p in threads.grid} - {None}
                assert mapped == set(node.dims)


def test_a_value_that_lacks_a_dim_is_replicated_along_it():
    kernel = kernel_of(NORMALISED)
    last = thread_graphs(kernel)[-1]
    assert str(last.mapping) == "m[%1,d,th1] m[%1,n,th0] m[%4,n,th0] m[%6,d,th1] m[%6,n,th0]"
    assert format_thread_graph(kernel, last) == (
        "grid th0, th1",
        "map m[%1,d,th1] m[%1,n,th0]",
        "map m[%4,n,th0]",
        "map m[%6,d,th1] m[%6,n,th0]",
        "read %1[n, d]  # share [n/th0, d/th1]",
        "read %4[n]  # share [n/th0]",
        "%5 = div(%1, %4)",
        "%6 = tanh(%5)",
        "write %6[n, d]  # share [n/th0, d/th1]",
    )


def mapped(text):
    """A mapping from its printed form."""
    names = (part[2:-1].split(",") for part in text.split())
    return Mapping(frozenset(MapVar(*name) for name in names))


TH0, TH1 = (ParDim(f"th{k}", ParKind.BLOCK) for k in (0, 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": ()}, "list each once, in order"),
        ({"nodes": (6, 5)}, "list each once, in order"),
        ({"nodes": (2,)}, "node 2 is no elementwise operator"),
        ({"nodes": (4, 5, 6)}, "node 5 has another stage or other dims than node 4"),
        ({"nodes": (1, 5, 6)}, "node 4 lies between members"),
        ({"grid": (GRID_DIMS[0],)}, "x is of kind grid, but used as block dim"),
        ({"grid": (TH0, TH0)}, "parallel dim 'th0'"),
        ({"mapping": mapped("m[x,n,th0]")}, "'x' is neither read nor written"),
        ({"mapping": mapped("m[%5,n,th0]")}, "'%5' is neither read nor written"),
        ({"mapping": mapped("m[%4,d,th0]")}, "%4 has no dimension 'd'"),
        ({"mapping": mapped("m[%1,d,th7]")}, "'th7' is no block dim"),
        ({"mapping": mapped("m[%1,d,th0] m[%1,n,th0]")}, "constraint 1"),
        ({"mapping": mapped("m[%1,n,th0] m[%1,n,th1]")}, "constraint 2"),
        ({"mapping": mapped("m[%1,n,th0] m[%6,n,th0]")}, "not of %4 (constraint 3)"),
        ({"mapping": mapped("m[%1,d,th0]")}, "not of %6 (constraint 3)"),
    ],
)
def test_a_thread_graph_that_breaks_a_rule_is_refused(change, message):
    kernel = kernel_of(NORMALISED)
    *others, last = thread_graphs(kernel)
    with pytest.raises(GraphError) as raised:
        check_threads(kernel, [replace(last, **change), *others])
    assert message in str(raised.value)


def test_fewer_shared_dims_are_no_fault():
    kernel = kernel_of(NORMALISED)
    *others, last = thread_graphs(kernel)
    rows = mapped("m[%1,n,th0] m[%4,n,th0] m[%6,n,th0]")
    check_threads(kernel, [*others, replace(last, grid=(TH0,), mapping=rows)])
    check_threads(kernel, [*others, replace(last, grid=(), mapping=Mapping(frozenset()))])


def test_every_elementwise_operator_must_be_in_one_thread_graph():
    kernel = kernel_of(NORMALISED)
    first, *others = thread_graphs(kernel)
    with pytest.raises(GraphError, match="node 1 is in 0 thread graphs"):
        check_threads(kernel, others)
    with pytest.raises(GraphError, match="node 1 is in 2 thread graphs"):
        check_threads(kernel, [first, first, *others])


def test_units_that_wait_for_each_other_are_refused():
    kernel = kernel_of(CROSSED)
    wide, tall, single = thread_graphs(kernel)
    true = {v for v in tall.mapping.true | single.mapping.true if v.tensor in ("%4", "g", "%9")}
    true |= {MapVar("%6", "n", "th0")}  # node 7 reads it, so it is still written
    joined = replace(tall, nodes=(5, 6, 9), mapping=Mapping(frozenset(true)))
    with pytest.raises(GraphError, match=r"wait for each other: \[3, 7, 8\], \[5, 6, 9\]"):
        check_threads(kernel, [wide, joined])
