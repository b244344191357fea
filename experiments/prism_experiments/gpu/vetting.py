"""What JSON from a file or another process may look like, said once as a value and checked by it.

`vet(value, shape)` refuses what does not fit and names the place. A shape is data: a results file
is described by one value (`results.RESULTS`), to which both its writer and its reader are held.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

from prism.errors import ParseError, UsageError
from prism.files import read_regular_text, require_printable

MOST = 2**53
"""Counts beyond this are no counts, and JSON readers disagree on them."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text; one of `choices` where there are any."""

    choices: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number that is zero or more."""


@dataclass(frozen=True, slots=True)
class Count:
    """An integer that is zero or more."""


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """Any text, number, flag or null: what a machine says about itself."""


@dataclass(frozen=True, slots=True)
class Maybe:
    """The shape, or null."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Each:
    """A list of one shape."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Named:
    """An object with any names and values of one shape."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Fields:
    """An object with exactly these names, those in `optional` perhaps missing."""

    required: Mapping[str, Shape]
    optional: Mapping[str, Shape]


Leaf = Text | Number | Count | Flag | Scalar
Shape = Leaf | Maybe | Each | Named | Fields


def fields(optional: Mapping[str, Shape] | None = None, /, **required: Shape) -> Fields:
    """An object with these fields."""
    return Fields(required, optional or {})


def vet(value: object, shape: Shape, where: str = "") -> None:
    """Refuse JSON of another shape, or with texts that must not reach a terminal.

    Raises:
        ParseError: names the place and what was expected.
    """
    require_printable(value, where)
    _vet(value, shape, where)


def read_vetted(path: Path, shape: Shape, what: str, most_bytes: int) -> dict[str, Any]:
    """The JSON object in a file, read and vetted as from a stranger.

    Raises:
        UsageError: it cannot be read; the message calls it `what`.
        ParseError: it is no JSON of this shape.
    """
    try:
        text = read_regular_text(path, most_bytes)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {what} {path}: {error}") from error
    try:
        data: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"{path} is not JSON: {error}") from error
    try:
        vet(data, shape)
    except ParseError as error:
        raise ParseError(f"{path}: {error}") from error
    return data


def _vet(value: object, shape: Shape, where: str) -> None:
    match shape:
        case Maybe(inner):
            if value is not None:
                _vet(value, inner, where)
        case Each(inner):
            _vet_each(value, inner, where)
        case Named(inner):
            for name, item in _object(value, where).items():
                _vet(item, inner, _at(where, name))
        case Fields():
            _vet_fields(_object(value, where), shape, where)
        case _:
            expected = _missed(value, shape)
            _require(expected is None, where, expected or "")


def _missed(value: object, leaf: Leaf) -> str | None:
    """What was expected instead of the value, or None."""
    match leaf:
        case Text(choices):
            good = isinstance(value, str) and (not choices or value in choices)
            expected = f"one of {', '.join(sorted(choices))}" if choices else "a text"
        case Number():
            good = _is_finite(value) and isinstance(value, int | float) and value >= 0
            expected = "a number that is zero or more"
        case Count():
            good = _is_finite(value) and isinstance(value, int) and value >= 0
            expected = "a count"
        case Flag():
            good, expected = isinstance(value, bool), "true or false"
        case Scalar():
            good = value is None or isinstance(value, str | bool) or _is_finite(value)
            expected = "a text, a number, a flag or null"
        case _:
            assert_never(leaf)
    return None if good else expected


def _vet_each(value: object, shape: Shape, where: str) -> None:
    if not isinstance(value, list):
        raise ParseError(f"{where or 'the file'}: a list was expected")
    for i, item in enumerate(value):
        _vet(item, shape, f"{where}[{i}]")


def _vet_fields(value: Mapping[str, object], shape: Fields, where: str) -> None:
    missing = shape.required.keys() - value.keys()
    _require(not missing, where, f"{', '.join(sorted(missing))} beside what is there")
    known = {**shape.optional, **shape.required}
    unknown = value.keys() - known.keys()
    _require(not unknown, where, f"no field {', '.join(sorted(unknown))}")
    for name, item in value.items():
        _vet(item, known[name], _at(where, name))


def _object(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ParseError(f"{where or 'the file'}: an object was expected")
    return value


def _is_finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < MOST if isinstance(value, int) else math.isfinite(value)


def _require(good: bool, where: str, expected: str) -> None:  # noqa: FBT001 - the condition itself
    if not good:
        raise ParseError(f"{where or 'the file'}: {expected} was expected")


def _at(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
