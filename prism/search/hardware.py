"""The pruner `hardware`: a graph that its device has no memory for, whatever the tiles, is dropped.

With sizes and a device known, a graph but for its sizes is bounded at every legal choice of counts
at once. Only what has to lie in memory counts: sums accumulated over the loop and tiles put
together by it, unless they may be an output; computed operands of a contraction. Everything else
may be in registers, and of what counts a block keeps as much in registers and on the stack as any
machine has. What is left must fit where targets put it:

  cpu   each thread has its block's tiles in a workspace; tiles are smallest with the most blocks
  gpu   a block has its tiles in shared memory, what does not fit in a slice of a global workspace.
        That is the blocks' tiles together less what their shared memory holds, which is linear in
        each count, so it is least where every count is 1 or as large as can be

Targets refuse a workspace above `Device.workspace_bytes` (1 GiB). Tiles beyond shared memory alone
are no reason to drop a graph: it runs, though slower, and the tuner finds out. So the bound drops
little: graphs whose grid leaves large dims whole, at large sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from prism.ir import OPS, DataDim, OpKind
from prism.protocols import Device
from prism.search.placement import AFTER, PEAK, REPLICATED
from prism.search.pruning import Partial, Staged
from prism.search.situation import Situation
from prism.search.wiring import TermId, dims_in

REGISTER_BYTES = 256 << 10
"""The registers of a multiprocessor; the stack buffers of a CPU's block are no more."""

ELEMENT_BYTES = 4
"""Values between operators are float32 at least."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """A value held: its elements but for the dims a grid dim divides, and which grid dims do."""

    elements: int
    grid: frozenset[int]


class HardwarePruner:
    """Drops graphs that need more memory than the device has, at every legal choice of tiles."""

    name = "hardware"

    def __init__(self) -> None:
        self.nearest: tuple[float, str] | None = None
        """The least memory that was too much, and why."""
        self._sizes: Mapping[DataDim, int] = {}
        self._device: Device | None = None

    @property
    def is_situated(self) -> bool:
        """Whether there is something to judge by."""
        return self._device is not None

    def situate(self, situation: Situation) -> None:
        """Keep sizes and device, where both are known and the device says what it has."""
        device = situation.device
        if situation.has_sizes and device is not None and device.workspace_bytes > 0:
            self._sizes, self._device = situation.sizes, device

    def judge(self, partial: Partial) -> str | None:
        """Why the device has no memory for the graph, or None."""
        device = self._device
        if device is None or not isinstance(partial, Staged):
            return None
        if not self._sizes.keys() >= set(partial.arena.dim_names):
            return None
        most = [self._most_blocks(partial, p) for p in range(len(partial.spans))]
        needed = max((_needed(tiles, most, device) for tiles in self._instants(partial)), default=0)
        if needed <= device.workspace_bytes:
            return None
        reason = (
            f"its tiles take at least {needed / 2**20:.0f} MB beside registers and shared memory, "
            f"{device.name} allows {device.workspace_bytes / 2**20:.0f} MB"
        )
        if self.nearest is None or needed < self.nearest[0]:
            self.nearest = (needed, reason)
        return reason

    def _most_blocks(self, staged: Staged, par: int) -> int:
        """Blocks along a grid dim at most: none may be empty."""
        names = staged.arena.dim_names
        return min((self._sizes[names[d]] for d in dims_in(staged.spans[par])), default=1)

    def _instants(self, staged: Staged) -> Iterator[list[_Tile]]:
        """What is held together, instant by instant."""
        stage = staged.stage
        roots = set(staged.wired.roots)
        accumulated: list[TermId] = []
        if stage is not None:
            accumulated = [t for t in stage.accumulated if self._counts(staged, t, roots)]
        sums = [self._tile(staged, t, whole=True) for t in accumulated]
        yield sums
        for term in self._operands(staged, roots):
            if stage is None or term in accumulated or stage.state(term) in (AFTER, REPLICATED):
                yield [self._tile(staged, term, whole=True)]
            else:
                # in the loop, while everything is being accumulated
                yield [*sums, self._tile(staged, term, whole=False)]

    def _counts(self, staged: Staged, term: TermId, roots: set[TermId]) -> bool:
        """Whether an accumulator must be in memory; a maximum may be part of a range-safe sum."""
        assert staged.stage is not None
        is_computed = staged.arena.terms[term].leaf is None
        return is_computed and term not in roots and staged.stage.state(term) != PEAK

    def _operands(self, staged: Staged, roots: set[TermId]) -> set[TermId]:
        """Computed operands of contractions."""
        terms = staged.arena.terms
        return {
            operand
            for term in staged.wired.nodes
            if OPS[terms[term].op].kind is OpKind.CONTRACT
            for operand in terms[term].operands
            if terms[operand].leaf is None and operand not in roots
        }

    def _tile(self, staged: Staged, term: TermId, *, whole: bool) -> _Tile:
        """A value's tile; unless `whole`, the loop's tile is taken for one element."""
        names, dims = staged.arena.dim_names, staged.arena.terms[term].dims
        looped = -1 if whole or staged.stage is None else staged.stage.state(term)
        elements = math.prod(self._sizes[names[d]] for d in dims_in(dims) if d != looped)
        states = [staged.state(term, p) for p in range(len(staged.spans))]
        grid = frozenset(p for p, state in enumerate(states) if state >= 0 and state != looped)
        return _Tile(elements, grid)


def _needed(tiles: Sequence[_Tile], most: Sequence[int], device: Device) -> float:
    """Bytes of workspace that these tiles take at least, over all counts up to `most`."""
    if device.multiprocessors:
        return min(
            _together(tiles, counts, device.l1_bytes + REGISTER_BYTES)
            for counts in product(*((1, count) for count in most))
        )
    return device.threads * _of_block(tiles, most)


def _of_block(tiles: Sequence[_Tile], counts: Sequence[int]) -> float:
    held = sum(tile.elements / math.prod(counts[p] for p in tile.grid) for tile in tiles)
    return ELEMENT_BYTES * held - REGISTER_BYTES


def _together(tiles: Sequence[_Tile], counts: Sequence[int], own: int) -> float:
    """Bytes of all blocks' tiles, less what each block has of its own."""
    blocks = math.prod(counts)
    held = sum(
        tile.elements * (blocks // math.prod(counts[p] for p in tile.grid)) for tile in tiles
    )
    return ELEMENT_BYTES * held - blocks * own
