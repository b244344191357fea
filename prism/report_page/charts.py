"""Which charts a grid has, as data: groups of bars or lines over a common axis.

A chart is chosen by what the cells have, never by a grid's name. It carries its numbers, so it can
be drawn, written as a table, or both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prism.report_page.measures import (
    BY_NAME,
    COUNTS,
    GROWING,
    OPERATORS,
    SEED,
    SIZE,
    Measure,
    compared,
    compared_by,
    flat,
    is_cut,
    middle,
    others,
    pivot,
    title,
    values,
    varying,
)
from prism.report_page.views import STAGES, View

MOST_GROUPS = 24
MOST_SERIES = 10
"""More cannot be told apart; the table has all."""

LEAST_POINTS = 3
"""Fewer make no curve."""

NO_QUANTITY = ("seed", "timeout_s", "cpus")
"""Numbers of a grid that nothing scales with."""

Series = tuple[str, tuple[float | None, ...]]


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars (a group for each text of `places`) or lines (over the numbers of `points`)."""

    name: str
    title: str
    y: str
    series: tuple[Series, ...]
    places: tuple[str, ...] = ()
    points: tuple[float, ...] = ()
    x: str = ""
    is_count: bool = False
    """Whether y counts something; else it is in seconds."""
    left_out: int = 0
    """Groups or series beyond those shown."""


def charts_of(views: Sequence[View]) -> tuple[Chart, ...]:
    """The charts of a grid's cells."""
    return (*_kernel_bars(views), *_funnel(views), *_ablation(views), *_curves(views))


def _kernel_bars(views: Sequence[View]) -> Iterator[Chart]:
    """Kernel times of all contestants, a group of bars for each cell."""
    timed = [view for view in views if view.kernel_s is not None]
    if len(timed) < 2 and not any(view.contestants for view in timed):
        return  # one bar compares nothing
    shown, names = timed[:MOST_GROUPS], varying(timed)
    rivals = list(dict.fromkeys(c.name for v in shown for c in v.contestants if c.name != "prism"))
    series: list[Series] = [("prism", tuple(view.kernel_s for view in shown))]
    for rival in rivals[: MOST_SERIES - 1]:
        found = [{c.name: c.median_s for c in view.contestants}.get(rival) for view in shown]
        series.append((rival, tuple(found)))
    yield Chart(
        "kernels",
        "Kernel times",
        "median",
        tuple(series),
        places=tuple(title(view, names) for view in shown),
        left_out=len(timed) - len(shown),
    )


def _funnel(views: Sequence[View]) -> Iterator[Chart]:
    """How many candidates each stage of the search left."""
    searched = [view for view in views if view.search is not None and view.search.stages]
    if not searched:
        return
    names, shown = varying(searched), _first_ones(searched)
    stages = [s for s in STAGES if any(dict(v.search.stages).get(s) for v in shown if v.search)]
    series = tuple(
        (title(view, names), tuple(dict(view.search.stages).get(stage) for stage in stages))
        for view in shown
        if view.search is not None
    )
    yield Chart(
        "funnel",
        "Search funnel",
        "candidates",
        series,
        places=tuple(stage.replace("_", " ") for stage in stages),
        is_count=True,
        left_out=len(searched) - len(shown),
    )


def _first_ones(views: Sequence[View]) -> Sequence[View]:
    """Cells that fit a chart; of more, those that are what the first one is on the first axis."""
    if len(views) <= MOST_SERIES:
        return views
    axis = varying(views)[:1]
    same = [view for view in views if others(view, axis) == others(views[0], axis)]
    return same[:MOST_SERIES]


def _ablation(views: Sequence[View]) -> Iterator[Chart]:
    """For each axis that says how: its values side by side, for each of the other labels."""
    for axis in compared(views):
        for measure in compared_by(views, axis):
            yield _side_by_side(views, axis, measure)


def _side_by_side(views: Sequence[View], axis: str, measure: Measure) -> Chart:
    """Groups are the values of the axis, or the other labels: whichever there are more of."""
    columns = [value or "none" for value in values(views, axis)]
    rows = pivot(views, axis, measure)
    places, names = [name for name, _ in rows], columns
    bars = [[row[i] for _, row in rows] for i in range(len(columns))]
    if len(columns) > len(rows):
        places, names = names, places
        bars = [list(row) for _, row in rows]
    series = list(zip(names, bars, strict=True))[:MOST_SERIES]
    is_count = measure.name in COUNTS
    what = measure.heading.capitalize() + ("" if is_count else " time")
    has_cuts = measure.name in GROWING and any(map(is_cut, views))
    note = " (limits ended some searches)" if has_cuts else ""
    return Chart(
        f"by-{axis}" + (f"-{measure.name}" if is_count else ""),
        f"{what} by {axis}{note}",
        measure.heading if is_count else "time",
        tuple((name, tuple(row[:MOST_GROUPS])) for name, row in series),
        places=tuple(places[:MOST_GROUPS]),
        is_count=is_count,
        left_out=max(len(places) - MOST_GROUPS, 0) + max(len(names) - MOST_SERIES, 0),
    )


def _curves(views: Sequence[View]) -> Iterator[Chart]:
    """A measure over each number that varies: sizes, limits, operators of the program."""
    settings = [flat(view) for view in views]
    seen: list[list[object]] = []
    for name in dict.fromkeys(key for each in settings for key in each):
        numbers = [each.get(name) for each in settings]
        if name in NO_QUANTITY or not _is_quantity(numbers):
            continue
        if any(_follows(numbers, before) for before in seen):
            continue  # a size that grows with another one has the same curve
        seen.append(numbers)
        for measure in (BY_NAME["search_s"], BY_NAME["kernel_s"]):
            yield from _curve(views, settings, name, measure)


def _is_quantity(found: Sequence[object]) -> bool:
    numbers = [x for x in found if isinstance(x, int | float) and not isinstance(x, bool)]
    return len(set(numbers)) >= LEAST_POINTS and all(x is None or x in numbers for x in found)


def _follows(values: Sequence[object], leading: Sequence[object]) -> bool:
    """Whether some values say no more than the leading ones."""
    return len(set(zip(map(str, leading), map(str, values), strict=True))) == len(
        set(map(str, leading))
    )


def _curve(
    views: Sequence[View], settings: Sequence[dict[str, object]], name: str, measure: Measure
) -> Iterator[Chart]:
    """One chart: a line for each combination of the other settings."""
    ignored = {name, SEED, *(("program",) if name == OPERATORS else (OPERATORS,))}
    keys = dict.fromkeys(key for each in settings for key in each if key not in ignored)
    leading = [each.get(name) for each in settings]
    along = [
        key
        for key in keys
        if key.startswith(SIZE) and _follows([each.get(key) for each in settings], leading)
    ]
    differing = [
        key
        for key in keys
        if key not in along and len({str(each.get(key)) for each in settings}) > 1
    ]
    lines: dict[str, dict[float, list[float | None]]] = {}
    for view, each in zip(views, settings, strict=True):
        point = each.get(name)
        if isinstance(point, int | float) and measure.of(view) is not None:
            line = ", ".join(f"{key} {each[key]}" for key in differing if key in each)
            lines.setdefault(line or "all", {}).setdefault(point, []).append(measure.of(view))
    lines = {line: found for line, found in lines.items() if len(found) >= LEAST_POINTS}
    if not lines:
        return
    points = sorted({point for found in lines.values() for point in found})
    series = tuple(
        (line, tuple(middle(found.get(point, [])) for point in points))
        for line, found in lines.items()
    )
    yield Chart(
        f"{measure.name}-over-{name}",
        f"{measure.heading.capitalize()} time over {name}",
        "time",
        series[:MOST_SERIES],
        points=tuple(points),
        x=name,
        left_out=max(len(series) - MOST_SERIES, 0),
    )
