"""The values of block graphs, each read once however many graphs have it.

A value is a block node together with all it depends on. Equal values of different graphs are one
here, so that what is worked out about one is worked out once. Of each it is known what it is
without parallel dims: its *whole*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from prism.ir import (
    Accumulator,
    AccumulatorKind,
    Apply,
    BlockGraph,
    Const,
    DataDim,
    InputLoader,
    OutputSaver,
    Program,
    SizeOf,
    output_name,
    reduced_dim,
)

ValueId = int
WholeId = int
"""A value without its accumulators and mappings, by number."""


class Value(NamedTuple):
    """A block node together with all it depends on; equal ones are one in all graphs.

    `dims` is a bit mask; `whole` is what it is without parallel dims. `source` is what a loader
    loads; `kind`, `dim` and `loop` are an accumulator's own; `after` are the loops that the value
    waits for.
    """

    whole: WholeId
    dims: int
    op: str = ""
    operands: tuple[ValueId, ...] = ()
    dim: int = -1
    kind: AccumulatorKind | None = None
    after: frozenset[str] = frozenset()
    source: str = ""
    loop: str = ""


class Stored(NamedTuple):
    """A tensor in memory; `dims` is a bit mask."""

    whole: WholeId
    dims: int


@dataclass(frozen=True, slots=True)
class BlockValues:
    """A block graph read once: its values, what it loads, saves and accumulates over.

    `number` tells it from all others; `graph` is kept so that its `id` stays its own.
    """

    number: int
    graph: BlockGraph
    values: tuple[ValueId, ...]
    distinct: frozenset[ValueId]
    loads: Mapping[str, Stored]
    saves: tuple[tuple[str, ValueId], ...]
    loops: frozenset[str]


class DoesNotFitError(Exception):
    """The graph is not of the kind that the induction speaks of, or a value has no state."""


class Values:
    """The values of all blocks, each once."""

    def __init__(self, program: Program) -> None:
        self.values: list[Value] = []
        self.bit = {d.name: i for i, d in enumerate(program.dims)}
        self._size_of = {d.name: d.size for d in program.dims}
        self._value_of: dict[Value, ValueId] = {}
        self._applied_to: dict[tuple[str, DataDim | None, tuple[ValueId, ...]], ValueId] = {}
        self._whole_of: dict[object, WholeId] = {}
        self._blocks: dict[int, list[BlockValues]] = {}
        self._count = 0
        self._outputs = frozenset(output_name(i) for i in range(len(program.outputs)))
        self.inputs: Mapping[str, Stored] = {
            i.name: Stored(self._whole("input", i.name), self._mask(i.dims)) for i in program.inputs
        }

    def read(self, graph: BlockGraph, stored: Mapping[str, Stored]) -> BlockValues:
        """The values of a block; one that several graphs share is read once."""
        blocks = self._blocks.setdefault(id(graph), [])
        for block in blocks:
            if all(stored.get(source) == tensor for source, tensor in block.loads.items()):
                if any(target in stored for target, _ in block.saves):
                    raise DoesNotFitError
                return block
        try:
            block = self._read(graph, stored)
        except DoesNotFitError:
            if not blocks:
                del self._blocks[id(graph)]
            raise
        blocks.append(block)
        return block

    def _read(self, graph: BlockGraph, stored: Mapping[str, Stored]) -> BlockValues:
        ids: list[ValueId] = []
        loads: dict[str, Stored] = {}
        saves: dict[str, ValueId] = {}
        for node in graph.nodes:
            match node:
                case OutputSaver(operand=operand, target=target, dims=dims):
                    if target in stored or target in saves:
                        raise DoesNotFitError
                    self._check_saved(target, self._mask(dims), self.values[ids[operand]].dims)
                    saves[target] = ids[operand]
                    ids.append(ids[operand])
                    continue
                case InputLoader(source=source, dims=dims):
                    if source not in stored or self._mask(dims) != stored[source].dims:
                        raise DoesNotFitError
                    loads[source] = stored[source]
                    value = Value(*stored[source], source=source)
                case Const(value=number):
                    value = Value(self._whole("const", repr(number)), 0)
                case SizeOf(dim=dim):
                    value = Value(self._whole("size", self._size_of.get(dim, dim)), 0)
                case Apply():
                    ids.append(self._applied(node, tuple([ids[j] for j in node.operands])))
                    continue
                case Accumulator():
                    value = self._accumulated(node, ids[node.operand])
                case _:
                    assert_never(node)
            ids.append(self._numbered(value))
        loops = frozenset(n.par for n in graph.nodes if isinstance(n, Accumulator))
        self._count += 1
        values, saved = tuple(dict.fromkeys(ids)), tuple(saves.items())
        return BlockValues(self._count, graph, values, frozenset(ids), loads, saved, loops)

    def _check_saved(self, target: str, stored: int, dims: int) -> None:
        """An output may be repeated along dims; else what is stored has the value's dims."""
        if dims & ~stored or (target not in self._outputs and stored != dims):
            raise DoesNotFitError

    def _applied(self, node: Apply, operands: tuple[ValueId, ...]) -> ValueId:
        key = (node.op, node.dim, operands)
        known = self._applied_to.get(key)
        if known is None:
            known = self._applied_to[key] = self._numbered(self._result(node, operands))
        return known

    def _result(self, node: Apply, operands: tuple[ValueId, ...]) -> Value:
        dim = -1 if node.dim is None else self._mask((node.dim,)).bit_length() - 1
        read = [self.values[v] for v in operands]
        dims = 0
        for value in read:
            dims |= value.dims
        if dim >= 0 and reduced_dim(node) is not None:
            if not all(value.dims >> dim & 1 for value in read):
                raise DoesNotFitError
            dims &= ~(1 << dim)
        whole = self._whole(node.op, dim, *(value.whole for value in read))
        after = frozenset().union(*(value.after for value in read))
        return Value(whole, dims, node.op, operands, dim, after=after)

    def _accumulated(self, node: Accumulator, operand: ValueId) -> Value:
        read = self.values[operand]
        dim = -1 if node.dim is None else self._mask((node.dim,)).bit_length() - 1
        after = read.after | {node.par}
        return Value(
            read.whole, read.dims, "", (operand,), dim, node.kind, after=after, loop=node.par
        )

    def _mask(self, dims: Sequence[DataDim]) -> int:
        """Dims as a bit mask."""
        out = 0
        for dim in dims:
            if dim not in self.bit:
                raise DoesNotFitError  # a stack dim
            out |= 1 << self.bit[dim]
        return out

    def _whole(self, *key: object) -> WholeId:
        return self._whole_of.setdefault(key, len(self._whole_of))

    def _numbered(self, value: Value) -> ValueId:
        known = self._value_of.setdefault(value, len(self.values))
        if known == len(self.values):
            self.values.append(value)
        return known
