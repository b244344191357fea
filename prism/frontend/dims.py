"""Dimension names while a program is traced: annotations, unification and aliases.

A dimension starts as a name in an annotation. Operators tell which dimensions are one: `merge`
makes two names one (the first is kept), `merge_sizes` only says that two dimensions have the same
size. An alias is a further name of one size, written with a quote mark: `d'`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from prism.ir import DataDim, DimInfo

_MAX_DIGITS = 18
_MAX_SHOWN = 60
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class DimsError(ValueError):
    """Dimensions that cannot be as asked; the caller adds the user's line."""


def parse_dims(text: str) -> tuple[DataDim | int, ...]:
    """The names and fixed sizes of an annotation such as `"n d 64"`; the empty one is a scalar.

    Raises:
        DimsError: a word is neither a name nor a positive integer.
    """
    out: list[DataDim | int] = []
    for word in text.split():
        if _is_size(word):
            out.append(int(word))
        elif _NAME.fullmatch(word):
            out.append(word)
        else:
            raise DimsError(
                f"{_shown(word)} in the annotation {_shown(text)} is neither a dimension's name "
                "nor a positive integer; write names and sizes with spaces between them, "
                'e.g. "n d 64"'
            )
    return tuple(out)


def _is_size(word: str) -> bool:
    is_number = word.isascii() and word.isdigit() and len(word) <= _MAX_DIGITS
    return is_number and int(word) > 0


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")


@dataclass(slots=True)
class DimTable:
    """The dimensions of the program being traced; two union-finds, of names and of sizes."""

    _name: dict[DataDim, DataDim] = field(default_factory=dict)
    _size: dict[DataDim, DataDim] = field(default_factory=dict)
    _fixed: dict[DataDim, int] = field(default_factory=dict)
    _order: dict[DataDim, int] = field(default_factory=dict)
    _made_up: set[DataDim] = field(default_factory=set)

    def declare(self, name: DataDim) -> DataDim:
        """The dimension of that name, made when it is new."""
        if name not in self._name:
            self._name[name] = self._size[name] = name
            self._order[name] = len(self._order)
        return self.find(name)

    def declare_fixed(self, hint: str, size: int) -> DataDim:
        """A new dimension of a fixed size, whose name starts with `hint`."""
        name = hint
        while name in self._name:
            name += "_"
        self.declare(name)
        self._fixed[name] = size
        self._made_up.add(name)
        return name

    def alias(self, dim: DataDim) -> DataDim:
        """A new dimension of the same size."""
        name = f"{dim}'"
        while name in self._name:
            name += "'"
        self.declare(name)
        self._made_up.add(name)
        self._size[name] = self.size_root(dim)
        return name

    def find(self, dim: DataDim) -> DataDim:
        """The name a dimension goes by."""
        while self._name[dim] != dim:
            dim = self._name[dim]
        return dim

    def resolve(self, axes: Iterable[DataDim | None]) -> tuple[DataDim | None, ...]:
        """The names axes go by."""
        return tuple(None if d is None else self.find(d) for d in axes)

    def size_root(self, dim: DataDim) -> DataDim:
        """The dimension that stands for all dimensions of this size."""
        dim = self.find(dim)
        while self._size[dim] != dim:
            dim = self._size[dim]
        return dim

    def fixed_size(self, dim: DataDim) -> int | None:
        """The size when the program fixes it."""
        return self._fixed.get(self.size_root(dim))

    def merge_sizes(self, a: DataDim, b: DataDim) -> None:
        """Record that two dimensions have the same size.

        Raises:
            DimsError: both have fixed sizes, which differ.
        """
        root_a, root_b = self.size_root(a), self.size_root(b)
        if root_a == root_b:
            return
        size_a, size_b = self._fixed.get(root_a), self._fixed.get(root_b)
        if size_a is not None and size_b is not None and size_a != size_b:
            raise DimsError(f"{self.describe(a)} meets {self.describe(b)}")
        keep, drop = self._ranked(root_a, root_b)
        self._size[drop] = keep
        size = size_a if size_a is not None else size_b
        if size is not None:
            self._fixed[keep] = size

    def merge(self, a: DataDim, b: DataDim) -> None:
        """Make two dimensions one; their sizes must have been merged."""
        keep, drop = self._ranked(self.find(a), self.find(b))
        if keep != drop:
            # the root of a size comes first in the same order, so it is never what is dropped
            self._name[drop] = self._size[drop] = keep

    def infos(self, used: Iterable[DataDim]) -> tuple[DimInfo, ...]:
        """The rows of a program's dimension table, in the order given."""
        names = list(dict.fromkeys(self.find(d) for d in used))
        leader: dict[DataDim, DataDim] = {}
        for name in names:
            leader.setdefault(self.size_root(name), name)
        out = []
        for name in names:
            size = leader[self.size_root(name)]
            out.append(DimInfo(name, size, self.fixed_size(name) if size == name else None))
        return tuple(out)

    def describe(self, dim: DataDim) -> str:
        """A dimension for an error message: its name, and its size when fixed."""
        size = self.fixed_size(dim)
        name = self.find(dim)
        if size is None:
            return f"dimension {name}"
        return f"size {size}" if name in self._made_up else f"dimension {name} of size {size}"

    def _ranked(self, a: DataDim, b: DataDim) -> tuple[DataDim, DataDim]:
        """The two dimensions, first the one whose name is kept: the user's own, then the first."""
        first, second = sorted((a, b), key=lambda d: (d in self._made_up, self._order[d]))
        return first, second
