"""Writes how an accumulator follows the range references that its values are relative to."""

from __future__ import annotations

from contextlib import ExitStack

from prism.ir import AccumulatorKind
from prism_kernels.cpu.writer import Writer
from prism_kernels.tile import Accumulate, ValueId


def rescale(w: Writer, i: ValueId) -> None:
    """Multiply accumulator i by the drift of its range references, where they moved."""
    node = w.program.nodes[i]
    if not isinstance(node, Accumulate):
        return
    place, axes = w.plan.places[i], w.program.axes[i]
    for m, c in node.scales:
        drift, drift_axes = w.plan.drifts[m, c], w.program.axes[m]
        rest = [a for a in axes if a not in drift_axes]
        with w.loops(drift_axes):
            w.line(f"drift = {w.load(drift, drift_axes)}")
            with w.block("if drift != real(1.0):"), ExitStack() as loops:
                given = {}
                for axis in sorted(rest, key=lambda a: -place.strides[a.dim]):
                    if node.kind is AccumulatorKind.CONCAT and axis.dim == node.dim:
                        # only the tiles written so far
                        given[axis.dim] = f"i_{w.name(axis.dim)}"
                        start = w.loop_start(w.program.ended(i))
                        loops.enter_context(w.block(f"for {given[axis.dim]} in range({start}):"))
                    else:
                        loops.enter_context(w.loops([axis]))
                at = f"{w.pointer(place)}, {w.index(place, axes, given)}"
                w.line(f"store({at}, load({at}) * drift)")
