"""Mutation operators that do what an axiom would allow if one of its conditions were dropped."""

from __future__ import annotations

from collections.abc import Iterator

from verify.mutants_draft import Spot, spots

from prism.ir import OPS, Apply, InputLoader, OpKind, SGraph

LINEAR, ADDITIVE = {"mul", "div"}, {"add", "sub"}


def is_elementwise(node) -> bool:
    return isinstance(node, Apply) and OPS[node.op].kind is OpKind.ELEMENTWISE


# --- dims ---------------------------------------------------------------------------------------


def broadcast_guard(graph: SGraph) -> Iterator[SGraph]:
    """What varies along a reduced dim leaves the reduction, or what does not counts once."""
    for spot in spots(graph):
        for i, node in spot.applied():
            if is_elementwise(node):
                yield from _entering(spot, i, node)
                continue
            for j in node.operands:
                inner = spot.block.nodes[j]
                if is_elementwise(inner) and len(inner.operands) == 2:
                    for stays in (0, 1):
                        yield from _leaving(spot, i, j, stays)


def _leaving(spot: Spot, i: int, j: int, stays: int) -> Iterator[SGraph]:
    """reduce(a op b) as reduce(a) op b; where b has the dim, with one value of it."""
    node, inner = spot.block.nodes[i], spot.block.nodes[j]
    dims = spot.block.tensor_dims()
    if node.dim not in dims[inner.operands[stays]]:
        return
    varies = node.dim in dims[inner.operands[1 - stays]]
    if varies or inner.op in ADDITIVE or node.op == "max":  # else it is right
        for one in ("max", "mean", "sum") if varies else (None,):
            yield spot.with_node(i, _left, node, j, inner, stays, one)


def _left(draft, node, j, inner, *how):
    stays, one = how
    read = [draft.place[inner.operands[stays] if k == j else k] for k in node.operands]
    reduced = draft.apply(node.op, *read, dim=node.dim)
    left = draft.place[inner.operands[1 - stays]]
    if one is not None:
        left = draft.apply(one, left, dim=node.dim)
    return draft.apply(inner.op, *((reduced, left) if stays == 0 else (left, reduced)))


def _entering(spot: Spot, i: int, node: Apply) -> Iterator[SGraph]:
    """reduce(a) op b as reduce(a op b), where b is added for each element, or divided."""
    for side, j in enumerate(node.operands if len(node.operands) == 2 else ()):
        inner = spot.block.nodes[j]
        if not isinstance(inner, Apply) or inner.dim is None or inner.op in {"mean", "max"}:
            continue
        if node.op in ADDITIVE or (node.op == "div" and side == 1):
            yield spot.with_node(i, _entered, node, inner, side)


def _entered(draft, node, inner, side):
    first, *rest = (draft.place[k] for k in inner.operands)
    other = draft.place[node.operands[1 - side]]
    value = draft.apply(node.op, *((first, other) if side == 0 else (other, first)))
    return draft.apply(inner.op, value, *rest, dim=inner.dim)


# --- values -------------------------------------------------------------------------------------


def value_guard(graph: SGraph) -> Iterator[SGraph]:
    """A step that holds for values of one sign, or that are not zero, done for any."""
    for spot in spots(graph):
        nodes = spot.block.nodes
        for i, node in enumerate(nodes):
            match node:
                case InputLoader():
                    for make in (_absolute, _exp_log, _times_itself, _relu):
                        yield _read_through(spot, i, make)
                case Apply(op="sqrt" | "abs" | "relu" | "square" as op, operands=(j,)):
                    yield spot.with_node(i, lambda draft, j: draft.place[j], j)
                    inner = nodes[j]
                    if is_elementwise(inner) and not (
                        inner.op in LINEAR and op in {"abs", "square"}  # right
                    ):
                        yield spot.with_node(i, _of_each_operand, op, inner, None)
                case Apply(op="max" as op, operands=(j,), dim=dim) if is_elementwise(nodes[j]):
                    yield spot.with_node(i, _of_each_operand, op, nodes[j], spot, dim)
                case _:
                    pass


def _absolute(draft, value):
    return draft.apply("sqrt", draft.apply("square", value))


def _exp_log(draft, value):
    return draft.apply("exp", draft.apply("log", value))


def _times_itself(draft, value):
    return draft.apply("div", draft.apply("square", value), value)


def _relu(draft, value):
    return draft.apply("relu", value)


def _read_through(spot: Spot, i: int, make) -> SGraph:
    """The graph in which operators read something made of a loaded value."""

    def change(draft, node):
        read = [make(draft, draft.place[j]) if j == i else draft.place[j] for j in node.operands]
        return draft.apply(node.op, *read, dim=node.dim)

    readers = {k: node for k, node in spot.applied() if i in node.operands}
    return spot.with_nodes({k: lambda d, n=n: change(d, n) for k, n in readers.items()})


def _of_each_operand(draft, op, inner, spot, dim=None):
    """f(a op b) as f(a) op f(b); what lacks the dim as it is."""

    def part(k):
        if dim is not None and dim not in spot.block.tensor_dims()[k]:
            return draft.place[k]
        return draft.apply(op, draft.place[k], dim=dim)

    return draft.apply(inner.op, *map(part, inner.operands))


# --- shifts -------------------------------------------------------------------------------------


def shift_guard(graph: SGraph) -> Iterator[SGraph]:
    """An exponential shifted by what does not cancel, or for one of its readers only."""
    for spot in spots(graph):
        dims = spot.block.tensor_dims()
        for i, node in spot.applied():
            if node.op != "exp":
                continue
            (j,) = node.operands
            readers = {r: n for r, n in spot.applied() if i in n.operands}
            for k in sorted(dims[j]):
                yield spot.with_node(i, _shifted, j, k)
                for r, reader in readers.items() if len(readers) > 1 else ():
                    yield spot.with_node(r, _for_one, reader, i, j, k)


def _shifted(draft, j, dim):
    largest = draft.apply("max", draft.place[j], dim=dim)
    return draft.apply("exp", draft.apply("sub", draft.place[j], largest))


def _for_one(draft, reader, i, j, dim):
    read = [_shifted(draft, j, dim) if k == i else draft.place[k] for k in reader.operands]
    return draft.apply(reader.op, *read, dim=reader.dim)
