"""The rules of the IR: one malformed program or graph per rule, and the message it gets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from strategies import programs, sgraphs

from prism.errors import GraphError, SizeError
from prism.ir import (
    LOOP_DIM,
    LOOP_DIMS,
    Accumulator,
    AccumulatorKind,
    Apply,
    Argument,
    BlockGraph,
    Const,
    DimInfo,
    GraphOp,
    Input,
    InputLoader,
    Mapping,
    MapVar,
    MuGraph,
    Output,
    OutputSaver,
    ParDim,
    ParKind,
    Program,
    SGraph,
    SizeOf,
    check_mugraph,
    check_program,
    check_sgraph,
)

X, Y, Z = (ParDim(name, ParKind.GRID) for name in "xyz")

PROGRAM = Program(
    "row_sum",
    (DimInfo("n", "n"), DimInfo("d", "d"), DimInfo("d'", "d")),
    (Argument("a", ("n", None, "d")),),
    (Input("a", "a", ("n", "d")), Apply("sum", (0,), "d"), Const(2.0), Apply("mul", (1, 2))),
    (Output(3, ("n", None)),),
)

KERNEL = GraphOp(
    (X,),
    (LOOP_DIM,),
    Mapping(frozenset({MapVar("a", "n", "x"), MapVar("a", "d", "i"), MapVar("out0", "n", "x")})),
    BlockGraph(
        (
            InputLoader("a", ("n", "d")),
            Apply("sum", (0,), "d"),
            Accumulator(1, AccumulatorKind.SUM, "i"),
            Const(2.0),
            Apply("mul", (2, 3)),
            OutputSaver(4, "out0", ("n",)),
        )
    ),
)
GRAPH = SGraph(PROGRAM, (KERNEL,))
MU = MuGraph(GRAPH, (("n", 6), ("d", 10), ("d'", 10)), ((("x", 3), ("i", 5)),))


@given(programs())
def test_generated_programs_are_sound(program):
    check_program(program)


@given(sgraphs())
def test_generated_graphs_are_sound(graph):
    check_sgraph(graph)


def test_the_examples_are_sound():
    check_mugraph(MU)


def node(i, new):
    """The program with node i replaced."""
    nodes = list(PROGRAM.nodes)
    nodes[i] = new
    return replace(PROGRAM, nodes=tuple(nodes))


def dims(*infos):
    return replace(PROGRAM, dims=infos)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (replace(PROGRAM, name="a b"), "program name 'a b' is no identifier"),
        (dims(*PROGRAM.dims, DimInfo("h-1", "h-1")), "dimension name 'h-1' is no identifier"),
        (replace(PROGRAM, arguments=(Argument("out0", ()),)), "'out0' has the name of an output"),
        (dims(*PROGRAM.dims, DimInfo("n", "n")), "dimension 'n' occurs twice"),
        (replace(PROGRAM, arguments=PROGRAM.arguments * 2), "argument 'a' occurs twice"),
        (replace(PROGRAM, nodes=(*PROGRAM.nodes, PROGRAM.nodes[0])), "input 'a' occurs twice"),
        (dims(DimInfo("n", "n"), DimInfo("d", "q")), "size of 'q', which is no dimension"),
        (dims(*PROGRAM.dims, DimInfo("e", "d'")), "the size of d', which is an alias itself"),
        (dims(*PROGRAM.dims, DimInfo("e", "d", 4)), "e is an alias of d and cannot fix a size"),
        (dims(DimInfo("n", "n", 0), DimInfo("d", "d")), "n is fixed to 0, not a positive integer"),
        (dims(DimInfo("n", "n")), "argument a has the unknown dimension 'd'"),
        (replace(PROGRAM, arguments=(Argument("a", ("n", "n")),)), "one dimension twice"),
        (node(0, Input("a", "b", ("n", "d"))), "node 0: input a reads 'b', which is no argument"),
        (node(0, Input("a", "a", ("n", "q"))), "node 0: input a has the unknown dimension 'q'"),
        (node(0, Input("a", "a", ("n", "n"))), "node 0: input a has one dimension twice"),
        (node(0, Input("a", "a", ("d", "n"))), "the sizes must be the same"),
        (node(0, Input("a", "a", ("n",))), "the sizes must be the same"),
        (node(1, Apply("sum", (1,), "d")), "node 1: operand 1 is not an earlier node"),
        (node(1, Apply("sum", (-1,), "d")), "node 1: operand -1 is not an earlier node"),
        (node(1, Apply("summ", (0,), "d")), "node 1: unknown operator 'summ'; known are add"),
        (node(1, Apply("add", (0,))), "node 1: add takes 2 operand(s), not 1"),
        (node(1, Apply("exp", (0,), "d")), "node 1: exp works element by element"),
        (node(1, Apply("sum", (0,))), "node 1: sum needs the dimension"),
        (node(1, Apply("sum", (0,), "d'")), 'node 1: sum goes over "d\'", which an operand'),
        (node(3, Apply("matmul", (0, 1), "d")), "node 3: matmul goes over 'd', which an operand"),
        (node(2, Const(float("nan"))), "node 2: the constant nan is not a finite number"),
        (node(2, SizeOf("q")), "node 2: size of 'q', which is no dimension"),
        (replace(PROGRAM, outputs=()), "program row_sum has no output"),
        (replace(PROGRAM, outputs=(Output(4, ("n",)),)), "output 0 is node 4, which does not"),
        (replace(PROGRAM, outputs=(Output(3, ("q",)),)), "output 0 has the unknown dimension 'q'"),
        (replace(PROGRAM, outputs=(Output(3, ("n", "n")),)), "output 0 has one dimension twice"),
        (replace(PROGRAM, outputs=(Output(3, ("d",)),)), "output 0 varies along n, which is none"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_program_is_refused(program, message):
    with pytest.raises(GraphError) as caught:
        check_program(program)
    assert message in str(caught.value)


def block(i, *new):
    """The kernel with block node i replaced by others (nothing refers past it)."""
    nodes = KERNEL.block.nodes
    return replace(KERNEL, block=BlockGraph((*nodes[:i], *new, *nodes[i + 1 :])))


def mapping(*variables):
    return replace(KERNEL, mapping=Mapping(frozenset(variables)))


def mapped(*variables):
    return mapping(*KERNEL.mapping.true, *variables)


LAST = len(KERNEL.block.nodes) - 1
SAVER = KERNEL.block.nodes[LAST]


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (replace(KERNEL, grid=(X, Y, Z, ParDim("u", ParKind.GRID))), "4 grid dims and 1 loops"),
        (replace(KERNEL, loops=(*LOOP_DIMS, ParDim("k", ParKind.LOOP))), "1 grid dims and 3 loops"),
        (replace(KERNEL, grid=(X, X)), "parallel dim 'x' occurs twice"),
        (replace(KERNEL, grid=(ParDim("x'-", ParKind.GRID),)), "is no identifier"),
        (replace(KERNEL, loops=(Y,)), "y is of kind grid, but used as loop"),
        (block(1, Apply("sum", (3,), "d")), "node 1: operand 3 is not an earlier node"),
        (block(1, Apply("sum", (0,), "h")), "node 1: sum goes over 'h'"),
        (block(LAST, SAVER, Apply("neg", (LAST,))), "operand 5 is an output saver"),
        (block(3, InputLoader("a", ("n", "d"))), "loaded tensor 'a' occurs twice"),
        (block(0, InputLoader("b", ("n", "d"))), "loads 'b', which is neither an input nor saved"),
        (block(0, InputLoader("a", ("d", "n"))), "loads a['d', 'n'], but it is ['n', 'd']"),
        (block(LAST), "saves nothing"),
        (block(LAST, SAVER, SAVER), "saved tensor 'out0' occurs twice"),
        (block(LAST, replace(SAVER, target="a")), "saves 'a', which is an input or already saved"),
        (block(LAST, replace(SAVER, target="t u")), "tensor name 't u' is no identifier"),
        (block(LAST, replace(SAVER, target="out1")), "row_sum has no out1"),
        (block(LAST, replace(SAVER, dims=("d",))), "out0 lacks n, along which its value varies"),
        (block(LAST, replace(SAVER, dims=("n", "d"))), "out0['n', 'd'] must have the dims ['n']"),
        (block(LAST, replace(SAVER, dims=("n", "q"))), "has the unknown dimension 'q'"),
        (block(2, Accumulator(1, AccumulatorKind.SUM, "x")), "over 'x', but the loops are i"),
        (block(4, Accumulator(2, AccumulatorKind.SUM, "i")), "which runs after the loop already"),
        (block(2, Accumulator(1, AccumulatorKind.MAX, "i", "n")), "only concat has a dimension"),
        (block(2, Accumulator(1, AccumulatorKind.CONCAT, "i")), "concatenates along None"),
        (block(2, Accumulator(1, AccumulatorKind.CONCAT, "i", "d")), "concatenates along 'd'"),
        (mapped(MapVar("t", "n", "x")), "m[t,n,x]: 't' is neither loaded nor saved"),
        (mapped(MapVar("a", "h", "x")), "m[a,h,x]: a['n', 'd'] has no dimension 'h'"),
        (mapped(MapVar("a", "d", "y")), "m[a,d,y]: 'y' is no parallel dim of this kernel"),
        (mapped(MapVar("out0", "n", "i")), "m[out0,n,i]: an output has no mapping along a loop"),
        (mapped(MapVar("a", "d", "x")), "m[a,n,x]: x already partitions d of a (constraint 1)"),
        (
            replace(mapped(MapVar("a", "n", "y")), grid=(X, Y)),
            "m[a,n,y]: n is already partitioned along x (constraint 2)",
        ),
        (block(4, Apply("mul", (2, 1))), "node 4: reads node 1 after the loop, but that changes"),
        (block(LAST, replace(SAVER, operand=1)), "node 5: reads node 1 after the loop"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_kernel_is_refused(kernel, message):
    with pytest.raises(GraphError) as caught:
        check_sgraph(SGraph(PROGRAM, (kernel,)))
    assert message in str(caught.value)
    assert caught.value.kernel == 0


def test_every_output_is_saved_and_only_once():
    with pytest.raises(GraphError, match="an sGraph needs at least one kernel"):
        check_sgraph(SGraph(PROGRAM, ()))
    with pytest.raises(GraphError, match="kernel 1: node 5: saves 'out0', which is an input or"):
        check_sgraph(SGraph(PROGRAM, (KERNEL, KERNEL)))
    elsewhere = mapping(MapVar("a", "n", "x"), MapVar("a", "d", "i"), MapVar("t", "n", "x"))
    saver = replace(SAVER, target="t")
    kernel = replace(elsewhere, block=BlockGraph((*KERNEL.block.nodes[:-1], saver)))
    with pytest.raises(GraphError, match="no kernel saves out0, output 0 of row_sum"):
        check_sgraph(SGraph(PROGRAM, (kernel,)))


def test_a_later_kernel_reads_what_an_earlier_one_saved():
    """The order of the kernels is the order of launches, so there are no cycles."""
    plain = GraphOp((), (), Mapping(frozenset()), BlockGraph(()))
    nodes = (InputLoader("a", ("n", "d")), Apply("sum", (0,), "d"), OutputSaver(1, "t", ("n",)))
    first = replace(plain, block=BlockGraph(nodes))
    nodes = (InputLoader("t", ("n",)), Const(2.0), Apply("mul", (0, 1)), replace(SAVER, operand=2))
    second = replace(plain, block=BlockGraph(nodes))
    check_sgraph(SGraph(PROGRAM, (first, second)))
    with pytest.raises(GraphError, match="kernel 0: node 0: loads 't', which is neither"):
        check_sgraph(SGraph(PROGRAM, (second, first)))


@pytest.mark.parametrize(
    ("mu", "message"),
    [
        (replace(MU, sizes=(*MU.sizes, ("n", 6))), "size of dimension 'n' occurs twice"),
        (replace(MU, sizes=MU.sizes[:2]), "no size for dimension d'; it must be 10"),
        (replace(MU, par_sizes=()), "counts for 0 kernels, but there are 1"),
        (replace(MU, par_sizes=((("x", 3),),)), "counts are given for ['x'], but the parallel"),
        (replace(MU, par_sizes=((("x", 3), ("i", 0)),)), "i has 0 chunks"),
        (replace(MU, par_sizes=((("x", 4), ("i", 5)),)), "x=4 does not split the 6 elements of n"),
        (replace(MU, par_sizes=((("x", 7), ("i", 5)),)), "x=7 does not split the 6 elements of n"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_mugraph_is_refused(mu, message):
    with pytest.raises(GraphError) as caught:
        check_mugraph(mu)
    assert message in str(caught.value)


def test_a_loop_splits_the_chunk_of_its_block():
    """Of 10 elements in 2 blocks, 5 iterations of one element each are legal, 4 of 2 are not."""
    both = mapping(MapVar("a", "d", "x"), MapVar("a", "d", "i"))
    for loop_count, legal in [(5, True), (3, True), (4, False), (10, False)]:
        counts = (("x", 2), ("i", loop_count))
        mu = replace(MU, graph=SGraph(PROGRAM, (both,)), par_sizes=(counts,))
        if legal:
            check_mugraph(mu)
        else:
            with pytest.raises(GraphError, match="does not split the 5 elements of d of a"):
                check_mugraph(mu)


def test_sizes_that_contradict_the_program_are_refused():
    with pytest.raises(SizeError, match="has the size of 'd', 10, but 11 was given"):
        check_mugraph(replace(MU, sizes=(("n", 6), ("d", 10), ("d'", 11))))
