"""Layered layout: places the nodes of a small acyclic graph so that its edges all run downwards.

After Sugiyama, Tagawa and Toda (1981): the layer of each node is given; an edge over several layers
gets a dummy node in each between; layers are sorted by the mean place of their neighbours, up and
down in turn, and the order with the fewest crossings is kept; then each node moves towards its
neighbours as far as those beside it allow. No randomness: the same graph has the same picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]

GAP_X = 18.0
GAP_Y = 30.0
DUMMY = 8.0
"""The width that an edge takes in a layer which it crosses."""

SWEEPS = 8
PULLS = 12


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is: centres of nodes, bends of edges, tops and bottoms of layers."""

    centres: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    rows: tuple[tuple[float, float], ...]
    width: float
    height: float


def lay_out(
    boxes: Sequence[tuple[float, float]],
    edges: Sequence[tuple[int, int]],
    layers: Sequence[int],
    gap_y: float = GAP_Y,
) -> Layout:
    """Place boxes (width, height); an edge runs from a lower-numbered layer to a higher one."""
    widths, heights = [w for w, _ in boxes], [h for _, h in boxes]
    level = list(layers)
    chains: list[list[int]] = []
    for upper, lower in edges:
        chain = [upper]
        for between in range(layers[upper] + 1, layers[lower]):
            chain.append(len(level))
            level.append(between)
            widths.append(DUMMY)
            heights.append(0.0)
        chains.append([*chain, lower])
    links = [pair for chain in chains for pair in pairwise(chain)]
    order = _ordered(level, links)
    xs = _spread(order, links, widths)
    rows, ys, height = _rows(order, heights, gap_y)
    left = min((xs[n] - widths[n] / 2 for n in range(len(level))), default=0.0)
    right = max((xs[n] + widths[n] / 2 for n in range(len(level))), default=0.0)
    points = [(xs[n] - left, ys[level[n]]) for n in range(len(level))]
    return Layout(
        centres=tuple(points[: len(boxes)]),
        routes=tuple(
            (points[chain[0]], *_bends(chain[1:-1], points, level, rows), points[chain[-1]])
            for chain in chains
        ),
        rows=rows,
        width=right - left,
        height=height,
    )


def _bends(
    dummies: Sequence[int],
    points: Sequence[Point],
    level: Sequence[int],
    rows: Sequence[tuple[float, float]],
) -> Iterator[Point]:
    """An edge crosses a layer straight down, so it touches no box there however tall."""
    for node in dummies:
        x = points[node][0]
        yield from ((x, y) for y in rows[level[node]])


def _neighbours(count: int, links: Sequence[tuple[int, int]]) -> tuple[list[list[int]], ...]:
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for upper, lower in links:
        above[lower].append(upper)
        below[upper].append(lower)
    return above, below


def _ordered(level: Sequence[int], links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The nodes of each layer from left to right, with few crossings."""
    order: list[list[int]] = [[] for _ in range(max(level, default=-1) + 1)]
    for node, layer in enumerate(level):
        order[layer].append(node)
    above, below = _neighbours(len(level), links)
    best, fewest = [list(row) for row in order], _crossings(order, below)
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        near = above if downwards else below
        place = _places(order)
        for row in order if downwards else reversed(order):
            # a node without neighbours there stays where it is
            row.sort(
                key=lambda n: sum(place[m] for m in near[n]) / len(near[n]) if near[n] else place[n]
            )
            place.update({node: i - len(row) / 2 for i, node in enumerate(row)})
        if (count := _crossings(order, below)) < fewest:
            best, fewest = [list(row) for row in order], count
    return best


def _places(order: Sequence[Sequence[int]]) -> dict[int, float]:
    return {node: i - len(row) / 2 for row in order for i, node in enumerate(row)}


def _crossings(order: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> int:
    """Pairs of edges between neighbouring layers that cross."""
    place = _places(order)
    count = 0
    for row in order:
        ends = [[place[m] for m in below[n]] for n in row]
        for i, lefts in enumerate(ends):
            for rights in ends[i + 1 :]:
                count += sum(a > b for a in lefts for b in rights)
    return count


def _spread(
    order: Sequence[Sequence[int]], links: Sequence[tuple[int, int]], widths: Sequence[float]
) -> list[float]:
    """The x of each node: near its neighbours, never nearer to those beside it than the gap."""
    above, below = _neighbours(len(widths), links)
    xs = [0.0] * len(widths)
    for row in order:
        wanted = [0.0] * len(row)
        for node, x in zip(row, _apart(row, wanted, widths), strict=True):
            xs[node] = x
    for pull in range(PULLS):
        for row in order if pull % 2 == 0 else reversed(order):
            wanted = [_middle([*above[n], *below[n]], xs, xs[n]) for n in row]
            for node, x in zip(row, _apart(row, wanted, widths), strict=True):
                xs[node] = x
    return xs


def _middle(nodes: Sequence[int], xs: Sequence[float], alone: float) -> float:
    return sum(xs[n] for n in nodes) / len(nodes) if nodes else alone


def _apart(row: Sequence[int], wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """The places nearest to the wanted ones that keep order and gaps (isotonic regression)."""
    offsets = [0.0]
    for left, right in pairwise(row):
        offsets.append(offsets[-1] + (widths[left] + widths[right]) / 2 + GAP_X)
    pools: list[tuple[float, int]] = []  # mean, members
    for want, offset in zip(wanted, offsets, strict=False):
        mean, size = want - offset, 1
        while pools and pools[-1][0] > mean:
            other, members = pools.pop()
            mean = (mean * size + other * members) / (size + members)
            size += members
        pools.append((mean, size))
    free = [mean for mean, size in pools for _ in range(size)]
    return [x + offset for x, offset in zip(free, offsets, strict=False)]


def _rows(
    order: Sequence[Sequence[int]], heights: Sequence[float], gap_y: float
) -> tuple[tuple[tuple[float, float], ...], list[float], float]:
    rows, middles, top = [], [], 0.0
    for row in order:
        tall = max((heights[n] for n in row), default=0.0)
        rows.append((top, top + tall))
        middles.append(top + tall / 2)
        top += tall + gap_y
    return tuple(rows), middles, max(top - gap_y, 0.0)
