"""The operators inside macros, and which of them other operators of a cone compute too.

A macro is one choice, but its parts may be shared: the sum of squares of a root mean square with a
choice that has the sum alone, or with another macro of the same operand. Such a part is a *unit*: a
partial DAG pays for it once, whoever has it. What no one else has belongs to the choice itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from prism.ir import OPS, OpKind
from prism.search.dags import DagTable
from prism.search.macros import MACRO_OF, ClassId, Hole, Operator, Pattern, Shape, SizeHole
from prism.search.wiring import Arena

Key = tuple[str, tuple[object, ...], str | None]
"""An operator by the keys or classes of its operands."""


@dataclass(frozen=True, slots=True)
class PartOf:
    """One operator: its name, the dims it runs over and those of its result, and its class.

    `unit` is its number where it is shared, `cls` the class that has it as a choice, if any.
    """

    op: str
    space: int
    dims: int
    unit: int | None
    cls: ClassId | None

    @property
    def is_reduction(self) -> bool:
        """Whether its value has a tile of its own."""
        return OPS[self.op].kind is not OpKind.ELEMENTWISE


class Units:
    """The operators that choices stand for, and the units among them."""

    def __init__(self, arena: Arena, table: DagTable, dims: Mapping[ClassId, int]) -> None:
        self._arena = arena
        self._dims = dims
        self._class_of: dict[Key, ClassId] = {
            (o.op, o.children, o.dim): cls
            for cls, choices in zip(table.classes, table.choices, strict=True)
            for o, _ in choices
            if o.op not in MACRO_OF
        }
        self._found = {o: self._read(o) for choices in table.choices for o, _ in choices}
        count = Counter(key for parts in self._found.values() for key in parts)
        self._unit = {key: i for i, key in enumerate(k for k, n in count.items() if n > 1)}

    def of(self, operator: Operator) -> list[PartOf]:
        """The operators a choice stands for, the last one its own result."""
        return [
            PartOf(key[0], space, dims, self._unit.get(key), self._class_of.get(key))
            for key, (space, dims) in self._found[operator].items()
        ]

    def _read(self, operator: Operator) -> dict[Key, tuple[int, int]]:
        """The keys of the operators with the dims they run over and leave, operands first."""
        out: dict[Key, tuple[int, int]] = {}
        reduced = 0 if operator.dim is None else 1 << self._arena.dim_index(operator.dim)

        def apply(op: str, below: list[tuple[object, int]], *, reduces: bool) -> tuple[object, int]:
            space = 0
            for _, dims in below:
                space |= dims
            key: Key = (op, tuple(k for k, _ in below), operator.dim if reduces else None)
            out[key] = (space, space & ~reduced if reduces else space)
            return self._class_of.get(key, key), out[key][1]

        def build(pattern: Pattern) -> tuple[object, int]:
            match pattern:
                case Hole(index=index):
                    cls = operator.children[index]
                    return cls, self._dims.get(cls, 0)
                case SizeHole():
                    return ("size", operator.dim), 0
                case Shape(op=op, operands=operands, reduces=reduces):
                    return apply(op, [build(p) for p in operands], reduces=reduces)
                case _:
                    assert_never(pattern)

        if operator.op in MACRO_OF:
            build(MACRO_OF[operator.op].pattern)
        else:
            holes: list[tuple[object, int]] = [(c, self._dims.get(c, 0)) for c in operator.children]
            apply(operator.op, holes, reduces=operator.dim is not None)
        return out
