"""Rough seconds of a kernel at a few sizes and machines: what plans are compared by.

One kernel or several is a question of numbers: a second launch and the bytes between kernels, or
work that no grid dim divides. So plans are compared where numbers are known: at the sizes and for
the device of the search, or else at points spread over practical sizes, for a CPU and a GPU. A plan
that is among the best nowhere is not listed.

The model is a roofline: launch + the larger of bytes over bandwidth and work over the blocks that
share it, at the best choice of which grid dims to use. It orders plans; the tuner measures them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

import numpy as np
from numpy.typing import NDArray

from prism.ir import OPS, OpKind
from prism.protocols import Device
from prism.search.fronts.costs import LIGHT
from prism.search.grid import Column, GridPlacement
from prism.search.situation import Situation
from prism.search.stages import Stage
from prism.search.wiring import Arena, TermId, Wired, dims_in

Row = NDArray[np.float64]
"""A number per profile."""

ELEMENT_BYTES = 4
REPEATED = 4.0
"""How much faster bytes come that another block has read already."""

ELEMENTWISE, SPECIAL = 2.0, 12.0
"""What an elementwise operation costs, in multiply-adds of a contraction."""

ITERATIONS = 8
"""Iterations of a loop, where that matters."""

EXTENTS = (8, 128, 2048, 8192)
SPREAD = 12

LIBRARY_SPEED = 1.5
"""How much faster than our contractions those of a library are, where arithmetic decides."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Blocks that run at once, multiply-adds per second of one, bytes per second, a launch."""

    blocks: int
    block_speed: float
    bandwidth: float
    launch_s: float


CPU = Machine(8, 1.5e10, 4e10, 1e-5)
GPU = Machine(128, 2e11, 2e12, 4e-6)


class Profiles:
    """Sizes and machines; everything about them is a row with an entry per profile."""

    def __init__(self, situation: Situation, seed: int) -> None:
        dims, device = situation.program.dims, situation.device
        machines = (CPU, GPU) if device is None else (_machine(device),)
        random = Random(seed)
        rows: list[tuple[int, ...]] = []
        for _ in range(1 if situation.has_sizes else SPREAD):
            drawn = {d.name: d.fixed or random.choice(EXTENTS) for d in dims}
            drawn |= situation.sizes
            rows.append(tuple(drawn[d.size] for d in dims))
        pairs = list(product(rows, machines))
        self.count = len(pairs)
        self.blocks = np.array([m.blocks for _, m in pairs], dtype=float)
        self.block_speed = np.array([m.block_speed for _, m in pairs])
        self.bandwidth = np.array([m.bandwidth for _, m in pairs])
        self.launch_s = np.array([m.launch_s for _, m in pairs])
        self._extents = np.array([row for row, _ in pairs], dtype=float).T
        self._known: dict[int, Row] = {}

    def extent(self, dim: int) -> Row:
        """The size of a dim; a stack dim has enough blocks along it to keep the machine busy."""
        return self._extents[dim] if dim < len(self._extents) else self.blocks

    def elements(self, dims: int) -> Row:
        """The elements of a value with these dims."""
        known = self._known.get(dims)
        if known is None:
            known = np.ones(self.count)
            for dim in dims_in(dims):
                known = known * self.extent(dim)
            self._known[dims] = known
        return known

    def split(self, column: Column) -> Row:
        """How many blocks there may be along a grid dim."""
        dims = {d for d in (*column.inputs, *column.outputs) if 0 <= d < len(self._extents)}
        extents = [self.extent(d) for d in dims]
        return np.minimum.reduce([self.blocks, *extents]) if extents else np.ones(self.count)


def _machine(device: Device) -> Machine:
    """A machine like a device: of what kind it is decides the rest.

    Bandwidth in powers of two: where it is measured, it is never twice the same.
    """
    like = GPU if device.multiprocessors else CPU
    bandwidth = 1e9 * 2.0 ** round(math.log2(device.stream_gbps))
    return Machine(device.blocks, like.block_speed, bandwidth, like.launch_s)


class KernelCosts:
    """Seconds of kernels over the terms of one arena."""

    def __init__(self, arena: Arena, placement: GridPlacement, profiles: Profiles) -> None:
        self._arena = arena
        self._placement = placement
        self._profiles = profiles
        self._known: dict[
            tuple[tuple[TermId, ...], frozenset[TermId], tuple[Column, ...]], Row
        ] = {}

    def seconds(self, wired: Wired, stage: Stage | None, grid: Sequence[Column]) -> Row:
        """The least over which of the grid dims are used; one that stacks always is."""
        late = frozenset[TermId]()
        if stage is not None:
            terms = self._arena.terms
            late = frozenset(t for t in wired.nodes if stage.is_late(t, terms[t].operands))
        key = (wired.roots, late, tuple(grid))
        if key not in self._known:
            self._known[key] = self._seconds(wired, late, grid)
        return self._known[key]

    def library(self, wired: Wired) -> Row:
        """The same for a library that runs the one contraction of an op DAG."""
        profiles, terms = self._profiles, self._arena.terms
        border = [terms[t].dims for t in (*wired.leaves, *wired.roots)]
        return profiles.launch_s + _shared_evenly(self._arena, wired, border, profiles)

    def least(self, wired: Wired, *, is_shared: bool, is_alone: bool) -> Row:
        """Of all the ways to run an op DAG in one kernel; `is_shared`: it leaves values partial."""
        arena, profiles = self._arena, self._profiles
        read = [leaf for leaf in wired.leaves if arena.terms[leaf].inputs]
        written = [profiles.elements(arena.terms[t].dims) for t in wired.roots]
        elements = [profiles.elements(arena.terms[leaf].dims) for leaf in read]
        work = _total(work_of(arena, term, profiles) for term in wired.nodes)
        bare = Load(work, _total((*elements, *written)))
        if is_shared:
            return least_at(profiles, bare, bare, None, np.array(is_alone))
        demands = Demands(arena, wired, profiles)
        again = [demands.read(leaf) for leaf in read]
        ours = Load(_total(map(demands.work, wired.nodes)), _total((*again, *written)))
        return least_at(profiles, bare, ours, _product(written), np.array(is_alone))

    def _seconds(self, wired: Wired, late: frozenset[TermId], grid: Sequence[Column]) -> Row:
        profiles = self._profiles
        times = {term: ITERATIONS if term in late else 1 for term in wired.nodes}
        work = self._by_pattern(
            ((t, n * work_of(self._arena, t, profiles)) for t, n in times.items()), grid
        )
        read = self._by_pattern(
            (
                (leaf, profiles.elements(self._arena.terms[leaf].dims))
                for leaf in wired.leaves
                if self._arena.terms[leaf].inputs
            ),
            grid,
        )
        written = _total(profiles.elements(self._arena.terms[root].dims) for root in wired.roots)
        splits = [profiles.split(column) for column in grid]
        stacks = [self._placement.stacks(column) for column in grid]
        best = np.full(profiles.count, np.inf)
        for used in product((True, False), repeat=len(grid)):
            if all(u or not s for u, s in zip(used, stacks, strict=True)):
                counts = [n if u else None for n, u in zip(splits, used, strict=True)]
                stacked = _product(n for n, s in zip(splits, stacks, strict=True) if s)
                moved = written * stacked + _repeated(read, counts, REPEATED)
                best = np.minimum(best, self._at(_repeated(work, counts, 1.0), moved, counts))
        return best

    def _at(self, work: Row, moved: Row, counts: Sequence[Row | None]) -> Row:
        """The roofline for this many blocks."""
        machine = self._profiles
        blocks = np.minimum(_product(n for n in counts if n is not None), machine.blocks)
        # a few blocks cannot keep the memory busy
        bandwidth = machine.bandwidth * np.minimum(1.0, 2 * blocks / machine.blocks)
        compute = work / (machine.block_speed * blocks)
        return machine.launch_s + _roofline(compute, moved * ELEMENT_BYTES / bandwidth)

    def _by_pattern(
        self, values: Iterable[tuple[TermId, Row]], grid: Sequence[Column]
    ) -> dict[tuple[bool, ...], Row]:
        """Sums of rows by which grid dims do not divide the term: there all blocks do the same."""
        out: dict[tuple[bool, ...], Row] = {}
        for term, row in values:
            pattern = tuple(not self._placement.divides(term, column) for column in grid)
            out[pattern] = out[pattern] + row if pattern in out else row
        return out


def work_of(arena: Arena, term: TermId, profiles: Profiles) -> Row:
    """The operations of a term, in multiply-adds."""
    value = arena.terms[term]
    space = value.dims
    for operand in value.operands:
        space |= arena.terms[operand].dims
    if OPS[value.op].kind is not OpKind.ELEMENTWISE:
        weight = 1.0
    else:
        weight = ELEMENTWISE if value.op in LIGHT else SPECIAL
    return weight * profiles.elements(space)


def _total(rows: Iterable[Row]) -> Row:
    out: Row = np.zeros(1)
    for row in rows:
        out = out + row
    return out


def _product(rows: Iterable[Row]) -> Row:
    out: Row = np.ones(1)
    for row in rows:
        out = out * row
    return out


def _repeated(
    by_pattern: Mapping[tuple[bool, ...], Row], counts: Sequence[Row | None], discount: float
) -> Row:
    """Rows times the blocks that repeat them; what is repeated costs less by `discount`."""
    total: Row = np.zeros(1)
    for pattern, row in by_pattern.items():
        times = _product(n for n, r in zip(counts, pattern, strict=True) if r and n is not None)
        total = total + row * (1 + (times - 1) / discount)
    return total


@dataclass(frozen=True, slots=True)
class Load:
    """Multiply-adds to do and elements to move."""

    work: Row
    moved: Row


class Demands:
    """What the operators of an op DAG ask of a kernel that leaves nothing partial, at least.

    Blocks share a value only along dims that no operator on the way to an output reduces: the work
    of others is repeated, and so is what they read.
    """

    def __init__(self, arena: Arena, wired: Wired, profiles: Profiles) -> None:
        self._terms = terms = arena.terms
        self._profiles = profiles
        self._divided = {root: terms[root].dims for root in wired.roots}
        for term in reversed(wired.nodes):
            for operand in terms[term].operands:
                mine = self._divided.get(operand, terms[operand].dims)
                self._divided[operand] = mine & self._passed(term)
        self._arena = arena

    def _passed(self, term: TermId) -> int:
        """The dims along which blocks may divide what an operator reads."""
        dim = self._terms[term].dim
        return self._divided[term] & (~(1 << dim) if dim >= 0 else -1)

    def work(self, term: TermId) -> Row:
        """Multiply-adds of an operator, those that are repeated included, in all blocks."""
        profiles = self._profiles
        sharers = np.minimum(profiles.blocks, profiles.elements(self._divided[term]))
        return np.asarray(work_of(self._arena, term, profiles) * profiles.blocks / sharers)

    def read(self, leaf: TermId, reader: TermId | None = None) -> Row:
        """Elements of an input that are read, by all its readers or by one.

        As many blocks as keep the memory busy: those that share nothing repeat what is read.
        """
        profiles, dims = self._profiles, self._terms[leaf].dims
        shared = self._divided[leaf] if reader is None else dims & self._passed(reader)
        sharers = np.minimum(profiles.blocks, profiles.elements(shared))
        times = np.maximum(1.0, profiles.blocks / 2 / sharers)
        return np.asarray(profiles.elements(dims) * (1 + (times - 1) / REPEATED))


def least_at(
    profiles: Profiles,
    bare: Load,
    ours: Load,
    most: Row | None,
    is_alone: NDArray[np.bool_],
) -> Row:
    """What a kernel takes at least: a launch, what it moves, its work shared by all blocks.

    `bare` and `ours`: without and with what blocks repeat; `most` the blocks there may be (None:
    any number); `is_alone`: it is one contraction, which a library may run.
    """
    every = profiles.blocks
    blocks = every if most is None else np.minimum(most, every)
    memory = np.maximum(ours.moved, bare.moved / np.minimum(1.0, 2 * blocks / every))
    compute = np.maximum(ours.work, bare.work * every / blocks) / (profiles.block_speed * every)
    kernel = _roofline(compute, memory * ELEMENT_BYTES / profiles.bandwidth)
    library = np.maximum(
        bare.moved * ELEMENT_BYTES / profiles.bandwidth,
        bare.work / (LIBRARY_SPEED * profiles.block_speed * every),
    )
    return np.asarray(profiles.launch_s + np.where(is_alone, np.minimum(kernel, library), kernel))


def _roofline(compute: Row, memory: Row) -> Row:
    """The larger, and a part of the smaller, since they overlap in part."""
    return np.asarray(np.maximum(compute, memory) + 0.2 * np.minimum(compute, memory))


def _shared_evenly(arena: Arena, wired: Wired, moved: Iterable[int], profiles: Profiles) -> Row:
    """The roofline of an op DAG whose work all blocks share, at a library's speed.

    `moved` are the dims, as masks, of what is read and written.
    """
    elements = _total(profiles.elements(dims) for dims in moved)
    work = _total(work_of(arena, term, profiles) for term in wired.nodes)
    memory = elements * ELEMENT_BYTES / profiles.bandwidth
    compute = work / (LIBRARY_SPEED * profiles.block_speed * profiles.blocks)
    return np.asarray(np.maximum(memory, compute))
