"""Dimension matching (paper, section 4): operands must agree in shape for every d_p.

Two matched dims have equal tiles for all sizes only if their mapping variables are equal, one by
one. The equalities are collected from the operators of an op DAG: dims match where one operator
reads them in both operands, and along the path a dim takes from an input to an output. Dims of one
name that no operator brings together are not matched. A contradiction, an operator over a dim that
an operand lacks, prunes the operator.

As in the paper the equalities hold along the loop too. With the pruner off a search finds graphs
that do without: one operand is put together from its tiles, and read after the loop beside another
that was never split. They hold more and compute no less than the graph that splits both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from prism.ir import OPS, DataDim, Input, OpKind, output_name
from prism.search.macros import MACRO_OF
from prism.search.pruning import Equality, Grown, Narrowed, Offered, Partial, Tiled
from prism.search.wiring import Arena, TermId, Wired, dims_in

Key = tuple[TermId, int]
"""A dim of a term."""


class DimensionPruner:
    """Drops operators whose dims contradict each other; gives the equalities of the others."""

    name = "dimension"

    def judge(self, partial: Partial) -> str | None:
        """Why the partial graph cannot be completed, or None."""
        match partial:
            case Offered(operator=operator, operand_dims=operand_dims):
                return _missing(operator.op, operator.dim, operand_dims)
            case Grown(op=op, dim=dim, operand_dims=operand_dims):
                return _missing(op, dim, operand_dims)
            case Tiled(op=op, tiles=tiles, operand_dims=operand_masks):
                # a dim of two operands is a tile in both or in neither
                pairs = combinations(zip(tiles, operand_masks, strict=True), 2)
                if any((a ^ b) & a_dims & b_dims for (a, a_dims), (b, b_dims) in pairs):
                    return f"{op} of a tile and a whole of one dim"
                return None
            case Narrowed(par=par, matched=0):
                return f"no map of the inputs along {par} splits the matched dims alike"
            case _:
                return None

    def equalities(self, arena: Arena, wired: Wired) -> frozenset[Equality]:
        """Pairs of places mapped alike, each with the first place of its group."""
        groups = _Groups()
        leaves = sorted(wired.leaves, key=lambda t: arena.terms[t].inputs)
        for term in (*leaves, *wired.nodes):
            # an operator joins each dim of its operands under one key, the reduced one too
            for operand in arena.terms[term].operands:
                for d in dims_in(arena.terms[operand].dims):
                    groups.join((term, d), (operand, d))
        members: dict[Key, list[tuple[str, DataDim]]] = {}
        for key, place in _places(arena, leaves, wired.roots):
            members.setdefault(groups.find(key), []).append(place)
        return frozenset((names[0], other) for names in members.values() for other in names[1:])


def _missing(
    op: str, dim: DataDim | None, operand_dims: Sequence[frozenset[DataDim]]
) -> str | None:
    """Why an operator over `dim` does not fit its operands, or None."""
    if op in MACRO_OF or OPS[op].kind is OpKind.ELEMENTWISE:
        return None
    if all(dim in dims for dims in operand_dims):
        return None
    return f"{op} over {dim}, which an operand does not have"


def _places(
    arena: Arena, leaves: Sequence[TermId], roots: Sequence[TermId]
) -> Iterator[tuple[Key, tuple[str, DataDim]]]:
    """Where the dims of inputs and outputs stand: a term's dim and its name in the mapping."""
    for term in leaves:
        leaf = arena.terms[term].leaf
        if isinstance(leaf, Input):
            for dim in leaf.dims:
                yield (term, arena.dim_index(dim)), (leaf.name, dim)
    for index, root in enumerate(roots):
        for d in dims_in(arena.terms[root].dims):
            yield (root, d), (output_name(index), arena.dim_names[d])


class _Groups:
    """Union-find over (term, dim)."""

    def __init__(self) -> None:
        self._parent: dict[Key, Key] = {}

    def find(self, key: Key) -> Key:
        parent = self._parent
        while (up := parent.setdefault(key, key)) != key:
            parent[key] = key = parent[up]
        return key

    def join(self, a: Key, b: Key) -> None:
        self._parent[self.find(a)] = self.find(b)
