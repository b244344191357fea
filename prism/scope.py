"""What a search is good for: all sizes and machines, or those alone that it was told.

A search that knows sizes or a device drops graphs that are the best elsewhere. Its result says so,
and whoever tunes it for something else is told, instead of getting a slow kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prism.errors import UsageError
from prism.ir import DataDim


@dataclass(frozen=True, slots=True)
class Scope:
    """The sizes and the device (`Device.text`) of a search; None: all."""

    sizes: tuple[tuple[DataDim, int], ...] | None = None
    device: str | None = None

    def __str__(self) -> str:
        """In words, as in "at n=8,d=64, on sm_90"."""
        parts = [] if self.sizes is None else [f"at {sizes_text(dict(self.sizes))}"]
        parts += [] if self.device is None else [f"on {self.device}"]
        return ", ".join(parts) or "at all sizes, on every device"

    def require(self, sizes: Mapping[DataDim, int], device: str, what: str) -> None:
        """Refuse sizes or a device that the search was not for; `what` is the artifact.

        Raises:
            UsageError: says what was searched, what is asked, and what to do.
        """
        ours = dict(self.sizes or ())
        others = {d: sizes[d] for d in ours if sizes.get(d) != ours[d]}
        if others:
            raise UsageError(
                f"{what} was searched for {sizes_text(ours)} alone, not for {sizes_text(others)}: "
                f"tune it with --sizes {sizes_text(ours)}, or search again with the other sizes, "
                "or without sizes for all of them"
            )
        if self.device is not None and self.device != device:
            raise UsageError(
                f"{what} was searched for {self.device} alone, not for {device}: tune it there, or "
                "search again with the other --target, or without one for every device"
            )


def sizes_text(sizes: Mapping[DataDim, int]) -> str:
    """As the command line takes them: n=8,d=64."""
    return ",".join(f"{name}={size}" for name, size in sizes.items())
