"""HTML and SVG text: every value is escaped here, nowhere else.

`Markup` is text that is markup already; whatever else is put into a tag is escaped. Texts of
records come from strangers: this is what keeps them texts.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


class Markup(str):
    """A text that is markup and goes into a page as it is."""

    __slots__ = ()


Content = str | Iterable[str]


def escaped(value: str) -> Markup:
    """The text as markup, unless it is markup."""
    return value if isinstance(value, Markup) else Markup(html.escape(value, quote=True))


def join(parts: Iterable[str], between: str = "") -> Markup:
    """Parts side by side, each escaped if it is no markup."""
    return Markup(between.join(map(escaped, parts)))


def tag(name: str, content: Content = "", **attributes: str | float | None) -> Markup:
    """An element; `class_` is the attribute class, `_` in a name is `-`, None leaves one out."""
    inner = escaped(content) if isinstance(content, str) else join(content)
    listed = "".join(
        f' {key.strip("_").replace("_", "-")}="{escaped(_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{listed}>{inner}</{name}>")


def _attribute(value: str | float) -> str:
    return value if isinstance(value, str) else number(value)


def number(value: float) -> str:
    """A coordinate, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    caption: str = "",
) -> Markup:
    """A table that scrolls by itself; columns whose heading starts with `>` are right-aligned."""
    shown = [tuple(row) for row in rows]
    kinds = [_kind(column, [row[i] for row in shown]) for i, column in enumerate(columns)]
    heads = (
        tag("th", column.removeprefix(">"), scope="col", class_=kind)
        for column, kind in zip(columns, kinds, strict=True)
    )
    body = (
        tag("tr", (tag("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)))
        for row in shown
    )
    parts = [tag("thead", tag("tr", heads)), tag("tbody", body)]
    if caption:
        parts.insert(0, tag("caption", caption))
    # a region that scrolls is reached by the keyboard only if it can have the focus
    return tag(
        "div", tag("table", parts), class_="scroll", tabindex="0", role="region",
        aria_label=caption or "table",
    )  # fmt: skip


SHORT = 24
"""Characters of a label that is kept on one line."""


def _kind(column: str, cells: Sequence[str]) -> str | None:
    """The class of a column: numbers, short labels, other texts."""
    if column.startswith(">"):
        return "n"
    return "s" if max(map(len, cells), default=0) <= SHORT else None


def details(summary: str, content: Content, *, is_open: bool = False) -> Markup:
    """A part that opens on a click, without any script."""
    inner = [
        tag("summary", summary),
        escaped(content) if isinstance(content, str) else join(content),
    ]
    return tag("details", inner, open="" if is_open else None)
