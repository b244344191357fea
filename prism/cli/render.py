"""Tables for people: every list a command prints, in one look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table

from prism.units import percent, seconds, times

__all__ = ["percent", "seconds", "table", "times"]


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None
) -> Table:
    """A table; columns whose heading starts with `>` are right-aligned."""
    out = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        is_number = column.startswith(">")
        out.add_column(
            column.removeprefix(">"),
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
        )
    for row in rows:
        out.add_row(*row)
    return out
