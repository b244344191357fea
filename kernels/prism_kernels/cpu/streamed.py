"""Which outputs are written past the caches.

A store to memory that is not in a cache reads the line first, so a large output costs its size
twice. One that is written once, row by row, is put together in a small buffer, a piece at a time,
and written from there by non-temporal stores, which read nothing. What would still lie in the last
cache when its reader comes is written as usual.
"""

from __future__ import annotations

import math

from prism.ir import AccumulatorKind
from prism_kernels.cpu.places import Plan
from prism_kernels.cpu.registers import Registers
from prism_kernels.tile import Accumulate, Map, Store, ValueId

SHORTEST_ROW_BYTES = 512


def streamed_values(plan: Plan, registers: Registers) -> frozenset[ValueId]:
    """The maps whose rows are written past the caches."""
    if not registers.streams_stores or not registers.widths.are_equal:
        return frozenset()
    return frozenset(
        i
        for i, node in enumerate(plan.program.nodes)
        if isinstance(node, Map) and _is_streamed(plan, registers, i)
    )


def _is_streamed(plan: Plan, registers: Registers, i: ValueId) -> bool:
    program, target = plan.program, _output(plan, i)
    if target is None:
        return False
    size = registers.widths.computed
    strides = program.outputs[target].strides
    whole = math.prod(program.sizes[dim] for dim, _ in strides) * size
    near = [a for a in program.axes[i] if plan.places[i].strides[a.dim] == 1]
    row = max((program.chunk(a) for a in near), default=0) * size
    return whole > registers.l3_bytes and row >= SHORTEST_ROW_BYTES


def _output(plan: Plan, i: ValueId) -> str | None:
    """The output of the caller's in which value i is written and from which nothing is read."""
    program, place = plan.program, plan.places.get(i)
    if place is None or not place.is_argument:
        return None
    users, nest = program.users(), plan.nests.of_node(i)
    target = None
    waiting = [i]
    while waiting:
        value = waiting.pop()
        for j in users[value]:
            match program.nodes[j]:
                case Store(target=name) if j in plan.in_place and not program.is_between(name):
                    target = name
                case Accumulate(kind=AccumulatorKind.CONCAT, scales=()) if (
                    plan.nests.slices.get(value) == j
                ):
                    waiting.append(j)
                case _:
                    if value != i or j not in nest.nodes:
                        return None
    return target
