"""Pieces: one kernel of several, an op DAG over inputs and the tensors of earlier kernels.

A piece is a program of its own (`Piece.arena`): it reads inputs and what earlier kernels saved, and
returns what it saves. Its mappings come from the encoding, legality from the pruners and loop
stages from `stages`, as for a single kernel.

An output may be left partial: the blocks along one grid dim store what they have side by side along
a new dim, the stack dim, and a kernel that loads it begins with a sum over that dim (or a maximum).
`stackings` lists what a piece could leave partial.

Pieces are kept by what they are and shared by all cuts of all op DAGs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import nsmallest
from typing import assert_never

import numpy as np

from prism.ir import (
    OPS,
    Apply,
    Argument,
    Const,
    DataDim,
    DimInfo,
    Input,
    Node,
    OpKind,
    Output,
    Program,
    SizeOf,
)
from prism.ir import Mapping as Maps
from prism.search.assemble import Candidate, GraphBuilder
from prism.search.generate import Materials
from prism.search.grid import Column, Stacking
from prism.search.placement import PARTIAL, PEAK, State
from prism.search.plans.profiles import KernelCosts, Profiles, Row
from prism.search.pruning import Equality, Matched
from prism.search.ranking import Rank, Ranked, rank
from prism.search.stages import Stage
from prism.search.wiring import Arena, TermId, Wired, dims_in

MAX_COLUMNS = 64
"""Grid columns of a kernel's inputs that are looked at for what they leave partial."""

MAX_OPTIONS = 400
"""Options of one piece."""

MAX_STAGES = 2
"""Loop stages of a piece per loop, where only the best plans are listed."""

_COMBINED_BY = {PARTIAL: "sum", PEAK: "max"}
"""The operator that makes a stacked value whole."""


@dataclass(frozen=True, slots=True)
class Stacked:
    """How a value is loaded that blocks have stacked along a dim: `state` is PARTIAL or PEAK."""

    dim: str
    state: State


@dataclass(frozen=True, slots=True)
class PieceKey:
    """A kernel: the terms it saves, the terms it loads, and how; inputs are not listed.

    `stacking` lists the saved terms that are left partial, with their states, along `stack_dim`.
    A term that is an output and read later has two of the `target_count` targets.
    """

    saved: tuple[TermId, ...]
    target_count: int
    loaded: tuple[tuple[TermId, Stacked | None], ...]
    stack_dim: str
    stacking: tuple[tuple[TermId, State], ...] = ()

    def load_names(self) -> dict[str, TermId]:
        """What the loaded tensors are called in the piece: by place, so that pieces are alike."""
        return {f"%{i}": term for i, (term, _) in enumerate(self.loaded)}


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One way to run a piece, and its seconds at each profile."""

    ranked: Ranked
    seconds: Row


class Piece:
    """A kernel and its options."""

    def __init__(
        self,
        key: PieceKey,
        inner: frozenset[TermId],
        own: frozenset[TermId],
        base: Materials,
        profiles: Profiles,
    ) -> None:
        """`inner` and `own` are terms of `base.arena`: those within macros, the program's own."""
        self.key = key
        built = _Builder(base.arena, key)
        self.arena = Arena(built.program())
        self.wired = built.wire(self.arena, inner)
        stacked = {key.saved.index(term): state for term, state in key.stacking}
        stacking = Stacking(key.stack_dim, stacked) if stacked else None
        self._materials = replace(base, arena=self.arena, stacking=stacking)
        self.mapper = self._materials.mapper()
        self.mapper.own = frozenset(ours for term, ours in built.ours.items() if term in own)
        self.builder = GraphBuilder(self.arena)
        self._profiles = profiles
        self._options: tuple[Option, ...] | None = None

    @cached_property
    def stackings(self) -> tuple[tuple[tuple[TermId, State], ...], ...]:
        """Which of the saved terms some grid dim leaves partial, for each such dim."""
        found: dict[tuple[tuple[TermId, State], ...], None] = {}
        equal = self._materials.gate.equalities(self.arena, self.wired)
        for column in self._columns(equal):
            states = self.mapper.placement.root_states(self.wired, column)
            partial = tuple(
                (term, state)
                for term, state in zip(self.key.saved, states or (), strict=False)
                if state in (PARTIAL, PEAK)
            )
            if partial:
                found[partial] = None
        return tuple(found)

    def _columns(self, equal: frozenset[Equality]) -> Iterator[Column]:
        """The grid columns that differ in the inputs: states do not depend on the outputs."""
        seen: set[tuple[State, ...]] = set()
        for column in self.mapper.mappings.columns(self.wired, equal):
            if column.inputs in seen:
                continue
            if len(seen) == MAX_COLUMNS:
                self._materials.cuts.add(
                    "columns", "kernels: what a kernel may leave partial was not all looked at"
                )
                return
            seen.add(column.inputs)
            yield column

    @cached_property
    def floor(self) -> Row:
        """The seconds of any option at least, at each profile; no encoding is asked."""
        costs = KernelCosts(self.arena, self.mapper.placement, self._profiles)
        is_shared, is_alone = bool(self.key.stacking), self._is_one_contraction()
        return costs.least(self.wired, is_shared=is_shared, is_alone=is_alone)

    @cached_property
    def least(self) -> Row:
        """The seconds of the best option at each profile; infinite where there is none."""
        if not self.options:
            return np.full(self._profiles.count, np.inf)
        return np.asarray(np.minimum.reduce([option.seconds for option in self.options]))

    @property
    def bound(self) -> Row:
        """What is known so far of the seconds of the best option, at least."""
        return self.floor if self._options is None else self.least

    def best(self, profile: int, most: int) -> list[Option]:
        """The options that are fastest at a profile, at most so many."""
        return nsmallest(most, self.options, lambda o: (o.seconds[profile], o.ranked.rank))

    @property
    def is_known(self) -> bool:
        """Whether the options were asked for."""
        return self._options is not None

    @property
    def options(self) -> tuple[Option, ...]:
        """Every way to run it, the best looking first.

        Where mappings are asked for apart, because only the best plans are listed, those under the
        largest grids with the best looking stages.
        """
        if self._options is None:
            self._options = self._found()
        return self._options

    def _found(self) -> tuple[Option, ...]:
        if not self._materials.gate.keeps(Matched(self.arena, self.wired)):
            return ()
        costs = KernelCosts(self.arena, self.mapper.placement, self._profiles)
        is_best = self._materials.apart
        candidates = self.mapper.candidates(
            self.wired, self._best_stages if is_best else self._stages, widest=is_best
        )
        out: list[Option] = []
        for ranked in candidates:
            if len(out) == MAX_OPTIONS:
                self._materials.cuts.add("options", "kernels: one kernel has too many options")
                break
            found = ranked.candidate
            assert isinstance(found, Candidate)
            out.append(Option(ranked, costs.seconds(found.wired, found.stage, found.grid)))
        if self._is_one_contraction():
            out.append(self._library(costs))
        return tuple(sorted(out, key=lambda option: option.ranked.rank))

    def _stages(self, loop: tuple[State, ...]) -> Iterator[Stage | None]:
        return self.mapper.stages(self.wired, loop)

    def _best_stages(self, loop: tuple[State, ...]) -> list[Stage | None]:
        """The best looking stages, as if there were no grid."""

        def looks(stage: Stage | None) -> Rank:
            candidate = Candidate(self.wired, stage, Maps(frozenset()), ())
            return rank(self.arena, self.mapper.placement, candidate, (), self.mapper.own)

        return nsmallest(MAX_STAGES, self._stages(loop), key=looks)

    def _is_one_contraction(self) -> bool:
        """Whether a library may run it: one contraction of two tensors, saved once, not stacked."""
        terms, key = self.arena.terms, self.key
        if len(self.wired.nodes) != 1 or len(self.wired.leaves) != 2:
            return False
        if key.target_count != 1 or key.stacking:
            return False
        return OPS[terms[self.wired.nodes[0]].op].kind is OpKind.CONTRACT

    def _library(self, costs: KernelCosts) -> Option:
        """The library's way: one block graph, no mapping of ours."""
        candidate = Candidate(self.wired, None, Maps(frozenset()), (), library=True)
        order = rank(self.arena, self.mapper.placement, candidate, (), self.mapper.own)
        op_count = self.mapper.op_count(self.wired, None)
        return Option(Ranked(order, candidate, op_count, 0), costs.library(self.wired))


class _Builder:
    """The program of a piece, from terms of the search's arena."""

    def __init__(self, main: Arena, key: PieceKey) -> None:
        self._main = main
        self._key = key
        self._loaded = dict(key.loaded)
        self._names = {term: name for name, term in key.load_names().items()}
        self._terms = tuple(self._below())
        self._place: dict[TermId, int] = {}
        self.ours: dict[TermId, TermId] = {}
        """The piece's own terms for those of the search that it computes."""

    def program(self) -> Program:
        """The piece as a program, over the same dims and the stack dims."""
        main = self._main.program
        loads = {term: self._load(term) for term in self._terms if term in self._loaded}
        leaves = [i for i in main.inputs if self._main.leaf(i) in self._terms]
        nodes: list[Node] = [*leaves, *loads.values()]
        place = self._place
        place.update((self._main.leaf(leaf), i) for i, leaf in enumerate(leaves))
        for k, term in enumerate(loads):
            place[term] = len(leaves) + k
            stacked = self._loaded[term]
            if stacked is not None:
                op = _COMBINED_BY[stacked.state]
                nodes.append(Apply(op, (place[term],), stacked.dim))
                place[term] = len(nodes) - 1
        for term in self._terms:
            if term not in place:
                nodes.append(self._node(term))
                place[term] = len(nodes) - 1
        wanted = {leaf.argument for leaf in leaves}
        arguments = [a for a in main.arguments if a.name in wanted]
        arguments += [Argument(load.name, load.dims) for load in loads.values()]
        stacking = dict(self._key.stacking)
        outputs = tuple(
            Output(place[t], ((self._key.stack_dim,) if t in stacking else ()) + self._dims(t))
            for t in self._key.saved
        )
        return Program(main.name, self._all_dims(), tuple(arguments), tuple(nodes), outputs)

    def wire(self, arena: Arena, inner: frozenset[TermId]) -> Wired:
        """The op DAG in the piece's own arena; `inner` are terms within macros."""
        term_of: list[TermId] = []
        for node in arena.program.nodes:
            match node:
                case Input() | Const() | SizeOf():
                    term_of.append(arena.leaf(node))
                case Apply(op=op, operands=operands, dim=dim):
                    read = tuple(term_of[i] for i in operands)
                    term = arena.apply(op, read, arena.dim_index(dim))
                    assert term is not None  # it was made once, of the same dims
                    term_of.append(term)
                case _:
                    assert_never(node)
        # a macro that a cut goes through is no longer staged as one operator
        cut = {t for t in self._terms if not self._loaded.keys().isdisjoint(self._operands(t))}
        computed = [t for t in self._terms if t not in self._loaded]
        self.ours = {t: term_of[self._place[t]] for t in computed}
        within = {ours for t, ours in self.ours.items() if t in inner and t not in cut}
        roots = tuple(term_of[output.tensor] for output in arena.program.outputs)
        applied = sum(isinstance(node, Apply) for node in arena.program.nodes)
        return arena.wired(roots, applied - len(within), frozenset(within))

    def _below(self) -> Iterator[TermId]:
        """The terms of the piece, children first; what is loaded has no children here."""
        done: set[TermId] = set()
        stack = [(term, False) for term in reversed(self._key.saved)]
        while stack:
            term, is_done = stack.pop()
            if is_done:
                yield term
            elif term not in done:
                done.add(term)
                stack.append((term, True))
                stack.extend((t, False) for t in reversed(self._operands(term)))

    def _operands(self, term: TermId) -> tuple[TermId, ...]:
        return () if term in self._loaded else self._main.terms[term].operands

    def _node(self, term: TermId) -> Node:
        value = self._main.terms[term]
        if value.leaf is not None:
            return value.leaf
        dim = self._main.dim_names[value.dim] if value.dim >= 0 else None
        return Apply(value.op, tuple(self._place[t] for t in value.operands), dim)

    def _load(self, term: TermId) -> Input:
        stacked = self._loaded[term]
        dims = self._dims(term) if stacked is None else (stacked.dim, *self._dims(term))
        name = self._names[term]
        return Input(name, name, dims)

    def _dims(self, term: TermId) -> tuple[DataDim, ...]:
        return tuple(self._main.dim_names[d] for d in dims_in(self._main.terms[term].dims))

    def _all_dims(self) -> tuple[DimInfo, ...]:
        stacks = dict.fromkeys(s.dim for s in self._loaded.values() if s is not None)
        if self._key.stacking:
            stacks[self._key.stack_dim] = None
        return (*self._main.program.dims, *(DimInfo(d, d) for d in stacks))
