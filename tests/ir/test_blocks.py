"""The meaning of graphs, block by block: right graphs equal their program, wrong ones show."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from strategies import legal_counts, programs, random_arrays, random_sizes, seeds

from prism.errors import GraphError, SizeError
from prism.ir import (
    GRID_DIMS,
    Apply,
    BlockGraph,
    GraphOp,
    Input,
    InputLoader,
    Mapping,
    MapVar,
    MuGraph,
    OutputSaver,
    SGraph,
    chunk,
    evaluate,
    evaluate_graph,
    output_name,
    parse_sgraph,
)

RMS = """\
sgraph
program rms
  dims n, d, h
  args x[n, d], w[d, h]
  x = input x[n, d]
  w = input w[d, h]
  %2 = square(x)
  %3 = mean[d](%2)
  %4 = sqrt(%3)
  %5 = div(x, %4)
  %6 = matmul[d](%5, w)
  return %6[n, h]
kernel 0
  grid x, y
  loop i
  map m[out0,n,y] m[out0,h,x]
  map m[x,d,i] m[x,n,y] m[w,d,i] m[w,h,x]
  x = load x[n, d]
  w = load w[d, h]
  %2 = square(x)
  %3 = mean[d](%2)
  %4 = matmul[d](x, w)
  %5 = accumulate[i] sum(%3)
  %6 = accumulate[i] sum(%4)
  %7 = sqrt(%5)
  %8 = div(%6, %7)
  save %8 as out0[n, h]
"""

SOFTMAX = """\
sgraph
program softmax
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = max[d](x)
  %2 = sub(x, %1)
  %3 = exp(%2)
  %4 = sum[d](%3)
  %5 = div(%3, %4)
  return %5[d, n]
kernel 0
  grid x
  loop i
  map m[out0,n,x] m[x,n,x] m[x,d,i]
  x = load x[n, d]
  %1 = max[d](x)
  %2 = accumulate[i] max(%1)
  %3 = accumulate[i] concat[d](x)
  %4 = sub(%3, %2)
  %5 = exp(%4)
  %6 = sum[d](%5)
  %7 = div(%5, %6)
  save %7 as out0[n, d]
"""

TWO_KERNELS = """\
sgraph
program normalized
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = sum[d](x)
  %2 = div(x, %1)
  return %2[n, 1, d]
  return %1[n]
kernel 0
  grid x
  loop i
  map m[x,n,x] m[x,d,i] m[out1,n,x]
  x = load x[n, d]
  %1 = sum[d](x)
  %2 = accumulate[i] sum(%1)
  save %2 as out1[n]
kernel 1
  grid x, y
  map m[x,n,x] m[x,d,y] m[out1,n,x] m[out0,n,x] m[out0,d,y]
  x = load x[n, d]
  out1 = load out1[n]
  %2 = div(x, out1)
  save %2 as out0[n, d]
"""


def concrete(text: str, sizes: dict[str, int], *counts: dict[str, int]) -> MuGraph:
    graph = parse_sgraph(text)
    return MuGraph(graph, tuple(sizes.items()), tuple(tuple(c.items()) for c in counts))


def agrees(mu: MuGraph) -> bool:
    arrays = random_arrays(mu.graph.program, dict(mu.sizes), seed=1)
    pairs = zip(evaluate(mu.graph.program, arrays), evaluate_graph(mu, arrays), strict=True)
    return all(a.shape == b.shape and np.allclose(a, b, rtol=1e-12) for a, b in pairs)


@pytest.mark.parametrize(("n", "d", "h"), [(4, 8, 6), (3, 7, 5), (1, 1, 1), (5, 1, 3)])
def test_rms_norm_with_the_division_after_the_loop(n, d, h):
    """All legal counts of all three parallel dims, ragged ones too."""
    sizes = {"n": n, "d": d, "h": h}
    for x in legal_counts(h):
        for y in legal_counts(n):
            for i in legal_counts(d):
                assert agrees(concrete(RMS, sizes, {"x": x, "y": y, "i": i}))


@pytest.mark.parametrize("d", [1, 6, 7])
def test_a_softmax_with_max_and_concat_accumulators(d):
    for i in legal_counts(d):
        assert agrees(concrete(SOFTMAX, {"n": 3, "d": d}, {"x": 3, "i": i}))


def test_kernels_run_in_order_and_outputs_may_be_read_again():
    for d_count in legal_counts(7):
        counts = {"x": 2, "i": d_count}, {"x": 5, "y": d_count}
        assert agrees(concrete(TWO_KERNELS, {"n": 5, "d": 7}, *counts))


def one_kernel(program, shared=None):
    """The whole program as one block graph; dim `shared`, if any, split along x everywhere."""
    saved = {
        output_name(i): tuple(d for d in o.axes if d is not None)
        for i, o in enumerate(program.outputs)
    }
    nodes = [InputLoader(n.name, n.dims) if isinstance(n, Input) else n for n in program.nodes]
    for target, output in zip(saved, program.outputs, strict=True):
        nodes.append(OutputSaver(output.tensor, target, saved[target]))
    border = {**{i.name: i.dims for i in program.inputs}, **saved}
    true = {MapVar(t, shared, "x") for t, dims in border.items() if shared in dims}
    grid = GRID_DIMS[:1] if shared else ()
    return SGraph(program, (GraphOp(grid, (), Mapping(frozenset(true)), BlockGraph(tuple(nodes))),))


@given(programs(), seeds)
def test_any_program_as_one_block_has_its_meaning(program, seed):
    sizes = random_sizes(program, Random(seed))
    assert agrees(MuGraph(one_kernel(program), tuple(sizes.items()), ((),)))


@given(programs(), seeds)
def test_any_program_may_be_split_along_a_dim_that_nothing_reduces(program, seed):
    random = Random(seed)
    sizes = random_sizes(program, random)
    reduced = {n.dim for n in program.nodes if isinstance(n, Apply)}
    free = frozenset.intersection(*(frozenset(o.axes) for o in program.outputs)) - reduced - {None}
    assume(free)
    shared = random.choice(sorted(free))
    count = random.choice(legal_counts(sizes[shared]))
    assert agrees(MuGraph(one_kernel(program, shared), tuple(sizes.items()), ((("x", count),),)))


def test_a_grid_and_a_loop_over_one_dimension():
    """The loop splits each block's chunk; a clipped last chunk leaves iterations with nothing."""
    text = """\
sgraph
program halves
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = max[n](x)
  %2 = exp(x)
  return %1[d]
  return %2[n, d]
kernel 0
  loop i
  map m[x,n,i]
  x = load x[n, d]
  %1 = max[n](x)
  %2 = accumulate[i] max(%1)
  save %2 as out0[d]
kernel 1
  grid x
  loop i
  map m[x,n,x] m[x,n,i] m[out1,n,x]
  x = load x[n, d]
  %1 = exp(x)
  %2 = accumulate[i] concat[n](%1)
  save %2 as out1[n, d]
"""
    for n in (1, 5, 7, 9):
        for x in legal_counts(n):
            for i in legal_counts(chunk(n, x)):
                counts = {"i": x}, {"x": x, "i": i}
                assert agrees(concrete(text, {"n": n, "d": 2}, *counts))


def test_values_of_the_whole_are_the_same_in_every_block():
    """A grid dim that partitions nothing: every block computes and stores it all."""
    text = RMS.replace("grid x, y", "grid x, y, z")
    assert agrees(concrete(text, {"n": 2, "d": 6, "h": 4}, {"x": 2, "y": 1, "i": 3, "z": 3}))


SIZES, COUNTS = {"n": 4, "d": 6, "h": 8}, {"x": 2, "y": 2, "i": 3}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # each block has all columns of w, but its place in the output is half as wide
        ("m[w,h,x]", "", "a block holds 8 elements of h but stores 4"),
        # each block has half of the columns, but stores them as if they were all
        ("m[out0,h,x]", "", "a block holds 4 elements of h but stores 8"),
        # the loop walks over d of one operand only
        ("m[w,d,i]", "", "matmul: its operands hold 2 and 6 elements of dimension d"),
        # the grid splits d of one operand only
        ("m[w,d,i]", "m[w,d,y] m[w,d,i]", "matmul: its operands hold 2 and 1 elements"),
        # each block has half of the rows, but stores them as if they were all
        ("m[out0,n,y]", "", "a block holds 2 elements of n but stores 4"),
    ],
)
def test_a_wrong_mapping_is_an_error(old, new, message):
    mu = concrete(RMS.replace(old, new), SIZES, COUNTS)
    with pytest.raises(GraphError, match=message):
        evaluate_graph(mu, random_arrays(mu.graph.program, SIZES, seed=1))


def test_blocks_that_store_different_values_in_one_place_are_an_error():
    """Split d over the grid: every block has a partial sum, and all store it as the sum."""
    text = """\
sgraph
program total
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = sum[d](x)
  return %1[n]
kernel 0
  grid x
  map m[x,d,x]
  x = load x[n, d]
  %1 = sum[d](x)
  save %1 as out0[n]
"""
    mu = concrete(text, {"n": 2, "d": 4}, {"x": 2})
    with pytest.raises(GraphError, match=r"out0\[0\] gets different values from different blocks"):
        evaluate_graph(mu, random_arrays(mu.graph.program, {"n": 2, "d": 4}, seed=1))
    assert agrees(concrete(text, {"n": 2, "d": 4}, {"x": 1}))


def test_a_value_is_repeated_along_a_dimension_of_the_output_that_it_lacks():
    text = """\
sgraph
program column
  dims n, d
  args x[n], y[d]
  x = input x[n]
  %1 = exp(x)
  return %1[n, d]
kernel 0
  grid x, y
  map m[x,n,x] m[out0,n,x] m[out0,d,y]
  x = load x[n]
  %1 = exp(x)
  save %1 as out0[n, d]
"""
    assert agrees(concrete(text, {"n": 3, "d": 4}, {"x": 2, "y": 4}))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # forgets that the loop is over the summed dimension: adds up d_i copies of the whole
        ("m[x,d,i] m[x,n,y] m[w,d,i] m[w,h,x]", "m[x,n,y] m[w,h,x]"),
        # the largest of partial products is not their sum
        ("%6 = accumulate[i] sum(%4)", "%6 = accumulate[i] max(%4)"),
        # divides before the root
        ("%7 = sqrt(%5)", "%7 = square(%5)"),
    ],
)
def test_a_wrong_graph_has_wrong_values(old, new):
    assert old in RMS
    assert not agrees(concrete(RMS.replace(old, new), SIZES, COUNTS))


def test_a_loop_that_partitions_nothing_may_still_be_right_by_cancelling():
    """In num / den both accumulate d_i copies, which cancel: right for every count."""
    text = """\
sgraph
program quotient
  dims n, d
  args x[n, d], y[d]
  x = input x[n, d]
  y = input y[d]
  %2 = matmul[d](x, y)
  %3 = sum[d](x)
  %4 = div(%2, %3)
  return %4[n]
kernel 0
  loop i
  x = load x[n, d]
  y = load y[d]
  %2 = matmul[d](x, y)
  %3 = sum[d](x)
  %4 = accumulate[i] sum(%2)
  %5 = accumulate[i] sum(%3)
  %6 = div(%4, %5)
  save %6 as out0[n]
"""
    assert all(agrees(concrete(text, {"n": 2, "d": 4}, {"i": i})) for i in (1, 2, 3))


def test_tiles_of_different_shapes_cannot_be_added():
    text = """\
sgraph
program twice
  dims d
  args x[d]
  x = input x[d]
  %1 = exp(x)
  return %1[d]
kernel 0
  loop i
  map m[x,d,i]
  x = load x[d]
  %1 = exp(x)
  %2 = accumulate[i] sum(%1)
  save %2 as out0[d]
"""
    arrays = {"x": np.arange(3.0)}
    with pytest.raises(GraphError, match=r"tiles with different shapes \[\(1,\), \(2,"):
        evaluate_graph(concrete(text, {"d": 3}, {"i": 2}), arrays)


def test_arrays_of_other_sizes_are_refused():
    mu = concrete(RMS, SIZES, COUNTS)
    arrays = random_arrays(mu.graph.program, {**SIZES, "h": 9}, seed=1)
    with pytest.raises(SizeError, match=r"the arrays have sizes .*'h': 9.* the graph is for"):
        evaluate_graph(mu, arrays)


def test_a_malformed_graph_is_refused_before_it_runs():
    mu = concrete(RMS, SIZES, COUNTS)
    empty = MuGraph(SGraph(mu.graph.program, ()), mu.sizes, ())
    with pytest.raises(GraphError, match="needs at least one kernel"):
        evaluate_graph(empty, random_arrays(mu.graph.program, SIZES, seed=1))


CONCAT = """\
sgraph
program p
  dims n, d
  args x[n, d]
  x = input x[n, d]
  return x[n, d]
kernel 0
  loop i
  map m[x,n,i]
  x = load x[n, d]
  %1 = accumulate[i] concat[d](x)
  save %1 as out0[n, d]
"""


def test_tiles_that_differ_elsewhere_do_not_concatenate():
    """Chunks of n side by side along d, the last one shorter."""
    graph = parse_sgraph(CONCAT)
    mu = MuGraph(graph, (("n", 3), ("d", 2)), ((("i", 2),),))
    with pytest.raises(GraphError, match=r"concat of d over i of tiles that differ"):
        evaluate_graph(mu, {"x": np.ones((3, 2))})
