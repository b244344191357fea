"""Which inputs are fetched an iteration ahead, and by which loop nest.

The nest that meets a tile first waits for memory. One that reads it again finds it in a cache, and
memory would rest meanwhile: so that nest fetches the next iteration's tile as it goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prism_kernels.cpu.places import Plan
from prism_kernels.cpu.registers import LONG_STREAM_BYTES, Registers
from prism_kernels.nests import Nest
from prism_kernels.tile import Contract, Load, Stage, ValueId, operands


@dataclass(frozen=True, slots=True)
class Ahead:
    """Input `value`, and how many elements further the next iteration's tile lies."""

    value: ValueId
    distance: int


def fetched_ahead(plan: Plan, registers: Registers) -> Mapping[Nest, tuple[Ahead, ...]]:
    """What each nest of the innermost loop's body fetches."""
    met: set[ValueId] = set()
    again: set[ValueId] = set()
    found: dict[Nest, tuple[Ahead, ...]] = {}
    for nest in plan.nests.of_stage(Stage.BODY):
        reads = _reads(plan, nest)
        chosen = sorted(v for v in (reads & met) - again if _fits(plan, nest, v, registers))
        if chosen:
            found[nest] = tuple(Ahead(v, _distance(plan, v)) for v in chosen)
        again |= set(chosen)
        met |= reads
    return found


def _reads(plan: Plan, nest: Nest) -> set[ValueId]:
    """The inputs that a nest reads, where they are."""
    nodes = plan.program.nodes
    read = {j for i in nest.nodes for j in operands(nodes[i])}
    return {j for j in read if isinstance(nodes[j], Load) and plan.places[j].is_argument}


def _fits(plan: Plan, nest: Nest, v: ValueId, registers: Registers) -> bool:
    """Whether a nest walks all of an input's tile once, of a long stream of small tiles."""
    program, axes = plan.program, plan.program.axes[v]
    if isinstance(program.nodes[nest.nodes[0]], Contract) or not _distance(plan, v):
        return False
    if any(program.chunk(a) > 1 and a not in axes for a in nest.space):
        return False
    tile = program.elements(axes) * registers.widths.of_value(program, v)
    return tile <= registers.l2_bytes // 4 and tile * program.tile_count(axes) > LONG_STREAM_BYTES


def _distance(plan: Plan, v: ValueId) -> int:
    strides = plan.places[v].loop_strides
    return strides[-1] * plan.program.loops[-1].tile if strides else 0
