"""Sums and products of indices as text, without what is zero or one."""

from __future__ import annotations

from collections.abc import Sequence

from prism_kernels.writer import Extent


def times(index: str, factor: int) -> str:
    """A product, simplified."""
    if index.isdecimal():
        return str(int(index) * factor)
    if factor == 1:
        return index
    return f"({index}) * {factor}" if "+" in index else f"{index} * {factor}"


def added(terms: Sequence[str]) -> str:
    """A sum, simplified."""
    number = sum(int(t) for t in terms if t.isdecimal())
    texts = [t for t in terms if not t.isdecimal()]
    return " + ".join([*texts, *([str(number)] if number or not texts else [])])


def clamped(index: str, extent: Extent, count: int) -> str:
    """The index of `count` elements, or of the last ones where it is beyond them."""
    last = extent - count if isinstance(extent, int) else f"u32({extent} - {count})"
    return f"smaller({index}, {last})"
