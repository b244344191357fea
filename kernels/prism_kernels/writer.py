"""Writes the lines of a kernel function: names, extents, loops of one tile program.

The base of every emitter's writer. An extent is a literal wherever the sizes divide, and a variable
(`len_d`, or the loop's own) where the last chunk is smaller: extents are clipped, values never
masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prism.ir import DataDim
from prism_kernels.tile import Axis, GridDim, TileProgram

Extent = int | str
"""A literal, or the name of a variable."""


class Writer:
    """The source of one function, line by line."""

    def __init__(self, program: TileProgram) -> None:
        self.program = program
        self.lines: list[str] = []
        self.iterations: list[Extent] = []
        """The extents of the loops' dims in the body being written, outer first; none outside."""
        self._depth = 1
        self._counter = 0
        self._names = identifiers(program.sizes)
        self._grid_names = identifiers(g.name for g in program.grid)
        self._chunk_names = self._name_chunks()

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

    def fresh(self, prefix: str) -> str:
        """A variable name not used before."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def name(self, dim: DataDim) -> str:
        """The data dim as an identifier."""
        return self._names[dim]

    def _name_chunks(self) -> dict[str, str]:
        """Grid dim -> what its chunks are named by: their dim, if no other grid dim splits it."""
        dims = [g.dim for g in self.program.grid if g.dim is not None and g.count > 1]
        return {
            g.name: self._names[g.dim]
            if dims.count(g.dim) < 2
            else f"{self._names[g.dim]}_{self._grid_names[g.name]}"
            for g in self.program.grid
            if g.dim is not None
        }

    def start(self, grid: GridDim) -> str:
        """The variable that holds where the block's chunk along a grid dim starts."""
        return f"start_{self._chunk_names[grid.name]}"

    def length(self, grid: GridDim) -> str:
        """The variable that holds how long that chunk is, where chunks differ."""
        return f"len_{self._chunk_names[grid.name]}"

    def block_index(self, grid: str) -> str:
        """The variable that holds the block's index along a grid dim."""
        return f"block_{self._grid_names[grid]}"

    def describe_chunks(self, grid: GridDim) -> str:
        """How a grid dim cuts, in a comment."""
        return f"{grid.count} blocks" + (f" along {grid.dim}, {grid.tile} each" if grid.dim else "")

    def grid_dim(self, axis: Axis) -> GridDim | None:
        """The grid dim that splits an axis."""
        return next((g for g in self.program.grid if g.name == axis.grid), None)

    @contextmanager
    def iteration(self, extent: Extent) -> Iterator[None]:
        """Write what is inside one more loop, in which its dim has this extent."""
        self.iterations.append(extent)
        yield
        self.iterations.pop()

    def loop_name(self, number: int, name: str) -> str:
        """A variable of a loop: what it is called in the only loop, `inner_` for the inner one."""
        return "inner_" * number + name

    def loop_start(self, number: int) -> str:
        """The variable that holds where the iteration of a loop starts."""
        return self.loop_name(number, "start")

    def tile_name(self, name: str, number: int) -> str:
        """What a memory is called, once advanced to the iteration of a loop."""
        return ("tile_", "inner_")[number] + name

    def extent(self, axis: Axis) -> Extent:
        """How many elements of an axis this block and iteration have."""
        around = self.program.loop_of(axis)
        if around is not None and around < len(self.iterations):
            return self.iterations[around]
        return self.block_extent(axis)

    def block_extent(self, axis: Axis) -> Extent:
        """How many elements of an axis this block has."""
        grid = self.grid_dim(axis)
        size = self.program.sizes[axis.dim]
        if grid is None:
            return size
        return grid.tile if size % grid.tile == 0 else self.length(grid)


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """Each name as an identifier of its own."""
    out: dict[str, str] = {}
    for name in names:
        clean = re.sub(r"\W", "_", name, flags=re.ASCII)
        while clean in out.values():
            clean += "_"
        out[name] = clean
    return out
