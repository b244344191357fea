"""Groups the nodes of a tile program into loop nests.

A nest is one set of nested loops over an iteration space. A node joins the latest nest of its
stage with the same space unless it reads a reduction that this nest only finishes; a contraction is
a nest of its own. What a nest computes and only itself reads stays in registers.

Thread graphs (`prism.ir.thread_graphs`) are the least that is fused: each is a *unit*, placed
whole as soon as all it reads is there. They are found anew here, among the elementwise nodes of
the tile program: its range-safe form has other operators than the block graph, and what only reads
inputs that an accumulator joins is computed before the loop, apart from the rest of its unit.

Three kinds of node need no nest, because another node does their work:

* an accumulator of a value that only it reads, when that value is a sum (or max) over an axis:
  the reduction adds straight into the accumulator (`sinks`);
* a concatenating accumulator: its operand is written in place (`slices`), one tile after another;
  that may be an accumulator over an inner loop;
* the MAX accumulator of a running reference: the reference's last value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from prism.ir import AccumulatorKind, fused_groups
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
    TileProgram,
    ValueId,
    operands,
)


@dataclass(frozen=True, slots=True)
class Nest:
    """Nodes computed in one set of loops over `space`."""

    stage: Stage
    space: tuple[Axis, ...]
    nodes: tuple[ValueId, ...]


Group = tuple[Stage, tuple[Axis, ...], list[ValueId]]
"""A nest that is being formed."""


@dataclass(frozen=True, slots=True)
class Nests:
    """The nests of a program in the order they run, and the nodes that need none."""

    nests: tuple[Nest, ...]
    sinks: dict[ValueId, ValueId] = field(hash=False)
    """Reduction or contraction -> the accumulator it adds into."""
    slices: dict[ValueId, ValueId] = field(hash=False)
    """Value in a loop -> the concatenating accumulator it is written into."""
    last_values: dict[ValueId, ValueId] = field(hash=False)
    """MAX accumulator of a running reference -> that reference."""
    owner: dict[ValueId, int] = field(hash=False)
    """Node -> the number of its nest as they were formed (`without` may drop some)."""

    def of_stage(self, stage: Stage) -> tuple[Nest, ...]:
        """The nests of one stage, in order."""
        return tuple(n for n in self.nests if n.stage is stage)

    def of_node(self, i: ValueId) -> Nest:
        """The nest that computes node i."""
        return next(n for n in self.nests if i in n.nodes)

    def without(self, gone: Collection[ValueId]) -> Nests:
        """The same nests without some nodes that turned out to need no code."""
        left = (
            Nest(n.stage, n.space, tuple(i for i in n.nodes if i not in gone)) for n in self.nests
        )
        return replace(self, nests=tuple(n for n in left if n.nodes))


def run_stage(program: TileProgram, i: ValueId) -> Stage:
    """When the work of node i is done: accumulators work where their operands are, in a loop."""
    node = program.nodes[i]
    stage = program.stages[node.operand if isinstance(node, Accumulate) else i]
    if isinstance(node, Accumulate) and stage is Stage.BEFORE:
        return Stage.BODY if len(program.loops) < 2 else Stage.OUTER
    return stage


def space_of(program: TileProgram, i: ValueId) -> tuple[Axis, ...]:
    """The iteration space of node i."""
    match program.nodes[i]:
        case Reduce(operand=operand) | Accumulate(operand=operand):
            return program.axes[operand]
        case Contract(left=left, right=right):
            axes = dict.fromkeys((*program.axes[left], *program.axes[right]))
            return tuple(axes)
        case Load() | Scalar() | Map() | Running() | Store():
            return program.axes[i]


def form_nests(program: TileProgram, *, one_reduction: bool = False) -> Nests:
    """Group the nodes; how large tiles are does not matter.

    With `one_reduction`, no nest reduces along two different axes.
    """
    loops = tuple(Loop(loop.name, 1, loop.dim) for loop in program.loops)
    parts = (program.nodes, program.axes, program.stages)
    return _formed(TileProgram(*parts, {}, (), loops, {}, {}), one_reduction)


@lru_cache(maxsize=1024)
def _formed(program: TileProgram, one_reduction: bool) -> Nests:  # noqa: FBT001 - a key
    """The nests of a program without sizes."""
    users = program.users()
    sinks: dict[ValueId, ValueId] = {}
    slices: dict[ValueId, ValueId] = {}
    last_values: dict[ValueId, ValueId] = {}
    for j, node in enumerate(program.nodes):
        if not isinstance(node, Accumulate):
            continue
        i = node.operand
        source = program.nodes[i]
        if isinstance(source, Running):
            last_values[j] = i
        elif users[i] == (j,) and _adds_into(source, node) and _is_looped(program.stages[i]):
            sinks[i] = j
        elif node.kind is AccumulatorKind.CONCAT and i not in slices:
            is_sum = isinstance(source, Accumulate) and i not in last_values and not node.scales
            if is_sum or isinstance(source, (Map, Reduce, Contract)):
                slices[i] = j
    idle = {*sinks.values(), *slices.values(), *last_values}
    placed = [
        not isinstance(node, (Load, Scalar)) and i not in idle
        for i, node in enumerate(program.nodes)
    ]
    groups: list[Group] = []
    owner: dict[ValueId, int] = {}
    for unit in _in_order(program, [i for i, is_placed in enumerate(placed) if is_placed]):
        place = _place(program, unit, groups, owner, one_reduction=one_reduction)
        if place is None:
            place = len(groups)
            groups.append((run_stage(program, unit[0]), space_of(program, unit[0]), []))
        groups[place][2].extend(unit)
        owner.update(dict.fromkeys(unit, place))
    nests = tuple(Nest(stage, space, tuple(sorted(nodes))) for stage, space, nodes in groups)
    return Nests(nests, sinks, slices, last_values, owner)


def thread_units(program: TileProgram) -> tuple[tuple[ValueId, ...], ...]:
    """The thread graphs of a tile program: elementwise nodes that are computed together."""
    reads = [operands(node) for node in program.nodes]
    kinds = [
        (program.stages[i], frozenset(program.axes[i])) if isinstance(node, Map) else None
        for i, node in enumerate(program.nodes)
    ]
    return fused_groups(reads, kinds)


def _in_order(program: TileProgram, nodes: Sequence[ValueId]) -> Iterator[tuple[ValueId, ...]]:
    """Thread graphs and other nodes by their first node, each after all of its stage it reads."""
    unit = {i: (i,) for i in nodes} | {i: one for one in thread_units(program) for i in one}
    waiting = list(dict.fromkeys(unit[i] for i in nodes))
    done: set[ValueId] = set()
    while waiting:
        for one in waiting:
            stage = run_stage(program, one[0])
            needed = {j for i in one for j in operands(program.nodes[i]) if j in unit}
            if all(j in done or j in one or run_stage(program, j) is not stage for j in needed):
                break
        else:
            raise AssertionError("thread graphs wait for each other")
        waiting.remove(one)
        done.update(one)
        yield one


def _adds_into(source: TileNode, node: Accumulate) -> bool:
    """Whether a reduction can work on the accumulator directly."""
    match source:
        case Contract():
            return node.kind is AccumulatorKind.SUM
        case Reduce(op=op):
            return node.kind.value == op
        case _:
            return False


def _is_looped(stage: Stage) -> bool:
    return stage in {Stage.OUTER, Stage.BODY, Stage.BETWEEN}


def _place(
    program: TileProgram,
    unit: Sequence[ValueId],
    groups: Sequence[Group],
    owner: Mapping[ValueId, int],
    *,
    one_reduction: bool,
) -> int | None:
    """The nest that a node or a thread graph joins, or None for a new one."""
    node = program.nodes[unit[0]]
    if isinstance(node, Contract) or (isinstance(node, Store) and node.single):
        return None
    stage, space = run_stage(program, unit[0]), frozenset(space_of(program, unit[0]))
    first = 0
    for j in (j for i in unit for j in operands(program.nodes[i])):
        if j in owner and groups[owner[j]][0] is stage:
            is_ready = isinstance(program.nodes[j], Map)
            first = max(first, owner[j] + (not is_ready))
    for g in reversed(range(first, len(groups))):
        other, axes, nodes = groups[g]
        if other is not stage or frozenset(axes) != space:
            continue
        if one_reduction and len(_reduced(program, (*nodes, *unit))) > 1:
            continue
        if _may_be_joined(program.nodes[nodes[0]]):
            return g
    return None


def _reduced(program: TileProgram, nodes: Collection[ValueId]) -> set[str]:
    """The dims that some of the nodes reduce along."""
    found = (program.nodes[i] for i in nodes)
    return {node.dim for node in found if isinstance(node, Reduce)}


def _may_be_joined(first: TileNode) -> bool:
    """Contractions and stores by one block only keep their nests to themselves."""
    return not isinstance(first, Contract) and not (isinstance(first, Store) and first.single)
