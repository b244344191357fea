"""Maps that are chosen during the search and not by the encoding, as the paper's ablation does.

    imap  the data dim of each input along each grid dim
    fmap  the data dim of each input along the loop
    omap  the data dim of each output along each grid dim

A choice belongs to a partial graph from its first operator on: graphs are grown again for each
combination. The choices are those of a mapping problem (`prism.ir.mapping`) without the rules that
the symbolic way has from the finished graph: tied places and the symmetry of grid dims. A mapping
that is symmetric to another gives no graph of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from prism.search.mappings import MappedDims
from prism.search.placement import REPLICATED, State

CONCRETE = ("imap", "fmap", "omap")
"""The kinds of map that can be concrete."""

Along = tuple[State, ...]
"""The data dim of each input (or output) along one parallel dim."""

Rows = tuple[Along, ...]
"""One row per grid dim."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The maps of one combination; None where a kind is symbolic."""

    imap: Rows | None = None
    fmap: Along | None = None
    omap: Rows | None = None


def choices(
    concrete: Sequence[str], inputs: Sequence[Along], outputs: Sequence[Along], grid_dims: int
) -> Iterator[Choice]:
    """Every combination; `inputs` and `outputs` are their maps along one parallel dim."""
    fmaps: Iterable[Along | None] = inputs if "fmap" in concrete else (None,)
    for fmap in fmaps:
        if "imap" not in concrete and "omap" not in concrete:
            yield Choice(fmap=fmap)
            continue
        for count in range(grid_dims + 1):
            imaps = _rows(inputs, count) if "imap" in concrete else (None,)
            for imap in imaps:
                for omap in _rows(outputs, count) if "omap" in concrete else (None,):
                    if _uses_every_dim(imap, omap):
                        yield Choice(imap, fmap, omap)


def _rows(along: Sequence[Along], count: int) -> Iterator[Rows]:
    """Every way to use so many grid dims, no data dim on two of them."""
    for rows in product(along, repeat=count):
        if all(_is_injective(dims) for dims in zip(*rows, strict=True)):
            yield rows


def _is_injective(dims: Sequence[State]) -> bool:
    mapped = [dim for dim in dims if dim != REPLICATED]
    return len(set(mapped)) == len(mapped)


def _uses_every_dim(imap: Rows | None, omap: Rows | None) -> bool:
    """Whether each grid dim partitions something, as far as both are known."""
    if imap is None or omap is None:
        return True
    return all(
        any(dim != REPLICATED for dim in (*row, *other))
        for row, other in zip(imap, omap, strict=True)
    )


def chosen_of(concrete: Sequence[str], dims: MappedDims) -> Choice:
    """The part of a mapping that is chosen during the search."""
    return Choice(
        tuple(column.inputs for column in dims.grid) if "imap" in concrete else None,
        dims.loop if "fmap" in concrete else None,
        tuple(column.outputs for column in dims.grid) if "omap" in concrete else None,
    )
