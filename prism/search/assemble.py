"""Builds the sGraph of a candidate (op DAG, loop stage, mapping), and the program's own.

Graphs of several kernels are put together from candidates, one per kernel (`plans.plan`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, assert_never

from prism.ir import (
    GRID_DIMS,
    LOOP_DIM,
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
    """What determines an sGraph of one kernel; `stage` is None where there is no loop."""

    wired: Wired
    stage: Stage | None
    assignment: Assignment
    grid: tuple[Column, ...]
    library: bool = False

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
        # wired and stage are kept, so that no others get their ids
        self._blocks: dict[tuple[int, int], tuple[Wired, Stage | None, BlockGraph]] = {}

    def graph(self, design: Design) -> SGraph:
        """The sGraph of a design."""
        return design.build(self)

    def of_one_kernel(self, candidate: Candidate) -> SGraph:
        """The sGraph of a candidate."""
        wired, stage = candidate.wired, candidate.stage
        key = (id(wired), id(stage))
        if key not in self._blocks:
            self._blocks[key] = (wired, stage, _Builder(self.arena, candidate, self._order).block())
        block = self._blocks[key][2]
        loops = () if stage is None else (LOOP_DIM,)
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
        self.nodes: list[BlockNode] = []
        self.value: dict[TermId, int] = {}
        """Where the value of a term stands in the body (or outside any loop)."""
        self.whole: dict[TermId, int] = {}
        """Where a value stands that exists after the loop."""

    def block(self) -> BlockGraph:
        wired, stage = self.candidate.wired, self.candidate.stage
        terms = self.arena.terms
        listed = (*sorted(wired.leaves, key=self.order.of), *wired.nodes)
        in_body = [t for t in listed if stage and self._varies(t, stage)]
        after = [t for t in wired.nodes if stage and stage.state(t) == AFTER]
        late = {*in_body, *after}
        for term in (*(t for t in listed if t not in late), *in_body):
            leaf = terms[term].leaf
            operands = tuple([self.value[t] for t in terms[term].operands])
            self.value[term] = self._add(
                self._applied(term, operands) if leaf is None else _loaded(leaf)
            )
        if stage is not None:
            for term in stage.accumulated:
                self.whole[term] = self._add(self._accumulated(term, stage))
            for term in after:
                operands = tuple(self._after(t) for t in terms[term].operands)
                self.whole[term] = self._add(self._applied(term, operands))
            for term in stage.stored:
                self.whole[term] = self._add(self._accumulated(term, stage))
        for index, (root, output) in enumerate(
            zip(wired.roots, self.arena.program.outputs, strict=True)
        ):
            dims = tuple(d for d in output.axes if d is not None)
            self._add(OutputSaver(self._after(root), output_name(index), dims))
        return BlockGraph(tuple(self.nodes))

    def _add(self, node: BlockNode) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _after(self, term: TermId) -> int:
        return self.whole[term] if term in self.whole else self.value[term]

    def _varies(self, term: TermId, stage: Stage) -> bool:
        return stage.state(term) not in (REPLICATED, AFTER)

    def _applied(self, term: TermId, operands: tuple[int, ...]) -> Apply:
        value = self.arena.terms[term]
        dim = self.arena.dim_names[value.dim] if value.dim >= 0 else None
        return Apply(value.op, operands, dim)

    def _accumulated(self, term: TermId, stage: Stage) -> Accumulator:
        state = stage.state(term)
        kind = accumulator_of(state)
        dim = self.arena.dim_names[state] if kind is AccumulatorKind.CONCAT else None
        return Accumulator(self.value[term], kind, LOOP_DIM.name, dim)


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
