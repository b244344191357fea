"""Which buffers a step reads and writes, and which thread touches which element.

An element of which one thread does all that is to be done is this thread's *own* in that step. The
shares of a buffer's axes say which thread it is: the one whose bits for them are the element's
coordinates, and whose other bits are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from prism.ir import DataDim
from prism_kernels.cuda.contraction import ThreadTiling
from prism_kernels.cuda.layout import Layout, Share
from prism_kernels.cuda.plan import Plan, reads
from prism_kernels.cuda.steps import Action, Step
from prism_kernels.nests import Nest
from prism_kernels.tile import (
    Accumulate,
    Axis,
    Contract,
    Map,
    Reduce,
    Running,
    ValueId,
)

Owner = tuple[tuple[DataDim, Share], ...] | None
"""Whose each element of a buffer is: the shares of its axes; None: several threads touch one."""

Access = tuple[str, Owner]
"""A buffer, and who touches its elements."""


@dataclass(slots=True)
class Touched:
    """Buffers read and written."""

    reads: set[Access] = field(default_factory=set)
    writes: set[Access] = field(default_factory=set)


def touched(plan: Plan, step: Step) -> Touched:
    """The buffers that a step reads and writes."""
    out, i = Touched(), step.node
    match step.action:
        case Action.CLEAR:
            pass
        case Action.FILL:
            _write(plan, out, i, spread_owner(plan, i))
        case Action.COPY:
            owner = _owner(plan, i, plan.layout(i), plan.program.axes[i])
            out.writes.add((plan.staged[i].name, owner))
        case Action.RESCALE:
            _read_drifts(plan, out, i)
            _read(plan, out, i, spread_owner(plan, i))
            _write(plan, out, i, spread_owner(plan, i))
        case Action.RUN:
            nest = plan.nests.of_node(i)
            for node in nest.nodes:
                _touch_node(plan, out, node, nest)
        case Action.COMBINE:
            out.reads.add((plan.scratch[i].name, None))
            _write_result(plan, out, i, spread_owner(plan, plan.nests.sinks.get(i, i)))
        case Action.FINISH:
            if i in plan.scratch:
                out.writes.add((plan.scratch[i].name, None))
            else:
                _write_result(plan, out, i, _lead_owner(plan, i))
        case _:
            assert_never(step.action)
    return out


def _touch_node(plan: Plan, out: Touched, i: ValueId, nest: Nest) -> None:
    node, program = plan.program.nodes[i], plan.program

    def owner(v: ValueId) -> Owner:
        if nest.nodes[0] in plan.tilings:
            return None
        return _owner(plan, v, plan.layout(nest.nodes[0]), nest.space)

    for v in reads(node):
        if not (v in nest.nodes and isinstance(program.nodes[v], Map)):
            _read(plan, out, v, owner(v))
    if isinstance(node, (Reduce, Contract)):
        _touch_reduction(plan, out, i)
    elif isinstance(node, (Running, Accumulate)):
        _read(plan, out, i, owner(i))
        _write(plan, out, i, owner(i))
        drifts = (place.name for (m, _), place in plan.drifts.items() if m == i)
        out.writes.update((name, owner(i)) for name in drifts)
    elif isinstance(node, Map) and i in plan.places:
        _write(plan, out, i, owner(i))


def _touch_reduction(plan: Plan, out: Touched, i: ValueId) -> None:
    if i in plan.rings:
        out.writes.add((plan.rings[i], None))
    if i in plan.partials:
        _read_drifts(plan, out, plan.nests.sinks[i])
    elif i in plan.scratch:
        out.writes.add((plan.scratch[i].name, None))
    else:
        _write_result(plan, out, i, _lead_owner(plan, i))


def _write_result(plan: Plan, out: Touched, i: ValueId, owner: Owner = None) -> None:
    """A reduction or contraction goes into its own place or its accumulator's."""
    target = plan.nests.sinks.get(i, i)
    if i in plan.nests.sinks and i not in plan.partials:
        _read(plan, out, target, owner)
    _write(plan, out, target, owner)


def _read(plan: Plan, out: Touched, v: ValueId, owner: Owner = None) -> None:
    if v in plan.places and not plan.place(v).is_argument:
        out.reads.add((plan.place(v).name, owner))


def _write(plan: Plan, out: Touched, v: ValueId, owner: Owner = None) -> None:
    if not plan.places[v].is_argument:
        out.writes.add((plan.places[v].name, owner))


def _read_drifts(plan: Plan, out: Touched, j: ValueId) -> None:
    node = plan.program.nodes[j]
    assert isinstance(node, Accumulate)
    out.reads.update((plan.drifts[key].name, None) for key in node.scales)


def spread_owner(plan: Plan, i: ValueId) -> Owner:
    """Who touches value i in a step that is spread over its place."""
    return _owner(plan, i, plan.spread(i), plan.program.axes[i])


def _lead_owner(plan: Plan, i: ValueId) -> Owner:
    """Who writes the result of a reduction or contraction: of a group, the first thread."""
    target, tiling = plan.nests.sinks.get(i, i), plan.tilings.get(i)
    if not (tiling is None or isinstance(tiling, ThreadTiling)):
        return None
    if plan.places[target].is_in_parts:
        return None
    return _owner(plan, target, plan.layout(i), plan.program.axes[target])


def _owner(plan: Plan, v: ValueId, layout: Layout, space: Sequence[Axis]) -> Owner:
    """Who touches value v in loops over a space that is dealt so."""
    axes = plan.program.axes[v]
    if v in plan.places and plan.place(v).is_in_parts:
        return None
    shares = {a: layout[a.dim].within(plan.program.chunk(a)) for a in space}
    if not set(axes) <= set(space) or any(
        share.threads > 1 for a, share in shares.items() if a not in axes
    ):
        return None
    return tuple(sorted((a.dim, shares[a]) for a in axes if shares[a].threads > 1))
