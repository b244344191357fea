from __future__ import annotations

import pytest
from strategies import random_sgraph

from prism.ir import OPS, Apply, OpKind, loop_stages, parse_sgraph, thread_graphs

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


def test_a_value_between_two_operators_keeps_them_apart():
    (kernel,) = parse_sgraph(NORMALISED).kernels
    assert [g.nodes for g in thread_graphs(kernel)] == [(1,), (3, 4), (5, 6)]


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
