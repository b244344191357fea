"""The sides of a rule as terms: its variables bound to terms and dimensions, conditions decided."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from prism.egraph.bank import MAX_DATA_DIMS, TermBank, TermId, TermNode, TermType
from prism.egraph.facts import About, named
from prism.egraph.sexpr import Atom, Form, SExpr
from prism.egraph.signature import Sort, constructors
from prism.errors import GraphError

DATA = (0, 1, 2)
PARS = (MAX_DATA_DIMS, MAX_DATA_DIMS + 1)
NAMES = ("d0", "d1", "d2")

_ARITHMETIC: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {
        "&": operator.and_,
        "|": operator.or_,
        "<<": operator.lshift,
        "+": operator.add,
        "-": operator.sub,
    }
)
_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = MappingProxyType(
    {
        "=": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    }
)

Binding = Mapping[str, int]
"""Rule variable -> term, data dimension or parallel dimension."""


def build(bank: TermBank, expr: SExpr, binding: Binding) -> TermId:
    """The term of a side of a rule.

    Raises:
        GraphError: values that do not fit together.
    """
    if isinstance(expr, Atom):
        return binding[expr.text]
    constructor = constructors().get(expr.head)
    if constructor is None:
        raise GraphError(f"{expr.head} has no meaning in NumPy")
    children: list[TermId] = []
    attributes: list[int | str] = []
    for item, sort in zip(expr.items[1:], constructor.arguments, strict=True):
        if sort is Sort.TERM:
            children.append(build(bank, item, binding))
        elif sort is Sort.TEXT:
            attributes.append(str(item).strip('"'))
        else:
            attributes.append(binding[str(item)])
    return bank.make(expr.head, tuple(children), tuple(attributes))


def build_strictly(bank: TermBank, expr: SExpr, binding: Binding) -> TermId:
    """As `build`; contractions are over a dimension of both operands, as in every program.

    Raises:
        GraphError: values that do not fit together.
    """
    root = build(bank, expr, binding)
    for term in subterms(bank, (root,)):
        check_contraction(bank, bank.node(term))
    return root


def check_contraction(bank: TermBank, node: TermNode) -> None:
    """Refuse a contraction over a dimension that an operand lacks.

    Raises:
        GraphError: it is one.
    """
    if node.head == "Matmul" and any(
        node.attributes[0] not in bank.type_of(child).splits for child in node.children
    ):
        raise GraphError("a contraction over a dimension that an operand lacks")


def subterms(bank: TermBank, roots: Iterable[TermId]) -> frozenset[TermId]:
    """The terms that `roots` are made of, themselves included."""
    found: set[TermId] = set()
    todo = list(roots)
    while todo:
        term = todo.pop()
        if term not in found:
            found.add(term)
            todo.extend(bank.node(term).children)
    return frozenset(found)


def holds(condition: Form, binding: Binding, types: Mapping[str, TermType]) -> bool:
    """Whether a side condition holds as far as dimensions decide; the others are seen to."""
    fact = named(condition)
    if fact is not None and fact.about is not About.DIMS:
        return True
    if fact is not None:
        assert fact.holds is not None
        names = (str(item) for item in condition.items[1:])
        return fact.holds(*(types[n].splits.keys() if n in types else binding[n] for n in names))
    a, b = (_number(item, binding, types) for item in condition.items[1:])
    return _COMPARISONS[condition.head](a, b)


def _number(expr: SExpr, binding: Binding, types: Mapping[str, TermType]) -> int:
    if isinstance(expr, Atom):
        return binding[expr.text] if expr.text in binding else int(expr.text)
    if expr.head in {"dims", "pars"}:
        kind = types[str(expr.items[1])]
        members = kind.splits.keys() if expr.head == "dims" else kind.pars
        return sum(1 << member for member in members)
    a, b = (_number(item, binding, types) for item in expr.items[1:])
    return _ARITHMETIC[expr.head](a, b)


def fits(right: TermType, left: TermType, *, is_algebra: bool) -> bool:
    """Whether the right side of a rule has the type of the left.

    In algebra it may lack dimensions, and then stands for a value that is the same all along them.
    """
    if is_algebra:
        return right.splits.items() <= left.splits.items()
    return right == left


def dim_text(dim: int) -> str:
    """A dimension as counterexamples name it."""
    return f"p{dim - MAX_DATA_DIMS}" if dim >= MAX_DATA_DIMS else f"d{dim}"


def type_text(kind: TermType) -> str:
    """The dimensions of a value, each with what it is split by."""
    dims = [
        dim_text(dim) + "".join(f"/{dim_text(p)}" for p in split)
        for dim, split in sorted(kind.splits.items())
    ]
    return f"({' '.join([*dims, *(dim_text(p) for p in sorted(kind.pars))])})"
