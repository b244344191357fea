"""Which dimensions of a program are one, whatever they are called.

A reduced dimension is bound: its name means nothing further out, where another dimension may have
the same one. Occurrences of a dimension that operators bring together are one *group*, and a group
can be renamed as a whole without changing what the program computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from prism.ir.program import (
    Apply,
    Const,
    DataDim,
    Input,
    Node,
    Output,
    SizeOf,
    TensorId,
    infer_dims,
    reduced_dim,
)

Occurrence = tuple[TensorId, DataDim]
"""A dimension of a node; of a reduction or a contraction also the one that it reduces."""


@dataclass(slots=True)
class DimGroups:
    """The groups of a list of nodes: union-find over places, a group named by its first place."""

    nodes: Sequence[Node]
    dims: tuple[frozenset[DataDim], ...] = ()
    _parent: dict[Occurrence, Occurrence] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dims = infer_dims(tuple(self.nodes))
        for i, node in enumerate(self.nodes):
            if isinstance(node, Apply):
                for j in node.operands:
                    for dim in sorted(self.dims[j]):
                        self._join((i, dim), (j, dim))

    def of(self, place: Occurrence) -> Occurrence:
        """The group of a place."""
        root = place
        while (up := self._parent.get(root, root)) != root:
            root = up
        while place != root:
            # the next look-up is one step
            self._parent[place], place = root, self._parent[place]
        return root

    def span(self, i: TensorId) -> dict[DataDim, Occurrence]:
        """The groups that node i works on at once, by name: its operands', or its own."""
        node = self.nodes[i]
        below = node.operands if isinstance(node, Apply) else (i,)
        return {d: self.of((i, d)) for j in below for d in self.dims[j]}

    def shown(self, outputs: Sequence[Output]) -> frozenset[Occurrence]:
        """The groups of the outputs' axes."""
        return frozenset(self.of((o.tensor, d)) for o in outputs for d in o.axes if d is not None)

    def captures(self) -> list[tuple[Occurrence, Occurrence]]:
        """Pairs of groups of one name: the first is reduced below an operator on the second."""
        found: dict[tuple[Occurrence, Occurrence], None] = {}
        reduced: list[dict[Occurrence, None]] = []
        for i, node in enumerate(self.nodes):
            below: dict[Occurrence, None] = {}
            if isinstance(node, Apply):
                for j in node.operands:
                    below |= reduced[j]
                span = self.span(i)
                for inner in below:
                    outer = span.get(inner[1], inner)
                    if outer != inner:
                        found[inner, outer] = None
                reduced_here = reduced_dim(node)
                if reduced_here is not None:
                    below[self.of((i, reduced_here))] = None
            reduced.append(below)
        return list(found)

    def _join(self, a: Occurrence, b: Occurrence) -> None:
        first, second = sorted((self.of(a), self.of(b)))
        self._parent[second] = first


def rename_groups(
    groups: DimGroups, outputs: Sequence[Output], names: Mapping[Occurrence, DataDim]
) -> tuple[tuple[Node, ...], tuple[Output, ...]]:
    """The nodes and outputs with these groups under new names."""

    def named(i: TensorId, dim: DataDim) -> DataDim:
        return names.get(groups.of((i, dim)), dim)

    nodes: list[Node] = []
    for i, node in enumerate(groups.nodes):
        match node:
            case Input(dims=dims):
                nodes.append(replace(node, dims=tuple(named(i, d) for d in dims)))
            case Apply(dim=dim) if dim is not None:
                nodes.append(replace(node, dim=named(i, dim)))
            case Apply() | Const() | SizeOf():
                nodes.append(node)
    return tuple(nodes), tuple(
        Output(o.tensor, tuple(None if d is None else named(o.tensor, d) for d in o.axes))
        for o in outputs
    )
