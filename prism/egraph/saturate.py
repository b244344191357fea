"""Saturates one e-graph from a program's outputs: everything the algebra proves equal to them.

The search walks this e-graph instead of guessing graphs (ARCHITECTURE.md). Only the rules of
ruleset `algebra` run: those of `algebra-verify` would blow it up, and there is nothing parallel in
a program.
"""

from __future__ import annotations

from dataclasses import dataclass

from prism.egraph.axioms import AxiomSet
from prism.egraph.session import Limits, Row, Session
from prism.egraph.signature import ALGEBRA, simple_operators
from prism.egraph.terms import build_program, new_bank
from prism.ir import DataDim, Program

GENERATION_LIMITS = Limits(nodes=20_000, iterations=40, seconds=20.0)


@dataclass(frozen=True, slots=True)
class ENode:
    """One e-node: an operator of `OPS`, or "input", "const", "size", over e-classes."""

    op: str
    children: tuple[int, ...]
    dim: DataDim | None = None
    leaf: str | float | None = None


@dataclass(frozen=True, slots=True)
class Saturation:
    """The saturated e-graph.

    `nodes`: each e-node with its e-class, in a fixed order; operators without a row in `OPS` are
    left out. Classes may contain each other (r = sqrt(m), m = r * r). `dims`: per e-class, the
    dimensions its value may vary along. `roots`: the class of each output. `complete` is false when
    a limit was reached first.
    """

    nodes: tuple[tuple[ENode, int], ...]
    dims: tuple[frozenset[DataDim], ...]
    roots: tuple[int, ...]
    complete: bool
    iterations: int


def saturate(program: Program, axioms: AxiomSet, limits: Limits = GENERATION_LIMITS) -> Saturation:
    """Everything equal to the program's outputs under the generation algebra."""
    bank = new_bank(program)
    roots = build_program(bank, program)
    session = Session(axioms, {ALGEBRA}, bank.heads)
    session.insert(bank, tuple(enumerate(roots)))
    iterations, is_complete = session.settle_in_time(limits, ALGEBRA)
    table = session.table()
    class_count = 1 + max((r.owner for r in table.rows), default=-1)
    dims = tuple(
        frozenset(d for d, i in bank.ids.items() if table.dims.get(c, 0) >> i & 1)
        for c in range(class_count)
    )
    nodes = [
        (node, row.owner) for row in table.rows if (node := _node(row, bank.dims, dims)) is not None
    ]
    return Saturation(
        nodes=tuple(nodes),
        dims=dims,
        roots=tuple(table.roots[i] for i in range(len(roots))),
        complete=is_complete,
        iterations=iterations,
    )


def _node(
    row: Row, names: tuple[DataDim, ...], dims: tuple[frozenset[DataDim], ...]
) -> ENode | None:
    """The row as an operator of `OPS`, or None where it has none or would not be well formed."""
    match row.head:
        case "Input":
            return ENode("input", (), leaf=str(row.attributes[0]))
        case "Const":
            return ENode("const", (), leaf=float(row.attributes[0]))
        case "Size":
            return ENode("size", (), dim=names[int(row.attributes[0])])
        case head:
            op = simple_operators().get(head)
    if op is None:
        return None
    dim = names[int(row.attributes[0])] if row.attributes else None
    # a sum over a dimension the operand lacks is a factor, not an operator
    if dim is not None and any(dim not in dims[c] for c in row.children):
        return None
    return ENode(op, row.children, dim)
