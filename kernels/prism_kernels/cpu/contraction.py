"""Decides how a contraction c = sum_k a b is computed: which operand is streamed, in which form.

The streamed operand is read row by row, once, as it lies in memory; the other one (the *row*
operand) is small and sits in a cache. Which micro-kernel applies follows from the streamed
operand's contiguous axis:

* an axis of the result that the row operand lacks: `AXPY`;
* the contracted axis: `DOT`, and the row operand must be contiguous along it, too;
* an axis that both operands and the result have: neither; plain loops (`LOOPS`).

Feasibility comes first and size second: a larger operand with no contiguous vector axis would be
read with the wrong strides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from prism.ir import DataDim
from prism_kernels.tile import Axis, Contract, Load, TileProgram, ValueId


class Form(Enum):
    """Which code computes a contraction."""

    AXPY = "axpy"
    DOT = "dot"
    LOOPS = "loops"


@dataclass(frozen=True, slots=True)
class Contraction:
    """A contraction with its operands' roles."""

    form: Form
    row: ValueId
    stream: ValueId
    depth: Axis
    batch: tuple[Axis, ...]
    """In both operands."""
    rows: tuple[Axis, ...]
    """In the row operand only."""
    columns: tuple[Axis, ...]
    """In the streamed operand only; the one that is contiguous in the result comes last."""

    @property
    def result_order(self) -> tuple[Axis, ...]:
        """The axis order of a buffer for the result."""
        return (*self.batch, *self.rows, *self.columns)


def contiguous_axis(
    program: TileProgram, i: ValueId, strides: Mapping[DataDim, int]
) -> Axis | None:
    """The axis of value i along which neighbours are neighbours in memory."""
    near = [a for a in program.axes[i] if strides[a.dim] == 1]
    long = [a for a in near if program.chunk(a) > 1]
    return next(iter(long), None)


def plan_contraction(
    program: TileProgram, i: ValueId, strides: Mapping[ValueId, Mapping[DataDim, int]]
) -> Contraction:
    """The roles and form for contraction i, given the strides of its operands."""
    node = program.nodes[i]
    assert isinstance(node, Contract)
    options = [
        option
        for roles in ((node.left, node.right), (node.right, node.left))
        if (option := _option(program, node, roles, strides)) is not None
    ]
    if not options or node.left == node.right:
        return _describe(program, node, Form.LOOPS, (node.left, node.right))

    def preference(option: Contraction) -> tuple[bool, int]:
        needs_transpose = option.form is Form.DOT and strides[option.row][node.dim] != 1
        weight = 2 if isinstance(program.nodes[option.stream], Load) else 1
        return not needs_transpose, weight * program.elements(program.axes[option.stream])

    return max(options, key=preference)


def _option(
    program: TileProgram,
    node: Contract,
    roles: tuple[ValueId, ValueId],
    strides: Mapping[ValueId, Mapping[DataDim, int]],
) -> Contraction | None:
    """The contraction with these roles (row, stream), if a micro-kernel can do it."""
    row, stream = roles
    near = contiguous_axis(program, stream, strides[stream])
    if near is None or near.dim == node.dim:
        if strides[stream][node.dim] != 1:
            return None
        return _describe(program, node, Form.DOT, roles)
    if near in program.axes[row]:
        return None
    return _describe(program, node, Form.AXPY, roles, near)


def _describe(
    program: TileProgram,
    node: Contract,
    form: Form,
    roles: tuple[ValueId, ValueId],
    near: Axis | None = None,
) -> Contraction:
    row, stream = roles
    in_row, in_stream = program.axes[row], program.axes[stream]
    depth = next(a for a in in_row if a.dim == node.dim)
    batch = tuple(a for a in in_row if a in in_stream and a != depth)
    rows = tuple(a for a in in_row if a not in in_stream)
    columns = [a for a in in_stream if a not in in_row]
    if near is None and columns:  # DOT: the longest axis is walked innermost
        near = max(columns, key=program.chunk)
    if near is not None:
        columns = [*(a for a in columns if a != near), near]
    return Contraction(form, row, stream, depth, batch, rows, tuple(columns))
