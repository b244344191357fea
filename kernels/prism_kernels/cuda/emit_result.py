"""Writes what becomes of a reduction's parts: combined by lanes, by warps, and stored.

The lanes of a warp combine by shuffles. Warps leave their parts in a scratch buffer, one after the
other, and a step of its own adds those up.
"""

from __future__ import annotations

from collections.abc import Sequence

from prism.ir import AccumulatorKind
from prism_kernels.cuda.dialect import FULL_MASK
from prism_kernels.cuda.layout import Layout, Share
from prism_kernels.cuda.writer import Position, Writer
from prism_kernels.expressions import COMBINE
from prism_kernels.tile import Accumulate, Contract, Reduce, ValueId

IDENTITY = {"sum": "f32(0.0)", "max": "-INF"}


def operator_of(w: Writer, i: ValueId) -> str:
    """Whether node i adds or takes the maximum."""
    node = w.program.nodes[i]
    if isinstance(node, Accumulate):
        return "max" if node.kind is AccumulatorKind.MAX else "sum"
    return node.op if isinstance(node, Reduce) else "sum"


def shuffle(w: Writer, name: str, share: Share, op: str) -> None:
    """Combine a variable over the lanes that share a result; all of them get it."""
    if share.lanes == 1:
        return
    for bit in range(share.shift, share.shift + share.lanes.bit_length() - 1):
        other = f"cuda.shfl_xor_sync({FULL_MASK:#x}, {name}, {1 << bit})"
        w.line(f"{name} = {COMBINE[op].format(name, other)}")


def deposit(
    w: Writer, i: ValueId, layout: Layout, position: Position, conditions: Sequence[str]
) -> None:
    """Write `r{i}`, which the lanes have combined: the result, or the warp's part of it."""
    node, value = w.program.nodes[i], f"r{i}"
    assert isinstance(node, (Reduce, Contract))
    if i not in w.plan.scratch:
        with w.when([*w.lead(layout, node.dim), *conditions]):
            write_result(w, i, position, value)
        return
    share = layout[node.dim]
    warp = f"({w.coordinate(share)} >> {share.lanes.bit_length() - 1})"
    part = w.plan.buffers[w.plan.scratch[i].name] // share.warps
    with w.when([*w.lead(layout, node.dim, of_warp=True), *conditions]):
        w.store(w.plan.scratch[i], w.program.axes[i], position, value, f"{warp} * {part}")


def combine_warps(w: Writer, i: ValueId) -> None:
    """Add up what the warps left in scratch."""
    node, axes = w.program.nodes[i], w.program.axes[i]
    assert isinstance(node, (Reduce, Contract))
    warps = w.plan.layout(i)[node.dim].warps
    scratch = w.plan.scratch[i]
    part = w.plan.buffers[scratch.name] // warps
    target = w.plan.nests.sinks.get(i, i)
    with w.spread(w.plan.order(target)[::-1], w.plan.spread(target)) as position:
        w.line(f"r{i} = {w.load(scratch, axes, position)}")
        with w.block(f"for g in range(1, {warps}):"):
            other = w.load(scratch, axes, position, f"g * {part}")
            w.line(f"r{i} = {COMBINE[operator_of(w, i)].format(f'r{i}', other)}")
        write_result(w, i, position, f"r{i}")


def write_result(w: Writer, i: ValueId, position: Position, value: str) -> None:
    """Write a reduction's result to its place, or combine it with its accumulator in memory."""
    target = w.plan.nests.sinks.get(i, i)
    place, axes = w.plan.places[target], w.program.axes[target]
    if target != i and i not in w.plan.partials:
        old = w.load(place, axes, position)
        value = COMBINE[operator_of(w, i)].format(old, value)
    w.store(place, axes, position, value)
