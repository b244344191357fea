"""Which states a class may be in along one parallel dim, over all its op DAGs at once.

An upper bound, computed bottom-up on the cone: the states an operator may give from any states its
operands may be in. An operator that gives none is *dead* along that dim: no op DAG with it can be
placed. Most choices of a cone are alive along few loops, so this is the strongest filter of the
search in tune mode, and it is asked before any DAG is built. The pruners are those of every other
placement; a macro is read operator by operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import assert_never

from prism.ir import Input
from prism.search.cone import Cone
from prism.search.dags import DagTable
from prism.search.macros import MACRO_OF, ClassId, Hole, Operator, Pattern, Shape, SizeHole
from prism.search.placement import AFTER, REPLICATED, State
from prism.search.stages import PlacementRules
from prism.search.wiring import Arena

States = frozenset[State]

NO_STATES: States = frozenset()


@dataclass(frozen=True, slots=True)
class _Value:
    """What is known of a value: its states, its dims, whether it is an input."""

    states: States
    dims: int
    is_input: bool = False


@dataclass(frozen=True, slots=True)
class Reach:
    """The states of each class along one column, and those each of its choices may give."""

    states: Mapping[ClassId, States]
    by_choice: tuple[Mapping[Operator, States], ...]


class TooLateError(Exception):
    """Time ran out before a reach was known."""


class Reaches:
    """Reachable states of one cone, column by column."""

    def __init__(
        self,
        arena: Arena,
        cone: Cone,
        table: DagTable,
        rules: PlacementRules,
        is_late: Callable[[], bool],
    ) -> None:
        self._arena = arena
        self._cone = cone
        self._table = table
        self.dims = class_dims(arena, cone, table)
        """The dims that every term of a class has, as bit masks."""
        self._rules = rules
        self._is_late = is_late
        self._found: dict[tuple[object, ...], _Value] = {}

    def along(self, inputs: tuple[State, ...], *, is_loop: bool) -> Reach:
        """The reach where inputs are in these states.

        Raises:
            TooLateError: time ran out.
        """
        known: dict[ClassId, _Value] = {}
        for cls, leaf in self._cone.leaves.items():
            state = REPLICATED
            if isinstance(leaf, Input):
                state = inputs[self._arena.input_names.index(leaf.name)]
            known[cls] = _Value(frozenset((state,)), self.dims[cls], isinstance(leaf, Input))
        by_choice: list[dict[Operator, States]] = []
        for cls, choices in zip(self._table.classes, self._table.choices, strict=True):
            if self._is_late():
                raise TooLateError
            found = {o: self._of_operator(o, known, is_loop=is_loop) for o, _ in choices}
            by_choice.append(found)
            known[cls] = _Value(NO_STATES.union(*found.values()), self.dims.get(cls, 0))
        return Reach({cls: value.states for cls, value in known.items()}, tuple(by_choice))

    def _of_operator(
        self, operator: Operator, known: Mapping[ClassId, _Value], *, is_loop: bool
    ) -> States:
        if not known.keys() >= set(operator.children):
            return NO_STATES
        operands = [known[c] for c in operator.children]
        dim = self._arena.dim_index(operator.dim)
        if operator.op not in MACRO_OF:
            return self._applied(operator.op, dim, operands, is_loop=is_loop).states

        def build(pattern: Pattern) -> _Value:
            match pattern:
                case Hole(index=index):
                    return operands[index]
                case SizeHole():
                    return _Value(frozenset((REPLICATED,)), 0)
                case Shape(op=op, operands=parts, reduces=reduces):
                    built = [build(p) for p in parts]
                    return self._applied(op, dim if reduces else -1, built, is_loop=is_loop)
                case _:
                    assert_never(pattern)

        return build(MACRO_OF[operator.op].pattern).states

    def _applied(self, op: str, dim: int, operands: Iterable[_Value], *, is_loop: bool) -> _Value:
        """What an operator gives; columns differ little, so most of it is known."""
        operands = tuple(operands)
        key = (op, dim, operands, is_loop)
        known = self._found.get(key)
        if known is None:
            known = self._found[key] = self._asked(op, dim, operands, is_loop=is_loop)
        return known

    def _asked(self, op: str, dim: int, operands: tuple[_Value, ...], *, is_loop: bool) -> _Value:
        dims = tuple(value.dims for value in operands)
        result_dims = 0
        for mask in dims:
            result_dims |= mask
        if dim >= 0:
            result_dims &= ~(1 << dim)
        found: set[State] = set()
        for states in product(*(sorted(value.states) for value in operands)):
            if all(state == REPLICATED for state in states):
                found.add(REPLICATED)
                continue
            if AFTER not in states:
                found.update(self._rules.allowed(op, dim, states, dims, result_dims))
            if is_loop and not _reads_varying_input(operands, states):
                found.add(AFTER)
        return _Value(frozenset(found), result_dims)


def _reads_varying_input(operands: Iterable[_Value], states: Iterable[State]) -> bool:
    """Whether it reads an input in tiles: after the loop that would be a second loader."""
    return any(
        value.is_input and state != REPLICATED
        for value, state in zip(operands, states, strict=True)
    )


def class_dims(arena: Arena, cone: Cone, table: DagTable) -> dict[ClassId, int]:
    """The dims that every term of a class has, as bit masks: no alternative has fewer."""
    known: dict[ClassId, int] = {
        cls: arena.mask(leaf.dims) if isinstance(leaf, Input) else 0
        for cls, leaf in cone.leaves.items()
    }
    for cls, choices in zip(table.classes, table.choices, strict=True):
        masks: list[int] = []
        for operator, _ in choices:
            if known.keys() >= set(operator.children):
                mask = 0
                for child in operator.children:
                    mask |= known[child]
                if operator.dim is not None:
                    mask &= ~(1 << arena.dim_index(operator.dim))
                masks.append(mask)
        if masks:
            shared = masks[0]
            for mask in masks[1:]:
                shared &= mask
            known[cls] = shared
    return known
