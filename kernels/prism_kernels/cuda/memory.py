"""Places buffers in memory and finds where barriers must be.

A barrier stands before a step that touches what another thread may have touched since the last
barrier, one of them writing. None is needed where every element is touched by one and the same
thread, its *owner*, both times. In a loop the last steps of an iteration meet the first of the
next, so what is in it is walked until nothing changes.

Buffers share memory when they are never alive together. What shared memory cannot hold lies in a
global workspace, of which every block has its slice; barriers order that just as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from prism.errors import KernelError
from prism_kernels.cuda.accesses import Access, Touched, touched
from prism_kernels.cuda.plan import Plan
from prism_kernels.cuda.steps import Step, steps_of
from prism_kernels.tile import Stage

ALIGN = 4
"""Buffers start at a multiple of 16 bytes."""
MOST_APART = 1024
"""Elements of shared memory that small buffers may have to themselves."""

Life = tuple[int, int]
"""The first and the last step that touches a buffer."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a buffer starts, in float32 elements of shared memory or of the block's workspace."""

    offset: int
    is_shared: bool = True


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps by stage, those that a barrier comes before, and the memory of every buffer."""

    steps: Mapping[Stage, tuple[Step, ...]] = field(hash=False)
    barriers: frozenset[tuple[Stage, int]]
    """(stage, index of the step)."""
    addresses: Mapping[str, Address] = field(hash=False)
    shared_elements: int
    workspace_elements: int
    """Of one block."""


def schedule(plan: Plan, shared_limit: int) -> Schedule:
    """Order, place and synchronise; `shared_limit` is in bytes."""
    steps = {stage: tuple(steps_of(plan, stage)) for stage in Stage}
    accesses = accesses_of(plan, steps)
    lives = lives_of(accesses)
    addresses, shared, workspace = _allocate(plan, lives, shared_limit)
    barriers = _Barriers(plan, accesses, addresses).find()
    apart = _allocate(plan, _small_apart(plan, lives), shared_limit)
    if apart[1:] != (shared, workspace) or apart[0] != addresses:
        fewer = _Barriers(plan, accesses, apart[0]).find()
        if len(fewer) < len(barriers) and apart[2] == workspace:
            (addresses, shared, workspace), barriers = apart, fewer
    return Schedule(steps, barriers, addresses, shared, workspace)


def _small_apart(plan: Plan, lives: Mapping[str, Life]) -> dict[str, Life]:
    """Lives in which the smallest buffers share their memory with no other.

    To share a few bytes is worth no barrier between those who use them for this and for that.
    """
    if not lives:
        return {}
    whole = min(life[0] for life in lives.values()), max(life[1] for life in lives.values())
    out, left = dict(lives), MOST_APART
    for name in sorted(lives, key=lambda n: (plan.buffers[n], n)):
        left -= plan.buffers[name]
        if left < 0:
            break
        out[name] = whole
    return out


def accesses_of(plan: Plan, steps: Mapping[Stage, Sequence[Step]]) -> dict[Stage, list[Touched]]:
    """What each step touches."""
    return {stage: [touched(plan, step) for step in steps[stage]] for stage in Stage}


def _allocate(
    plan: Plan, lives: Mapping[str, Life], limit: int
) -> tuple[dict[str, Address], int, int]:
    """First fit, rings and the largest buffers first; what does not fit goes to the workspace."""
    rings = set(plan.rings.values())
    addresses: dict[str, Address] = {}
    shared = workspace = 0
    for name in sorted(lives, key=lambda n: (n not in rings, -plan.buffers[n], n)):
        size = -(-plan.buffers[name] // ALIGN) * ALIGN
        taken = sorted(
            (addresses[n].offset, addresses[n].offset + plan.buffers[n])
            for n in addresses
            if addresses[n].is_shared and _meet(lives[n], lives[name])
        )
        offset = 0
        for start, end in taken:
            if start - offset >= size:
                break
            offset = max(offset, -(-end // ALIGN) * ALIGN)
        if 4 * (offset + size) <= limit:
            addresses[name] = Address(offset)
            shared = max(shared, offset + size)
        elif name in rings:
            raise KernelError(
                f"the operands of a product pass through {4 * size} bytes of shared memory, of "
                f"which there are {limit}: use T = 64, or C = 1"
            )
        else:
            addresses[name] = Address(workspace, is_shared=False)
            workspace += size
    return addresses, shared, workspace


def lives_of(accesses: Mapping[Stage, Sequence[Touched]]) -> dict[str, Life]:
    """Buffer -> first and last step that touches it; through the whole of a loop that it enters."""
    out: dict[str, Life] = {}
    flat = [found for stage in Stage for found in accesses[stage]]
    for k, found in enumerate(flat):
        for name in {name for name, _ in found.reads | found.writes}:
            out[name] = (out.get(name, (k, k))[0], k)
    for stages in ((Stage.BODY,), (Stage.OUTER, Stage.BODY, Stage.BETWEEN)):
        first = sum(len(accesses[stage]) for stage in Stage if stage < stages[0])
        loop = first, first + sum(len(accesses[stage]) for stage in stages) - 1
        if loop[0] <= loop[1]:
            out = {name: _through(life, loop) for name, life in out.items()}
    return out


def _through(life: Life, loop: Life) -> Life:
    """A life that goes on as long as a loop does, unless it lies within an iteration or outside."""
    if not _meet(life, loop) or (loop[0] <= life[0] and life[1] <= loop[1]):
        return life
    return min(life[0], loop[0]), max(life[1], loop[1])


def _meet(one: Life, other: Life) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


# -- barriers


class _Barriers:
    def __init__(
        self,
        plan: Plan,
        accesses: Mapping[Stage, Sequence[Touched]],
        addresses: Mapping[str, Address],
    ) -> None:
        self.plan = plan
        self.accesses = accesses
        self.addresses = addresses
        self.found: set[tuple[Stage, int]] = set()
        self.since = Touched()
        """What was touched since the last barrier."""

    def find(self) -> frozenset[tuple[Stage, int]]:
        """The steps that a barrier comes before.

        One that was found early may be idle beside those that were found later in a loop.
        """
        self._walk_all()
        for place in sorted(self.found, reverse=True):
            needed, self.found = self.found, self.found - {place}
            self._walk_all()
            if len(self.found) >= len(needed):
                self.found = needed
        return frozenset(self.found)

    def _walk_all(self) -> None:
        """Walk all steps, and put barriers where they are missing."""
        self.since = Touched()
        self._walk(Stage.BEFORE)
        self._walk_again(self._walk_outer, 0)
        self._walk(Stage.AFTER)

    def _walk_again(self, walk: Callable[[], None], number: int) -> None:
        """Walk a loop's steps until they may follow themselves: twice at least, if they do."""
        loops, known = self.plan.program.loops, -1
        walk()
        if loops and loops[number].count == 1:
            return
        while len(self.found) > known:
            known = len(self.found)
            walk()

    def _walk_outer(self) -> None:
        """What is in the loop; the stages of an outer one are empty where it is the only one."""
        self._walk(Stage.OUTER)
        self._walk_again(lambda: self._walk(Stage.BODY), len(self.plan.program.loops) - 1)
        self._walk(Stage.BETWEEN)

    def _walk(self, stage: Stage) -> None:
        for k, now in enumerate(self.accesses[stage]):
            if (stage, k) in self.found or self._clashes(now):
                self.found.add((stage, k))
                self.since = Touched()
            self.since.reads |= now.reads
            self.since.writes |= now.writes

    def _clashes(self, now: Touched) -> bool:
        return any(
            self._overlap(a, b)
            for ours, theirs in (
                (now.writes, self.since.writes | self.since.reads),
                (now.reads, self.since.writes),
            )
            for a in ours
            for b in theirs
        )

    def _overlap(self, a: Access, b: Access) -> bool:
        if a == b and a[1] is not None:
            return False
        one, other = self.addresses[a[0]], self.addresses[b[0]]
        if one.is_shared != other.is_shared:
            return False
        sizes = self.plan.buffers[a[0]], self.plan.buffers[b[0]]
        return one.offset < other.offset + sizes[1] and other.offset < one.offset + sizes[0]
