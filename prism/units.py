"""Numbers as people read them: durations, fractions, ratios, counts. None is a dash."""

from __future__ import annotations


def seconds(value: float | None) -> str:
    """A duration to three digits, in the unit that fits."""
    if not value:
        return "-" if value is None else "0 s"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * scale >= 1.0 or unit == "us":
            return f"{value * scale:.3g} {unit}" if value * scale < 1000 else f"{value:,.0f} s"
    raise AssertionError("the last unit always fits")


def percent(value: float | None) -> str:
    """A fraction in percent."""
    return "-" if value is None else f"{value:.0%}"


def times(value: float | None) -> str:
    """A ratio, e.g. `2.31x`."""
    if value is None:
        return "-"
    if 0 < value < 0.1:
        return f"{value:.2g}x"
    return f"{value:.2f}x" if value < 100 else f"{value:,.0f}x"


def counted(value: float | None) -> str:
    """A count, with separators."""
    return "-" if value is None else f"{value:,.0f}"
