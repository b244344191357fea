"""Published figures to print beside ours, from a TOML file: by rows, or by sections of a kind.

A row says which cells it is of and what was published for them:

    [[row]]
    cells = { program = "rmsnorm_paper" }
    source = "the paper, A100"
    search_s = 0.3
    graphs = 9

A cell is meant where every name in `cells` is one of its labels or settings with that value.
Sections (`SECTIONS`) say it in short: `[search.rmsnorm]` is of the cells that search the workload
labelled `rmsnorm`, `[maps]` of those with the label on the axis `maps`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prism.errors import ParseError, UsageError
from prism.files import MAX_TEXT_BYTES, read_regular_text, require_printable
from prism.report_page.views import View
from prism.units import counted, seconds, times

NO_FIGURE = ("cells", "source")

SECTIONS: Mapping[str, tuple[str, Mapping[str, str]]] = MappingProxyType(
    {
        "search": ("workload", {"do": "search"}),
        "kernels": ("workload", {"do": "bench"}),
        "optimize": ("workload", {"do": "bench"}),
        "maps": ("maps", {}),
    }
)
"""Section -> (the axis that its names are labels of, what else holds for its cells)."""

FAMILIES = ("optimize",)
"""Sections by workload alone: of all its configurations, `rmsnorm` of `rmsnorm 4096`."""


@dataclass(frozen=True, slots=True)
class Published:
    """One row."""

    cells: tuple[tuple[str, str], ...]
    source: str
    figures: tuple[tuple[str, str], ...]
    family: tuple[str, str] | None = None
    """A label that begins with this word."""

    def figures_of(self, view: View) -> Mapping[str, str]:
        """Heading -> figure, for a cell that the row is of; else nothing."""
        known = {**{n: str(v) for n, v in view.cell.settings.items()}, **view.cell.labels}
        if any(known.get(name) != value for name, value in self.cells):
            return {}
        if self.family is not None:
            axis, word = self.family
            if known.get(axis, "").split(" ")[0] != word:
                return {}
        return {f"{self.source}: {name}": text for name, text in self.figures}


def load_published(path: Path) -> tuple[Published, ...]:
    """Read a file of published figures.

    Raises:
        UsageError: it cannot be read.
        ParseError: names the row that is wrong.
    """
    try:
        data = tomllib.loads(read_regular_text(path, MAX_TEXT_BYTES))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the published figures {path}: {error}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ParseError(f"{path} is not TOML: {error}") from error
    require_printable(data, str(path))
    rows = data.get("row", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ParseError(f"{path}: row is no list of tables ([[row]])")
    found = [_row(row, f"{path}: row {i}") for i, row in enumerate(rows, start=1)]
    found += _sections(data, path)
    if not found:
        raise ParseError(f"{path}: it has no [[row]], and no section {', '.join(SECTIONS)}")
    return tuple(found)


def _row(row: Mapping[str, Any], where: str) -> Published:
    cells = row.get("cells")
    if not isinstance(cells, dict) or not cells:
        raise ParseError(f"{where}: it does not say which cells it is of (cells = {{ ... }})")
    figures = {name: value for name, value in row.items() if name not in NO_FIGURE}
    pairs = tuple((name, str(value)) for name, value in cells.items())
    return Published(pairs, _source(row, where), _figures(figures, where))


def _sections(data: Mapping[str, Any], path: Path) -> Iterator[Published]:
    source = _source(data, str(path))
    for section, (axis, others) in SECTIONS.items():
        rows = data.get(section, {})
        if not isinstance(rows, dict):
            raise ParseError(f"{path}: {section} is not a table")
        for name, value in rows.items():
            given = value if isinstance(value, dict) else {"seconds": value}
            figures = _figures(given, f"{path}: {section}.{name}")
            fixed = tuple(others.items())
            if section in FAMILIES:
                named = tuple((f"{section} {what}", text) for what, text in figures)
                yield Published(fixed, source, named, (axis, name))
            else:
                yield Published((*fixed, (axis, name)), source, figures)


def _source(data: Mapping[str, Any], where: str) -> str:
    source = data.get("source", "published")
    if not isinstance(source, str):
        raise ParseError(f"{where}: source is not a text")
    return source


def _figures(given: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    """Names and figures as text; a list is of several configurations."""
    found = []
    for name, value in given.items():
        numbers = value if isinstance(value, list) else [value]
        for number in numbers:
            is_number = isinstance(number, int | float) and not isinstance(number, bool)
            if not is_number or not math.isfinite(number):
                raise ParseError(f"{where}: {name} is not a number")
        is_list = isinstance(value, list)
        shown = (_shown("seconds" if is_list else name, float(number)) for number in numbers)
        found.append((name.removesuffix("_s").replace("_", " "), " or ".join(shown)))
    return tuple(found)


def _shown(name: str, value: float) -> str:
    if name.endswith(("_s", "seconds")):
        return seconds(value)
    is_ratio = any(word in name for word in ("ratio", "speed", "over"))
    return times(value) if is_ratio else counted(value)
