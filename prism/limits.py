"""Sizes, numbers and names as callers give them, refused before any work starts."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from operator import index
from typing import SupportsIndex, cast

from prism.errors import SizeError, UsageError
from prism.ir import Program, bind_sizes

MAX_SIZE = 2**40


def check_memory(program: Program, sizes: Mapping[str, SupportsIndex]) -> dict[str, int]:
    """The size of every dimension, unless this machine cannot hold the arrays.

    Raises:
        UsageError: the sizes are no mapping from names.
        SizeError: a size is missing, unknown or contradictory, or the arrays do not fit.
    """
    given: object = sizes
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise UsageError('sizes must be a mapping from dimensions to integers, as {"n": 64}')
    bound = bind_sizes(program, sizes)
    for name, size in bound.items():
        if size > MAX_SIZE:
            raise SizeError(f"the size of {name!r} is above 2^40: choose a smaller one")
    borders = [a.axes for a in program.arguments] + [o.axes for o in program.outputs]
    counts = (math.prod(1 if d is None else bound[d] for d in axes) for axes in borders)
    needed = 8 * sum(counts)
    there = memory_bytes()
    if there is not None and needed > there:
        raise SizeError(
            f"the arrays of {program.name} at these sizes take {gib(needed)} in float64, in which "
            f"kernels are checked, but this machine has {gib(there)}: choose smaller sizes"
        )
    return bound


def memory_bytes() -> int | None:
    """Physical memory, or None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def gib(count: int) -> str:
    """Bytes as GiB."""
    return f"{count / 2**30:.3g} GiB"


def require_texts(**named: object) -> None:
    """Refuse what is no text.

    Raises:
        UsageError: names the argument.
    """
    for name, value in named.items():
        if not isinstance(value, str):
            raise UsageError(f"{name} must be text, not {type(value).__name__}")


def require_seconds(value: object) -> float:
    """A budget as a number of seconds.

    Raises:
        UsageError: it is no positive, finite number.
    """
    try:
        # NumPy's numbers will do, texts and bools will not
        seconds = math.nan if isinstance(value, bool | str | bytes) else float(cast("float", value))
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not (seconds > 0 and math.isfinite(seconds)):
        raise UsageError(f"the budget must be a positive number of seconds, not {_shown(value)}")
    return seconds


def require_integer(name: str, value: object, least: int) -> int:
    """An integer that is at least `least`.

    Raises:
        UsageError: it is none.
    """
    try:
        number = None if isinstance(value, bool) else index(cast("int", value))
    except TypeError:
        number = None
    if number is None:
        raise UsageError(f"{name} must be an integer, not {type(value).__name__}")
    if not least <= number < 2**64:
        raise UsageError(f"{name} must be at least {least} and below 2^64, not {_shown(value)}")
    return number


def _shown(value: object) -> str:
    try:
        return repr(value)[:60]
    except ValueError:  # an integer of thousands of digits
        return f"such a {type(value).__name__}"
