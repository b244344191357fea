"""Where a search's graphs shall run: sizes and a device, where they are known.

A search is for all sizes and every machine unless it is told them. What it is told may drop more:
fronts compare at these sizes, and the pruners `hardware` and `cost-bound` have something to judge
by. The result is then good for these alone, and says so (`prism.artifact`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from prism.ir import DataDim, Program, bind_sizes
from prism.protocols import Device


@dataclass(frozen=True, slots=True)
class Situation:
    """The size of every dim, aliases included, or none at all; the device, if any."""

    program: Program
    sizes: Mapping[DataDim, int] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    device: Device | None = None

    @classmethod
    def of(
        cls,
        program: Program,
        sizes: tuple[tuple[DataDim, int], ...] | None,
        device: Device | None,
    ) -> Situation:
        """The situation that a search's options describe.

        Raises:
            SizeError: a size is missing, unknown or contradictory.
        """
        bound = {} if sizes is None else bind_sizes(program, dict(sizes))
        return cls(program, MappingProxyType(bound), device)

    @property
    def has_sizes(self) -> bool:
        """Whether sizes are known."""
        return bool(self.sizes)


@runtime_checkable
class Situated(Protocol):
    """A pruner that judges by sizes or a device: it is told them before it judges anything."""

    nearest: tuple[float, str] | None
    """Of what it dropped the graph that was nearest to being kept, and why."""

    @property
    def is_situated(self) -> bool:
        """Whether it was told enough to judge anything; it is not asked before."""

    def situate(self, situation: Situation) -> None:
        """Where the graphs shall run."""
