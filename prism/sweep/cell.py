"""One cell of a sweep: what was asked, what came of it, and how to do it again.

A run file is JSON lines, one line per cell, in the order in which cells ended. The lines do not
depend on each other: the files of several machines are read together, or joined with `cat`. This
module is the contract between the sweep, which writes lines, and reports, which read them. It uses
no other part of the package but the record's.

What `outcome` means, by the exit status of the last command that was run:

  ok        0, and `results` has the JSON object of every command
  negative  1: the command answered no (nothing found, not proved); its object is there
  gave-up   3: a limit was reached before there was an answer; its object is there
  failed    any other status; `message` is what the command said
  timeout   the cell's time limit (`timeout_s`) ended it
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from prism.errors import ParseError, UsageError
from prism.files import read_regular, require_printable
from prism.record import MAX_BYTES, RecordWarning

SCHEMA = "prism.sweep.cell/1"

CellOutcome = Literal["ok", "negative", "gave-up", "failed", "timeout"]
OUTCOMES: tuple[CellOutcome, ...] = get_args(CellOutcome)

ANSWERED = ("ok", "negative", "gave-up")
"""Outcomes with an answer of the command."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One line of a run file."""

    key: str
    """SHA-256 of settings, contents of the user's files and versions: equal for the same cell."""
    grid: str
    """The grid's name: its file's name without the ending."""
    title: str
    """What the grid says it is, for a heading."""
    index: int
    """The cell's place in its grid: reports list cells in this order."""
    labels: Mapping[str, str]
    """Axis -> what it is here, in words: `{"workload": "rmsnorm_paper d_4096", "seed": "0"}`.

    The order is that of the axes; a cell that an `include` row added has `label`, or its settings.
    """
    settings: Mapping[str, Any]
    """Everything that was asked, as in the grid file: `do`, `program`, `sizes`, `encoding`, ..."""
    outcome: CellOutcome
    message: str
    """What the command said on standard error: for a failed cell why, else its warnings."""
    results: Mapping[str, Mapping[str, Any]]
    """Command -> its `--json` object, in the order in which they were run.

    search: {search}; optimize: {optimize}; tune: {search, tune}; bench: {optimize, bench};
    verify: {verify}. A cell that failed has those of the commands before. Of the `graphs` and
    `rejected` of a search the first 50 are there; `graph_count` (besides the program itself),
    `rejected_count` and `graphs_sha256` (of all ids, sorted) are of all.
    """
    files: Mapping[str, str]
    """Name -> text of what the commands left: `kernel.py`, `trials.jsonl` (lines of prism.trial),
    `artifact.json` (tune, search with `keep`), `optimized.json` (optimize, bench). Longer ones than
    `MAX_FILE` are left out."""
    commands: Sequence[Sequence[str]]
    """The command lines, to be pasted after `python -m`; paths in the scratch folder are `{}`."""
    versions: Mapping[str, str]
    """Python and the packages that the result may depend on."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The user's files (as named in the grid) -> SHA-256."""
    device: Mapping[str, Any] = field(default_factory=dict)
    """The machine: `host`, `system`, `cpu`, `cpus`, `memory_gb`, `gpu` (only for a GPU's cells)."""
    seed: int = 0
    started: str = ""
    """ISO 8601, UTC."""
    elapsed_s: float = 0.0
    """All commands together, starting Python included; `results` have their own times."""

    @property
    def do(self) -> str:
        """The kind of cell: search, optimize, tune, bench or verify."""
        return str(self.settings.get("do", ""))

    @property
    def is_answered(self) -> bool:
        """Whether the last command gave an answer, of whatever kind."""
        return self.outcome in ANSWERED

    def result(self, command: str) -> Mapping[str, Any]:
        """The object of a command; empty if there is none."""
        return self.results.get(command, {})

    def to_line(self) -> str:
        """The JSON line, without the newline."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, allow_nan=False)


def from_line(line: str) -> Cell:
    """The cell of a JSON line.

    Raises:
        ParseError: the line is not a whole cell of this schema.
    """
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ParseError(f"not a {SCHEMA} line")
    names = [f.name for f in fields(Cell)]
    if missing := [name for name in names if name not in data]:
        raise ParseError(f"a {SCHEMA} line without {missing[0]!r}")
    _check_types(data)
    require_printable({**data, "files": {}})
    return Cell(**{name: data[name] for name in names})


_TYPES: Mapping[type, tuple[str, ...]] = {
    str: ("key", "grid", "title", "outcome", "message", "started"),
    int: ("index", "seed"),
    list: ("commands",),
    dict: ("labels", "settings", "results", "files", "versions", "inputs", "device"),
}
_OBJECTS = ("results",)
_TEXTS = ("labels", "files", "versions", "inputs")


def _check_types(data: dict[str, Any]) -> None:
    for kind, names in _TYPES.items():
        for name in names:
            if type(data[name]) is not kind:
                raise ParseError(f"a {SCHEMA} line whose {name!r} is not of type {kind.__name__}")
    if data["outcome"] not in OUTCOMES:
        raise ParseError(f"a {SCHEMA} line with an outcome {data['outcome']!r}")
    for names, kind in ((_OBJECTS, dict), (_TEXTS, str)):
        for name in names:
            if not all(isinstance(value, kind) for value in data[name].values()):
                raise ParseError(f"a {SCHEMA} line with a bad value in {name!r}")
    if not isinstance(data["elapsed_s"], int | float):
        raise ParseError(f"a {SCHEMA} line whose 'elapsed_s' is not a number")


def read_cells(paths: Iterable[Path]) -> list[Cell]:
    """The cells of run files, each once, ordered by grid (as they first appear) and place in it.

    Of several lines of one cell (two machines, a failure tried again) the last one with an answer
    counts, else the last. Lines that are none are skipped with one warning per file.

    Raises:
        UsageError: a file cannot be read.
    """
    return merge_cells(cell for path in paths for cell in _lines(path))


def merge_cells(cells: Iterable[Cell]) -> list[Cell]:
    """Each cell once and in its place; see `read_cells`."""
    found: dict[str, Cell] = {}
    for cell in cells:
        before = found.get(cell.key)
        if before is None or cell.is_answered or not before.is_answered:
            found[cell.key] = cell
    grids = {name: i for i, name in enumerate(dict.fromkeys(c.grid for c in found.values()))}
    return sorted(found.values(), key=lambda c: (grids[c.grid], c.index))


def _lines(path: Path) -> list[Cell]:
    try:
        content = read_regular(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the run file {path}: {error}") from error
    cells: list[Cell] = []
    skipped: list[str] = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            cells.append(from_line(line.decode()))
        except (ParseError, UnicodeDecodeError) as error:
            skipped.append(f"line {number} ({error})")
    if skipped:
        more = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
        warnings.warn(f"{path}: skipped {skipped[0]}{more}", RecordWarning, stacklevel=3)
    return cells
