"""What the lanes of a warp do together: one table, from name to a function of all 32 operands.

A row takes the operands of the 32 lanes, in order, each without the mask, and gives the 32
results. All that runs a collective is here; matrix instructions are further rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from prism_kernels.cuda.dialect import WARP
from prism_kernels.lockstep.functions import Kind

Operands = Sequence[tuple[Any, ...]]
"""The operands of each lane."""


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective: the kinds of its operands after the mask, its result's kind, its meaning.

    `None` among the operands is the value that is moved, of any number kind; a result of None has
    that operand's kind.
    """

    operands: tuple[Kind | None, ...]
    result: Kind | None
    run: Callable[[Operands], Sequence[Any]]


def _lane_or_own(lanes: Operands, sources: Sequence[int]) -> list[Any]:
    """The value of each lane's source lane; its own where there is no such lane."""
    return [lanes[source if 0 <= source < WARP else lane][0] for lane, source in enumerate(sources)]


def _shfl_xor(lanes: Operands) -> list[Any]:
    return _lane_or_own(lanes, [lane ^ mask for lane, (_, mask) in enumerate(lanes)])


def _shfl_down(lanes: Operands) -> list[Any]:
    return _lane_or_own(lanes, [lane + distance for lane, (_, distance) in enumerate(lanes)])


def _shfl_up(lanes: Operands) -> list[Any]:
    return _lane_or_own(lanes, [lane - distance for lane, (_, distance) in enumerate(lanes)])


def _shfl(lanes: Operands) -> list[Any]:
    return _lane_or_own(lanes, [source % WARP for _, source in lanes])


def _any(lanes: Operands) -> list[bool]:
    return [any(claim for (claim,) in lanes)] * WARP


def _all(lanes: Operands) -> list[bool]:
    return [all(claim for (claim,) in lanes)] * WARP


def _ballot(lanes: Operands) -> list[int]:
    return [sum(1 << lane for lane, (claim,) in enumerate(lanes) if claim)] * WARP


def _move(run: Callable[[Operands], Sequence[Any]]) -> Collective:
    return Collective((None, Kind.INT), None, run)


COLLECTIVES: Mapping[str, Collective] = MappingProxyType(
    {
        "shfl_xor_sync": _move(_shfl_xor),
        "shfl_down_sync": _move(_shfl_down),
        "shfl_up_sync": _move(_shfl_up),
        "shfl_sync": _move(_shfl),
        "any_sync": Collective((Kind.BOOL,), Kind.BOOL, _any),
        "all_sync": Collective((Kind.BOOL,), Kind.BOOL, _all),
        "ballot_sync": Collective((Kind.BOOL,), Kind.INT, _ballot),
    }
)
"""Attribute of `cuda` -> what a warp does. `syncwarp` and `syncthreads` move no values: the
scheduler knows them."""
