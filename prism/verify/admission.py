"""Admits graphs by induction over their operators, without a proof of each.

A graph is ADMITTED when

  1. taken without its parallel dims (no grid, no loop, no accumulators) it is PROVED, by full
     terms; many graphs share that whole form, and it is proved once, and
  2. along each of its parallel dims its values can be given states (`lemmas`) such that every
     step, operator by operator, is a proved lemma, and every saver stores the whole value.

Why such a graph computes its program. Let p1, .., pn be the parallel dims of a kernel in the order
in which loaders apply them, loops last, the outer before the inner, and G_j the kernel with the
first j of them alone:
loaders distribute along those, accumulators over the others let their operand through, savers put
together those. V_j(t) is the value of node t in G_j, one for each index of p1 .. pj, so V_0(t) is
the whole form and G_n the kernel. By induction over the nodes, V_j(t) stands for V_{j-1}(t) along
p_j in t's state, at every index of the others:

  loader       Part or Repl of V_{j-1}(t), which is its state's definition; a constant is Repl
  operator     the lemma: it holds for all operands of these dims, so for those at each index
  accumulator  over p_j: of a PARTIAL or PEAK value it gives V_{j-1} by definition, of tiles by the
               lemma of joining them; over a dim after p_j it is not there yet, and lets through;
               over a loop around p_j it combines what is outside p_j, the same in G_{j-1}
  after it     operators read what is whole outside the loop, so they are the same in G_{j-1}; so
               are those that read nothing the loop partitions
  saver        the lemma that Comb of tiles, or Pick of copies, gives back the whole

Savers undo p_n first, so G_n stores what G_0 does, for all sizes and numbers of chunks, and the
next kernel loads it. G_0 is a graph of its own, and by (1) it computes the program.

Side conditions: loops come last and nest as `check_sgraph` says; every tensor between kernels
whole (no stack dims); lemmas under the parallel rules alone, with free sizes. A graph that breaks
one is not admitted, which says nothing: full terms judge it. No state speaks of how long a chunk
is, so nothing here needs chunks of equal length.

The states are guessed by whoever asks, egglog judges each step: a wrong guess admits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

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
    ParDim,
    ParKind,
    Program,
    SGraph,
    SizeOf,
    output_name,
)
from prism.ir import Mapping as DimMapping
from prism.verdict import Verdict
from prism.verify.lemmas import PARTIAL, PEAK, REPLICATED, SAVE, Lemmas, State, Step
from prism.verify.values import (
    BlockValues,
    DoesNotFitError,
    Stored,
    Value,
    ValueId,
    Values,
    WholeId,
)

Guess = Callable[[str, int, Sequence[State], Sequence[int]], State | None]
"""The state of an operator's result: operator, reduced dim or -1, operands' states and dims."""

Judge = Callable[[Sequence[SGraph]], Sequence[Verdict]]
"""Full terms."""

Column = frozenset[tuple[str, DataDim]]
"""The tensors of a kernel that one parallel dim partitions, each with the dim."""

_States = dict[ValueId, State | None]


Within = tuple[str, ...]
"""A loop and those around it, outermost first; none for a grid dim."""


def _within(par: ParDim, loops: Sequence[str]) -> Within:
    return tuple(loops[: loops.index(par.name) + 1]) if par.kind is ParKind.LOOP else ()


@dataclass(frozen=True, slots=True)
class _Table:
    """What is known along one column: the states of tensors in memory and of values.

    `lost` are the values that have none.
    """

    of: Mapping[str, State]
    states: _States = field(default_factory=dict)
    lost: set[ValueId] = field(default_factory=set)


class Admission:
    """Admits graphs of one program under one axiom set; what was proved is kept."""

    def __init__(self, program: Program, axioms: AxiomSet, guess: Guess, judge: Judge) -> None:
        self.lemmas = Lemmas([d.name for d in program.dims], axioms)
        self._judge = judge
        self._values = Values(program)
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
        except DoesNotFitError:
            return None
        if not all(name in stored for name in self._outputs):
            return None
        return tuple(stored[name].whole for name in self._outputs)

    def _stored_by(self, kernel: GraphOp, stored: Mapping[str, Stored]) -> Mapping[str, Stored]:
        """What a kernel stores, once its values have states along every parallel dim."""
        block = self._values.read(kernel.block, stored)
        pars = (*kernel.grid, *kernel.loops)
        loops = [p.name for p in kernel.loops]
        if len({p.name for p in pars}) < len(pars) or not block.loops <= set(loops):
            raise DoesNotFitError
        maps = self._maps_of(kernel.mapping)
        for par in pars:
            column = maps.get(par.name, frozenset())
            if not self._placements.is_placed(block, column, _within(par, loops)):
                raise DoesNotFitError
        values = self._values.values
        return {name: Stored(values[v].whole, values[v].dims) for name, v in block.saves}

    def _maps_of(self, mapping: DimMapping) -> Mapping[str, Column]:
        """The mapping by parallel dim."""
        known = self._maps.get(mapping)
        if known is None:
            places: dict[str, set[tuple[str, DataDim]]] = {}
            for var in mapping.true:
                places.setdefault(var.par, set()).add((var.tensor, var.dim))
            known = self._maps[mapping] = {par: frozenset(p) for par, p in places.items()}
        return known


class _Placements:
    """The states of values along one parallel dim, and the steps that give them."""

    def __init__(self, values: Values, guess: Guess) -> None:
        self._all = values
        self._guess = guess
        self._placed: dict[tuple[int, Column, Within], bool] = {}
        self._tables: dict[tuple[Column, Within], _Table] = {}
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
            self._tables.clear()
            self._results.clear()
        return bool(false)

    def is_placed(self, block: BlockValues, column: Column, within: Within) -> bool:
        """Whether every value of a block has a state, and every saver stores the whole."""
        key = (block.number, column, within)
        known = self._placed.get(key)
        if known is None:
            known = self._placed[key] = self._place(block, column, within)
        return known

    def _place(self, block: BlockValues, column: Column, within: Within) -> bool:
        table = self._table(block, column, within)
        if len(table.of) != len(column):
            return False  # two dims of one tensor, or a dim that the program does not have
        if not table.lost.isdisjoint(block.distinct):
            return False
        for target, v in block.saves:
            wanted = REPLICATED if within else table.of.get(target, REPLICATED)
            if table.states[v] != wanted:
                return False
            if not within and not self._saves(wanted, self._all.values[v].dims):
                return False
        return True

    def _table(self, block: BlockValues, column: Column, within: Within) -> _Table:
        """The states along a column, those of the block's values among them."""
        key = (column, within)
        if key not in self._tables:
            bit = self._all.bit
            self._tables[key] = _Table({t: bit[dim] for t, dim in column if dim in bit})
        table = self._tables[key]
        if not table.states.keys() >= block.distinct:
            for v in block.values:
                if v not in table.states:
                    value = self._all.values[v]
                    state = self._state(value, table.of, table.states, within)
                    table.states[v] = state
                    if state is None:
                        table.lost.add(v)
        return table

    def _state(
        self,
        value: Value,
        of: Mapping[str, State],
        states: _States,
        within: Within,
    ) -> State | None:
        """The state of a value; None where it has none, or the step to it does not hold."""
        if value.source:
            state = of.get(value.source, REPLICATED)
            return state if state == REPLICATED or value.dims >> state & 1 else None
        read = [states[v] for v in value.operands]
        operands = tuple([state for state in read if state is not None])
        if len(operands) < len(read):
            return None
        if value.kind is not None:
            return self._accumulated(value, operands[0], within)
        is_whole = all(state == REPLICATED for state in operands)
        if within and (is_whole or within[-1] in value.after):
            return REPLICATED if is_whole else None
        if not operands:
            return REPLICATED
        masks = tuple([self._all.values[v].dims for v in value.operands])
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

    def _accumulated(self, value: Value, state: State, within: Within) -> State | None:
        """What an accumulator makes of a value; None where that is not known."""
        if value.loop not in within:
            return state  # of a dim before its loop
        if value.loop != within[-1]:
            return state if state == REPLICATED else None
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
