"""The tensors of partial graphs, and the operators that can be tried on them.

A value is a tensor with the stage it is computed in: in the loop body, or after the loop. An
operator reads values of the body and gives one of the body; as soon as one operand exists only
after the loop the result does too, and its other operands must be the same in every iteration. An
accumulator takes a value of the body out of the loop; a composite with a reduction inside can be an
accumulator itself. Whether there is a loop at all, what it partitions and how an accumulator
accumulates is left to the maps.

Values are hash-consed, and what the pruners say of an operator on given values is remembered: it
depends on nothing else. Trying it again in another partial graph is counted, not judged anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from prism.ir import OPS, Const, DataDim, OpKind
from prism.search.cone import INTERNAL_OPS, Cone
from prism.search.forward.spread import Maps, Spread
from prism.search.generate import preferred_dag
from prism.search.macros import MACRO_OF, MACROS, ClassId, Operator
from prism.search.pruning import Gate, Grown
from prism.search.wiring import Arena, TermId

ValueId = int
"""Index of a value; also its place in the one order in which a graph is built."""

WRITTEN_OUT = frozenset({"mean", "rsqrt"})
"""Operators that the cone has in other words only."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of a partial graph.

    `accumulated` and `after` are the terms that this operator accumulates or computes after the
    loop, `inner` those inside a composite.
    """

    term: TermId
    cls: ClassId | None
    operands: tuple[ValueId, ...]
    is_whole: bool = False
    is_operator: bool = True
    op_count: int = 1
    accumulated: tuple[TermId, ...] = ()
    after: frozenset[TermId] = frozenset()
    inner: frozenset[TermId] = frozenset()

    @property
    def identity(self) -> int:
        """A bit that values of one e-class share, or of one term where no class is known."""
        return 1 << (2 * self.cls if self.cls is not None else 2 * self.term + 1)


@dataclass(frozen=True, slots=True)
class Left:
    """The maps left to a value and all below it.

    `matched` by its dims; `placed` along the loop, `on_grid` along a grid dim, by placement.
    """

    matched: Maps
    placed: Maps
    on_grid: Maps

    def __and__(self, other: Left) -> Left:
        return Left(
            self.matched & other.matched, self.placed & other.placed, self.on_grid & other.on_grid
        )


@dataclass(slots=True)
class Tried:
    """Everything tried on one or two values: how often, what was kept, who dropped the rest."""

    attempts: int = 0
    kept: list[ValueId] = field(default_factory=list)
    dropped: dict[str | None, int] = field(default_factory=dict)
    uses: int = 0


class Values:
    """All values of one search."""

    def __init__(self, arena: Arena, gate: Gate, cone: Cone, spread: Spread) -> None:
        self.values: list[Value] = []
        self.accumulator: dict[ValueId, ValueId] = {}
        """The accumulator of each value that can have one."""
        self.malformed = 0
        self._arena = arena
        self._gate = gate
        self._cone = cone
        self.spread = spread
        self._known: dict[tuple[object, ...], ValueId] = {}
        self._accumulated: dict[ValueId, Tried] = {}
        self._alone: dict[ValueId, Tried] = {}
        self._together: dict[tuple[ValueId, ValueId], Tried] = {}
        self._left: dict[ValueId, Left] = {}
        self._dims: dict[TermId, frozenset[DataDim]] = {}
        dag = preferred_dag(cone)
        own = arena.wire(cone, dag)
        self.own: frozenset[TermId] = frozenset(() if own is None else own.nodes)
        self.own_roots: tuple[TermId, ...] = () if own is None else own.roots
        own_ops = {operator.op for _, operator in dag}
        in_cone = {operator.op for choices in cone.choices.values() for operator in choices}
        self._ops = {
            arity: [
                spec
                for spec in OPS.values()
                if spec.arity == arity
                and (spec.definition is None or spec.name in in_cone)
                and spec.name not in WRITTEN_OUT
                and (spec.name not in INTERNAL_OPS or spec.name in own_ops)
            ]
            for arity in (1, 2)
        }
        has_classes = gate.has_classes
        self.leaves = tuple(
            self._add(
                (leaf,),
                Value(
                    arena.leaf(leaf),
                    cls if has_classes else None,
                    (),
                    is_operator=False,
                    op_count=0,
                ),
            )
            for cls, leaf in cone.leaves.items()
        )

    def alone(self, value: ValueId) -> Tried:
        """Everything that can be tried on one value."""
        tried = self._alone.get(value)
        if tried is None:
            tried = self._alone[value] = Tried()
            self._try_all(tried, (value,))
            self._try_all(tried, (value, value))
        tried.uses += 1
        return tried

    def accumulated(self, value: ValueId) -> Tried:
        """The accumulator of a value."""
        tried = self._accumulated.get(value)
        if tried is None:
            tried = self._accumulated[value] = Tried()
            self._try_accumulator(tried, value)
        return tried

    def together(self, one: ValueId, other: ValueId) -> Tried:
        """Everything that can be tried on two values."""
        key = (one, other) if one < other else (other, one)
        tried = self._together.get(key)
        if tried is None:
            tried = self._together[key] = Tried()
            self._try_all(tried, key)
        tried.uses += 1
        return tried

    def reading(self, newest: ValueId, others: Sequence[ValueId]) -> Iterator[Tried]:
        """Everything that can be tried on the newest value of a graph, alone and with others."""
        yield self.accumulated(newest)
        yield self.alone(newest)
        for other in others:
            yield self.together(newest, other)

    def settle(self) -> None:
        """Tell the gate of the answers that were remembered and used again."""
        for tried in (*self._alone.values(), *self._together.values()):
            for name, count in tried.dropped.items():
                self._gate.again(name, count * (tried.uses - 1))

    # --------------------------------------------------------------------------------- maps

    def left(self, value: ValueId) -> Left:
        """The maps left to a value."""
        known = self._left.get(value)
        if known is None:
            known = self._left[value] = self._found_left(self.values[value])
        return known

    def _found_left(self, value: Value) -> Left:
        row = self.spread.row(value.term)
        placed = self.spread.all if value.is_whole else row.placed
        for below in map(self.left, value.operands):
            placed &= below.placed
        if not value.is_operator and value.is_whole:
            placed &= row.varying
        elif value.accumulated:
            (reduction,) = value.accumulated
            placed &= self.spread.row(reduction).unfinished
        elif value.is_whole:
            # what it reads of the body is the same in every iteration
            for operand in (self.values[v] for v in value.operands):
                if not operand.is_whole:
                    placed &= self.spread.row(operand.term).whole
        return Left(row.matched, placed, row.placed)

    # ---------------------------------------------------------------------------- operators

    def _try_all(self, tried: Tried, operands: tuple[ValueId, ...]) -> None:
        """Every operator over these operands in every order."""
        dims = self._arena.dim_names
        for spec in self._ops[len(operands)]:
            is_once = spec.is_commutative or len(set(operands)) == 1
            for order in (operands,) if is_once else (operands, operands[::-1]):
                for dim in (None,) if spec.kind is OpKind.ELEMENTWISE else dims:
                    self._try(tried, spec.name, order, dim)
        for macro in MACROS:
            if macro.arity != len(operands):
                continue
            for order, dim in product({operands, operands[::-1]}, dims):
                constants = [self._arena.terms[self.values[v].term].leaf for v in order[1:]]
                if all(isinstance(leaf, Const) for leaf in constants):
                    self._try(tried, macro.name, order, dim)

    def _try(
        self, tried: Tried, op: str, operands: tuple[ValueId, ...], dim: DataDim | None
    ) -> None:
        """One operator: shown to the pruners, and made where they keep it."""
        tried.attempts += 1
        values = [self.values[v] for v in operands]
        terms = tuple(value.term for value in values)
        number = self._arena.dim_index(dim)
        inner: set[TermId] = set()
        term: TermId | None
        if op in MACRO_OF:
            term = self._arena.macro(op, terms, number, inner)
        else:
            term = self._arena.find(op, terms, number)
        cls = self._class_of(op, tuple(value.cls for value in values), dim)
        grown = Grown(op, dim, tuple(self._dims_of(t) for t in terms), cls, term in self.own)
        if not self._is_kept(tried, grown):
            return
        if op not in MACRO_OF:
            term = self._arena.apply(op, terms, number)
        if term is None:
            self.malformed += 1
            return
        is_whole = any(value.is_whole for value in values)
        parts = self._parts(term, terms) if op in MACRO_OF else frozenset({term})
        made = Value(
            term,
            cls,
            operands,
            is_whole=is_whole,
            after=parts if is_whole else frozenset(),
            inner=frozenset(inner),
        )
        tried.kept.append(self._add((op, operands, dim), made))
        if op in MACRO_OF and not is_whole:
            self._try_accumulating(tried, (op, operands, dim), made, parts)

    def _class_of(
        self, op: str, children: tuple[ClassId | None, ...], dim: DataDim | None
    ) -> ClassId | None:
        """The e-class of an operator over e-classes, if some pruner knows one."""
        known = tuple(c for c in children if c is not None)
        if len(known) < len(children):
            return None
        if op in OPS and OPS[op].is_commutative:
            known = tuple(sorted(known))
        return self._gate.class_of(self._cone, Operator(op, known, dim))

    def _parts(self, term: TermId, operands: tuple[TermId, ...]) -> frozenset[TermId]:
        """The operators of a composite written out."""
        parts: set[TermId] = set()
        stack = [term]
        while stack:
            part = stack.pop()
            if part not in operands and self._arena.terms[part].leaf is None:
                parts.add(part)
                stack.extend(self._arena.terms[part].operands)
        return frozenset(parts)

    # ------------------------------------------------------------------------- accumulators

    def _try_accumulator(self, tried: Tried, operand: ValueId) -> None:
        """Take a value of the body out of the loop; inputs are not accumulated."""
        value = self.values[operand]
        if value.is_whole or not value.is_operator:
            return
        tried.attempts += 1
        is_reduction = OPS[self._arena.terms[value.term].op].kind is OpKind.REDUCE
        made = replace(
            value,
            operands=(operand,),
            is_whole=True,
            is_operator=False,
            op_count=0 if is_reduction else 1,
            accumulated=(value.term,),
            inner=frozenset(),
        )
        self.accumulator[operand] = self._add(("accumulator", operand), made)
        tried.kept.append(self.accumulator[operand])

    def _try_accumulating(
        self, tried: Tried, key: tuple[object, ...], body: Value, parts: frozenset[TermId]
    ) -> None:
        """A composite that accumulates its own reduction and finishes after the loop."""
        terms = self._arena.terms
        (reduction,) = (t for t in parts if OPS[terms[t].op].kind is not OpKind.ELEMENTWISE)
        below = self._parts(reduction, tuple(self.values[v].term for v in body.operands))
        tried.attempts += 1
        made = replace(
            body,
            is_whole=True,
            accumulated=(reduction,),
            after=parts - below,
        )
        tried.kept.append(self._add(("accumulating", *key), made))

    # ----------------------------------------------------------------------------- bookkeeping

    def _is_kept(self, tried: Tried, partial: Grown) -> bool:
        name = self._gate.dropping(partial)
        tried.dropped[name] = tried.dropped.get(name, 0) + 1
        return name is None

    def _add(self, key: tuple[object, ...], value: Value) -> ValueId:
        if key not in self._known:
            self._known[key] = len(self.values)
            self.values.append(value)
        return self._known[key]

    def _dims_of(self, term: TermId) -> frozenset[DataDim]:
        known = self._dims.get(term)
        if known is None:
            mask = self._arena.terms[term].dims
            names = self._arena.dim_names
            known = self._dims[term] = frozenset(
                name for i, name in enumerate(names) if mask >> i & 1
            )
        return known
