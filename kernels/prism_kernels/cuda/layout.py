"""How the threads of a block share an iteration space.

Each axis of a space is dealt to a power of two of threads, which occupy some bits of the thread
index: thread t handles the elements c, c + n, c + 2n, ... of an axis with n threads, where c is its
*coordinate*, the axis' bits of t. The axis with the lowest bits is the *lane axis*: neighbouring
threads touch neighbouring elements of it, so that what is contiguous along it is read in whole
lines. With a *width* w a thread handles w neighbours at a time, from c w, (c + n) w, ... on, and
moves them in one access. Threads beyond all bits are idle: where every thread must come along (a
shuffle), they do the work of others again and write nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from prism.ir import DataDim
from prism_kernels.cuda.dialect import WARP
from prism_kernels.tile import Axis


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """`threads` (a power of two) along one dim, from bit `shift` of the thread index up.

    Each takes `width` neighbouring elements at a time.
    """

    threads: int = 1
    shift: int = 0
    width: int = 1

    @property
    def lanes(self) -> int:
        """How many of them are in one warp."""
        return max(1, min(self.threads, WARP >> min(self.shift, 5)))

    @property
    def warps(self) -> int:
        """How many groups of `lanes` there are, each in a warp of its own."""
        return self.threads // self.lanes

    def within(self, extent: int) -> Share:
        """The least share that deals an axis of this extent in the same way."""
        groups = -(-extent // self.width)
        if groups == 1:
            return Share()
        threads = min(self.threads, power_above(groups))
        return Share() if threads == 1 else replace(self, threads=threads)


@dataclass(frozen=True, slots=True)
class Layout:
    """The shares of a space's dims; a dim that is not listed has one thread."""

    shares: tuple[tuple[DataDim, Share], ...]

    @classmethod
    def of(cls, threads: Sequence[tuple[DataDim, int]]) -> Layout:
        """Shares one after the other, from the lowest bits up."""
        shares: list[tuple[DataDim, Share]] = []
        shift = 0
        for dim, count in threads:
            shares.append((dim, Share(count, shift)))
            shift += count.bit_length() - 1
        return cls(tuple(shares))

    def __getitem__(self, dim: DataDim) -> Share:
        """The share of a dim."""
        for name, share in self.shares:
            if name == dim:
                return share
        return Share()

    @property
    def used(self) -> int:
        """How many threads have work of their own."""
        return math.prod(share.threads for _, share in self.shares)

    def passes(self, dim: DataDim, extent: int) -> int:
        """How many elements of a dim of this extent one thread handles at most."""
        share = self[dim]
        return -(-extent // (share.threads * share.width)) * share.width

    def widened(self, dim: DataDim, width: int) -> Layout:
        """The same layout with `width` neighbours of a dim at a time."""
        if dim not in dict(self.shares):
            return Layout((*self.shares, (dim, Share(width=width))))
        return Layout(
            tuple((d, replace(s, width=width) if d == dim else s) for d, s in self.shares)
        )


def power_above(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, (n - 1).bit_length())


def deal(order: Sequence[Axis], extents: Mapping[DataDim, int], threads: int) -> Layout:
    """Deal a space to threads, the first axis the lane axis; each axis takes what it can use."""
    dealt: list[tuple[DataDim, int]] = []
    for axis in order:
        count = min(power_above(extents[axis.dim]), threads)
        dealt.append((axis.dim, count))
        threads //= count
    return Layout.of(dealt)


def deal_reduction(
    order: Sequence[Axis], reduced: Axis, extents: Mapping[DataDim, int], threads: int
) -> Layout:
    """Deal a space that is reduced along one axis.

    Where neighbours are neighbours along it, the reduced axis gets a warp's lanes, which combine by
    shuffles, and more only if the other axes leave threads over; elsewhere it gets what they leave.
    """
    others = math.prod(extents[a.dim] for a in order if a != reduced)
    most = max(1, threads // WARP) if order[0] == reduced else threads
    outer = min(power_above(others), most)
    along = min(power_above(extents[reduced.dim]), threads // outer)
    left, dealt = threads // along, []
    for axis in order:
        count = along if axis == reduced else min(power_above(extents[axis.dim]), left)
        left //= 1 if axis == reduced else count
        dealt.append((axis.dim, count))
    return Layout.of(dealt)
