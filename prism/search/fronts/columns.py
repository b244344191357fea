"""Every column a graph of the cone may have: what one parallel dim may do to inputs and outputs.

The mappings themselves come from the encoding, per op DAG. A bound on partial DAGs has to be made
before any is complete, so it needs to know which columns can come up at all: those that the
equalities which *every* op DAG forces allow. Such sure equalities are found on the cone, bottom-up:
an operator joins the dims of its operands, alternatives keep what all of them join. They repeat
what the dimension pruner collects per DAG; without that pruner nothing is sure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from prism.ir import (
    GRID_DIMS,
    LOOP_DIM,
    OPS,
    Input,
    MappedTensor,
    MappingProblem,
    OpKind,
    ParKind,
    Place,
    output_name,
)
from prism.search.cone import Cone
from prism.search.dags import DagTable
from prism.search.grid import Column
from prism.search.macros import MACRO_OF, ClassId, Operator
from prism.search.placement import REPLICATED
from prism.search.wiring import Arena

MAX_COLUMNS = 512
"""Columns of one kind that are looked at; more are cut, and said so."""

_Joined = frozenset[frozenset[Place]]
"""Groups of places mapped alike; ("", d) stands for dim d of the value itself."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that may come up along the loop and along a grid dim."""

    loop: tuple[Column, ...]
    grid: tuple[Column, ...]
    is_cut: bool


def possible_columns(arena: Arena, cone: Cone, table: DagTable, *, is_matched: bool) -> Columns:
    """The columns under the sure equalities; `is_matched`: dimension matching is in force."""
    joined = _sure(cone, table) if is_matched else frozenset()
    problem = _problem(arena, joined)
    found: dict[ParKind, tuple[Column, ...]] = {}
    is_cut = False
    for kind in (ParKind.LOOP, ParKind.GRID):
        columns = list(islice(problem.columns(kind), MAX_COLUMNS + 1))
        is_cut = is_cut or len(columns) > MAX_COLUMNS
        found[kind] = tuple(_column(arena, places) for places in columns[:MAX_COLUMNS])
    return Columns(found[ParKind.LOOP], found[ParKind.GRID], is_cut)


def _problem(arena: Arena, joined: _Joined) -> MappingProblem:
    program = arena.program
    inputs = tuple(MappedTensor(i.name, i.dims) for i in program.inputs)
    outputs = tuple(
        MappedTensor(output_name(k), tuple(d for d in o.axes if d is not None), is_output=True)
        for k, o in enumerate(program.outputs)
    )
    # a pair with an output ties nothing along the loop, so inputs come first
    places = [(t.name, d) for t in (*inputs, *outputs) for d in t.dims]
    groups = [[place for place in places if place in group] for group in joined]
    equal = frozenset((group[0], place) for group in groups for place in group[1:])
    return MappingProblem((*inputs, *outputs), GRID_DIMS[:1], (LOOP_DIM,), equal)


def _column(arena: Arena, places: Iterable[Place]) -> Column:
    where = {name: i for i, name in enumerate(arena.input_names)}
    targets = {output_name(i): i for i in range(len(arena.program.outputs))}
    inputs, outputs = [REPLICATED] * len(where), [REPLICATED] * len(targets)
    for tensor, dim in places:
        if tensor in where:
            inputs[where[tensor]] = arena.dim_index(dim)
        else:
            outputs[targets[tensor]] = arena.dim_index(dim)
    return Column(tuple(inputs), tuple(outputs))


def _sure(cone: Cone, table: DagTable) -> _Joined:
    """What every op DAG joins, the outputs' places included."""
    known: dict[ClassId, _Joined] = {}
    for cls, leaf in cone.leaves.items():
        name, dims = (leaf.name, leaf.dims) if isinstance(leaf, Input) else ("", ())
        known[cls] = frozenset(frozenset({("", d), (name, d)}) for d in dims)
    for cls, choices in zip(table.classes, table.choices, strict=True):
        joined = [_of_operator(o, known) for o, _ in choices if known.keys() >= set(o.children)]
        if joined:
            known[cls] = _common(joined)
    groups: list[frozenset[Place]] = []
    for index, root in enumerate(cone.roots):
        name = output_name(index)
        groups.extend(
            frozenset((name, d) if tensor == "" else (tensor, d) for tensor, d in group)
            for group in known.get(root, frozenset())
        )
    return _merged(groups)


def _of_operator(operator: Operator, known: dict[ClassId, _Joined]) -> _Joined:
    """An operator joins each dim of its operands; the reduced one is not the result's."""
    groups = _merged([group for child in operator.children for group in known[child]])
    is_elementwise = operator.op not in MACRO_OF and OPS[operator.op].kind is OpKind.ELEMENTWISE
    gone: Place | None = None if is_elementwise else ("", operator.dim or "")
    return frozenset(group - {gone} for group in groups)


def _merged(groups: Iterable[frozenset[Place]]) -> _Joined:
    """Groups that share a place are one."""
    out: list[frozenset[Place]] = []
    for group in groups:
        touching = [g for g in out if not g.isdisjoint(group)]
        out = [g for g in out if g.isdisjoint(group)]
        out.append(group.union(*touching))
    return frozenset(out)


def _common(alternatives: list[_Joined]) -> _Joined:
    """What all alternatives join."""
    out = alternatives[0]
    for other in alternatives[1:]:
        if other != out:
            out = frozenset(c for a in out for b in other if len(c := a & b) > 1)
    return out


def used_inputs(cone: Cone, table: DagTable) -> frozenset[str]:
    """The inputs that every op DAG reads."""
    known: dict[ClassId, frozenset[str]] = {
        cls: frozenset({leaf.name} if isinstance(leaf, Input) else ())
        for cls, leaf in cone.leaves.items()
    }
    for cls, choices in zip(table.classes, table.choices, strict=True):
        below = [
            frozenset[str]().union(*(known[c] for c in o.children))
            for o, _ in choices
            if known.keys() >= set(o.children)
        ]
        if below:
            known[cls] = frozenset.intersection(*below)
    return frozenset[str]().union(*(known.get(r, frozenset()) for r in cone.roots))
