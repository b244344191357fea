"""Hash-consed terms: op DAGs written out in operators of `OPS`, sub-terms shared by all of them.

Everything the search asks about a value (its dimensions, its state along a parallel dim) depends
on its sub-term alone, so it is computed once per term and not once per DAG. Macros are written out
here; the terms inside one are remembered, because a composite is staged as one operator.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import assert_never

from prism.ir import OPS, Const, DataDim, Input, OpKind, Program, SizeOf
from prism.search.cone import Cone
from prism.search.dags import OpDag
from prism.search.macros import MACRO_OF, Hole, Leaf, Pattern, Shape, SizeHole

TermId = int
"""Index of a term in an arena."""

_NO_INPUT = 1 << 30


@dataclass(frozen=True, slots=True)
class Term:
    """A leaf, or an operator over terms. `dims` and `inputs` are bit masks over the program's.

    `digest` depends on the term alone, never on the order in which terms were made.
    """

    op: str
    operands: tuple[TermId, ...]
    dim: int
    leaf: Leaf | None
    dims: int
    inputs: int
    size: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Wired:
    """An op DAG as terms. `nodes` are its operators, children first; `roots` its outputs.

    `operator_count` counts a macro as one. `inner` holds the terms that only occur inside a macro,
    its first operators excepted.
    """

    nodes: tuple[TermId, ...]
    roots: tuple[TermId, ...]
    leaves: tuple[TermId, ...]
    operator_count: int
    inner: frozenset[TermId]


class Arena:
    """All terms of one search."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.dim_names: tuple[DataDim, ...] = tuple(d.name for d in program.dims)
        self.input_names: tuple[str, ...] = tuple(i.name for i in program.inputs)
        self.terms: list[Term] = []
        self._dim_index = {name: i for i, name in enumerate(self.dim_names)}
        self._size_root = {d.name: d.size for d in program.dims}
        self._known: dict[tuple[str, tuple[TermId, ...], int] | Leaf, TermId] = {}

    def mask(self, dims: tuple[DataDim, ...]) -> int:
        """Dimensions as a bit mask."""
        return sum(1 << self._dim_index[d] for d in dims)

    def dim_index(self, dim: DataDim | None) -> int:
        """The number of a dimension; -1 for none."""
        return -1 if dim is None else self._dim_index[dim]

    def leaf(self, leaf: Leaf) -> TermId:
        """The term of an input, constant or size."""
        if leaf in self._known:
            return self._known[leaf]
        match leaf:
            case Input(name=name, dims=dims):
                mask, inputs = self.mask(dims), 1 << self.input_names.index(name)
            case Const() | SizeOf():
                mask, inputs = 0, 0
            case _:
                assert_never(leaf)
        term = Term("", (), -1, leaf, mask, inputs, 1, _digest(repr(leaf)))
        return self._add(leaf, term)

    def apply(self, op: str, operands: tuple[TermId, ...], dim: int) -> TermId | None:
        """The term of an operator, or None where its operands lack the dimension it needs."""
        spec = OPS[op]
        operands = self._as_read(op, operands)
        key = (op, operands, dim)
        if key in self._known:
            return self._known[key]
        terms = [self.terms[t] for t in operands]
        dims = inputs = 0
        for term in terms:
            dims |= term.dims
            inputs |= term.inputs
        if spec.kind is not OpKind.ELEMENTWISE:
            if not all(term.dims >> dim & 1 for term in terms):
                return None
            dims &= ~(1 << dim)
        name = self.dim_names[dim] if dim >= 0 else ""
        digest = _digest(op, name, *(term.digest for term in terms))
        size = 1 + sum(term.size for term in terms)
        return self._add(key, Term(op, operands, dim, None, dims, inputs, size, digest))

    def wire(self, cone: Cone, dag: OpDag) -> Wired | None:
        """An op DAG as terms, or None where an operator's operands lack its dimension."""
        term_of = {cls: self.leaf(leaf) for cls, leaf in cone.leaves.items()}
        plain: set[TermId] = set()
        inner: set[TermId] = set()
        for cls, operator in dag:
            operands = tuple(term_of[c] for c in operator.children)
            dim = self.dim_index(operator.dim)
            if operator.op in MACRO_OF:
                term = self.macro(operator.op, operands, dim, inner)
            else:
                term = self.apply(operator.op, operands, dim)
                if term is not None:
                    plain.add(term)
            if term is None:
                return None
            term_of[cls] = term
        roots = tuple(term_of[r] for r in cone.roots)
        return self.wired(roots, len(dag), frozenset(inner - plain))

    def wired(
        self, roots: tuple[TermId, ...], operator_count: int, inner: frozenset[TermId]
    ) -> Wired:
        """The op DAG below the roots."""
        nodes, leaves = self._below(roots)
        return Wired(nodes, roots, leaves, operator_count, inner)

    def find(self, op: str, operands: tuple[TermId, ...], dim: int) -> TermId | None:
        """The term of an operator, if it has been made."""
        return self._known.get((op, self._as_read(op, operands), dim))

    def macro(
        self, op: str, operands: tuple[TermId, ...], dim: int, inner: set[TermId]
    ) -> TermId | None:
        """Write a macro out; its terms that read no operand directly are added to `inner`."""

        def build(pattern: Pattern) -> TermId | None:
            match pattern:
                case Hole(index=index):
                    return operands[index]
                case SizeHole():
                    return self.leaf(SizeOf(self._size_root[self.dim_names[dim]]))
                case Shape():
                    built = tuple(build(p) for p in pattern.operands)
                    if any(t is None for t in built):
                        return None
                    terms = tuple(t for t in built if t is not None)
                    term = self.apply(pattern.op, terms, dim if pattern.reduces else -1)
                    if term is not None and not all(isinstance(p, Hole) for p in pattern.operands):
                        inner.add(term)
                    return term
                case _:
                    assert_never(pattern)

        return build(MACRO_OF[op].pattern)

    def _below(self, roots: tuple[TermId, ...]) -> tuple[tuple[TermId, ...], tuple[TermId, ...]]:
        """Operators and leaves below the roots, children first, in reading order."""
        done: dict[TermId, None] = {}
        stack = [(root, False) for root in reversed(roots)]
        while stack:
            term, is_done = stack.pop()
            if is_done:
                done[term] = None
            elif term not in done:
                stack.append((term, True))
                stack.extend((t, False) for t in reversed(self.terms[term].operands))
        nodes = tuple(t for t in done if self.terms[t].leaf is None)
        leaves = tuple(t for t in done if self.terms[t].leaf is not None)
        return nodes, leaves

    def _as_read(self, op: str, operands: tuple[TermId, ...]) -> tuple[TermId, ...]:
        """The operands, in reading order where the order does not matter."""
        if OPS[op].is_commutative:
            return tuple(sorted(operands, key=self._reading_order))
        return operands

    def _reading_order(self, term: TermId) -> tuple[int, int, bytes]:
        """Commutative operands read: earliest input first, smaller terms first."""
        value = self.terms[term]
        first = (value.inputs & -value.inputs) or _NO_INPUT
        return (first, value.size, value.digest)

    def _add(self, key: tuple[str, tuple[TermId, ...], int] | Leaf, term: Term) -> TermId:
        self._known[key] = len(self.terms)
        self.terms.append(term)
        return len(self.terms) - 1


def dims_in(mask: int) -> tuple[int, ...]:
    """The numbers of the dims of a bit mask."""
    return tuple(d for d in range(mask.bit_length()) if mask >> d & 1)


def _digest(*parts: str | bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(4, "little") + data)
    return digest.digest()
