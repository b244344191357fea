"""Writes the lines of a CUDA kernel: coordinates, positions, addresses, loads and stores.

An element of a value is addressed by a *position*: for each dim an expression of the index within
the block's (and iteration's) tile. What is constant in a block or an iteration is kept in variables
(`at_in_x`, `tile_in_x`) that are written where they are first known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from prism.ir import DataDim
from prism_kernels import writer
from prism_kernels.cuda.layout import Layout, Share
from prism_kernels.cuda.memory import Schedule
from prism_kernels.cuda.plan import Place, Plan
from prism_kernels.tile import Axis, ValueId
from prism_kernels.writer import Extent

Position = Mapping[DataDim, str]
"""Dim -> index within the tile."""


class Writer(writer.Writer):
    """The source of one kernel, line by line."""

    def __init__(self, plan: Plan, schedule: Schedule) -> None:
        super().__init__(plan.program)
        self.plan = plan
        self.schedule = schedule
        self.registers: dict[str, int] = {}
        """Array in registers -> its elements, for the head of the kernel."""
        self.words: dict[str, int] = {}
        """The same for arrays of packed words."""
        self.coordinates: dict[str, str] = {}
        """Coordinate variable -> its expression, for the same place."""
        self.bases: dict[str, str] = {}
        """The same for where a block's part of a parameter starts."""
        self.tile_bases: list[dict[str, str]] = [{} for _ in plan.program.loops]
        """The same for an iteration's part, for the heads of the loops' bodies."""

    # -- threads

    def coordinate(self, share: Share) -> str:
        """Which of a share's threads this one is."""
        if share.threads == 1:
            return "0"
        name = f"t{share.shift}x{share.threads}"
        is_top = self.plan.threads >> share.shift == share.threads
        index = "tid"
        if share.shift:
            index = f"tid >> {share.shift}" if is_top else f"(tid >> {share.shift})"
        mask = "" if is_top else f" & {share.threads - 1}"
        self.coordinates[name] = f"u32({index}{mask})"
        return name

    def lead(
        self, layout: Layout, dim: DataDim | None = None, *, of_warp: bool = False
    ) -> list[str]:
        """Conditions of the threads that speak for their group: those that share a result.

        A group is what has one position but along `dim`; `of_warp`: within each warp only.
        """
        out = []
        if layout.used < self.plan.threads:
            out.append(f"tid < {layout.used}")
        share = Share() if dim is None else layout[dim]
        if share.threads > 1:
            mine = self.coordinate(share)
            part = share.lanes if of_warp else share.threads
            if part > 1:
                whole = part == share.threads
                out.append(f"{mine} == 0" if whole else f"({mine} & {part - 1}) == 0")
        return out

    @contextmanager
    def when(self, conditions: Iterable[str]) -> Iterator[None]:
        """Write what follows under conditions, if there are any."""
        text = " and ".join(dict.fromkeys(conditions))
        if not text:
            yield
            return
        with self.block(f"if {text}:"):
            yield

    @contextmanager
    def spread(self, axes: Iterable[Axis], layout: Layout) -> Iterator[dict[DataDim, str]]:
        """Loops in which every element of the axes is visited by one thread.

        Threads differ in how often they run the body: no collective may stand in it.
        """
        position: dict[DataDim, str] = {}
        with ExitStack() as stack:
            stack.enter_context(self.when(self.lead(layout)))
            for axis in axes:
                position[axis.dim] = stack.enter_context(self.walk(axis, layout[axis.dim]))
            yield position

    @contextmanager
    def walk(
        self, axis: Axis, share: Share, extent: Extent | None = None, index: str | None = None
    ) -> Iterator[str]:
        """The loop over this thread's elements of an axis; yields the index."""
        extent = self.extent(axis) if extent is None else extent
        if extent == 1:
            with self.when([f"{self.coordinate(share)} == 0"] if share.threads > 1 else []):
                yield "0"
            return
        name = index or f"i_{self.name(axis.dim)}"
        mine, threads = self.coordinate(share), share.threads
        if threads == 1:
            with self.block(f"for {name} in range({extent}):"):
                yield name
        elif isinstance(extent, int) and extent <= threads:
            with self.when([f"{mine} < {extent}"] if extent < threads else []):
                yield mine
        else:
            with self.block(f"for {name} in range({mine}, {extent}, {threads}):"):
                yield name

    @contextmanager
    def groups(self, axis: Axis, share: Share) -> Iterator[str]:
        """The loop over this thread's groups of neighbours along an axis; yields their first.

        The axis' extent is a multiple of the share's width.
        """
        extent, width, step = self.extent(axis), share.width, share.threads * share.width
        name, mine = f"g_{self.name(axis.dim)}", self.coordinate(share)
        first = "0" if mine == "0" else f"u32({mine} * {width})"
        if isinstance(extent, int) and extent <= step:
            with self.when([f"{mine} < {extent // width}"] if extent < step else []):
                if mine != "0":
                    self.line(f"{name} = {first}")
                yield name if mine != "0" else "0"
        else:
            with self.block(f"for {name} in range({first}, {extent}, {step}):"):
                yield name

    @contextmanager
    def neighbours(self, axis: Axis, share: Share, first: str) -> Iterator[tuple[str, str]]:
        """The unrolled loop over a group; yields the number in it and the index along the axis."""
        number, index = f"j_{self.name(axis.dim)}", f"i_{self.name(axis.dim)}"
        with self.block(f"for {number} in range({share.width}):"):
            if first == "0":
                yield number, number
            else:
                self.line(f"{index} = u32({first} + {number})")
                yield number, index

    # -- registers

    def register(self, name: str, extents: Sequence[tuple[DataDim, int]]) -> str:
        """The register at the current position of the unrolled loops (`j_d`), row-major."""
        terms: list[str] = []
        total = 1
        for dim, extent in reversed(extents):
            if extent > 1:
                index = f"j_{self.name(dim)}"
                terms.append(index if total == 1 else f"{index} * {total}")
            total *= extent
        return name if total == 1 else f"{name}[u32({' + '.join(terms[::-1])})]"

    def start_registers(self, name: str, count: int, start: str) -> None:
        """Give that many registers their first value."""
        if count == 1:
            self.line(f"{name} = {start}")
            return
        self.registers[name] = count
        with self.block(f"for j in range({count}):"):
            self.line(f"{name}[j] = {start}")

    # -- memory

    def read(self, v: ValueId, position: Position, place: Place | None = None) -> str:
        """The expression of an element of value v."""
        return self.load(place or self.plan.place(v), self.program.axes[v], position)

    def load(
        self, place: Place, axes: Iterable[Axis], position: Position, further: str = ""
    ) -> str:
        """The expression of an element in a place, `further` elements on."""
        at = self.address(place, axes, position, further)
        if place.is_argument:
            return f"load_{place.dtype}({place.pointer}, {at})"
        if self.schedule.addresses[place.name].is_shared:
            return f"shared[{at}]"
        return f"load_float32(workspace, {at})"

    def store(
        self, place: Place, axes: Iterable[Axis], position: Position, value: str, further: str = ""
    ) -> None:
        """Write an element."""
        at = self.address(place, axes, position, further)
        if place.is_argument:
            self.line(f"store_{place.dtype}({place.pointer}, {at}, {value})")
        elif self.schedule.addresses[place.name].is_shared:
            self.line(f"shared[{at}] = {value}")
        else:
            self.line(f"store_float32(workspace, {at}, {value})")

    def load_group(  # noqa: PLR0913, PLR0917 - a vector access has that many parts
        self, name: str, width: int, each: int, place: Place, axes: Iterable[Axis], first: Position
    ) -> None:
        """Read `width` neighbours into registers, `each` in an access."""
        self.registers[name] = max(width, self.registers.get(name, 0))
        for k in range(0, width, each):
            at = self.address(place, axes, first, str(k) if k else "")
            self.line(f"load{each}_{place.dtype}({name}, u32({k}), {place.pointer}, {at})")

    def store_group(  # noqa: PLR0913, PLR0917 - a vector access has that many parts
        self, name: str, width: int, each: int, place: Place, axes: Iterable[Axis], first: Position
    ) -> None:
        """Write `width` neighbours from registers, `each` in an access."""
        for k in range(0, width, each):
            at = self.address(place, axes, first, str(k) if k else "")
            self.line(f"store{each}_{place.dtype}({place.pointer}, {at}, {name}, u32({k}))")

    def address(
        self, place: Place, axes: Iterable[Axis], position: Position, further: str = ""
    ) -> str:
        """The element index of a position."""
        axes = tuple(axes)
        terms = [*self._base(place, axes), *([further] if further else [])]
        for axis in axes:
            at = position.get(axis.dim, "0")
            if at != "0" and self.program.chunk(axis) > 1:
                stride = place.strides[axis.dim]
                terms.append(at if stride == 1 else f"{at} * {stride}")
        return f"u32({' + '.join(terms) or '0'})"

    def _base(self, place: Place, axes: tuple[Axis, ...]) -> list[str]:
        """Where the tile starts."""
        if place.is_argument:
            base = self._block_base(place, axes)
        else:
            address = self.schedule.addresses[place.name]
            base = [str(address.offset)] if address.offset else []
            if not address.is_shared:
                base = ["mine", *base]
        name = place.name
        for number, stride in enumerate(place.loop_strides[: len(self.iterations)]):
            if stride:
                start = self.loop_start(number)
                step = start if stride == 1 else f"{start} * {stride}"
                name = self.tile_name(name, number)
                self.tile_bases[number][name] = f"u32({' + '.join([*base, step])})"
                base = [name]
        return base

    def _block_base(self, place: Place, axes: tuple[Axis, ...]) -> list[str]:
        terms = []
        for axis in axes:
            grid = self.grid_dim(axis)
            if grid is not None and grid.count > 1:
                start, stride = self.start(grid), place.strides[axis.dim]
                terms.append(start if stride == 1 else f"{start} * {stride}")
        terms += self._stack_base(place)
        if not terms:
            return []
        name = f"at_{place.name}"
        self.bases[name] = f"u32({' + '.join(terms)})"
        return [name]

    def _stack_base(self, place: Place) -> list[str]:
        """Where the block's value lies among those of the blocks along a grid dim."""
        if place.stack is None:
            return []
        grid, stride = place.stack
        if all(g.count == 1 for g in self.program.grid if g.name == grid):
            return []
        index = self.block_index(grid)
        return [index if stride == 1 else f"{index} * {stride}"]

    def number(self, value: float) -> str:
        """A literal."""
        special = {float("inf"): "INF", float("-inf"): "-INF"}
        if value != value:  # noqa: PLR0124 - NaN alone differs from itself
            return "NAN"
        return special.get(value, f"f32({value!r})")
