"""A grid file: which cells a sweep has.

    title = "Table 2: how long a search takes"

    [settings]                 # of every cell: `do`, and what `prism.sweep.settings` lists
    do = "search"
    max_ops = 11

    [axes]                     # every combination of these, the last axis fastest
    workload = [               # a table sets several things at once; `label` is what reports say
        { label = "rmsnorm", program = "rmsnorm_paper" },
        { label = "mine", program = "mine.py:layer" },
    ]
    encoding = ["boolean", "integer"]

    [[exclude]]                # not the cells that have all of this (a setting, or an axis' label)
    workload = "mine"
    encoding = "integer"

    [[include]]                # and this one (fixed settings that are for another `do` left out)
    program = "ffn"

    [smoke]                    # `--smoke`: its settings over the others, its axes for the others
    axes.encoding = ["boolean"]

A path is to the grid file's own folder, so a folder with a grid, programs, encodings and axioms can
lie anywhere. Everything is checked before anything is run.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prism.errors import ParseError, UsageError
from prism.files import MAX_TEXT_BYTES, read_regular_text, require_printable
from prism.sweep.checking import aspects_of, check_settings
from prism.sweep.settings import has_effect

PARTS = ("title", "settings", "axes", "exclude", "include", "smoke")
SMOKE_PARTS = ("settings", "axes", "exclude", "include")
MAX_CELLS = 100_000
MAX_LABEL = 60


@dataclass(frozen=True, slots=True)
class Planned:
    """A cell to be: its place in the grid, what it is on each axis, and what it sets."""

    index: int
    labels: Mapping[str, str]
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid file, expanded. `base`: the folder that paths are relative to."""

    name: str
    title: str
    base: Path
    cells: tuple[Planned, ...]


def load_grid(path: Path, *, smoke: bool = False) -> Grid:
    """Read, check and expand a grid file.

    Raises:
        UsageError: it cannot be read, or a cell cannot be run; names the cell.
        ParseError: it is no grid; names the place.
    """
    try:
        data = tomllib.loads(read_regular_text(path, MAX_TEXT_BYTES))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the grid {path}: {error}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ParseError(f"{path} is not TOML: {error}") from error
    try:
        return _grid(data, path, smoke=smoke)
    except (ParseError, UsageError) as error:
        raise type(error)(f"{path}: {error}") from error


def _grid(data: dict[str, Any], path: Path, *, smoke: bool) -> Grid:
    require_printable(data)
    _check_parts(data, PARTS, "a grid")
    _check_parts(_table(data, "smoke"), SMOKE_PARTS, "smoke")
    if smoke:
        if "smoke" not in data:
            raise UsageError("it has no part [smoke]; run it without --smoke")
        data = _reduced(data, _table(data, "smoke"))
    base = path.resolve().parent
    cells: list[Planned] = []
    seen: dict[str, int] = {}
    checked: set[str] = set()
    for labels, settings in _expanded(data):
        cell = Planned(len(cells), labels, settings)
        aspects = aspects_of(settings)
        if not aspects <= checked:
            _check_cell(cell, base)
            checked |= aspects
        if (first := seen.setdefault(repr(sorted(settings.items())), cell.index)) != cell.index:
            raise UsageError(f"cells {first + 1} and {cell.index + 1} are the same: {_shown(cell)}")
        cells.append(cell)
    if not cells:
        raise UsageError("it has no cells: give [axes], or an [[include]] row")
    title = data.get("title", path.stem)
    if not isinstance(title, str):
        raise ParseError("title is not a text")
    return Grid(path.stem, title, base, tuple(cells))


def _check_parts(data: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    if others := [name for name in data if name not in known]:
        raise ParseError(f"{what} has no part {others[0]!r}; it has {', '.join(known)}")


def _reduced(data: Mapping[str, Any], smoke: Mapping[str, Any]) -> dict[str, Any]:
    """The smoke form: what it says instead of what stands above it."""
    merged = {name: {**_table(data, name), **_table(smoke, name)} for name in ("settings", "axes")}
    rows = {name: smoke.get(name, data.get(name, [])) for name in ("exclude", "include")}
    return {**data, **merged, **rows}


def _table(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name, {})
    if not isinstance(value, dict):
        raise ParseError(f"{name} is not a table")
    return value


def _rows(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    rows = data.get(name, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) and row for row in rows):
        raise ParseError(f"{name} is not a list of tables that say something")
    return rows


def _expanded(data: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """Labels and settings of every cell, in order."""
    fixed, axes = _table(data, "settings"), _table(data, "axes")
    excluded, included = _rows(data, "exclude"), _rows(data, "include")
    _check_axes(axes, excluded)
    read = [
        [(label_of(value), _meaning(axis, value)) for value in values]
        for axis, values in axes.items()
    ]
    for chosen in itertools.product(*read) if axes else ():
        labels = {axis: label for axis, (label, _) in zip(axes, chosen, strict=True)}
        own: dict[str, Any] = {}
        for _, meaning in chosen:
            own.update(meaning)
        settings = _over(fixed, own)
        if not any(_matches(row, labels, settings) for row in excluded):
            yield labels, settings
    for row in included:
        _check_label(row, "include")
        own = _meaning("", row)
        words = {name: label_of(value) for name, value in own.items()}
        yield {"label": row["label"]} if "label" in row else words, _over(fixed, own)


def _over(fixed: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A cell's own settings over those of every cell; what is not for what it does is left out."""
    do = own.get("do", fixed.get("do"))
    is_other = do != fixed.get("do")
    return {**{k: v for k, v in fixed.items() if not is_other or has_effect(k, do)}, **own}


def _check_axes(axes: Mapping[str, Any], excluded: Sequence[Mapping[str, Any]]) -> None:
    count = 1
    for axis, values in axes.items():
        if not isinstance(values, list) or not values:
            raise ParseError(f"axes.{axis} is not a list of values")
        count *= len(values)
        for value in values:
            _check_label(value, f"axes.{axis}")
        labels = [label_of(value) for value in values]
        if twice := [label for i, label in enumerate(labels) if label in labels[:i]]:
            raise ParseError(f"axes.{axis}: {twice[0]!r} is there twice; give each its own label")
    if count > MAX_CELLS:
        raise UsageError(f"{count} cells are more than {MAX_CELLS}; make it several grids")
    for row in excluded:
        known = {
            *axes,
            *(name for v in axes.values() for x in v if isinstance(x, dict) for name in x),
        }
        if others := [name for name in row if name not in known]:
            raise ParseError(f"exclude: no axis sets {others[0]!r}")


def _check_label(value: Any, where: str) -> None:  # noqa: ANN401 - from TOML
    if isinstance(value, dict) and "label" in value:
        label = value["label"]
        if not isinstance(label, str) or not label.strip():
            raise ParseError(f"{where}: label = {label!r}: it is a text")


def _meaning(axis: str, value: Any) -> dict[str, Any]:  # noqa: ANN401 - from TOML
    """What an axis' value sets."""
    if isinstance(value, dict):
        return {name: item for name, item in value.items() if name != "label"}
    return {axis: value}


def _matches(
    row: Mapping[str, Any], labels: Mapping[str, str], settings: Mapping[str, Any]
) -> bool:
    return all(
        (name in settings and settings[name] == value) or labels.get(name) == value
        for name, value in row.items()
    )


def label_of(value: Any) -> str:  # noqa: ANN401 - from TOML
    """An axis' value in words."""
    match value:
        case {"label": str() as label}:
            text = label
        case dict():
            text = " ".join(label_of(item) for item in value.values())
        case list():
            text = "+".join(map(str, value)) or "none"
        case _:
            text = str(value)
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 3]}..."


def _check_cell(cell: Planned, base: Path) -> None:
    try:
        check_settings(cell.settings, base)
    except UsageError as error:
        raise UsageError(f"cell {cell.index + 1} ({_shown(cell)}): {error}") from error


def _shown(cell: Planned) -> str:
    return ", ".join(f"{axis} {label}" for axis, label in cell.labels.items())


def shard_of(cells: Sequence[Planned], number: int, count: int) -> tuple[Planned, ...]:
    """The cells of shard `number` of `count`, from 1: every count-th, so that all take alike."""
    return tuple(cell for cell in cells if cell.index % count == number - 1)
