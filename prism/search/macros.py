"""Composite operators of the search: patterns in the cone that count and place as one operator.

A macro hides the e-node it replaces at its top class, so that a root mean square is one choice
and not the product of all ways to write its parts; where a graph is built it is written out again
(sGraphs hold rows of `OPS` only). A new macro is one row of `MACROS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

from prism.ir import Const, DataDim, Input, SizeOf

ClassId = int
"""An e-class of the saturated e-graph."""

Leaf = Input | Const | SizeOf


@dataclass(frozen=True, slots=True)
class Operator:
    """An e-node of the cone: a row of `OPS` or a macro, over e-classes."""

    op: str
    children: tuple[ClassId, ...]
    dim: DataDim | None = None


@dataclass(frozen=True, slots=True)
class Hole:
    """Stands for the macro's operand of this index."""

    index: int
    is_constant: bool = False


@dataclass(frozen=True, slots=True)
class SizeHole:
    """Stands for the size of the macro's dimension."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An operator over patterns; reductions are over the macro's dimension."""

    op: str
    operands: tuple[Pattern, ...]
    reduces: bool = False


Pattern = Hole | SizeHole | Shape


@dataclass(frozen=True, slots=True)
class Macro:
    """A named pattern with `arity` operands and one dimension."""

    name: str
    arity: int
    pattern: Shape


_X, _EPS = Hole(0), Hole(1, is_constant=True)
_MEAN_SQUARE = Shape("div", (Shape("sum", (Shape("square", (_X,)),), reduces=True), SizeHole()))

MACROS: tuple[Macro, ...] = (
    # the root of the mean square
    Macro("rms", 1, Shape("sqrt", (_MEAN_SQUARE,))),
    # the same with a constant added under the root
    Macro("rms_eps", 2, Shape("sqrt", (Shape("add", (_MEAN_SQUARE, _EPS)),))),
)

MACRO_OF: Mapping[str, Macro] = {macro.name: macro for macro in MACROS}
"""Name -> macro."""


@dataclass(frozen=True, slots=True)
class Bindings:
    """What a match has fixed so far: the operands by index, and the dimension."""

    operands: tuple[tuple[int, ClassId], ...] = ()
    dim: DataDim | None = None

    def bind(self, index: int, value: ClassId) -> Bindings | None:
        """With operand `index` bound, or None where it is bound to another class."""
        known = dict(self.operands)
        if known.setdefault(index, value) != value:
            return None
        return Bindings(tuple(sorted(known.items())), self.dim)


@dataclass(frozen=True, slots=True)
class Table:
    """What matching reads: the e-nodes and leaves of each class; sizes by size root."""

    operators: Mapping[ClassId, Mapping[Operator, None]]
    leaves: Mapping[ClassId, tuple[Leaf, ...]]
    size_root: Mapping[DataDim, DataDim]

    def matches(self, macro: Macro, top: Operator) -> Iterator[Operator]:
        """The macro applied, for each way its pattern fits the e-node `top`."""
        for found in self._match_operator(macro.pattern, top, Bindings()):
            yield Operator(macro.name, tuple(c for _, c in found.operands), found.dim)

    def _match_operator(self, shape: Shape, node: Operator, bound: Bindings) -> Iterator[Bindings]:
        if node.op != shape.op:
            return
        if shape.reduces:
            if node.dim is None or bound.dim not in {None, node.dim}:
                return
            bound = Bindings(bound.operands, node.dim)
        orders = {node.children, node.children[::-1]} if shape.op == "add" else {node.children}
        for children in sorted(orders):
            partial = [bound]
            for pattern, child in zip(shape.operands, children, strict=True):
                partial = [b for p in partial for b in self._match_class(pattern, child, p)]
            yield from partial

    def _match_class(self, pattern: Pattern, cls: ClassId, bound: Bindings) -> Iterator[Bindings]:
        match pattern:
            case Hole(index=index, is_constant=is_constant):
                leaves = self.leaves.get(cls, ())
                if not is_constant or any(isinstance(leaf, Const) for leaf in leaves):
                    new = bound.bind(index, cls)
                    if new is not None:
                        yield new
            case SizeHole():
                wanted = self.size_root.get(bound.dim or "")
                if any(
                    isinstance(leaf, SizeOf) and self.size_root[leaf.dim] == wanted
                    for leaf in self.leaves.get(cls, ())
                ):
                    yield bound
            case Shape():
                for node in self.operators.get(cls, ()):
                    yield from self._match_operator(pattern, node, bound)
            case _:
                assert_never(pattern)
