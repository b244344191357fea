"""Costs as polynomials in unknown sizes: when is one cost at most another, whatever the sizes?

A cost is a sum of monomials with positive whole coefficients over variables that are all at least
1: the tile of each data dim, the number of iterations, how much dearer one kind of operation is
than another. A variable known to be at least 2 is written as twice another one.

`is_below` decides P <= Q by matching: every monomial of P is paid for by monomials of Q whose
exponents are nowhere smaller, and nothing of Q is spent twice. That is sound for all values at
once; it misses an inequality that holds for another reason.

Exponents are packed into one integer, four bits each, the top one left free: with it set in b, the
subtraction b - a borrows from it exactly where an exponent of a is larger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType

Monomial = int
"""Packed exponents; 0 is the constant 1."""

Polynomial = Mapping[Monomial, int]
"""Monomial -> coefficient, never 0 or less. Not changed once made."""

ZERO: Polynomial = MappingProxyType({})

BITS = 4
MAX_EXPONENT = (1 << (BITS - 1)) - 1

MAX_VARIABLES = 256
_GUARDS = sum(1 << (BITS * i + BITS - 1) for i in range(MAX_VARIABLES))
_MANY = 16
_FEW_GUARDS = sum(1 << (BITS * i + BITS - 1) for i in range(_MANY))
"""For monomials that fit a machine word, which is quicker."""


def power(variable: int, exponent: int = 1) -> Monomial:
    """A variable to a power; the product of monomials is their sum."""
    assert 0 <= exponent <= MAX_EXPONENT
    return exponent << (BITS * variable)


def exponents(monomial: Monomial) -> tuple[int, ...]:
    """The exponents by variable, those after the last one that occurs left out."""
    out: list[int] = []
    while monomial:
        out.append(monomial & ((1 << BITS) - 1))
        monomial >>= BITS
    return tuple(out)


def add(left: Polynomial, right: Polynomial) -> Polynomial:
    """The sum."""
    if not left:
        return right
    out = dict(left)
    for monomial, coefficient in right.items():
        out[monomial] = out.get(monomial, 0) + coefficient
    return out


def total(parts: Iterable[Polynomial]) -> Polynomial:
    """The sum of many."""
    out: dict[Monomial, int] = {}
    for part in parts:
        for monomial, coefficient in part.items():
            out[monomial] = out.get(monomial, 0) + coefficient
    return out


def scaled(polynomial: Polynomial, factor: int) -> Polynomial:
    """The polynomial times a positive whole number."""
    return {monomial: factor * coefficient for monomial, coefficient in polynomial.items()}


def without(polynomial: Polynomial, variable: int) -> Polynomial:
    """The polynomial where a variable is 1."""
    keep = ~(((1 << BITS) - 1) << (BITS * variable))
    out: dict[Monomial, int] = {}
    for monomial, coefficient in polynomial.items():
        out[monomial & keep] = out.get(monomial & keep, 0) + coefficient
    return out


def divides(left: Monomial, right: Monomial) -> bool:
    """Whether no exponent of `left` is larger: left <= right wherever variables are at least 1."""
    guards = _GUARDS if (left | right) >> (BITS * _MANY) else _FEW_GUARDS
    return ((right | guards) - left) & guards == guards


def meet(left: Monomial, right: Monomial) -> Monomial:
    """The largest monomial that divides both."""
    pairs = zip(exponents(left), exponents(right), strict=False)
    return sum(power(i, min(a, b)) for i, (a, b) in enumerate(pairs))


def is_below(left: Polynomial, right: Polynomial) -> bool:
    """Whether left <= right for all values of the variables (sound, not complete)."""
    debts = [
        [monomial, left[monomial] - right.get(monomial, 0)]
        for monomial in left
        if left[monomial] > right.get(monomial, 0)
    ]
    if not debts:
        return True
    funds = [
        [monomial, right[monomial] - left.get(monomial, 0)]
        for monomial in right
        if right[monomial] > left.get(monomial, 0)
    ]
    if sum(c for _, c in debts) > sum(c for _, c in funds):
        return False  # at 1 everywhere
    # the dearest first, each from the cheapest that pays for it
    debts.sort(key=_dearness, reverse=True)
    funds.sort(key=_dearness)
    return _Payment(debts, funds).is_complete()


class _Payment:
    """Pays debts from funds, in order; where that fails, earlier payments are moved."""

    def __init__(self, debts: list[list[int]], funds: list[list[int]]) -> None:
        self._debts = debts
        self._left = [coefficient for _, coefficient in funds]
        self._funds = [monomial for monomial, _ in funds]
        self._paid: list[dict[int, int]] = [{} for _ in debts]
        """Of each debt, how much each fund pays."""

    def is_complete(self) -> bool:
        """Whether all debts can be paid."""
        return all(self._is_paid(debt, owed) for debt, (_, owed) in enumerate(self._debts))

    def _is_paid(self, debt: int, owed: int) -> bool:
        while owed:
            paid = self._pay(debt, owed, set())
            if not paid:
                return False
            owed -= paid
        return True

    def _pay(self, debt: int, most: int, tried: set[int]) -> int:
        """Pay up to `most` of a debt; how much was paid, 0 where nothing can be."""
        able = [
            fund
            for fund, monomial in enumerate(self._funds)
            if fund not in tried and divides(self._debts[debt][0], monomial)
        ]
        for fund in able:
            if self._left[fund]:
                amount = min(most, self._left[fund])
                self._left[fund] -= amount
                self._paid[debt][fund] = self._paid[debt].get(fund, 0) + amount
                return amount
        tried.update(able)
        for fund in able:
            amount = self._moved(fund, most, tried)
            if amount:
                self._paid[debt][fund] = self._paid[debt].get(fund, 0) + amount
                return amount
        return 0

    def _moved(self, fund: int, most: int, tried: set[int]) -> int:
        """Let another fund pay for a debt that this one pays for; how much that frees."""
        for other, paid in enumerate(self._paid):
            if paid.get(fund):
                amount = self._pay(other, min(most, paid[fund]), tried)
                if amount:
                    paid[fund] -= amount
                    return amount
        return 0


def below_all(choices: Iterable[Polynomial]) -> Polynomial:
    """A polynomial below every one of `choices`: the least of them, or what they share."""
    known = list({frozenset(c.items()): c for c in choices}.values())
    for candidate in known:
        if all(other is candidate or is_below(candidate, other) for other in known):
            return candidate
    largest = [max(c, key=lambda m: (_degree(m), m), default=None) for c in known]
    shared: Monomial | None = None
    for monomial in largest:
        if monomial is None:
            return ZERO
        shared = monomial if shared is None else meet(shared, monomial)
    if shared is None:
        return ZERO
    coefficients = (c[m] for c, m in zip(known, largest, strict=True) if m is not None)
    return {shared: min(coefficients)}


def _dearness(owed: list[int]) -> tuple[int, Monomial]:
    return _degree(owed[0]), owed[0]


@cache
def _degree(monomial: Monomial) -> int:
    return sum(exponents(monomial))
