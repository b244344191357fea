"""Tile programs: axes, stages, and refusals that say what is wrong."""

from __future__ import annotations

import pytest
from kernels.legal import mugraph
from kernels.programs import LINEAR, MATMUL, RMSNORM_DIVIDED_LAST

from prism.errors import KernelError
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
    MuGraph,
    OutputSaver,
    SGraph,
)
from prism_kernels.cpu.contraction import Form
from prism_kernels.cpu.places import plan
from prism_kernels.cpu.widths import Widths
from prism_kernels.lower import lower
from prism_kernels.tile import Accumulate, Axis, Load, Scalar, Stage

SIZES = {"n": 8, "d": 64, "h": 32}


def mapping(*variables):
    return Mapping(frozenset(MapVar(*text.split()) for text in variables))


def matmul_graph(nodes, variables, counts, *, loop=True):
    kernel = GraphOp(
        GRID_DIMS[:1], (LOOP_DIM,) if loop else (), mapping(*variables), BlockGraph(tuple(nodes))
    )
    return MuGraph(SGraph(MATMUL, (kernel,)), tuple(SIZES.items()), (tuple(counts.items()),))


LOADS = (InputLoader("x", ("n", "d")), InputLoader("w", ("d", "h")))
PRODUCT = (*LOADS, Apply("matmul", (0, 1), "d"))
SAVE = ("out0", ("n", "h"))


def test_axes_follow_the_mapping_and_stages_the_accumulators():
    mu = mugraph(RMSNORM_DIVIDED_LAST, SIZES, {"x": "h"}, "d", {"x": 2, "i": 4})
    (program,) = lower(mu).programs
    loads = {n.source: i for i, n in enumerate(program.nodes) if isinstance(n, Load)}
    assert program.axes[loads["w"]] == (Axis("d", looped=True), Axis("h", "x"))
    assert program.stages[loads["w"]] is Stage.BODY
    assert program.chunk(Axis("d", looped=True)) == 16
    assert program.chunk(Axis("h", "x")) == 16
    for i, node in enumerate(program.nodes):
        if isinstance(node, Accumulate):
            assert program.stages[i] is Stage.AFTER
            assert not any(a.looped for a in program.axes[i])
        if isinstance(node, Scalar):
            assert program.stages[i] is Stage.BEFORE


def test_tiles_of_an_input_side_by_side_are_the_input():
    nodes = (
        *LOADS,
        Accumulator(0, AccumulatorKind.CONCAT, "i", "d"),
        Accumulator(1, AccumulatorKind.CONCAT, "i", "d"),
        Apply("matmul", (2, 3), "d"),
        OutputSaver(4, *SAVE),
    )
    (program,) = lower(matmul_graph(nodes, ["x d i", "w d i"], {"x": 1, "i": 4})).programs
    assert not any(isinstance(n, Accumulate) for n in program.nodes)
    assert all(stage is Stage.BEFORE for stage in program.stages)


@pytest.mark.parametrize(
    ("nodes", "variables", "counts", "message"),
    [
        ((*PRODUCT, OutputSaver(2, *SAVE)), ["w h x"], {"x": 2, "i": 1}, "split otherwise"),
        ((*PRODUCT, OutputSaver(2, *SAVE)), ["x d x"], {"x": 2, "i": 1}, "split in two ways"),
        (
            (*PRODUCT, OutputSaver(2, *SAVE)),
            ["x n x", "w h x", "out0 n x"],
            {"x": 2, "i": 1},
            "one data dim only",
        ),
        (
            (*PRODUCT, Accumulator(2, AccumulatorKind.SUM, "i"), OutputSaver(3, *SAVE)),
            ["w h i"],
            {"x": 1, "i": 2},
            "concatenate that dimension",
        ),
        (
            (*PRODUCT, Accumulator(2, AccumulatorKind.CONCAT, "i", "h"), OutputSaver(3, *SAVE)),
            ["x d i", "w d i"],
            {"x": 1, "i": 2},
            "concatenate that dimension",
        ),
        (
            (*PRODUCT, Accumulator(2, AccumulatorKind.SUM, "i"), OutputSaver(3, *SAVE)),
            ["x d i", "w d i"],
            {"x": 1, "i": 60},
            "cannot split d of size 64 in 60 chunks",
        ),
        ((*PRODUCT, OutputSaver(2, *SAVE)), [], {"i": 1}, "no size for parallel dim 'x'"),
        ((*PRODUCT, OutputSaver(2, "out1", ())), [], {"x": 1, "i": 1}, "no output of matmul"),
        (PRODUCT, [], {"x": 1, "i": 1}, "no saver writes out0"),
    ],
)
def test_what_cannot_run_is_refused_with_a_reason(cpu, nodes, variables, counts, message):
    mu = matmul_graph(nodes, variables, counts)
    assert message in cpu.refusal(mu, "float32")
    with pytest.raises(KernelError, match=message):
        cpu.emit(mu, "float32")


def planned(program, sizes=SIZES, grid=None, loop=None, counts=None, **options):
    (tile,) = lower(mugraph(program, sizes, grid, loop, counts, **options)).programs
    return plan(tile, Widths(4, 4))


def test_the_streamed_operand_is_the_large_one_that_can_be_read_in_rows():
    (weights,) = planned(MATMUL, {"n": 8, "d": 500, "h": 600}).contractions.values()
    assert weights.form is Form.AXPY
    assert [a.dim for a in weights.columns] == ["h"]
    (transposed,) = planned(LINEAR, {"n": 8, "d": 500, "h": 600}).contractions.values()
    assert transposed.form is Form.DOT
    # many rows of x: streaming x would need w transposed, so w stays the stream
    (tall,) = planned(MATMUL, {"n": 900, "d": 500, "h": 60}).contractions.values()
    assert tall.form is Form.AXPY


def test_a_sum_in_the_loop_adds_straight_into_its_accumulator():
    until_the_sums = {"in_body": lambda i: i <= 7}
    made = planned(RMSNORM_DIVIDED_LAST, SIZES, {"x": "h"}, "d", {"i": 4}, **until_the_sums)
    kinds = {type(made.program.nodes[i]).__name__ for i in made.nests.sinks}
    assert kinds == {"Contract", "Reduce"}


def test_small_operands_with_far_rows_are_packed_and_large_buffers_leave_the_stack():
    made = planned(MATMUL, {"n": 8, "d": 4096, "h": 4096}, {"x": "h"}, None, {"x": 2})
    (pack,) = made.packs.values()
    assert pack.place.strides["n"] == 4096 + 5 * 16
    assert made.workspace_elements > 8 * 4096
