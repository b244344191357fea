"""Reads what a report is made of: lines of sweeps, of commands' `--json`, and of trials.

A sweep's line is a cell. The object of a command alone, or a file of trials, becomes a cell too, so
that everything after this module knows cells only. What cannot be read is left out and said: one
bad line must not take a long sweep's report along.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prism.errors import ParseError, UsageError
from prism.files import read_regular, require_printable
from prism.record import MAX_BYTES, digest
from prism.record import SCHEMA as TRIAL_SCHEMA
from prism.report_page.views import View, view
from prism.sweep.cell import SCHEMA as CELL_SCHEMA
from prism.sweep.cell import Cell, from_line, merge_cells

COMMANDS = ("search", "verify", "optimize", "tune", "bench")
"""Commands whose objects are reported."""

_COMMAND_SCHEMA = "prism.cli."


@dataclass(frozen=True, slots=True)
class Runs:
    """What was read: cells by grid, and what was left out."""

    views: tuple[View, ...]
    skipped: tuple[str, ...]
    """File, line, and why."""

    @property
    def grids(self) -> Mapping[str, tuple[View, ...]]:
        """The cells of each grid, in order."""
        found: dict[str, list[View]] = {}
        for each in self.views:
            found.setdefault(each.cell.grid, []).append(each)
        return {grid: tuple(views) for grid, views in found.items()}


def read_runs(paths: Sequence[Path]) -> Runs:
    """Read run files.

    Raises:
        UsageError: a file cannot be read, or there is nothing to report in any of them.
    """
    views: dict[str, View] = {}
    cells: list[Cell] = []
    skipped: list[str] = []
    for path in paths:
        for where, cell in _cells(path, skipped):
            try:
                seen = view(cell, where)
            except ParseError as error:
                skipped.append(str(error))
                continue
            cells.append(cell)
            views[_identity(cell)] = seen
    if not cells:
        why = f": {skipped[0]}" if skipped else ""
        raise UsageError(f"nothing to report in {', '.join(map(str, paths))}{why}")
    merged = merge_cells(cells)
    return Runs(tuple(views[_identity(cell)] for cell in merged), tuple(skipped))


def _identity(cell: Cell) -> str:
    """Two lines of one cell (a failure, then an answer) are two."""
    return f"{cell.key} {digest(cell.to_line())}"


def _cells(path: Path, skipped: list[str]) -> Iterator[tuple[str, Cell]]:
    """The cells of a file with their places; all trials of a file are one cell."""
    trials: list[str] = []
    for number, line in _lines(path):
        where = f"{path}:{number}"
        try:
            text = line.decode()
            data = _object(text)
            match data.get("schema"):
                case schema if schema == CELL_SCHEMA:
                    yield where, from_line(text)
                case schema if schema == TRIAL_SCHEMA:
                    require_printable(data)
                    trials.append(text)
                case str(schema) if schema.startswith(_COMMAND_SCHEMA):
                    yield from ((where, cell) for cell in _of_command(data, path, number))
                case schema:
                    skipped.append(f"{where}: {schema!r:.60} is no schema that is reported")
        except (ParseError, UnicodeDecodeError) as error:
            skipped.append(f"{where}: {error}")
    if trials:
        texts = "\n".join(trials)
        made = _plain_cell((path, 0), "trials", {}, {"file": path.name})
        yield str(path), replace(made, files={"trials.jsonl": texts})


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        content = read_regular(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the run file {path}: {error}") from error
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            yield number, line


def _object(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise ParseError("not a JSON object")
    return data


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _of_command(data: dict[str, Any], path: Path, number: int) -> Iterator[Cell]:
    """What one command printed, as a cell; one cell for each shape of an optimize of several."""
    require_printable(data)
    command = str(data["schema"]).removeprefix(_COMMAND_SCHEMA).partition("/")[0]
    if command not in COMMANDS:
        raise ParseError(f"the answer of prism {command:.20} is not reported")
    shapes = data.get("shapes", [data])
    if not isinstance(shapes, list) or not all(isinstance(shape, dict) for shape in shapes):
        raise ParseError("shapes: a list of objects was expected")
    for shape in shapes:
        labels = {name: _label(shape[name]) for name in _LABELS if shape.get(name)}
        yield _plain_cell((path, number), command, {**data, **shape}, labels)


_LABELS = (
    "program",
    "sizes",
    "dtype",
    "target",
    "mode",
    "encoding",
    "generator",
    "without",
    "axioms",
)


def _label(value: object) -> str:
    match value:
        case dict():
            return ",".join(f"{name}={item}" for name, item in value.items())
        case list():
            return ",".join(map(str, value))
        case _:
            return str(value)


def _plain_cell(
    place: tuple[Path, int], do: str, result: Mapping[str, Any], labels: Mapping[str, str]
) -> Cell:
    """A cell of no sweep, in a grid of all that the same command said."""
    path, number = place
    seed = result.get("seed")
    return Cell(
        key=digest(json.dumps([str(path), number, dict(labels)])),
        grid=f"prism {do}" if result else do,
        title="",
        index=number,
        labels=labels,
        settings={"do": do, **{n: result[n] for n in ("program", "sizes") if n in result}},
        outcome="ok",
        message="",
        results={do: result} if result else {},
        files={},
        commands=(),
        versions={},
        seed=seed if isinstance(seed, int) else 0,
    )
