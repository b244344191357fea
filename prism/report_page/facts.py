"""A JSON object of somebody else's, read field by field.

A field that is missing is None or empty: records of older versions and of other commands have
other fields. A field of another type is an error that names it: nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from prism.errors import ParseError

MAX_SHOWN = 40
"""Characters of a wrong value in a message."""


@dataclass(frozen=True, slots=True)
class Facts:
    """An object and where it stands, for messages."""

    data: Mapping[str, Any]
    where: str

    def number(self, name: str) -> float | None:
        """A finite number that is zero or more."""
        value = self.data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(name, "a number")
        if not 0 <= value < math.inf:
            self.refuse(name, "a finite number, zero or more")
        return float(value)

    def count(self, name: str) -> int | None:
        """A whole number that is zero or more."""
        value = self.data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            self.refuse(name, "a count")
        return value

    def text(self, name: str) -> str:
        """A text."""
        value = self.data.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.refuse(name, "a text")
        return value

    def flag(self, name: str) -> bool | None:
        """True or false."""
        value = self.data.get(name)
        if value is not None and not isinstance(value, bool):
            self.refuse(name, "true or false")
        return value

    def part(self, name: str) -> Facts:
        """An object inside."""
        value = self.data.get(name)
        if value is None:
            return Facts({}, self.place(name))
        if not isinstance(value, dict):
            self.refuse(name, "an object")
        return Facts(value, self.place(name))

    def parts(self, name: str) -> tuple[Facts, ...]:
        """A list of objects."""
        found = []
        for i, value in enumerate(self.array(name)):
            if not isinstance(value, dict):
                self.refuse(f"{name}[{i}]", "an object", value)
            found.append(Facts(value, self.place(f"{name}[{i}]")))
        return tuple(found)

    def named(self) -> Iterator[tuple[str, Facts]]:
        """The objects inside, with their names."""
        for name in self.data:
            yield name, self.part(name)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        for i, value in enumerate(self.array(name)):
            if not isinstance(value, str):
                self.refuse(f"{name}[{i}]", "a text", value)
        return tuple(self.array(name))

    def counts(self, name: str) -> tuple[tuple[str, int], ...]:
        """Named counts."""
        return self.counts_of(self.part(name).data, name)

    def counts_of(self, value: object, name: str) -> tuple[tuple[str, int], ...]:
        """Named counts that stand in a list."""
        if not isinstance(value, dict):
            self.refuse(name, "named counts", value)
        inner = Facts(value, self.place(name))
        return tuple((key, inner.count(key) or 0) for key in value)

    def array(self, name: str) -> list[Any]:
        """A list."""
        value = self.data.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            self.refuse(name, "a list")
        return value

    def place(self, name: str) -> str:
        """How a message names a field."""
        return f"{self.where}.{name}" if self.where else name

    def refuse(self, name: str, expected: str, value: object = None) -> NoReturn:
        """Say that a field is of another type.

        Raises:
            ParseError: always.
        """
        shown = repr(self.data.get(name) if value is None else value)
        shown = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}..."
        raise ParseError(f"{self.place(name)}: {expected} was expected, not {shown}")
