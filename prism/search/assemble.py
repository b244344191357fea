"""Builds the sGraph of a candidate (op DAG, loop stage, mapping), and the program's own.

Graphs of several kernels are put together from candidates, one per kernel (`plans.plan`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, assert_never

from prism.ir import (
    GRID_DIMS,
    LOOP_DIMS,
    Accumulator,
    AccumulatorKind,
    Apply,
    Assignment,
    BlockGraph,
    BlockNode,
    Const,
    GraphOp,
    Input,
    InputLoader,
    Mapping,
    OutputSaver,
    Program,
    SGraph,
    SizeOf,
    live_nodes,
    output_name,
)
from prism.search.grid import Column
from prism.search.macros import Leaf
from prism.search.placement import AFTER, REPLICATED, accumulator_of
from prism.search.stages import Stage
from prism.search.wiring import Arena, TermId, Wired

_CONSTANT = 1 << 61


class Design(Protocol):
    """What determines an sGraph."""

    def build(self, builder: GraphBuilder) -> SGraph:
        """The sGraph; the builder is of the arena whose terms it is made of."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What determines an sGraph of one kernel; `stage` is None where there is no loop.

    `inner` is the stage along a loop inside the loop.
    """

    wired: Wired
    stage: Stage | None
    assignment: Assignment
    grid: tuple[Column, ...]
    library: bool = False
    inner: Stage | None = None

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages along the loops there are, outer before inner."""
        return tuple([stage for stage in (self.stage, self.inner) if stage is not None])

    def build(self, builder: GraphBuilder) -> SGraph:
        """The sGraph: loaders, body, accumulators, after the loop, savers, in SSA order."""
        return builder.of_one_kernel(self)


def build_graph(arena: Arena, design: Design) -> SGraph:
    """The sGraph of a design over the terms of `arena`."""
    return GraphBuilder(arena).graph(design)


class GraphBuilder:
    """Builds many graphs; those of one op DAG and stage share one block graph object."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self._order = _Order(arena)
        # wired and stages are kept, so that no others get their ids
        self._blocks: dict[tuple[int, ...], tuple[Wired, tuple[Stage, ...], BlockGraph]] = {}

    def graph(self, design: Design) -> SGraph:
        """The sGraph of a design."""
        return design.build(self)

    def of_one_kernel(self, candidate: Candidate) -> SGraph:
        """The sGraph of a candidate."""
        wired, stages = candidate.wired, candidate.stages
        key = (id(wired), *map(id, stages))
        if key not in self._blocks:
            block = _Builder(self.arena, candidate, self._order).block()
            self._blocks[key] = (wired, stages, block)
        block = self._blocks[key][2]
        loops = LOOP_DIMS[: len(stages)]
        grid = GRID_DIMS[: len(candidate.grid)]
        kernel = GraphOp(grid, loops, candidate.assignment, block, candidate.library)
        return SGraph(self.arena.program, (kernel,))


class _Order:
    """The order of leaves in a block: inputs as in the program, then constants and sizes."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._known: dict[TermId, tuple[int, str]] = {}

    def of(self, term: TermId) -> tuple[int, str]:
        """What to sort a leaf by."""
        if term not in self._known:
            value = self._arena.terms[term]
            self._known[term] = (value.inputs or _CONSTANT, repr(value.leaf))
        return self._known[term]


class _Builder:
    """Collects the nodes of one block graph."""

    def __init__(self, arena: Arena, candidate: Candidate, order: _Order) -> None:
        self.arena = arena
        self.order = order
        self.candidate = candidate
        self.stages = candidate.stages
        self.nodes: list[BlockNode] = []
        self.value: dict[TermId, int] = {}
        """Where the value of a term stands in the loops (or outside any)."""
        self.whole: dict[TermId, int] = {}
        """Where a value stands that exists after the loops that have ended so far."""

    def block(self) -> BlockGraph:
        wired = self.candidate.wired
        terms = self.arena.terms
        listed = (*sorted(wired.leaves, key=self.order.of), *wired.nodes)
        # outside the loops first, then what is in them, the innermost last
        early = [t for t in listed if self._ended(t) is None]
        for term in sorted(early, key=self._level):
            leaf = terms[term].leaf
            operands = tuple([self.value[t] for t in terms[term].operands])
            self.value[term] = self._add(
                self._applied(term, operands) if leaf is None else _loaded(leaf)
            )
        for number in reversed(range(len(self.stages))):
            self._end_loop(number)
        for index, (root, output) in enumerate(
            zip(wired.roots, self.arena.program.outputs, strict=True)
        ):
            dims = tuple(d for d in output.axes if d is not None)
            self._add(OutputSaver(self._after(root), output_name(index), dims))
        return BlockGraph(tuple(self.nodes))

    def _end_loop(self, number: int) -> None:
        """The accumulators over a loop, and what runs after it and in the loop around it."""
        stage, terms = self.stages[number], self.arena.terms
        self._accumulate(stage.accumulated, number)
        for term in self.candidate.wired.nodes:
            if self._ended(term) == number:
                operands = tuple(self._after(t) for t in terms[term].operands)
                self.whole[term] = self._add(self._applied(term, operands))
        self._accumulate(stage.stored, number)

    def _accumulate(self, terms: tuple[TermId, ...], number: int) -> None:
        for term in terms:
            self.whole[term] = self._add(self._accumulated(term, number))

    def _add(self, node: BlockNode) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _after(self, term: TermId) -> int:
        return self.whole[term] if term in self.whole else self.value[term]

    def _level(self, term: TermId) -> int:
        """How many loops a term stands in that waits for none."""
        varying = (k for k, s in enumerate(self.stages, 1) if s.state(term) != REPLICATED)
        return max(varying, default=0)

    def _ended(self, term: TermId) -> int | None:
        """The number of the outermost loop after which a term is computed, if any."""
        ended = (k for k, stage in enumerate(self.stages) if stage.state(term) == AFTER)
        return next(ended, None)

    def _applied(self, term: TermId, operands: tuple[int, ...]) -> Apply:
        value = self.arena.terms[term]
        dim = self.arena.dim_names[value.dim] if value.dim >= 0 else None
        return Apply(value.op, operands, dim)

    def _accumulated(self, term: TermId, number: int) -> Accumulator:
        state = self.stages[number].state(term)
        kind = accumulator_of(state)
        dim = self.arena.dim_names[state] if kind is AccumulatorKind.CONCAT else None
        return Accumulator(self._after(term), kind, LOOP_DIMS[number].name, dim)


def _loaded(leaf: Leaf) -> BlockNode:
    match leaf:
        case Input(name=name, dims=dims):
            return InputLoader(name, dims)
        case Const() | SizeOf():
            return leaf
        case _:
            assert_never(leaf)


def program_graph(program: Program) -> SGraph:
    """The program itself as one block without grid and loop: always right."""
    nodes: list[BlockNode] = []
    place: dict[int, int] = {}
    for i in live_nodes(program):
        node = program.nodes[i]
        match node:
            case Input(name=name, dims=dims):
                nodes.append(InputLoader(name, dims))
            case Const() | SizeOf():
                nodes.append(node)
            case Apply(op=op, operands=operands, dim=dim):
                nodes.append(Apply(op, tuple(place[j] for j in operands), dim))
            case _:
                assert_never(node)
        place[i] = len(nodes) - 1
    for index, output in enumerate(program.outputs):
        dims = tuple(d for d in output.axes if d is not None)
        nodes.append(OutputSaver(place[output.tensor], output_name(index), dims))
    kernel = GraphOp((), (), Mapping(frozenset()), BlockGraph(tuple(nodes)))
    return SGraph(program, (kernel,))
