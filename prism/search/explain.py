"""Why a finished sGraph is wrong: its block graph read once more, independently of the search.

For every parallel dim the interpreter walks the block graph and says of each value whether it is
whole, a tile along a data dim, a summand or a peak; the first node that does not fit gives the
reason, in the graph's own words. It shares no code with `placement`: a second reading of the same
rules, held against it and against evaluation in the tests. It accepts nothing that is wrong, and
says nothing about algebra: a graph without a fault here may still compute something else.

What blocks stack for a later kernel is partial there along the stack dim, until that kernel sums it
(or takes the maximum): later kernels are read along stack dims too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

from prism.ir import (
    OPS,
    Accumulator,
    AccumulatorKind,
    Apply,
    BlockGraph,
    Const,
    DataDim,
    GraphOp,
    InputLoader,
    Linearity,
    OpKind,
    OutputSaver,
    ParDim,
    ParKind,
    Place,
    SGraph,
    SizeOf,
)


@dataclass(frozen=True, slots=True)
class Whole:
    """Every block (iteration) has the whole value."""

    def __str__(self) -> str:
        return "whole"


@dataclass(frozen=True, slots=True)
class Tile:
    """Each has a tile along `dim`."""

    dim: DataDim

    def __str__(self) -> str:
        return f"a tile along {self.dim}"


@dataclass(frozen=True, slots=True)
class Summand:
    """The sum over all is the value."""

    def __str__(self) -> str:
        return "partial"


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest over all is the value."""

    def __str__(self) -> str:
        return "a maximum of a part"


Part = Whole | Tile | Summand | Peak

_MAXIMA = frozenset({"max"})
"""Reductions whose parts combine by taking the largest; parts of the others are added."""


_LATTICE = frozenset({"max", "maximum"})
"""What commutes with a maximum in all operands together."""

_RISING = {"max": (0,), "maximum": (0, 1), "add": (0, 1), "sub": (0,)}
"""The operands in which an operator commutes with a maximum, the others being whole."""


Stacked = dict[str, Part]
"""Tensors that have a stack dim, and what their values along it are: summands or peaks."""


class _FaultError(Exception):
    """The first node that does not fit."""


def explain(graph: SGraph) -> str | None:
    """The reason why the graph cannot be right, or None where placement finds no fault.

    The graph must be well formed (`check_sgraph`).
    """
    return Explainer().explain(graph)


MAX_BLOCKS = 4_096
"""Block graphs remembered at a time."""


class Explainer:
    """Explains many graphs: a block graph that several share is read once for each map of it."""

    def __init__(self) -> None:
        # the block graphs are kept, so that no others get their ids
        self._blocks: dict[int, _Block] = {}
        self._fine: set[tuple[int, str, frozenset[Place]]] = set()
        """Read without a fault; grid dims are all alike, so they go without a name."""

    def explain(self, graph: SGraph) -> str | None:
        """See `explain`."""
        stacks: dict[DataDim, Stacked] = {}
        for index, kernel in enumerate(graph.kernels):
            where = f"kernel {index}, " if len(graph.kernels) > 1 else ""
            for reading in self._readings(kernel, stacks):
                try:
                    reading.check()
                except _FaultError as fault:
                    return f"{where}along {reading.par.name}: {fault}"
                for dim, stack in reading.stacks.items():
                    stacks.setdefault(dim, {}).update(stack)
        return None

    def _readings(self, kernel: GraphOp, stacks: Mapping[DataDim, Stacked]) -> Iterator[_Reading]:
        """Those that are needed: one that ended without a fault is not needed again."""
        block = self._blocks.get(id(kernel.block))
        if block is None:
            if len(self._blocks) >= MAX_BLOCKS:
                self._blocks.clear()
                self._fine.clear()
            graph = kernel.block
            block = _Block(graph, graph.tensor_dims())
            self._blocks[id(graph)] = block
        yield from [_StackReading(kernel, block, dim, stack) for dim, stack in stacks.items()]
        for par in (*kernel.grid, *kernel.loops):
            places = frozenset(
                [(v.tensor, v.dim) for v in kernel.mapping.true if v.par == par.name]
            )
            key = (id(kernel.block), "" if par.kind is ParKind.GRID else par.name, places)
            if key not in self._fine:
                reading = _Reading(kernel, block, par)
                yield reading
                if not reading.stacks:
                    self._fine.add(key)


@dataclass(frozen=True, slots=True)
class _Block:
    """A block graph with what every reading of it needs."""

    graph: BlockGraph
    dims: tuple[frozenset[DataDim], ...]


class _Reading:
    """One kernel read along one parallel dim."""

    def __init__(self, kernel: GraphOp, block: _Block, par: ParDim) -> None:
        self.kernel = kernel
        self.par = par
        self.is_loop = par.kind is ParKind.LOOP
        self.dims = block.dims
        self.is_after = block.graph.after_loop(par.name)
        self.parts: list[Part] = []
        self.stacks: dict[DataDim, Stacked] = {}
        """What this kernel stacks along `par`."""

    def check(self) -> None:
        """Walk the nodes in order; stop at the first fault."""
        for i, node in enumerate(self.kernel.block.nodes):
            self.parts.append(self._part(i, node))

    def _part(self, i: int, node: object) -> Part:
        match node:
            case InputLoader(source=source, dims=dims):
                return self._loaded(source, dims)
            case Const() | SizeOf():
                return Whole()
            case Apply():
                if self.is_after[i]:
                    self._only_whole(i, node.operands)
                    return Whole()
                return self._applied(i, node)
            case Accumulator():
                return self._accumulated(i, node)
            case OutputSaver():
                return self._saved(node)
            case _:
                raise AssertionError(node)

    def _loaded(self, source: str, dims: tuple[DataDim, ...]) -> Part:
        dim = self.kernel.mapping.dim_of(source, self.par.name)
        if dim is None:
            return Whole()
        if dim not in dims:
            raise _FaultError(f"{source} is mapped along {dim}, which it does not have")
        return Tile(dim)

    def _only_whole(self, i: int, operands: tuple[int, ...]) -> None:
        for j in operands:
            if not isinstance(self.parts[j], Whole):
                raise _FaultError(
                    f"%{i} reads {self._name(j)} after the loop, which is {self.parts[j]} in each "
                    "iteration"
                )

    def _applied(self, i: int, node: Apply) -> Part:
        parts = [self.parts[j] for j in node.operands]
        if all(isinstance(part, Whole) for part in parts):
            return Whole()
        tiles = {part.dim for part in parts if isinstance(part, Tile)}
        if any(isinstance(part, Summand | Peak) for part in parts):
            return self._of_parts(i, node)
        if len(tiles) > 1:
            raise _FaultError(
                f"%{i} = {node.op} of tiles along different dims: {', '.join(sorted(tiles))}"
            )
        (dim,) = tiles
        for j in node.operands:
            if isinstance(self.parts[j], Whole) and dim in self.dims[j]:
                raise _FaultError(
                    f"%{i} = {node.op} of a tile along {dim} and all of {self._name(j)}, which "
                    f"has {dim} too"
                )
        if dim != node.dim:
            return Tile(dim)
        if OPS[node.op].kind is OpKind.ALONG:
            raise _FaultError(
                f"%{i} = {node.op} acts along {dim} and needs the whole of it, not a tile"
            )
        return Peak() if node.op in _MAXIMA else Summand()

    def _of_parts(self, i: int, node: Apply) -> Part:
        """An operator on values that are not finished."""
        spec = OPS[node.op]
        unfinished = [j for j in node.operands if isinstance(self.parts[j], Summand | Peak)]
        first = unfinished[0]
        if any(isinstance(self.parts[j], Peak) for j in unfinished):
            if self._is_peak(node):
                return Peak()
        elif all(isinstance(self.parts[j], Summand) for j in unfinished):
            match spec.linearity:
                case Linearity.NONE:
                    is_fine = False
                case Linearity.JOINT:
                    is_fine = len(unfinished) == len(node.operands)
                case Linearity.EACH:
                    where = [k for k, j in enumerate(node.operands) if j == first]
                    rest = [j for j in node.operands if j != first]
                    is_fine = (
                        len(unfinished) == 1
                        and where[0] in spec.linear_in
                        and all(isinstance(self.parts[j], Whole) for j in rest)
                    )
                case _:
                    assert_never(spec.linearity)
            if is_fine:
                return Summand()
        others = [str(self.parts[j]) for j in node.operands if j != first]
        beside = f" beside a value that is {others[0]}" if others else ""
        raise _FaultError(
            f"{self.parts[first]} value of {self._name(first)} enters %{i} = {node.op}{beside}"
        )

    def _is_peak(self, node: Apply) -> bool:
        """Whether the largest of the results is the result of the largest."""
        parts = [self.parts[j] for j in node.operands]
        peaks = [k for k, part in enumerate(parts) if isinstance(part, Peak)]
        whole = [k for k, part in enumerate(parts) if isinstance(part, Whole)]
        return (
            len(peaks) + len(whole) == len(parts)
            and set(peaks) <= set(_RISING.get(node.op, ()))
            and (len(peaks) == 1 or node.op in _LATTICE)
        )

    def _accumulated(self, i: int, node: Accumulator) -> Part:
        part = self.parts[node.operand]
        if node.par != self.par.name:
            # another loop's accumulator, seen along this dim: it adds, joins or compares tiles
            if isinstance(part, Summand) and node.kind is AccumulatorKind.MAX:
                raise _FaultError(f"%{i} takes the maximum of a partial value")
            if isinstance(part, Peak) and node.kind is AccumulatorKind.SUM:
                raise _FaultError(f"%{i} adds maxima of parts")
            return part
        wanted: Part
        match node.kind:
            case AccumulatorKind.SUM:
                wanted = Summand()
            case AccumulatorKind.MAX:
                wanted = Peak()
            case AccumulatorKind.CONCAT:
                wanted = Tile(node.dim or "")
            case _:
                assert_never(node.kind)
        if part != wanted:
            raise _FaultError(
                f"%{i} accumulates {self._name(node.operand)} by {node.kind.value} as if it were "
                f"{wanted}, but it is {part}"
            )
        return Whole()

    def _saved(self, node: OutputSaver) -> Part:
        part = self.parts[node.operand]
        dim = None if self.is_loop else self.kernel.mapping.dim_of(node.target, self.par.name)
        if dim is not None and dim not in self.dims[node.operand]:
            if not isinstance(part, Summand | Peak):
                raise _FaultError(f"{node.target} stacks along {dim} a value that is {part}")
            self.stacks.setdefault(dim, {})[node.target] = part
            return part
        wanted = Whole() if dim is None else Tile(dim)
        if part != wanted:
            end = "after the loop" if self.is_loop else f"as {wanted}"
            raise _FaultError(f"{node.target} is {part} over {self.par.name}, but is saved {end}")
        return part

    def _name(self, i: int) -> str:
        node = self.kernel.block.nodes[i]
        if isinstance(node, InputLoader):
            return f"{node.source}[{', '.join(node.dims)}]"
        return f"%{i}"


class _StackReading(_Reading):
    """One kernel read along a stack dim that a kernel before it made; no block shares it out."""

    def __init__(self, kernel: GraphOp, block: _Block, dim: DataDim, stored: Stacked) -> None:
        super().__init__(kernel, block, ParDim(dim, ParKind.GRID))
        self.stored = stored

    def _loaded(self, source: str, dims: tuple[DataDim, ...]) -> Part:  # noqa: ARG002 - overrides
        return self.stored.get(source, Whole())

    def _applied(self, i: int, node: Apply) -> Part:
        if node.dim != self.par.name:
            return super()._applied(i, node)
        parts = [self.parts[j] for j in node.operands]
        if (node.op, parts) in [("sum", [Summand()]), ("max", [Peak()])]:
            return Whole()
        raise _FaultError(f"%{i} = {node.op} of values that are {', '.join(map(str, parts))}")

    def _saved(self, node: OutputSaver) -> Part:
        part = self.parts[node.operand]
        if not isinstance(part, Whole):
            self.stacks.setdefault(self.par.name, {})[node.target] = part
        return part
