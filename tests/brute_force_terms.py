"""Brute force for small programs, part 1: every op DAG of a few operators, judged by its numbers.

Nothing here knows an axiom, a class or a table of the search; of Prism it uses the data types of
`prism.ir` alone. Values are arrays with named axes. `dags` builds every DAG over the program's
operators that gives the program's numbers. Part 2 (`brute_force_blocks`) makes graphs of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, product

import numpy as np

from prism.ir import OPS, Apply, Const, Input, OpKind, Program, SizeOf


class UnfitError(Exception):
    """Operands that hold different parts of a dimension, or parts that cannot be combined."""


# --- values -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Value:
    """An array and the dims of its axes, in alphabetical order."""

    dims: tuple[str, ...]
    array: np.ndarray

    def over(self, dims):
        """With an axis of size one for each dim it lacks."""
        return self.array[tuple(slice(None) if d in self.dims else None for d in dims)]


def named(dims, array):
    order = sorted(range(len(dims)), key=lambda i: dims[i])
    return Value(tuple(sorted(dims)), np.transpose(array, order))


@np.errstate(all="ignore")
def applied(op, dim, operands):
    dims = tuple(sorted({d for v in operands for d in v.dims}))
    extents = {}
    for value in operands:
        for d, extent in zip(value.dims, value.array.shape, strict=True):
            if extents.setdefault(d, extent) != extent:
                raise UnfitError
    if OPS[op].kind is OpKind.ELEMENTWISE:
        return Value(dims, np.asarray(OPS[op].numpy(*(v.over(dims) for v in operands))))
    if any(dim not in v.dims for v in operands):
        raise UnfitError
    rest = tuple(d for d in dims if d != dim)
    if OPS[op].kind is OpKind.CONTRACT:
        whole = OPS[op].numpy(*(v.over(dims) for v in operands))
        return Value(rest, np.sum(whole, axis=dims.index(dim)))
    return Value(rest, np.asarray(OPS[op].numpy(operands[0].array, axis=dims.index(dim))))


def rounded(value):
    """The numbers to some seven digits, for a look-up."""
    fraction, exponent = np.frexp(value.array)
    return value.dims, np.rint(fraction * 2.0**24).tobytes(), exponent.tobytes()


def is_same(one, other):
    """Whether two values are equal up to rounding."""
    return (
        one.dims == other.dims
        and one.array.shape == other.array.shape
        and bool(np.allclose(one.array, other.array, rtol=1e-9, atol=1e-12))
    )


# --- op DAGs ----------------------------------------------------------------------------------


@dataclass
class Terms:
    """All terms met so far, each once: nodes over earlier ones, with their numbers."""

    program: Program
    sizes: dict
    arrays: dict
    nodes: list = field(default_factory=list)
    values: list = field(default_factory=list)
    classes: list = field(default_factory=list)  # terms of one number compute the same
    known: dict = field(default_factory=dict)
    numbers: dict = field(default_factory=dict)

    def add(self, node):
        """The number of a term, or None where its operands do not fit."""
        if node not in self.known:
            try:
                value = self.value_of(node)
            except UnfitError:
                self.known[node] = None
                return None
            self.known[node] = len(self.nodes)
            self.nodes.append(node)
            self.values.append(value)
            self.classes.append(self.numbers.setdefault(rounded(value), len(self.numbers)))
        return self.known[node]

    def value_of(self, node):
        match node:
            case Input(argument=argument, dims=dims):
                axes = next(a.axes for a in self.program.arguments if a.name == argument)
                array = np.squeeze(
                    self.arrays[argument], tuple(i for i, d in enumerate(axes) if d is None)
                )
                return named(dims, array)
            case Const(value=value):
                return Value((), np.asarray(value))
            case SizeOf(dim=dim):
                return Value((), np.asarray(float(self.sizes[dim])))
            case Apply(op=op, operands=operands, dim=dim):
                return applied(op, dim, [self.values[j] for j in operands])

    def factors(self, i):
        """What the term is a product of; a divisor counts as a factor."""
        node = self.nodes[i]
        match node:
            case Apply(op="mul" | "div", operands=operands):
                return [f for j in operands for f in self.factors(j)]
            case Apply(op="square", operands=(j,)):
                return self.factors(j) * 2
            case _:
                return [i]

    def is_a_spelling(self, node):
        """Of several spellings of one computation the search knows one; this is it.

        A square is not a product, a sum of squares is no contraction; a sum of products is one.
        """
        match node:
            case Apply(op="mul" | "matmul", operands=(a, b)) if a == b:
                return False
            case Apply(op="sum", operands=(j,), dim=dim):
                along = [f for f in self.factors(j) if dim in self.values[f].dims]
                return len(along) < 2 or self.nodes[j] == Apply("square", (along[0],))
            case _:
                return True


def vocabulary(program):
    """The program's operators, and those that spell a sum of products."""
    ops = {n.op for n in program.nodes if isinstance(n, Apply)}
    if "matmul" in ops or ("sum" in ops and ops & {"mul", "div", "square"}):
        ops |= {"matmul", "sum", "mul"}
    return ops


def own_term(terms):
    """The program's outputs as terms."""
    place = {}
    for i, node in enumerate(terms.program.nodes):
        if isinstance(node, Apply):
            place[i] = terms.add(ordered(node.op, [place[j] for j in node.operands], node.dim))
        else:
            place[i] = terms.add(node)
    return tuple(place[o.tensor] for o in terms.program.outputs)


def ordered(op, operands, dim):
    return Apply(op, tuple(sorted(operands) if OPS[op].is_commutative else operands), dim)


def dags(terms, most) -> Iterator[frozenset]:
    """Every set of at most `most` operators that gives all outputs, none of them in vain."""
    targets = {terms.classes[t] for t in own_term(terms)}
    leaves = frozenset(terms.add(n) for n in terms.program.nodes if not isinstance(n, Apply))
    ops = sorted(vocabulary(terms.program))
    level = {frozenset(): frozenset()}  # the operators, and those that are neither read nor output
    for left in reversed(range(most)):
        following = {}
        for chosen, unread in level.items():
            for new in extensions(terms, leaves | chosen, ops, unread if left == 0 else ()):
                rest = unread.difference(terms.nodes[new].operands)
                if terms.classes[new] not in targets:
                    rest |= {new}
                if len(rest) <= left + 1 and (left or not rest):
                    following[chosen | {new}] = rest
        level = following
        for chosen, unread in level.items():
            there = {terms.classes[i] for i in leaves | chosen}
            if not unread and targets <= there:
                yield chosen


def extensions(terms, there, ops, needed):
    """Operators on what there is, `needed` among it, with a result that is not there yet."""
    items = sorted(there)
    known = {terms.classes[i] for i in items}
    dims = sorted({d.name for d in terms.program.dims})
    for op in ops:
        spec = OPS[op]
        for operands in operand_lists(items, spec, needed):
            for dim in [None] if spec.kind is OpKind.ELEMENTWISE else dims:
                new = terms.add(Apply(op, operands, dim))
                if (
                    new is not None
                    and terms.classes[new] not in known
                    and terms.is_a_spelling(terms.nodes[new])
                ):
                    yield new


def operand_lists(items, spec, needed):
    """All operands of an operator; in any order where it matters."""
    if len(needed) > spec.arity:
        return
    choose = combinations_with_replacement if spec.is_commutative else all_tuples
    for operands in choose(items, spec.arity):
        if all(i in operands for i in needed):
            yield operands


def all_tuples(items, count):
    return product(items, repeat=count)


def leaves_of(terms, chosen):
    read = {j for i in chosen for j in terms.nodes[i].operands}
    return sorted((read | set(outputs_of(terms, chosen))) - chosen)


def outputs_of(terms, chosen):
    """The term of each output among the operators of a DAG, or a leaf."""
    there = chosen | {terms.add(n) for n in terms.program.nodes if not isinstance(n, Apply)}
    return tuple(
        next(i for i in sorted(there) if terms.classes[i] == terms.classes[target])
        for target in own_term(terms)
    )
