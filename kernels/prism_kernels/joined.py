"""The kernels of a graph as one tile program, to be read and not to be run.

`guards` asks what values are, wherever they are computed. A kernel that loads what an earlier one
stored reads that very value; blocks and loops count for nothing, partial values being read as what
they add up to. Stack dims are axes of the values that are loaded, but none of the program's: its
sizes do not name them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prism.ir import AccumulatorKind, DataDim
from prism_kernels.tile import (
    Accumulate,
    Axis,
    Load,
    Map,
    Scalar,
    Stage,
    Store,
    TileNode,
    TileProgram,
    ValueId,
    operands,
    renumbered,
)


def joined(programs: Sequence[TileProgram], sizes: Mapping[DataDim, int]) -> TileProgram:
    """The programs one after the other; `sizes` are those of the data dims."""
    if len(programs) == 1:
        return programs[0]
    join = _Join()
    for program in programs:
        join.append(program)
    parts = (tuple(join.nodes), tuple(join.axes), tuple(join.stages))
    return TileProgram(*parts, sizes, (), (), programs[0].inputs, {})


class _Join:
    def __init__(self) -> None:
        self.nodes: list[TileNode] = []
        self.axes: list[tuple[Axis, ...]] = []
        self.stages: list[Stage] = []
        self.stored: dict[str, ValueId] = {}

    def append(self, program: TileProgram) -> None:
        """Add the nodes of one more kernel."""
        place: dict[ValueId, ValueId] = {}
        for i, node in enumerate(program.nodes):
            if isinstance(node, Load) and node.source in self.stored:
                moved: TileNode = Map("bound", (self.stored[node.source],))  # the value itself
            elif program.loop is not None and _counts_iterations(program, node):
                count = self._add(Scalar(float(program.loop.count)), (), Stage.BEFORE)
                moved = Map("mul", (*(place[j] for j in operands(node)), count))
            else:
                moved = renumbered(node, place)
            if isinstance(node, Store):
                self.stored[node.target] = place[node.operand]
            place[i] = self._add(moved, program.axes[i], program.stages[i])

    def _add(self, node: TileNode, axes: tuple[Axis, ...], stage: Stage) -> ValueId:
        self.nodes.append(node)
        self.axes.append(axes)
        self.stages.append(stage)
        return len(self.nodes) - 1


def _counts_iterations(program: TileProgram, node: TileNode) -> bool:
    """Whether a node adds up what is the same in every iteration: there is no loop any more."""
    return (
        isinstance(node, Accumulate)
        and node.kind is AccumulatorKind.SUM
        and program.stages[node.operand] is Stage.BEFORE
    )
