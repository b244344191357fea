"""Admits graphs by induction over their operators, without a proof of each.

A graph is ADMITTED when

  1. taken without its parallel dims (no grid, no loop, no accumulators) it is PROVED, by full
     terms; many graphs share that whole form, and it is proved once, and
  2. along each of its parallel dims its values can be given states (`lemmas`) such that every
     step, operator by operator, is a proved lemma, and every saver stores the whole value.

Why such a graph computes its program. Let p1, .., pn be the parallel dims of a kernel in the order
in which loaders apply them, the loop last, and G_j the kernel with the first j of them alone:
loaders distribute along those, accumulators over the others let their operand through, savers put
together those. V_j(t) is the value of node t in G_j, one for each index of p1 .. pj, so V_0(t) is
the whole form and G_n the kernel. By induction over the nodes, V_j(t) stands for V_{j-1}(t) along
p_j in t's state, at every index of the others:

  loader       Part or Repl of V_{j-1}(t), which is its state's definition; a constant is Repl
  operator     the lemma: it holds for all operands of these dims, so for those at each index
  accumulator  over p_j: of a PARTIAL or PEAK value it gives V_{j-1} by definition, of tiles by the
               lemma of joining them; over another dim it is not there yet, and lets through
  after it     operators read what is whole outside the loop, so they are the same in G_{j-1}; so
               are those that read nothing the loop partitions
  saver        the lemma that Comb of tiles, or Pick of copies, gives back the whole

Savers undo p_n first, so G_n stores what G_0 does, for all sizes and numbers of chunks, and the
next kernel loads it. G_0 is a graph of its own, and by (1) it computes the program.

Side conditions: one loop per kernel, since the loop must come last; every tensor between kernels
whole (no stack dims); lemmas under the parallel rules alone, with free sizes. A graph that breaks
one is not admitted, which says nothing: full terms judge it. No state speaks of how long a chunk
is, so nothing here needs chunks of equal length.

The states are guessed by whoever asks, egglog judges each step: a wrong guess admits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, assert_never

from prism.egraph import AxiomSet
from prism.ir import (
    Accumulator,
    AccumulatorKind,
    Apply,
    BlockGraph,
    BlockNode,
    Const,
    DataDim,
    GraphOp,
    InputLoader,
    OutputSaver,
    ParKind,
    Program,
    SGraph,
    SizeOf,
    output_name,
)
from prism.ir import Mapping as DimMapping
from prism.verdict import Verdict
from prism.verify.lemmas import PARTIAL, PEAK, REPLICATED, SAVE, Lemmas, State, Step

Guess = Callable[[str, int, Sequence[State], Sequence[int]], State | None]
"""The state of an operator's result: operator, reduced dim or -1, operands' states and dims."""

Judge = Callable[[Sequence[SGraph]], Sequence[Verdict]]
"""Full terms."""

ValueId = int
WholeId = int
"""A value without its accumulators and mappings, by number."""


class _Value(NamedTuple):
    """A block node together with all it depends on; equal ones are one in all graphs.

    `dims` is a bit mask; `whole` is what it is without parallel dims. `source` is what a loader
    loads, `kind` and `dim` are an accumulator's own.
    """

    whole: WholeId
    dims: int
    op: str = ""
    operands: tuple[ValueId, ...] = ()
    dim: int = -1
    kind: AccumulatorKind | None = None
    is_after: bool = False
    source: str = ""


class _Stored(NamedTuple):
    """A tensor in memory; `dims` is a bit mask."""

    whole: WholeId
    dims: int


@dataclass(frozen=True, slots=True)
class _Block:
    """A block graph read once: its values, what it loads, saves and accumulates over.

    `number` tells it from all others; `graph` is kept so that its `id` stays its own.
    """

    number: int
    graph: BlockGraph
    values: tuple[ValueId, ...]
    distinct: frozenset[ValueId]
    loads: Mapping[str, _Stored]
    saves: tuple[tuple[str, ValueId], ...]
    loops: frozenset[str]


Column = frozenset[tuple[str, DataDim]]
"""The tensors of a kernel that one parallel dim partitions, each with the dim."""


_States = dict[ValueId, State | None]


class _DoesNotFitError(Exception):
    """The graph is not of the kind that the induction speaks of, or a value has no state."""


class Admission:
    """Admits graphs of one program under one axiom set; what was proved is kept."""

    def __init__(self, program: Program, axioms: AxiomSet, guess: Guess, judge: Judge) -> None:
        self.lemmas = Lemmas([d.name for d in program.dims], axioms)
        self._judge = judge
        self._values = _Values(program)
        self._placements = _Placements(self._values, guess)
        self._outputs = tuple(output_name(i) for i in range(len(program.outputs)))
        self._maps: dict[DimMapping, Mapping[str, Column]] = {}
        self._is_right: dict[tuple[WholeId, ...], bool] = {}

    def admitted(self, graphs: Sequence[SGraph]) -> tuple[bool, ...]:
        """Whether each graph is ADMITTED; the graphs must be well formed (`check_sgraph`)."""
        found = [self._wholes(graph) for graph in graphs]
        while claims := self._placements.claims():
            if self._placements.settle(self.lemmas.holds(claims)):
                found = [self._wholes(graph) for graph in graphs]
        new: dict[tuple[WholeId, ...], SGraph] = {}
        for graph, wholes in zip(graphs, found, strict=True):
            if wholes is not None and wholes not in self._is_right and wholes not in new:
                new[wholes] = whole_form(graph)
        for wholes, verdict in zip(new, self._judge(list(new.values())), strict=True):
            self._is_right[wholes] = verdict is Verdict.PROVED
        return tuple(wholes is not None and self._is_right[wholes] for wholes in found)

    def _wholes(self, graph: SGraph) -> tuple[WholeId, ...] | None:
        """What the graph's outputs are without parallel dims; None if a value has no state."""
        stored = dict(self._values.inputs)
        try:
            for kernel in graph.kernels:
                stored |= self._stored_by(kernel, stored)
        except _DoesNotFitError:
            return None
        if not all(name in stored for name in self._outputs):
            return None
        return tuple(stored[name].whole for name in self._outputs)

    def _stored_by(self, kernel: GraphOp, stored: Mapping[str, _Stored]) -> Mapping[str, _Stored]:
        """What a kernel stores, once its values have states along every parallel dim."""
        block = self._values.read(kernel.block, stored)
        pars = (*kernel.grid, *kernel.loops)
        is_usual = len(kernel.loops) <= 1 and len({p.name for p in pars}) == len(pars)
        if not is_usual or not block.loops <= {p.name for p in kernel.loops}:
            raise _DoesNotFitError
        maps = self._maps_of(kernel.mapping)
        for par in pars:
            column = maps.get(par.name, frozenset())
            if not self._placements.is_placed(block, column, is_loop=par.kind is ParKind.LOOP):
                raise _DoesNotFitError
        values = self._values.values
        return {name: _Stored(values[v].whole, values[v].dims) for name, v in block.saves}

    def _maps_of(self, mapping: DimMapping) -> Mapping[str, Column]:
        """The mapping by parallel dim."""
        known = self._maps.get(mapping)
        if known is None:
            places: dict[str, set[tuple[str, DataDim]]] = {}
            for var in mapping.true:
                places.setdefault(var.par, set()).add((var.tensor, var.dim))
            known = self._maps[mapping] = {par: frozenset(p) for par, p in places.items()}
        return known


class _Values:
    """The values of all blocks, each once."""

    def __init__(self, program: Program) -> None:
        self.values: list[_Value] = []
        self.bit = {d.name: i for i, d in enumerate(program.dims)}
        self._size_of = {d.name: d.size for d in program.dims}
        self._value_of: dict[_Value, ValueId] = {}
        self._applied_to: dict[tuple[str, DataDim | None, tuple[ValueId, ...]], ValueId] = {}
        self._whole_of: dict[object, WholeId] = {}
        self._blocks: dict[int, list[_Block]] = {}
        self._count = 0
        self._outputs = frozenset(output_name(i) for i in range(len(program.outputs)))
        self.inputs: Mapping[str, _Stored] = {
            i.name: _Stored(self._whole("input", i.name), self._mask(i.dims))
            for i in program.inputs
        }

    def read(self, graph: BlockGraph, stored: Mapping[str, _Stored]) -> _Block:
        """The values of a block; one that several graphs share is read once."""
        blocks = self._blocks.setdefault(id(graph), [])
        for block in blocks:
            if all(stored.get(source) == tensor for source, tensor in block.loads.items()):
                if any(target in stored for target, _ in block.saves):
                    raise _DoesNotFitError
                return block
        try:
            block = self._read(graph, stored)
        except _DoesNotFitError:
            if not blocks:
                del self._blocks[id(graph)]
            raise
        blocks.append(block)
        return block

    def _read(self, graph: BlockGraph, stored: Mapping[str, _Stored]) -> _Block:
        ids: list[ValueId] = []
        loads: dict[str, _Stored] = {}
        saves: dict[str, ValueId] = {}
        for node in graph.nodes:
            match node:
                case OutputSaver(operand=operand, target=target, dims=dims):
                    if target in stored or target in saves:
                        raise _DoesNotFitError
                    self._check_saved(target, self._mask(dims), self.values[ids[operand]].dims)
                    saves[target] = ids[operand]
                    ids.append(ids[operand])
                    continue
                case InputLoader(source=source, dims=dims):
                    if source not in stored or self._mask(dims) != stored[source].dims:
                        raise _DoesNotFitError
                    loads[source] = stored[source]
                    value = _Value(*stored[source], source=source)
                case Const(value=number):
                    value = _Value(self._whole("const", repr(number)), 0)
                case SizeOf(dim=dim):
                    value = _Value(self._whole("size", self._size_of.get(dim, dim)), 0)
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
        return _Block(self._count, graph, values, frozenset(ids), loads, saved, loops)

    def _check_saved(self, target: str, stored: int, dims: int) -> None:
        """An output may be repeated along dims; else what is stored has the value's dims."""
        if dims & ~stored or (target not in self._outputs and stored != dims):
            raise _DoesNotFitError

    def _applied(self, node: Apply, operands: tuple[ValueId, ...]) -> ValueId:
        key = (node.op, node.dim, operands)
        known = self._applied_to.get(key)
        if known is None:
            known = self._applied_to[key] = self._numbered(self._result(node, operands))
        return known

    def _result(self, node: Apply, operands: tuple[ValueId, ...]) -> _Value:
        dim = -1 if node.dim is None else self._mask((node.dim,)).bit_length() - 1
        read = [self.values[v] for v in operands]
        dims = 0
        for value in read:
            dims |= value.dims
        if dim >= 0:
            if not all(value.dims >> dim & 1 for value in read):
                raise _DoesNotFitError
            dims &= ~(1 << dim)
        whole = self._whole(node.op, dim, *(value.whole for value in read))
        is_after = any(value.is_after for value in read)
        return _Value(whole, dims, node.op, operands, dim, is_after=is_after)

    def _accumulated(self, node: Accumulator, operand: ValueId) -> _Value:
        read = self.values[operand]
        dim = -1 if node.dim is None else self._mask((node.dim,)).bit_length() - 1
        return _Value(read.whole, read.dims, "", (operand,), dim, node.kind, is_after=True)

    def _mask(self, dims: Sequence[DataDim]) -> int:
        """Dims as a bit mask."""
        out = 0
        for dim in dims:
            if dim not in self.bit:
                raise _DoesNotFitError  # a stack dim
            out |= 1 << self.bit[dim]
        return out

    def _whole(self, *key: object) -> WholeId:
        return self._whole_of.setdefault(key, len(self._whole_of))

    def _numbered(self, value: _Value) -> ValueId:
        known = self._value_of.setdefault(value, len(self.values))
        if known == len(self.values):
            self.values.append(value)
        return known


class _Placements:
    """The states of values along one parallel dim, and the steps that give them."""

    def __init__(self, values: _Values, guess: Guess) -> None:
        self._all = values
        self._guess = guess
        self._placed: dict[tuple[int, Column, bool], bool] = {}
        self._states: dict[tuple[Column, bool], tuple[_States, set[ValueId]]] = {}
        """Of values, and those that have none."""
        self._results: dict[tuple[object, ...], State | None] = {}
        self._claims: dict[Step, None] = {}
        self._true: set[Step] = set()
        self._false: set[Step] = set()

    def claims(self) -> tuple[Step, ...]:
        """The steps that were used and are not judged yet."""
        return tuple(self._claims)

    def settle(self, judged: Mapping[Step, bool]) -> bool:
        """Take verdicts on claims; whether placements were forgotten, since one was false."""
        self._claims.clear()
        self._true.update(step for step, holds in judged.items() if holds)
        false = {step for step, holds in judged.items() if not holds}
        if false:
            self._false |= false
            self._placed.clear()
            self._states.clear()
            self._results.clear()
        return bool(false)

    def is_placed(self, block: _Block, column: Column, *, is_loop: bool) -> bool:
        """Whether every value of a block has a state, and every saver stores the whole."""
        key = (block.number, column, is_loop)
        known = self._placed.get(key)
        if known is None:
            known = self._placed[key] = self._place(block, column, is_loop=is_loop)
        return known

    def _place(self, block: _Block, column: Column, *, is_loop: bool) -> bool:
        of = {name: self._all.bit[dim] for name, dim in column if dim in self._all.bit}
        if len(of) != len(column):
            return False  # two dims of one tensor, or a dim that the program does not have
        loaded = frozenset(place for place in column if place[0] in block.loads)
        states, lost = self._states.setdefault((loaded, is_loop), ({}, set()))
        if not states.keys() >= block.distinct:
            for v in block.values:
                if v not in states:
                    states[v] = self._state(self._all.values[v], of, states, is_loop=is_loop)
                    if states[v] is None:
                        lost.add(v)
        if not lost.isdisjoint(block.distinct):
            return False
        for target, v in block.saves:
            wanted = REPLICATED if is_loop else of.get(target, REPLICATED)
            if states[v] != wanted:
                return False
            if not is_loop and not self._saves(wanted, self._all.values[v].dims):
                return False
        return True

    def _state(
        self,
        value: _Value,
        of: Mapping[str, State],
        states: _States,
        *,
        is_loop: bool,
    ) -> State | None:
        """The state of a value; None where it has none, or the step to it does not hold."""
        if value.source:
            state = of.get(value.source, REPLICATED)
            return state if state == REPLICATED or value.dims >> state & 1 else None
        read = tuple(states[v] for v in value.operands)
        operands = tuple(state for state in read if state is not None)
        if len(operands) < len(read):
            return None
        if value.kind is not None:
            return self._accumulated(value, operands[0]) if is_loop else operands[0]
        is_whole = all(state == REPLICATED for state in operands)
        if is_loop and (is_whole or value.is_after):
            return REPLICATED if is_whole else None
        if not operands:
            return REPLICATED
        masks = tuple(self._all.values[v].dims for v in value.operands)
        key = (value.op, value.dim, operands, masks)
        if key not in self._results:
            self._results[key] = self._result(*key)
        return self._results[key]

    def _result(
        self, op: str, dim: int, states: tuple[State, ...], masks: tuple[int, ...]
    ) -> State | None:
        result = self._guess(op, dim, states, masks)
        if result is None or not self._claim(Step(op, dim, states, masks, result)):
            return None
        return result

    def _accumulated(self, value: _Value, state: State) -> State | None:
        """What an accumulator makes of a value over its own loop: the whole, or nothing known."""
        match value.kind:
            case AccumulatorKind.SUM:
                is_whole = state == PARTIAL
            case AccumulatorKind.MAX:
                is_whole = state == PEAK
            case AccumulatorKind.CONCAT:
                is_whole = state == value.dim >= 0 and self._saves(state, value.dims)
            case _:
                is_whole = False
        return REPLICATED if is_whole else None

    def _saves(self, state: State, dims: int) -> bool:
        """Whether putting together what is in a state gives the whole."""
        return self._claim(Step(SAVE, -1, (state,), (dims,), state))

    def _claim(self, step: Step) -> bool:
        """Use a step: true until it is known to be false."""
        if step in self._false:
            return False
        if step not in self._true:
            self._claims[step] = None
        return True


def whole_form(graph: SGraph) -> SGraph:
    """The graph without its parallel dims: no grid, no loop, no accumulators."""
    kernels = []
    for kernel in graph.kernels:
        nodes: list[BlockNode] = []
        place: list[int] = []
        for node in kernel.block.nodes:
            match node:
                case Accumulator(operand=operand):
                    place.append(place[operand])
                    continue
                case Apply(operands=operands):
                    nodes.append(replace(node, operands=tuple(place[j] for j in operands)))
                case OutputSaver(operand=operand):
                    nodes.append(replace(node, operand=place[operand]))
                case InputLoader() | Const() | SizeOf():
                    nodes.append(node)
                case _:
                    assert_never(node)
            place.append(len(nodes) - 1)
        block = BlockGraph(tuple(nodes))
        kernels.append(GraphOp((), (), DimMapping(frozenset()), block))
    return replace(graph, kernels=tuple(kernels))
