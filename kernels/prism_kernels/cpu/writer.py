"""Writes the lines of a block function: names, extents, indices and loops of one tile program.

Indices are written out as sums of `index * stride` with literal strides; what is constant in a
block or an iteration is folded into its pointers. An extent is a literal wherever the sizes divide,
and a variable (`len_d`) where the last chunk is smaller: extents are clipped, values never masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prism.ir import DataDim
from prism_kernels.cpu.places import Place, Plan
from prism_kernels.tile import Axis, GridDim, Loop

Extent = int | str
"""A literal, or the name of a variable."""


class Writer:
    """The source of one block function, line by line."""

    def __init__(self, plan: Plan, dtype: str, lanes: int) -> None:
        self.plan = plan
        self.program = plan.program
        self.dtype = dtype
        self.lanes = lanes
        self.lines: list[str] = []
        self.kernels: dict[str, str] = {}
        """Micro-kernels and buffer makers the block uses: name -> how to make it."""
        self.iteration: Extent | None = None
        """The extent of the loop's dim in the body being written; None outside."""
        self._depth = 1
        self._counter = 0
        self._names = _identifiers(self.program.sizes)
        self._grid_names = _identifiers(g.name for g in self.program.grid)

    def line(self, text: str) -> None:
        """Write one line."""
        self.lines.append("    " * self._depth + text)

    def mark(self) -> tuple[int, int]:
        """The current place in the text, for `insert`."""
        return len(self.lines), self._depth

    def insert(self, mark: tuple[int, int], texts: Iterable[str]) -> None:
        """Write lines at an earlier place."""
        at, depth = mark
        self.lines[at:at] = ["    " * depth + text for text in texts]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write `head` and indent what follows."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def loops(self, axes: Iterable[Axis]) -> Iterator[None]:
        """Nested loops over axes, outermost first; an axis of extent 1 needs none."""
        depth = self._depth
        for axis in axes:
            self.open_loop(axis)
        yield
        self._depth = depth

    def open_loop(self, axis: Axis) -> None:
        """Start the loop over an axis and indent."""
        extent = self.extent(axis)
        if extent != 1:
            self.line(f"for i_{self.name(axis.dim)} in range({extent}):")
            self._depth += 1

    def close_loop(self, axis: Axis) -> None:
        """End the loop over an axis."""
        if self.extent(axis) != 1:
            self._depth -= 1

    def fresh(self, prefix: str) -> str:
        """A variable name not used before."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def name(self, dim: DataDim) -> str:
        """The data dim as an identifier."""
        return self._names[dim]

    def block_index(self, grid: str) -> str:
        """The variable that holds the block's index along a grid dim."""
        return f"block_{self._grid_names[grid]}"

    def grid_dim(self, axis: Axis) -> GridDim | None:
        """The grid dim that splits an axis."""
        return next((g for g in self.program.grid if g.name == axis.grid), None)

    @property
    def loop(self) -> Loop:
        """The loop of a program that has one."""
        assert self.program.loop is not None
        return self.program.loop

    def extent(self, axis: Axis) -> Extent:
        """How many elements of an axis this block and iteration have."""
        if axis.looped and self.iteration is not None:
            return self.iteration
        return self.block_extent(axis)

    def block_extent(self, axis: Axis) -> Extent:
        """How many elements of an axis this block has."""
        grid = self.grid_dim(axis)
        size = self.program.sizes[axis.dim]
        if grid is None:
            return size
        return grid.tile if size % grid.tile == 0 else f"len_{self.name(axis.dim)}"

    def pointer(self, place: Place) -> str:
        """The pointer of a place for this iteration."""
        if place.loop_stride and self.iteration is not None:
            return f"tile_{place.pointer}"
        return place.pointer

    def index(
        self, place: Place, axes: Iterable[Axis], given: dict[DataDim, str] | None = None
    ) -> str:
        """The element index of the current position, or of the `given` index per dim."""
        terms = []
        for axis in axes:
            at = (given or {}).get(axis.dim)
            if at is None:
                at = "0" if self.extent(axis) == 1 else f"i_{self.name(axis.dim)}"
            if at != "0":
                stride = place.strides[axis.dim]
                terms.append(at if stride == 1 else f"{at} * {stride}")
        return " + ".join(terms) or "0"

    def pointer_at(
        self, place: Place, axes: Iterable[Axis], given: dict[DataDim, str] | None = None
    ) -> str:
        """The pointer advanced to the current position along some axes."""
        at = self.index(place, axes, given)
        return self.pointer(place) if at == "0" else f"offset({self.pointer(place)}, {at})"

    def load(self, place: Place, axes: Iterable[Axis]) -> str:
        """The expression that reads a place at the current position."""
        return f"load({self.pointer(place)}, {self.index(place, axes)})"

    def store(self, place: Place, axes: Iterable[Axis], value: str) -> None:
        """Write `value` to a place at the current position."""
        self.line(f"store({self.pointer(place)}, {self.index(place, axes)}, {value})")

    def fill(self, place: Place, axes: tuple[Axis, ...], value: str) -> None:
        """Set a whole place to `value`."""
        with self.loops(sorted(axes, key=lambda a: -place.strides[a.dim])):
            self.store(place, axes, value)

    def number(self, value: float) -> str:
        """A literal of the kernel's dtype."""
        special = {float("inf"): "INF", float("-inf"): "-INF"}
        if value != value:  # noqa: PLR0124 - NaN alone differs from itself
            return "NAN"
        return special.get(value, f"real({value!r})")

    def kernel(self, name: str, maker: str) -> str:
        """Declare a micro-kernel or buffer maker once; returns its name."""
        self.kernels.setdefault(name, maker)
        return name


def _identifiers(names: Iterable[str]) -> dict[str, str]:
    """Each name as an identifier of its own."""
    out: dict[str, str] = {}
    for name in names:
        clean = re.sub(r"\W", "_", name, flags=re.ASCII)
        while clean in out.values():
            clean += "_"
        out[name] = clean
    return out
