"""Proves axioms with Z3: both sides at one place of the result, for every place at once.

A tensor is an uninterpreted function of index variables. A dimension that blocks split has several
of them, the block's number and the place within its tile, so that tiles, copies and putting them
together are but other indices, whatever the sizes. Sums and largest values are kept symbolic with
their laws (`z3_reals`): then a proof holds for all sizes. What they do not reach is unrolled at
sizes 1 to 3. A rule is proved if it is for each way to read its variables: which dimensions each
has, how they are split, which variables of a kind are one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from prism.egraph import PAR_RULES, Sort, TermBank, TermId
from prism.egraph.axioms import DirectedRule
from prism.egraph.bank import TermType
from prism.egraph.facts import DEFINED, needed_bits, single_dims
from prism.egraph.proving import Proof
from prism.egraph.sides import DATA, NAMES, PARS, build, build_strictly, fits, holds, subterms
from prism.errors import GraphError
from prism_constraints.z3_defined import applied
from prism_constraints.z3_laws import laws_of
from prism_constraints.z3_operators import add, larger, multiply
from prism_constraints.z3_reals import (
    Bound,
    Reductions,
    Value,
    inverse,
    known,
    size,
    variable_name,
)
from prism_constraints.z3_scope import BeyondError, check_scope, is_plain

MOST_READINGS = 200
MOST_TRIED = 20_000
SMALL = (1, 2, 3)


class Z3RuleProver:
    """Index variables and uninterpreted sums; sizes 1 to 3 where that is not enough."""

    name = "z3"

    def prove(self, rule: DirectedRule, *, seconds: float) -> Proof:
        """The strongest proof found in about so many seconds."""
        end = time.monotonic() + seconds
        try:
            readings = list(_readings(rule, end))
            if not readings:
                return Proof.NONE
            if all(_is_proved(reading, None, end) for reading in readings):
                return Proof.ALL_SIZES
            if all(
                _is_proved(reading, sizes, end)
                for reading in readings
                for sizes in reading.small_sizes()
            ):
                return Proof.SMALL_SIZES
        except (BeyondError, z3.Z3Exception):
            pass
        return Proof.NONE


@dataclass(frozen=True, slots=True)
class _Reading:
    """The terms of both sides for one way to read the variables."""

    bank: TermBank
    left: TermId
    right: TermId
    chains: Mapping[int, tuple[int, ...]]
    stacked: Mapping[int, int]
    bits: Mapping[str, int]
    single: frozenset[int]
    is_algebra: bool

    def ranges(self, dim: int) -> tuple[str, ...]:
        """The ranges of a whole dimension: of the blocks it is split by, and of the last tile."""
        if dim in self.stacked:
            return (f"p{self.stacked[dim]}",)
        return (*(f"p{par}" for par in self.chains[dim]), f"d{dim}")

    def narrow(self, term: TermId) -> TermType:
        """The type of a term without dimensions of size one."""
        kind = self.bank.type_of(term)
        splits = {dim: split for dim, split in kind.splits.items() if dim not in self.single}
        return TermType(splits, kind.pars)

    def small_sizes(self) -> Iterator[Mapping[str, int]]:
        """Every choice of sizes 1 to 3."""
        names = sorted({n for dim in self.chains for n in self.ranges(dim)} | self._par_names())
        for numbers in itertools.product(SMALL, repeat=len(names)):
            yield dict(zip(names, numbers, strict=True))

    def _par_names(self) -> set[str]:
        pars = {
            a
            for term in subterms(self.bank, (self.left, self.right))
            for a in self.bank.node(term).attributes
            if a in PARS
        }
        return {f"p{par}" for par in pars}


def _readings(rule: DirectedRule, end: float) -> Iterator[_Reading]:
    """Every way to read a rule's variables, up to renaming, in which its left side is well typed.

    Raises:
        BeyondError: there are too many.
    """
    check_scope(rule)
    found = 0
    for tried, (binding, types) in enumerate(_bindings(rule)):
        if tried > MOST_TRIED or found > MOST_READINGS or time.monotonic() > end:
            raise BeyondError("too many ways to read the variables")
        if not all(holds(condition, binding, types) for condition in rule.axiom.conditions):
            continue
        bank = TermBank(NAMES, is_strict=rule.ruleset == PAR_RULES)
        terms = {name: bank.variable(name, kind) for name, kind in types.items()}
        try:
            left = build_strictly(bank, rule.left, {**binding, **terms})
        except GraphError:
            continue
        try:
            right = build(bank, rule.right, {**binding, **terms})
        except GraphError as error:
            raise BeyondError(str(error)) from error
        found += 1
        chains, stacked = _digits(bank, (left, right))
        conditions = rule.axiom.conditions
        single = frozenset(binding[name] for name in single_dims(conditions))
        is_algebra = rule.ruleset != PAR_RULES
        bits = needed_bits(conditions)
        yield _Reading(bank, left, right, chains, stacked, bits, single, is_algebra)


def _bindings(rule: DirectedRule) -> Iterator[tuple[dict[str, int], dict[str, TermType]]]:
    by_sort = {sort: [n for n, s in rule.variables.items() if s is sort] for sort in Sort}
    dims, pars = by_sort[Sort.DATA], by_sort[Sort.PAR]
    for data_ids in itertools.product(DATA[: max(1, len(dims))], repeat=len(dims)):
        for par_ids in itertools.product(PARS[: len(pars)], repeat=len(pars)):
            binding = dict(zip((*dims, *pars), (*data_ids, *par_ids), strict=True))
            kinds = list(_types(sorted(set(data_ids)), sorted(set(par_ids)), rule))
            for types in itertools.product(kinds, repeat=len(by_sort[Sort.TERM])):
                yield binding, dict(zip(by_sort[Sort.TERM], types, strict=True))


def _types(data: Sequence[int], pars: Sequence[int], rule: DirectedRule) -> Iterator[TermType]:
    """The types a variable may have. Dimensions the rule does not name are but more places."""
    if not all(is_plain(condition) for condition in rule.axiom.conditions):
        data = DATA  # values may be told apart by what the rule does not name
    is_parallel = rule.ruleset == PAR_RULES
    splits: list[tuple[int, ...] | None] = [None, ()]
    if is_parallel:
        splits += [(par,) for par in pars]
    carried = [
        frozenset(chosen)
        for n in range(len(pars) + 1)
        for chosen in itertools.combinations(pars, n)
        if is_parallel or not chosen
    ]
    for chosen in itertools.product(splits, repeat=len(data)):
        own = {d: split for d, split in zip(data, chosen, strict=True) if split is not None}
        for carries in carried:
            yield TermType(own, carries)


def _digits(
    bank: TermBank, roots: Sequence[TermId]
) -> tuple[dict[int, tuple[int, ...]], dict[int, int]]:
    """How each dimension is split at most, and which are the blocks of a parallel one.

    Raises:
        BeyondError: it is split in two ways.
    """
    chains: dict[int, tuple[int, ...]] = {}
    stacked: dict[int, int] = {}
    for term in subterms(bank, roots):
        node = bank.node(term)
        if node.head == "Stack":
            dim, par = (a for a in node.attributes if isinstance(a, int))
            if stacked.setdefault(dim, par) != par:
                raise BeyondError("a dimension stacked along two parallel ones")
        for dim, split in bank.type_of(term).splits.items():
            longer = max(chains.get(dim, ()), split, key=len)
            if longer[: len(split)] != split or longer[: len(chains.get(dim, ()))] != chains.get(
                dim, ()
            ):
                raise BeyondError("a dimension split in two ways")
            chains[dim] = longer
    if any(chains[dim] for dim in stacked):
        raise BeyondError("a dimension both stacked and split")
    for term in subterms(bank, roots):
        for attribute in bank.node(term).attributes:
            if isinstance(attribute, int) and attribute in DATA:
                chains.setdefault(attribute, ())
    return chains, stacked


Place = Mapping[int, tuple[Any, ...]]
"""For each data dimension its index variables, for each parallel one its single one."""


@dataclass(frozen=True, slots=True)
class _Sides:
    """Evaluates terms at a place; `sizes` are given where reductions are unrolled."""

    reading: _Reading
    reductions: Reductions
    sizes: Mapping[str, int] | None

    def value(self, term: TermId, place: Place) -> Value:
        """A term at a place."""
        bank = self.reading.bank
        node = bank.node(term)
        children = node.children
        match node.head, node.attributes:
            case "Input", (str(name),):
                return self.input(name, bank.type_of(term), place)
            case "Const", (str(text),):
                return known(z3.RealVal(text))
            case "Size", (int(dim),):
                return known(self.count(self.reading.ranges(dim)))
            case (("Sum" | "MaxOver" | "Matmul"), (int(dim),)):
                return self.reduction(node.head, children, dim, place)
            case head, (*_, int(par)) if par in PARS:
                return self.parallel(head, children[0], node.attributes, place)
            case head, ():
                return applied(head, [self.value(child, place) for child in children])
            case other:
                raise BeyondError(f"{other} has no meaning here")

    def input(self, name: str, kind: TermType, place: Place) -> Value:
        """A variable: some value, or undefined."""
        where = [i for dim in sorted(kind.splits) for i in place[dim]]
        where += [i for par in sorted(kind.pars) for i in place[par]]
        sorts = [z3.IntSort()] * len(where)
        bits = self.reading.bits.get(name, 0)
        # what holds of its entries holds of the number behind an undefined one, which is any
        real = z3.Function(variable_name(name, bits), *sorts, z3.RealSort())(*where)
        finite = z3.Function(f"{name}?", *sorts, z3.BoolSort())(*where)
        if bits & DEFINED:
            finite = z3.BoolVal(True)  # noqa: FBT003 - Z3's way
        return Value(real, finite, z3.BoolVal(False))  # noqa: FBT003 - Z3's way

    def count(self, ranges: Sequence[str]) -> Any:  # noqa: ANN401 - z3 ships no types
        """The number of places of ranges."""
        out = z3.RealVal(1)
        for name in ranges:
            if name in {f"d{dim}" for dim in self.reading.single}:
                continue
            out = out * (size(name) if self.sizes is None else self.sizes[name])
        return out

    def parallel(
        self, head: str, child: TermId, attributes: tuple[int | str, ...], place: Place
    ) -> Value:
        """A parallel operator, mostly another place of its operand."""
        *dims, par = (a for a in attributes if isinstance(a, int))
        inside = dict(place)
        match head:
            case "Part":
                (block,) = inside.pop(par)
                inside[dims[0]] = (block, *inside[dims[0]])
            case "Repl":
                inside.pop(par)
            case "Comb":
                block, *rest = inside[dims[0]]
                inside[par], inside[dims[0]] = (block,), tuple(rest)
            case "Stack":
                inside[par] = inside.pop(dims[0])
            case "Pick":
                inside[par] = (z3.IntVal(0),)
            case "Scale":
                return multiply(self.value(child, place), known(self.count((f"p{par}",))))
            case "Unscale":
                count = inverse(self.count((f"p{par}",)))
                return multiply(self.value(child, place), known(count))
            case _:
                return self.reduce(
                    "Sum" if head == "Red" else "MaxOver", child, {par: (f"p{par}",)}, inside
                )
        return self.value(child, inside)

    def reduction(self, head: str, children: tuple[TermId, ...], dim: int, place: Place) -> Value:
        """A reduction over a data dimension."""
        bank = self.reading.bank
        if head == "Matmul":
            child = bank.make("Mul", children)
            head = "Sum"
        else:
            (child,) = children
        splits = bank.type_of(child).splits
        if dim not in splits:
            value = self.value(child, place)
            count = known(self.count(self.reading.ranges(dim)))
            return multiply(value, count) if head == "Sum" else value
        if dim in self.reading.single:
            return self.value(child, {**place, dim: (z3.IntVal(0),)})
        ranges = self.reading.ranges(dim)[len(splits[dim]) :]
        return self.reduce(head, child, {dim: ranges}, dict(place))

    def reduce(
        self, head: str, child: TermId, over: Mapping[int, tuple[str, ...]], place: dict[int, Any]
    ) -> Value:
        """A reduction over all indices of one dimension: unrolled, or as a symbol."""
        ((axis, ranges),) = over.items()
        if self.sizes is not None:
            counts = [range(self.sizes[name]) for name in ranges]
            values = [
                self.value(child, {**place, axis: tuple(map(z3.IntVal, at))})
                for at in itertools.product(*counts)
            ]
            out = values[0]
            for value in values[1:]:
                out = add(out, value) if head == "Sum" else larger(out, value)
            return out
        bound: Bound = tuple((self.reductions.index(), name) for name in ranges)
        value = self.value(child, {**place, axis: tuple(var for var, _ in bound)})
        finite = self.reductions.everywhere(value.finite, bound)
        infinite = self.reductions.opaque(value.real, value.finite)
        if z3.is_false(z3.simplify(value.infinite)):
            infinite = z3.BoolVal(False)  # noqa: FBT003 - Z3's way
        reduce = self.reductions.sum if head == "Sum" else self.reductions.largest
        return Value(reduce(value.real, bound), finite, z3.And(infinite, z3.Not(finite)))


def _is_proved(reading: _Reading, sizes: Mapping[str, int] | None, end: float) -> bool:
    """Whether both sides are equal at every place.

    Raises:
        BeyondError: there is no time left.
    """
    sides = _Sides(reading, Reductions(), sizes)
    kind, other = (reading.narrow(t) for t in (reading.left, reading.right))
    if not fits(other, kind, is_algebra=reading.is_algebra):
        return False
    for place in _places(reading, kind, sides):
        left_ms = int(1000 * (end - time.monotonic()))
        if left_ms <= 0:
            raise BeyondError("no time left")
        left, right = sides.value(reading.left, place), sides.value(reading.right, place)
        claim = z3.And(
            left.finite == right.finite, z3.Implies(left.finite, left.real == right.real)
        )
        claim = z3.simplify(claim, som=True)
        laws, constants = laws_of([claim])
        solver = z3.SolverFor("QF_NRA")
        solver.set("timeout", left_ms)
        solver.set("ctrl_c", False)  # noqa: FBT003 - Z3's way to set a parameter
        solver.add(*laws, z3.Not(constants(claim)))
        if solver.check() != z3.unsat:
            return False
    return True


def _places(reading: _Reading, kind: TermType, sides: _Sides) -> Iterator[Place]:
    """Any one place of the result; every one where sizes are given."""
    ranges: list[tuple[int, str]] = [
        (dim, name)
        for dim, split in sorted(kind.splits.items())
        for name in reading.ranges(dim)[len(split) :]
    ]
    ranges += [(par, f"p{par}") for par in sorted(kind.pars)]
    if sides.sizes is None:
        choices = [[sides.reductions.index()] for _ in ranges]
    else:
        choices = [[z3.IntVal(i) for i in range(sides.sizes[name])] for _, name in ranges]
    for chosen in itertools.product(*choices):
        place: dict[int, tuple[Any, ...]] = {dim: (z3.IntVal(0),) for dim in reading.single}
        for (axis, _), index in zip(ranges, chosen, strict=True):
            place[axis] = (*place.get(axis, ()), index)
        yield place
