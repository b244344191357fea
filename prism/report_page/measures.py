"""What cells are compared by: measures, axes, and the ratio to a baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from prism.errors import UsageError
from prism.report_page.views import Contestant, View
from prism.units import counted, seconds

OURS = "prism"
SEED = "seed"
PROGRAM_AXES = ("workload", "program", "sizes", "shape")
"""Axes that say what is optimized; the others say how."""

BEST_RIVAL = "the best rival"


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that cells have."""

    name: str
    heading: str
    of: Callable[[View], float | None]
    show: Callable[[float | None], str]


def _states(view: View) -> float | None:
    return None if view.search is None else dict(view.search.stages).get("states")


def _search_s(view: View) -> float | None:
    return None if view.search is None else view.search.search_s


def _predicted_s(view: View) -> float | None:
    return None if view.tuned is None else view.tuned.predicted_s


def _graphs(view: View) -> float | None:
    return None if view.search is None else view.search.graph_count


def is_cut(view: View) -> bool:
    """Whether a limit ended the search before it had seen everything."""
    return view.search is not None and view.search.complete is False


def _bandwidth(view: View) -> float | None:
    return next((c.bandwidth_fraction for c in view.contestants if c.name == OURS), None)


MEASURES = (
    Measure("search_s", "search", _search_s, seconds),
    Measure("states", "states", _states, counted),
    Measure("graphs", "graphs", _graphs, counted),
    Measure("kernel_s", "kernel", lambda v: v.kernel_s, seconds),
    Measure("predicted_s", "predicted", _predicted_s, seconds),
    Measure(
        "bandwidth_fraction", "of stream", _bandwidth, lambda x: "-" if x is None else f"{x:.0%}"
    ),
    Measure("elapsed_s", "all in all", lambda v: v.cell.elapsed_s or None, seconds),
)
"""What the tables of cells show, where a grid has it."""

COUNTS = ("states", "graphs")
"""Measures that count something; the others are in seconds, or a share."""

GROWING = ("search_s", *COUNTS)
"""Measures that a search would have had more of if no limit had ended it."""

BY_NAME: Mapping[str, Measure] = {measure.name: measure for measure in MEASURES}


def present(views: Sequence[View]) -> tuple[Measure, ...]:
    """The measures that some cell has."""
    return tuple(m for m in MEASURES if any(m.of(v) is not None for v in views))


def main_measure(views: Sequence[View]) -> Measure | None:
    """What these cells are about: kernel times where there are any, else search times."""
    for name in ("kernel_s", "predicted_s", "search_s"):
        if any(BY_NAME[name].of(view) is not None for view in views):
            return BY_NAME[name]
    return None


def compared_by(views: Sequence[View], axis: str) -> tuple[Measure, ...]:
    """What an axis is compared by: what its cells are about, and counts that differ along it."""
    main = main_measure(views)
    counts = [
        measure
        for measure in map(BY_NAME.__getitem__, COUNTS)
        if any(len({x for x in row if x is not None}) > 1 for _, row in pivot(views, axis, measure))
    ]
    return (*([] if main is None else [main]), *(m for m in counts if m is not main))


def axes(views: Sequence[View]) -> tuple[str, ...]:
    """The label names of cells, in order of appearance."""
    return tuple(dict.fromkeys(name for view in views for name in view.cell.labels))


def varying(views: Sequence[View]) -> tuple[str, ...]:
    """The axes along which the cells differ."""
    return tuple(
        axis for axis in axes(views) if len({view.cell.labels.get(axis) for view in views}) > 1
    )


def compared(views: Sequence[View]) -> tuple[str, ...]:
    """The axes that say how, not what: those of an ablation."""
    return tuple(
        axis
        for axis in varying(views)
        if axis not in (*PROGRAM_AXES, SEED) and not _says_what(views, axis)
    )


def _says_what(views: Sequence[View], axis: str) -> bool:
    """Whether cells that differ on an axis alone are of different programs or sizes."""
    names = axes(views)
    found: dict[tuple[str, ...], set[tuple[str, str]]] = {}
    for view in views:
        what = tuple(str(view.cell.settings.get(name)) for name in ("program", "sizes"))
        found.setdefault(others(view, names, axis), set()).add((what[0], what[1]))
    return any(len(programs) > 1 for programs in found.values())


def values(views: Sequence[View], axis: str) -> tuple[str, ...]:
    """What is on an axis, in order of appearance."""
    return tuple(dict.fromkeys(view.cell.labels.get(axis, "") for view in views))


def others(view: View, names: Sequence[str], *left_out: str) -> tuple[str, ...]:
    """The labels of a cell on some axes but those left out."""
    return tuple(view.cell.labels.get(name, "") for name in names if name not in left_out)


def title(view: View, names: Sequence[str]) -> str:
    """A cell in words."""
    return worded(names, others(view, names)) or view.program or view.cell.key[:8]


def worded(names: Sequence[str], labels: Sequence[str]) -> str:
    """Labels in a row; of a bare number its axis is said."""
    told = (
        f"{name} {label}" if label.replace(".", "", 1).isdecimal() else label
        for name, label in zip(names, labels, strict=True)
        if label
    )
    return ", ".join(told)


def middle(found: Sequence[float | None]) -> float | None:
    """The median of what is there: cells that differ in the seed alone."""
    there = [value for value in found if value is not None]
    return median(there) if there else None


def pivot(
    views: Sequence[View], axis: str, measure: Measure
) -> list[tuple[str, tuple[float | None, ...]]]:
    """Rows by the other labels, columns by the values of an axis; medians over seeds."""
    names = [name for name in varying(views) if name not in (axis, SEED)]
    cells: dict[tuple[str, ...], dict[str, list[float | None]]] = {}
    for view in views:
        row = cells.setdefault(others(view, names), {})
        row.setdefault(view.cell.labels.get(axis, ""), []).append(measure.of(view))
    return [
        (
            worded(names, key) or "all cells",
            tuple(middle(row.get(value, [])) for value in values(views, axis)),
        )
        for key, row in cells.items()
    ]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What others are compared with: a contestant of the benchmark, or one value of an axis."""

    contestant: str = ""
    axis: str = ""
    value: str = ""

    @property
    def name(self) -> str:
        """For a heading."""
        return f"{self.axis} = {self.value}" if self.axis else self.contestant or BEST_RIVAL

    def ratio(self, view: View, views: Sequence[View], measure: Measure) -> float | None:
        """How many times faster a cell is than the baseline; None where one has no time."""
        if self.axis:
            reference = middle([measure.of(v) for v in self._references(view, views)])
            return _over(reference, measure.of(view))
        rival = self.rival(view)
        ours = next((c for c in view.contestants if c.name == OURS), None)
        return None if rival is None or ours is None else faster(ours, rival)

    def is_cut(self, view: View, views: Sequence[View]) -> bool:
        """Whether a limit ended a search that a cell is compared with."""
        return bool(self.axis) and any(map(is_cut, self._references(view, views)))

    def rival(self, view: View) -> Contestant | None:
        """The contestant that a cell is compared with."""
        there = [c for c in view.contestants if c.name != OURS and c.median_s is not None]
        if self.contestant:
            return next((c for c in there if c.name == self.contestant), None)
        return min(there, key=lambda c: c.median_s or 0.0, default=None)

    def _references(self, view: View, views: Sequence[View]) -> list[View]:
        """The cells of the axis' value that differ from this one in the seed at most."""
        names = axes(views)
        same = others(view, names, self.axis, SEED)
        return [
            v
            for v in views
            if v.cell.labels.get(self.axis) == self.value
            and others(v, names, self.axis, SEED) == same
        ]


def faster(one: Contestant, other: Contestant) -> float | None:
    """How many times faster one is than another: by their ratios to ours, which are paired."""
    if one.ratio is not None and other.ratio is not None:
        return _over(other.ratio, one.ratio)
    return _over(other.median_s, one.median_s)


def _over(reference: float | None, value: float | None) -> float | None:
    return reference / value if reference is not None and value else None


def find_baseline(text: str | None, views: Sequence[View]) -> Baseline:
    """The baseline that was asked for.

    Raises:
        UsageError: no cell has it.
    """
    if text is None:
        return Baseline()
    contestants = sorted({c.name for view in views for c in view.contestants} - {OURS})
    if text in contestants:
        return Baseline(contestant=text)
    axis, _, value = text.partition("=")
    axis, value = axis.strip(), value.strip()
    on_axis = values([v for v in views if axis in v.cell.labels], axis)
    if value in on_axis:
        return Baseline(axis=axis, value=value)
    known = [*contestants, *(f"{axis}={each}" for each in on_axis if each)]
    known = known or [f"{name}=..." for name in axes(views)]
    raise UsageError(f"no cell has the baseline {text!r}; there are {', '.join(known)}")


def baseline_of(views: Sequence[View], chosen: Baseline) -> Baseline | None:
    """The baseline of a grid: the chosen one where it has it, else one that suits; or none."""
    has_rivals = any(len(view.contestants) > 1 for view in views)
    if chosen.axis and any(v.cell.labels.get(chosen.axis) == chosen.value for v in views):
        return chosen
    if has_rivals:
        return Baseline(contestant=chosen.contestant)
    if len(on := compared(views)) == 1:
        return Baseline(axis=on[0], value=values(views, on[0])[0])
    return None


def flat(view: View) -> dict[str, Any]:
    """Settings one by one: sizes by name, and how many operators the program has."""
    found: dict[str, Any] = {}
    for name, value in view.cell.settings.items():
        if name == "sizes":
            found.update(_sizes(value))
        else:
            found[name] = value
    if text := view.program_text:
        found[OPERATORS] = sum(line.lstrip().startswith("%") for line in text.splitlines())
    return found


OPERATORS = "operators of the program"
SIZE = "size "
"""How the size of a dimension is named among the settings."""


def _sizes(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return {f"{SIZE}{name}": size for name, size in value.items()}
    pairs = (part.partition("=") for part in str(value).split(","))
    return {f"{SIZE}{n.strip()}": int(v) for n, _, v in pairs if v.strip().isdecimal()}
