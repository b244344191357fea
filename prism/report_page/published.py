"""Published figures to print beside ours, from a TOML file.

A row says which cells it is of and what was published for them:

    [[row]]
    cells = { program = "rmsnorm_paper" }
    source = "the paper, A100"
    search_s = 0.3
    graphs = 9

A cell is meant where every name in `cells` is one of its labels or settings with that value.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prism.errors import ParseError, UsageError
from prism.files import MAX_TEXT_BYTES, read_regular_text, require_printable
from prism.report_page.measures import counted, seconds, times
from prism.report_page.views import View

NO_FIGURE = ("cells", "source")


@dataclass(frozen=True, slots=True)
class Published:
    """One row."""

    cells: tuple[tuple[str, str], ...]
    source: str
    figures: tuple[tuple[str, float], ...]

    def figures_of(self, view: View) -> Mapping[str, str]:
        """Heading -> figure, for a cell that the row is of; else nothing."""
        known = {**{n: str(v) for n, v in view.cell.settings.items()}, **view.cell.labels}
        if any(known.get(name) != value for name, value in self.cells):
            return {}
        return {f"{self.source}: {_words(n)}": _shown(n, x) for n, x in self.figures}


def _words(name: str) -> str:
    return name.removesuffix("_s").replace("_", " ")


def _shown(name: str, value: float) -> str:
    if name.endswith("_s"):
        return seconds(value)
    return times(value) if "ratio" in name or "speed" in name or "over" in name else counted(value)


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
    rows = data.get("row")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ParseError(f"{path}: it has no [[row]]")
    require_printable(rows, str(path))
    return tuple(_row(row, f"{path}: row {i}") for i, row in enumerate(rows, start=1))


def _row(row: Mapping[str, Any], where: str) -> Published:
    cells, source = row.get("cells"), row.get("source", "published")
    if not isinstance(cells, dict) or not cells:
        raise ParseError(f"{where}: it does not say which cells it is of (cells = {{ ... }})")
    if not isinstance(source, str):
        raise ParseError(f"{where}: source is not a text")
    figures = []
    for name, value in row.items():
        if name in NO_FIGURE:
            continue
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise ParseError(f"{where}: {name} is not a number")
        figures.append((name, float(value)))
    return Published(tuple((n, str(v)) for n, v in cells.items()), source, tuple(figures))
