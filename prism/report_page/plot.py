"""Charts as pictures, by matplotlib (extra `plots`): SVG to put into a page, SVG and PNG files.

The same chart gives the same bytes: no dates, and ids from the chart's own name. Text and lines
take the page's colour, so a picture can be read on a light and on a dark ground.
"""

from __future__ import annotations

import io
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prism.errors import UsageError, to_install
from prism.files import write_atomically
from prism.report_page.charts import Chart
from prism.report_page.markup import Markup, escaped
from prism.units import counted, seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INSTALL = to_install("plots")

INK = "#010203"
"""A colour that nothing else has: it becomes the page's text colour."""

COLOURS = (
    "#4c8dd6", "#d9822b", "#2f9e63", "#c2507a", "#7a6fd0", "#a08a2c", "#3aa6a6", "#8c8c8c",
    "#b5603c", "#5b7f3a",
)  # fmt: skip
"""Readable on white and on near-black."""

STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.parse_math": False,  # a label from a record may hold dollars
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
    ),
}


def has_matplotlib() -> bool:
    """Whether charts can be drawn here."""
    try:
        import matplotlib.figure  # noqa: F401, PLC0415 - an extra that may be absent
    except ImportError:
        return False
    return True


def require_matplotlib() -> None:
    """Refuse to draw where that cannot be done.

    Raises:
        UsageError: matplotlib is not installed.
    """
    if not has_matplotlib():
        raise UsageError(f"figures need matplotlib, which is not installed here: {INSTALL}")


def inline_svg(chart: Chart, prefix: str) -> Markup:
    """A chart as an SVG element of a page; `prefix` keeps its ids apart from those of others."""
    text = _svg(chart, salt=f"{prefix}{chart.name}")
    text = text[text.index("<svg") :].rstrip()
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r'(xlink:href="|href="|url\()#', rf"\1#{prefix}", text)
    label = escaped(chart.title)
    return Markup(
        text.replace(INK, "currentColor").replace(
            "<svg ", f'<svg class="chart" role="img" aria-label="{label}" ', 1
        )
    )


def save(chart: Chart, stem: Path) -> tuple[Path, Path]:
    """Write a chart as SVG and PNG.

    Raises:
        UsageError: a file cannot be written.
    """
    paths = stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")
    write_atomically(paths[0], _svg(chart, salt=chart.name))
    write_atomically(paths[1], _rendered(chart, chart.name, "png"))
    return paths


def _svg(chart: Chart, salt: str) -> str:
    return _rendered(chart, salt, "svg").decode()


def _rendered(chart: Chart, salt: str, kind: str) -> bytes:
    from matplotlib import rc_context  # noqa: PLC0415 - see has_matplotlib

    out = io.BytesIO()
    settings: Any = {**STYLE, "svg.hashsalt": salt}
    with rc_context(settings):
        figure = _figure(chart)
        metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        is_svg = kind == "svg"
        figure.savefig(
            out, format=kind, transparent=is_svg, dpi=72 if is_svg else 150, metadata=metadata
        )
    return out.getvalue()


def _figure(chart: Chart) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415 - see has_matplotlib

    bars = len(chart.places) * len(chart.series)
    width = min(max(6.4, 2.5 + 0.28 * bars), 14.0) if chart.places else 6.4
    figure = Figure(figsize=(width, 3.8), layout="constrained")
    axes = figure.subplots()
    if chart.places:
        _bars(axes, chart)
    else:
        _lines(axes, chart)
    numbers = [y for _, ys in chart.series for y in ys if y]
    if numbers and max(numbers) > 10 * min(numbers):
        axes.set_yscale("log")
        axes.set_ylim(bottom=min(numbers) / 2)  # the smallest is seen, too
    show = counted if chart.is_count else seconds
    # matplotlib writes powers of ten as formulas, which are off
    axes.yaxis.set_major_formatter(lambda value, _: show(value))
    axes.yaxis.set_minor_formatter(lambda _value, _: "")
    axes.set_ylabel(chart.y)
    axes.set_title(chart.title)
    axes.grid(axis="y", color="#8c8c8c", alpha=0.3)
    axes.set_axisbelow(True)
    if len(chart.series) > 1:
        rows = math.ceil(len(chart.series) / 3)
        figure.legend(loc="outside lower center", ncols=min(len(chart.series), 3), frameon=False)
        figure.set_figheight(3.8 + 0.22 * rows)
    return figure


def _bars(axes: Any, chart: Chart) -> None:  # noqa: ANN401 - matplotlib's own types are loose
    count = len(chart.series)
    each = 0.8 / count
    for i, (name, ys) in enumerate(chart.series):
        there = [(x, y) for x, y in enumerate(ys) if y is not None]
        axes.bar(
            [x + (i - (count - 1) / 2) * each for x, _ in there],
            [y for _, y in there],
            each,
            label=_label(name),
            color=COLOURS[i % len(COLOURS)],
        )
    if len(chart.places) == 1:
        axes.set_xlim(-1.0, 1.0)  # one group does not fill the picture
    is_long = max(map(len, chart.places), default=0) * len(chart.places) > 70
    axes.set_xticks(
        range(len(chart.places)),
        [_label(place) for place in chart.places],
        rotation=25 if is_long else 0,
        ha="right" if is_long else "center",
    )


def _lines(axes: Any, chart: Chart) -> None:  # noqa: ANN401 - as above
    for i, (name, ys) in enumerate(chart.series):
        there = [(x, y) for x, y in zip(chart.points, ys, strict=True) if y is not None]
        axes.plot(
            [x for x, _ in there],
            [y for _, y in there],
            marker="o",
            label=_label(name),
            color=COLOURS[i % len(COLOURS)],
        )
    if min(chart.points) > 0 and max(chart.points) >= 8 * min(chart.points):
        axes.set_xscale("log", base=2)
    axes.set_xticks(chart.points, [f"{point:g}" for point in chart.points])
    axes.xaxis.set_minor_formatter(lambda _value, _: "")
    axes.set_xlabel(_label(chart.x))


def _label(text: str) -> str:
    """A label that matplotlib shows: it hides those that begin with an underscore."""
    text = text if len(text) <= 48 else f"{text[:45]}..."
    return f" {text}" if text.startswith("_") else text
