"""Writes the steps that only move or rescale: starting accumulators, staging loads, drifts."""

from __future__ import annotations

from contextlib import ExitStack

from prism.ir import AccumulatorKind, DataDim
from prism_kernels.cuda.emit_result import IDENTITY, operator_of
from prism_kernels.cuda.writer import Writer
from prism_kernels.tile import Accumulate, Running, ValueId


def fill(w: Writer, i: ValueId) -> None:
    """Start an accumulator or a running reference."""
    node, axes, place = w.program.nodes[i], w.program.axes[i], w.plan.places[i]
    start = "LOWEST" if isinstance(node, Running) else IDENTITY[operator_of(w, i)]
    with w.spread(w.plan.order(i)[::-1], w.plan.spread(i)) as position:
        w.store(place, axes, position, start)


def copy(w: Writer, i: ValueId) -> None:
    """Stage a load's tile in shared memory."""
    axes, source = w.program.axes[i], w.plan.places[i]
    *outer, last = sorted(axes, key=lambda a: -source.strides[a.dim])
    layout = w.plan.layout(i)
    share = layout[last.dim]
    if share.width == 1:
        with w.spread([*outer, last], layout) as position:
            w.store(w.plan.staged[i], axes, position, w.read(i, position, source))
        return
    with w.spread(outer, layout) as position, w.groups(last, share) as first:
        position[last.dim] = first
        w.load_group(f"x{i}", share.width, share.width, source, axes, position)
        with w.neighbours(last, share, first) as (number, index):
            position[last.dim] = index
            w.store(w.plan.staged[i], axes, position, f"x{i}[{number}]")


def rescale(w: Writer, j: ValueId) -> None:
    """Multiply an accumulator in memory by the drift of its range references."""
    node, axes, place = w.program.nodes[j], w.program.axes[j], w.plan.places[j]
    assert isinstance(node, Accumulate)
    layout = w.plan.spread(j)
    with ExitStack() as stack:
        stack.enter_context(w.when(w.lead(layout)))
        position: dict[DataDim, str] = {}
        for axis in w.plan.order(j)[::-1]:
            # of a concatenation only the tiles written so far
            is_part = node.kind is AccumulatorKind.CONCAT and axis.dim == node.dim
            extent = w.loop_start(w.program.ended(j)) if is_part else None
            position[axis.dim] = stack.enter_context(w.walk(axis, layout[axis.dim], extent))
        factors = [w.read(m, position, w.plan.drifts[m, c]) for m, c in node.scales]
        w.store(place, axes, position, " * ".join([w.read(j, position, place), *factors]))
