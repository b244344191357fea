"""Writes the lines of a CPU block function: loops, pointers, indices of a planned tile program.

Indices are written out as sums of `index * stride` with literal strides; what is constant in a
block or an iteration is folded into its pointers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from prism.ir import DataDim
from prism_kernels import writer
from prism_kernels.cpu.ahead import Ahead
from prism_kernels.cpu.places import Place, Plan
from prism_kernels.nests import Nest
from prism_kernels.tile import Axis, ValueId
from prism_kernels.writer import Extent

__all__ = ["Extent", "Writer"]


class Writer(writer.Writer):
    """The source of one block function, line by line."""

    def __init__(self, plan: Plan, dtype: str, lanes: int, *, stored: str = "") -> None:
        super().__init__(plan.program)
        self.plan = plan
        self.dtype = dtype
        self.stored = stored or dtype
        """What arguments and results are stored in, and `dtype` what all else is."""
        self.lanes = lanes
        self.streamed: frozenset[ValueId] = frozenset()
        """Values whose rows are written past the caches."""
        self.ahead: Mapping[Nest, tuple[Ahead, ...]] = {}
        """What nests fetch of the next iteration."""
        self.kernels: dict[str, str] = {}
        """Micro-kernels and buffer makers the block uses: name -> how to make it."""

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

    def pointer(self, place: Place) -> str:
        """The pointer of a place for this iteration."""
        name = place.pointer
        for number, stride in enumerate(place.loop_strides[: len(self.iterations)]):
            if stride:
                name = self.tile_name(name, number)
        return name

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

    def argument(self, name: str, position: int) -> str:
        """The expression that points to the array of a kernel-level tensor."""
        function = "argument"
        if self.stored != self.dtype and not self.program.is_between(name):
            function = self.kernel(f"{self.stored}_argument", f"argument_of({self.stored!r})")
        return f"{function}(arrays, {position})"

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
