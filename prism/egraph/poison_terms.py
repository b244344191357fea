"""The terms on which rules are tried together (`poison`, `growth`): left sides over generic leaves.

Leaves are whole inputs, tiles and copies of them, and numbers. Rules without a helper are each true
by themselves, so a few terms do. Rules about one helper may contradict each other on terms that
neither would meet alone, so for them there are more.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from prism.egraph.axioms import DirectedRule
from prism.egraph.bank import TermBank, TermId
from prism.egraph.facts import NONNEG, NONZERO, needed_bits, single_dims
from prism.egraph.meaning import Sizes
from prism.egraph.sexpr import constants
from prism.egraph.sides import DATA, NAMES, PARS, build_strictly
from prism.egraph.signature import PAR_RULES, Sort
from prism.errors import GraphError

SINGLE = len(DATA)
"""A data dimension of size one."""
SIZES = Sizes({0: 4, 1: 4, 2: 4, SINGLE: 1}, {PARS[0]: 2, PARS[1]: 2})
INPUTS = {"x": (0, 1), "y": (0, 1), "z": (0,), "w": (2,), "u": (0, SINGLE), "v": (SINGLE,)}
"""The dimensions of each input."""
LEAVES = ("x", "y", "z", "w")
INSTANCES = 8
CONSTANTS = (0.0, 1.0, 2.0, -1.0)
MOST_NUMBERS, MOST_PAIRED = 24, 8
"""Numbers for the only variable of a rule, for each of several."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How variables are bound: to which inputs and dimensions, with what known of all values."""

    leaves: Sequence[str] = LEAVES
    dims: Sequence[int] = DATA
    bits: int = 0


def generic_bank() -> TermBank:
    """A bank over the dimensions of the inputs."""
    bank = TermBank((*NAMES, f"d{SINGLE}"), is_strict=False)
    bank.declare_size(bank.dims[SINGLE], 1.0)
    return bank


def _ways(rules: Sequence[DirectedRule]) -> Iterator[_Way]:
    """The ways that differ from the usual one, as far as conditions of the rules can tell."""
    conditions = [c for rule in rules for c in rule.axiom.conditions]
    bits = (0, NONNEG | NONZERO) if needed_bits(conditions) else (0,)
    dims: tuple[tuple[int, ...], ...] = (DATA,)
    leaves: tuple[tuple[str, ...], ...] = (LEAVES,)
    if single_dims(conditions):
        dims, leaves = (DATA, (SINGLE, *DATA)), (LEAVES, ("u", "v", *LEAVES))
    usual, *others = itertools.product(leaves, dims, bits)
    assert usual == (LEAVES, DATA, 0)
    yield from itertools.starmap(_Way, others)


def numbers_about(rules: Sequence[DirectedRule]) -> list[float]:
    """Small numbers, the literals of rules, and what is one of these with another."""
    texts = {t for rule in rules for t in constants(rule.left) | constants(rule.right)}
    literals = sorted({Fraction(text) for text in texts})
    found = [Fraction(value) for value in CONSTANTS] + literals
    for a, b in itertools.product(literals, [*literals, Fraction(1)]):
        found += [a - b, b - a, a + b, a * b]
        found += [a / b] if b else []
    exact = [value for value in dict.fromkeys(found) if Fraction(repr(float(value))) == value]
    return [float(value) for value in exact[:MOST_NUMBERS]]


def _chosen(numbers: Sequence[TermId], count: int) -> Iterator[tuple[TermId, ...]]:
    """Numbers for so many variables."""
    if count <= 1:
        return itertools.product(numbers, repeat=count)
    if count == 2:
        return itertools.product(numbers[:MOST_PAIRED], repeat=2)
    return ((number,) * count for number in numbers[:MOST_PAIRED])


class Terms:
    """Generic terms: every leaf a whole input, tiles and copies made of them."""

    def __init__(self) -> None:
        self.bank = generic_bank()

    def generic(self, rule: DirectedRule, rng: random.Random) -> list[TermId]:
        """Leaves, simple terms over them, and left sides of the rule over all of them."""
        leaves = [self.input(name) for name in LEAVES]
        numbers = [self.bank.const(value) for value in CONSTANTS]
        x, one = leaves[0], numbers[1]
        roots = [*leaves, *numbers, self.bank.make("Add", (x, one)), self.bank.make("Neg", (x,))]
        roots += [self.bank.make("Add", (one, one)), self.bank.make("Size", (), (0,))]
        roots += self.plain(rule)
        most = len(roots) + INSTANCES
        for _ in range(200):
            binding = self.binding(rule, rng, leaves)
            try:
                roots.append(build_strictly(self.bank, rule.left, binding))
            except (GraphError, KeyError):
                continue
            if len(roots) >= most:
                break
        return roots

    def plain(self, rule: DirectedRule, way: _Way = _Way()) -> list[TermId]:
        """Left sides over the first leaves in order: whole, all tiles, all copies.

        Those of two rules are about the same terms, so that what they claim can meet.
        """
        binding = self.in_order(rule, way)
        terms = [n for n, s in rule.variables.items() if s is Sort.TERM]
        out: list[TermId] = []
        for head, attributes in ((None, ()), ("Part", (0, PARS[0])), ("Repl", (PARS[0],))):
            own = {}
            with suppress(GraphError, KeyError):
                own = {n: self.bank.make(head, (binding[n],), attributes) for n in terms if head}
                out.append(build_strictly(self.bank, rule.left, {**binding, **own}))
        return out

    def in_order(self, rule: DirectedRule, way: _Way) -> dict[str, int]:
        """The variables of each sort bound to the first terms and dimensions."""
        ids: dict[Sort, Sequence[int]] = {Sort.DATA: way.dims, Sort.PAR: PARS}
        ids[Sort.TERM] = [self.input(name) for name in way.leaves]
        bits = needed_bits(rule.axiom.conditions)
        binding: dict[str, int] = {}
        for sort, known in ids.items():
            names = sorted(n for n, s in rule.variables.items() if s is sort)
            binding.update(zip(names, known, strict=False))
        for name, value in binding.items():
            if rule.variables[name] is Sort.TERM:
                binding[name] = self.signed(value, way.bits | bits.get(name, 0))
        return binding

    def meeting(self, rules: Sequence[DirectedRule]) -> list[TermId]:
        """Left sides of rules about one helper, on terms to which several of them may apply.

        Over a dimension of size one; of values of which all is known that a rule may ask for; of
        numbers that make a literal of a rule.
        """
        roots = [root for way in _ways(rules) for rule in rules for root in self.plain(rule, way)]
        numbers = [self.bank.const(value) for value in numbers_about(rules)]
        for rule in rules:
            binding = self.in_order(rule, _Way())
            names = [n for n, s in rule.variables.items() if s is Sort.TERM]
            for chosen in _chosen(numbers, len(names)):
                with suppress(GraphError, KeyError):
                    own = {**binding, **dict(zip(names, chosen, strict=True))}
                    roots.append(build_strictly(self.bank, rule.left, own))
        return [*numbers, *roots]

    def input(self, name: str) -> TermId:
        """A whole input."""
        return self.bank.input(name, [self.bank.dims[d] for d in INPUTS[name]])

    def binding(
        self, rule: DirectedRule, rng: random.Random, leaves: Sequence[TermId]
    ) -> dict[str, int]:
        """Random leaves for the variables, distributed at random in a parallel rule."""
        out: dict[str, int] = {}
        for name, sort in rule.variables.items():
            if sort is not Sort.TERM:
                out[name] = rng.choice(DATA if sort is Sort.DATA else PARS)
        bits = needed_bits(rule.axiom.conditions)
        common = [p for p in PARS if rule.ruleset == PAR_RULES and rng.random() < 0.5]
        for name, sort in rule.variables.items():
            if sort is Sort.TERM:
                term = self.signed(rng.choice(leaves), bits.get(name, 0))
                for par in common:
                    term = self.distributed(term, par, rng)
                out[name] = term
        return out

    def signed(self, term: TermId, bits: int) -> TermId:
        """A value made of another, of whose entries enough is known for a rule to apply."""
        if bits & NONZERO:
            return self.bank.make("Exp", (term,))
        return self.bank.make("Square", (term,)) if bits & NONNEG else term

    def distributed(self, term: TermId, par: int, rng: random.Random) -> TermId:
        """Tiles or copies of a value along a parallel dimension."""
        dims = [d for d, split in self.bank.type_of(term).splits.items() if not split]
        if dims and rng.random() < 0.6:
            return self.bank.make("Part", (term,), (rng.choice(dims), par))
        return self.bank.make("Repl", (term,), (par,))
