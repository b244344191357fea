"""Draws random small instances of a rule: tensors for the variables of its left side.

Variables get random well-typed values: any dimensions, split along some of the parallel dimensions
they carry or not, tiles down to size one, negative, large and repeated values, exact zeros and
undefined entries. What a rule asks for holds in all of them; numbers that it speaks of, and sizes
near them, come up often.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from prism.egraph.axioms import DirectedRule
from prism.egraph.bank import TermBank, TermId, TermType
from prism.egraph.exact import is_rational
from prism.egraph.facts import DEFINED, NONNEG, NONZERO, needed_bits, single_dims
from prism.egraph.meaning import Array, Meaning, Sizes
from prism.egraph.sexpr import Atom, Form, SExpr, constants
from prism.egraph.sides import DATA, NAMES, PARS, Binding, build, dim_text, holds, type_text
from prism.egraph.signature import PAR_RULES, Sort, definition_of
from prism.errors import GraphError, SizeError

UNDEFINED = 0.2
"""How often a value has undefined entries."""
LARGE, LARGE_EXPONENT = 1e6, 30.0
"""Of the largest entries, where every operator is rational and where one may be an exponential."""
FAR = 8.0
"""How many times such a number a value may be, to be on the other side of what it stands in."""
MARKED, LONGEST = 0.3, 4_096
"""How often an instance is about a number that the rule speaks of, and up to which a size is."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One way to read the variables of a rule."""

    rule: DirectedRule
    meaning: Meaning
    binding: Binding
    types: Mapping[str, TermType]
    left: TermId

    def __str__(self) -> str:
        sorts = ", ".join(
            f"{name} over {type_text(kind)}{_values_text(self.meaning.inputs[name])}"
            for name, kind in sorted(self.types.items())
        )
        others = ", ".join(
            f"{name} = {dim_text(value)}"
            for name, value in sorted(self.binding.items())
            if name not in self.types
        )
        sizes = self.meaning.sizes
        used = {dim for kind in self.types.values() for dim in (*kind.splits, *kind.pars)}
        used |= {dim for kind in self.types.values() for s in kind.splits.values() for dim in s}
        used |= {value for name, value in self.binding.items() if name not in self.types}
        counts = [
            f"{what} {', '.join(f'{dim_text(d)}: {n}' for d, n in of.items() if d in used)}"
            for what, of in (("sizes", sizes.data), ("chunks", sizes.pars))
            if used & of.keys()
        ]
        return "; ".join(part for part in (sorts, others, *counts) if part)

    @property
    def weight(self) -> tuple[int, int]:
        """How much there is to read."""
        return sum(self.meaning.inputs[name].size for name in self.types), len(str(self))


def landmarks(heads: AbstractSet[str], numbers: Iterable[str]) -> tuple[float, ...]:
    """Numbers at which something may change: a rule's constants, and those in the meanings."""
    found = {float(text) for text in numbers}
    for head in heads:
        definition = definition_of(head)
        if definition is not None:
            found |= definition.numbers
    return tuple(sorted(found))


class Draw:
    """Draws instances in which the left side is well typed and the conditions hold."""

    def __init__(
        self, rule: DirectedRule, rng: random.Random, numbers: np.random.Generator
    ) -> None:
        self.rule = rule
        self.rng = rng
        self.numbers = numbers
        self.sorts = rule.variables
        self.is_parallel = rule.ruleset == PAR_RULES
        self.is_plain = False
        """Whether to draw values that are easy to read."""
        heads = rule.needs | rule.makes
        self.large = LARGE if is_rational(heads) else LARGE_EXPONENT
        self.bits = needed_bits(rule.axiom.conditions)
        self.single = single_dims(rule.axiom.conditions)
        marks = landmarks(heads, constants(rule.left) | constants(rule.right))
        self.marks = [m for m in marks if is_rational(heads) or abs(m) <= self.large]
        self.factors = tuple(f for m in marks if m for f in (m, 1.0 / m))
        self.lengths = [int(m) for m in marks if m == int(m) and 1 <= m <= LONGEST]

    def instance(self) -> Instance | None:
        """One more instance, or None where what was drawn does not fit the rule."""
        rng = self.rng
        pars = {p: rng.choice((1, 2, 2, 3)) for p in PARS}
        chunks = pars[PARS[0]] * pars[PARS[1]] if self.is_parallel else 1
        tiles = (1, 1, 2) if self.is_parallel else (1, 2, 2, 3, 4)
        data = {d: chunks * rng.choice(tiles) for d in DATA}
        binding: dict[str, int] = {}
        for name, sort in self.sorts.items():
            if sort is Sort.DATA:
                binding[name] = rng.choice(DATA)
            elif sort is Sort.PAR:
                binding[name] = rng.choice(PARS)
        types = self.types(binding)
        bank = TermBank(NAMES, is_strict=self.is_parallel)
        for name, kind in types.items():
            binding[name] = bank.variable(name, kind)
        if not all(holds(c, binding, types) for c in self.rule.axiom.conditions):
            return None
        try:
            left = build(bank, self.rule.left, binding)
        except GraphError:
            return None
        if self.lengths and not self.is_parallel and rng.random() < MARKED:
            # a rule about an operator along a dim may hold at sizes below a number in its meaning
            along = [binding[n] for n, sort in self.sorts.items() if sort is Sort.DATA]
            length = rng.choice(self.lengths)
            data |= {d: max(1, length + rng.choice((-1, 0, 1, 2, 7))) for d in along[:1]}
        data |= {binding[name]: 1 for name in self.single}
        sizes = Sizes(self.stacked(data, pars, binding), pars)
        shapes = Meaning(bank, sizes, {})
        try:
            arrays = {name: self.values(name, shapes.shape(kind)) for name, kind in types.items()}
            meaning = Meaning(bank, sizes, arrays)
            meaning.value(left)
        except SizeError:
            return None
        return Instance(self.rule, meaning, binding, types, left)

    def types(self, binding: Binding) -> dict[str, TermType]:
        """A type for each term variable; mostly alike, so that operators fit."""
        rng = self.rng
        common = [p for p in PARS if self.is_parallel and rng.random() < 0.5]
        splits = {d: self.split(common) for d in DATA}
        out: dict[str, TermType] = {}
        for name, sort in self.sorts.items():
            if sort is not Sort.TERM:
                continue
            pars = list(common)
            if self.is_parallel and rng.random() < 0.25:
                pars = [p for p in PARS if rng.random() < 0.5]
            own = {
                d: splits[d] if rng.random() < 0.8 else self.split(pars)
                for d in DATA
                if rng.random() < 0.6
            }
            if self.is_parallel and own and rng.random() < 0.2:
                # tiles of different blocks added up: split along p, but no longer one per block
                par, dim = self.choice(binding, PARS), self.choice(binding, list(own))
                own[dim] = (*own[dim], par)
                pars = [p for p in pars if p != par]
            out[name] = TermType(own, frozenset(pars))
        return out

    def choice(self, binding: Binding, among: Sequence[int]) -> int:
        """One of these dimensions, preferably one that the rule names."""
        named = [d for d in among if d in binding.values()]
        return self.rng.choice(named or list(among))

    def split(self, pars: list[int]) -> tuple[int, ...]:
        """Some of these dimensions, in any order."""
        chosen = [p for p in pars if self.rng.random() < 0.4]
        self.rng.shuffle(chosen)
        return tuple(chosen)

    def stacked(
        self, data: dict[int, int], pars: Mapping[int, int], binding: Binding
    ) -> dict[int, int]:
        """Sizes in which each dimension made by Stack has as many places as there are chunks."""
        for form in _forms(self.rule.left):
            if form.head == "Stack":
                _, dim, par = (str(item) for item in form.items[1:])
                data[binding[dim]] = pars[binding[par]]
        return data

    def values(self, name: str, shape: tuple[int, ...]) -> Array:
        """Values for a variable, such that what the conditions say of its entries holds."""
        values, bits = self.array(shape), self.bits.get(name, 0)
        if bits & DEFINED:
            values = np.nan_to_num(values)
        if bits & NONNEG:
            values = np.abs(values)
        if bits & NONZERO:
            values[values == 0] = self.rng.choice((0.5, 1.0, 2.0))
        return values

    def array(self, shape: tuple[int, ...]) -> Array:
        """Values of one kind, with zeros; now and then with undefined ones."""
        numbers = self.numbers
        kind = numbers.random()
        if self.is_plain or kind < 0.25:  # whole numbers: many are equal
            values = numbers.integers(-3, 4, shape).astype(np.float64)
        elif kind < 0.35:  # one value everywhere
            values = np.full(shape, numbers.normal(0.0, 1.5))
        else:
            values = numbers.normal(0.0, 1.5, shape)
        if numbers.random() < 0.3:
            values = np.abs(values)
        if numbers.random() < 0.3 and not self.is_plain:
            values[numbers.random(shape) < 0.3] *= self.large / 4.0
        values[numbers.random(shape) < 0.1] = 0.0
        if self.marks and numbers.random() < MARKED:
            # a rule may hold on one side of a number that it speaks of
            mark = numbers.choice(self.marks)
            # or beyond one that it makes of several: 30 tanh(x / 30) is 29.5 at 72
            far = [f * mark for f in (2.0, FAR, *self.factors)]
            limit = max(self.large, FAR * abs(mark))
            near = np.array([m for m in (mark - 1.0, mark, mark + 1.0, *far) if abs(m) <= limit])
            near = np.concatenate((near, -near))
            places = numbers.random(shape) < 0.5
            values[places] = numbers.choice(near, int(places.sum()))
        if numbers.random() < UNDEFINED:
            # what a program computed may be undefined: a rule that drops it changes where
            values[numbers.random(shape) < 0.5] = np.nan
        return values


def _forms(expr: SExpr) -> list[Form]:
    if isinstance(expr, Atom):
        return []
    return [expr, *(form for item in expr.items for form in _forms(item))]


def _values_text(values: Array) -> str:
    """The entries, if they can be read."""
    if values.size > 8:
        return ""
    entries = ("undefined" if np.isnan(v) else f"{v:.4g}" for v in values.ravel())
    return f" = [{', '.join(entries)}]"
