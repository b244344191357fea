"""Counts what steps move between an SM and global memory, in sectors.

A *sector* is 32 bytes, the least that moves. Two counts matter: the sectors of a tile, which the L2
cache delivers at least once, and those that one access of a warp touches, each of which takes the
first-level cache time, however little of it is wanted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from prism.ir import DataDim
from prism_kernels.cuda.accesses import touched
from prism_kernels.cuda.dialect import DTYPES, WARP
from prism_kernels.cuda.layout import Layout
from prism_kernels.cuda.memory import Schedule
from prism_kernels.cuda.plan import Place, Plan
from prism_kernels.cuda.steps import Step
from prism_kernels.tile import Axis, Load, Stage, Store, TileProgram

SECTOR = 32
"""Bytes."""


def tile_sectors(program: TileProgram, axes: Iterable[Axis], place: Place) -> float:
    """The sectors in which a tile of an array lies."""
    axes = sorted(axes, key=lambda a: place.strides[a.dim])
    run = 1
    for axis in axes:
        if program.chunk(axis) > 1 and place.strides[axis.dim] != run:
            break
        run *= program.chunk(axis)
        if program.chunk(axis) < program.sizes[axis.dim]:
            break
    element = DTYPES[place.dtype]
    size = run * element
    # a run that is no whole number of sectors starts anywhere in one
    sectors = size / SECTOR if size % SECTOR == 0 else (size + SECTOR - element) / SECTOR
    return program.elements(axes) / run * max(1.0, sectors)


def warp_sectors(
    place: Place, axes: Iterable[Axis], layout: Layout, chunks: Mapping[DataDim, int]
) -> float:
    """The sectors that one access of a warp touches."""
    mine = {axis.dim for axis in axes}
    sectors, left = 1.0, WARP
    for dim, share in layout.shares:
        lanes = min(share.threads, left)
        left //= lanes
        if dim in mine:
            used = min(lanes, -(-chunks[dim] // share.width))
            span = used * share.width * place.strides[dim] * DTYPES[place.dtype]
            sectors *= min(float(used), max(1.0, span / SECTOR)) if used > 1 else 1.0
    return sectors


def workspace_bytes(plan: Plan, schedule: Schedule) -> float:
    """What the steps of a block move between it and its part of the workspace."""
    if not schedule.workspace_elements:
        return 0.0
    return sum(
        plan.program.trips(stage) * _workspace_bytes(plan, schedule, stage, step)
        for stage, steps in schedule.steps.items()
        for step in steps
    )


def _workspace_bytes(plan: Plan, schedule: Schedule, stage: Stage, step: Step) -> float:
    found = touched(plan, step)
    names = [name for name, _ in (*found.reads, *found.writes)]
    return sum(
        4.0 * plan.buffers[name] / _parts(plan, name, stage)
        for name in names
        if not schedule.addresses[name].is_shared
    )


def _parts(plan: Plan, name: str, stage: Stage) -> int:
    """How many iterations' tiles a buffer holds, of which a step in a loop touches one."""
    around = plan.program.loop_at(stage)
    if around is None:
        return 1
    counts = [1]
    for place in plan.places.values():
        if place.name == name:
            held = zip(place.loop_strides, plan.program.loops, strict=False)
            inside = [loop.count for k, (s, loop) in enumerate(held) if s and k <= around]
            counts.append(math.prod(inside))
    return max(counts)


def array_bytes(program: TileProgram, plan: Plan, *, between: bool) -> float:
    """The arrays that a kernel reads or writes, each once: those between kernels, or the others."""
    sizes: dict[int, int] = {}
    for i, node in enumerate(program.nodes):
        match node:
            case Load(source=name):
                tensor, place = program.inputs[name], plan.places[i]
            case Store(target=name):
                tensor, place = program.outputs[name], plan.outputs[name]
            case _:
                continue
        if program.is_between(name) is between:
            elements = math.prod(program.sizes[d] for d, _ in tensor.strides)
            sizes[tensor.position] = elements * DTYPES[place.dtype]
    return float(sum(sizes.values()))
