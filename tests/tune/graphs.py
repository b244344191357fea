"""Small programs and sGraphs written by hand."""

from __future__ import annotations

from prism.ir import (
    GRID_DIMS,
    LOOP_DIM,
    Accumulator,
    AccumulatorKind,
    Apply,
    Argument,
    BlockGraph,
    DimInfo,
    GraphOp,
    Input,
    InputLoader,
    Mapping,
    MapVar,
    Output,
    OutputSaver,
    Program,
    SGraph,
)

MATMUL = Program(
    "matmul",
    tuple(DimInfo(d, d) for d in "ndh"),
    (Argument("x", ("n", "d")), Argument("w", ("d", "h"))),
    (Input("x", "x", ("n", "d")), Input("w", "w", ("d", "h")), Apply("matmul", (0, 1), "d")),
    (Output(2, ("n", "h")),),
)


def mapping(*variables: str) -> Mapping:
    """`mapping("w h x", "w d i")`: the true mapping variables."""
    return Mapping(frozenset(MapVar(*text.split()) for text in variables))


def matmul_graph(*, grid: int = 1, loop: bool = True) -> SGraph:
    """x @ w with h over grid x (and n over grid y), and d over the loop."""
    variables = ["w h x", "out0 h x"] if grid else []
    variables += ["x n y", "out0 n y"] if grid > 1 else []
    variables += ["x d i", "w d i"] if loop else []
    body = (
        InputLoader("x", ("n", "d")),
        InputLoader("w", ("d", "h")),
        Apply("matmul", (0, 1), "d"),
    )
    rest = (Accumulator(2, AccumulatorKind.SUM, "i"),) if loop else ()
    block = BlockGraph((*body, *rest, OutputSaver(len(body + rest) - 1, "out0", ("n", "h"))))
    loops = (LOOP_DIM,) if loop else ()
    return SGraph(MATMUL, (GraphOp(GRID_DIMS[:grid], loops, mapping(*variables), block),))


SQUARED = Program(
    "squared",
    (DimInfo("n", "n"),),
    (Argument("x", ("n",)),),
    (Input("x", "x", ("n",)), Apply("square", (0,))),
    (Output(1, ("n",)),),
)


def nested_graph() -> SGraph:
    """square(x) with n over grid x and the block's chunk of n over the loop."""
    block = BlockGraph(
        (
            InputLoader("x", ("n",)),
            Apply("square", (0,)),
            Accumulator(1, AccumulatorKind.CONCAT, "i", "n"),
            OutputSaver(2, "out0", ("n",)),
        )
    )
    variables = mapping("x n x", "x n i", "out0 n x")
    return SGraph(SQUARED, (GraphOp(GRID_DIMS[:1], (LOOP_DIM,), variables, block),))
