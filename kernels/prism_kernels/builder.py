"""Builds the nodes of a tile program one by one: equal ones are shared, axes and stages inferred.

Sharing is what lets a quotient of two separately written exp(x) drop its range reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from prism.errors import KernelError
from prism.ir import DataDim
from prism_kernels.tile import (
    Accumulate,
    Axis,
    Contract,
    Load,
    Loop,
    Map,
    Reduce,
    Running,
    Scalar,
    Stage,
    Store,
    TileNode,
    ValueId,
    operands,
)


class Builder:
    """The nodes added so far, with their axes and stages; `loops` are those of the program."""

    def __init__(self, loops: Sequence[Loop] = ()) -> None:
        self.loops = tuple(loops)
        self.nodes: list[TileNode] = []
        self.axes: list[tuple[Axis, ...]] = []
        self.stages: list[Stage] = []
        self._known: dict[tuple[TileNode, tuple[Axis, ...] | None], ValueId] = {}

    def add(self, node: TileNode, axes: Iterable[Axis] | None = None) -> ValueId:
        """Add a node; `axes` are needed for loads and stores only.

        Raises:
            KernelError: the operands' axes do not match, or they never exist at one time.
        """
        given = None if axes is None else tuple(axes)
        key = (node, given)
        if key in self._known:
            return self._known[key]
        self.axes.append(self._infer_axes(node) if given is None else given)
        self.stages.append(self._infer_stage(node))
        self.nodes.append(node)
        self._known[key] = len(self.nodes) - 1
        return self._known[key]

    def _infer_axes(self, node: TileNode) -> tuple[Axis, ...]:
        match node:
            case Load() | Store():
                raise AssertionError("loads and stores come with their axes")
            case Scalar():
                return ()
            case Map(operands=ids):
                return self._union(ids)
            case Reduce(operand=operand, dim=dim):
                return tuple(a for a in self.axes[operand] if a.dim != dim)
            case Contract(left=left, right=right, dim=dim):
                return tuple(a for a in self._union((left, right)) if a.dim != dim)
            case Running(operand=operand):
                return self.axes[operand]
            case Accumulate(operand=operand, dim=dim):
                return tuple(a.whole() if a.dim == dim else a for a in self.axes[operand])
        assert_never(node)

    def _union(self, ids: tuple[ValueId, ...]) -> tuple[Axis, ...]:
        """The axes of a broadcast: the largest operand's order first."""
        out: dict[DataDim, Axis] = {}
        for i in sorted(ids, key=lambda i: -len(self.axes[i])):
            for axis in self.axes[i]:
                if out.setdefault(axis.dim, axis) != axis:
                    raise KernelError(
                        f"an operator meets {axis.dim!r} split in two ways ({axis} and "
                        f"{out[axis.dim]}); map both operands alike"
                    )
        return tuple(out.values())

    def _infer_stage(self, node: TileNode) -> Stage:
        ids = operands(node)
        found = {self.stages[i] for i in ids}
        match node:
            case Accumulate(operand=operand):
                is_inner = len(self.loops) > 1 and self.stages[operand] is Stage.BODY
                return Stage.BETWEEN if is_inner else Stage.AFTER
            case Load():
                return self._loaded(self.axes[-1])
            case Map() | Reduce() | Contract() | Store() | Scalar() | Running():
                stage = max(found, default=Stage.BEFORE)
                if not all(stage.may_read(other) for other in found):
                    raise KernelError(
                        "a value of the loop body is read after the loop without an accumulator"
                    )
                return stage
        assert_never(node)

    def _loaded(self, axes: tuple[Axis, ...]) -> Stage:
        """A tile is loaded in the innermost loop that cuts it."""
        looped = {a.dim for a in axes if a.looped}
        if not looped:
            return Stage.BEFORE
        is_outer = len(self.loops) > 1 and looped == {self.loops[0].dim}
        return Stage.OUTER if is_outer else Stage.BODY
