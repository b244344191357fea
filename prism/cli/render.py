"""Tables for people: every list a command prints, in one look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table


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


def seconds(value: float | None) -> str:
    """A duration to three digits, in the unit that fits."""
    if value is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * scale >= 1.0 or unit == "us":
            return f"{value * scale:.3g} {unit}" if value * scale < 1000 else f"{value:.0f} s"
    raise AssertionError("the last unit always fits")


def percent(value: float | None) -> str:
    """A fraction in percent."""
    return "-" if value is None else f"{value:.0%}"


def times(value: float | None) -> str:
    """A ratio, e.g. `2.31x`."""
    return "-" if value is None else f"{value:.2f}x"
