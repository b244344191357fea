"""Values over the reals in Z3: a real, whether it is finite, and whether it is the one infinity.

Reciprocals, exponentials, logarithms, roots, sums and largest values are uninterpreted functions
kept in a normal form that holds their laws: inv(a b) = inv(a) inv(b) with inv(0) = 0, exp(a + b) =
exp(a) exp(b), log(exp(a) b) = a + log(b), a sum over k is linear and lets go of what lacks k, sums
of sums are one sum. What is left is an equation between real constants for Z3.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import z3

from prism.egraph.facts import NONNEG, NONZERO

Bound = tuple[tuple[Any, str], ...]
"""Index variables that are summed over, each with the name of its range."""

_REAL, _INT, _BOOL = z3.RealSort(), z3.IntSort(), z3.BoolSort()
INV = z3.Function("inv", _REAL, _REAL)
EXP = z3.Function("exp", _REAL, _REAL)
LOG = z3.Function("log", _REAL, _REAL)
SQRT = z3.Function("sqrt", _REAL, _REAL)
LARGER = z3.Function("larger", _REAL, _REAL, _REAL)
SIZE = "size "
AT_LEAST_ZERO, ABOVE_ZERO, NOT_ZERO = ">=0", ">0", "!=0"
_MARKS = {0: "", NONNEG: AT_LEAST_ZERO, NONZERO: NOT_ZERO, NONNEG | NONZERO: ABOVE_ZERO}
MAX_POWER = 4


@dataclass(frozen=True, slots=True)
class Value:
    """A real, where it is finite and where it is infinite; undefined where it is neither."""

    real: Any
    finite: Any
    infinite: Any


def variable_name(name: str, bits: int) -> str:
    """The name of a variable of whose entries so much is known (`prism.egraph.facts`)."""
    return f"{name}!{_MARKS[bits & (NONNEG | NONZERO)]}"


def known(real: Any) -> Value:  # noqa: ANN401 - z3 ships no types
    """A value that is finite everywhere."""
    return Value(real, z3.BoolVal(True), z3.BoolVal(False))  # noqa: FBT003 - Z3's way


def size(range_name: str) -> Any:  # noqa: ANN401
    """The number of places of a range."""
    return z3.Real(SIZE + range_name)


# ---- normal forms


def monomials(real: Any) -> list[Any]:  # noqa: ANN401
    """The terms of a sum, each a product."""
    flat = z3.simplify(real, som=True)
    return list(flat.children()) if z3.is_add(flat) else [flat]


def factors(monomial: Any) -> list[Any]:  # noqa: ANN401
    """The factors of a product; a factor that is not zero and its reciprocal cancel."""
    out: list[Any] = []
    todo = [monomial]
    while todo:
        part = todo.pop()
        if z3.is_mul(part):
            todo.extend(part.children())
        elif z3.is_app_of(part, z3.Z3_OP_POWER) and z3.is_rational_value(part.arg(1)):
            todo.extend([part.arg(0)] * part.arg(1).numerator_as_long())
        else:
            _cancel(out, part)
    return out


def _cancel(out: list[Any], part: Any) -> None:  # noqa: ANN401
    other = part.arg(0) if _is(part, INV) else INV(part)
    base = part.arg(0) if _is(part, INV) else part
    place = next((i for i, f in enumerate(out) if f.eq(other)), None)
    if place is not None and (is_positive(base) or name_of(base).endswith(NOT_ZERO)):
        out.pop(place)
    else:
        out.append(part)


def is_positive(factor: Any) -> bool:  # noqa: ANN401
    """Whether a factor is known to be positive."""
    if z3.is_rational_value(factor):
        return bool(factor.as_fraction() > 0)
    if _is(factor, INV):
        return is_positive(factor.arg(0))
    if name_of(factor).endswith(f"!{ABOVE_ZERO}"):
        return True
    return _is(factor, EXP) or name_of(factor).startswith((SIZE, "sum+ "))


def product(parts: Sequence[Any]) -> Any:  # noqa: ANN401
    """The product of factors."""
    return z3.Product(*parts) if len(parts) > 1 else parts[0] if parts else z3.RealVal(1)


def total(parts: Sequence[Any]) -> Any:  # noqa: ANN401
    """The sum of terms."""
    return z3.Sum(*parts) if len(parts) > 1 else parts[0] if parts else z3.RealVal(0)


def name_of(term: Any) -> str:  # noqa: ANN401
    """The name of a function applied, or of a variable."""
    return term.decl().name() if z3.is_app(term) else ""


def _is(term: Any, function: Any) -> bool:  # noqa: ANN401
    return bool(z3.is_app(term) and term.decl().eq(function))


def inverse(real: Any) -> Any:  # noqa: ANN401
    """The reciprocal, factor by factor; zero at zero."""
    terms = monomials(real)
    if len(terms) > 1:
        return INV(total(terms))
    return product([_inverse(factor) for factor in factors(terms[0])])


def _inverse(factor: Any) -> Any:  # noqa: ANN401
    if z3.is_rational_value(factor):
        number = factor.as_fraction()
        return z3.RealVal(1 / number) if number else z3.RealVal(0)
    return factor.arg(0) if _is(factor, INV) else INV(factor)


def exponential(real: Any) -> Any:  # noqa: ANN401
    """The exponential, a product over the terms of a sum."""
    return product([_exponential(term) for term in monomials(real)])


def _exponential(term: Any) -> Any:  # noqa: ANN401
    parts = factors(term)
    number = Fraction(1)
    rest = [part for part in parts if not z3.is_rational_value(part)]
    for part in parts:
        if z3.is_rational_value(part):
            number *= part.as_fraction()
    if not number:
        return z3.RealVal(1)
    sign = -1 if number < 0 else 1
    power = abs(number)
    if power.denominator == 1 and power <= MAX_POWER and rest:
        base, count = EXP(z3.simplify(product(rest), som=True)), int(power)
    else:
        base, count = EXP(z3.simplify(product([z3.RealVal(power), *rest]), som=True)), 1
    return product([INV(base) if sign < 0 else base] * count)


def logarithm(real: Any) -> Any:  # noqa: ANN401
    """The logarithm; exponentials among the factors come out."""
    terms = monomials(real)
    if len(terms) > 1:
        return LOG(total(terms))
    out: list[Any] = []
    rest: list[Any] = []
    for factor in factors(terms[0]):
        if _is(factor, EXP):
            out.append(factor.arg(0))
        elif _is(factor, INV) and _is(factor.arg(0), EXP):
            out.append(-factor.arg(0).arg(0))
        else:
            rest.append(factor)
    if len(rest) == 1 and _is(rest[0], INV):
        out.append(-LOG(rest[0].arg(0)))
    elif rest:
        out.append(LOG(z3.simplify(product(rest), som=True)))
    return total(out)


# ---- reductions


class Reductions:
    """Sums, largest values and "everywhere" as functions of the index variables they depend on."""

    def __init__(self) -> None:
        self._atoms: dict[str, tuple[Bound, tuple[Any, ...], tuple[Any, ...]]] = {}
        self._count = itertools.count()

    def index(self) -> Any:  # noqa: ANN401
        """A new index variable."""
        return z3.Int(f"i{next(self._count)}")

    def opaque(self, *about: Any) -> Any:  # noqa: ANN401
        """A claim nothing is known of, which may depend on the index variables of `about`."""
        free = indices(*about)
        return _apply(f"opaque {next(self._count)}", free, _BOOL)

    def sum(self, real: Any, bound: Bound) -> Any:  # noqa: ANN401
        """The sum over all of `bound`."""
        return total([self._sum(factors(term), bound) for term in monomials(real)])

    def _sum(self, parts: list[Any], bound: Bound) -> Any:  # noqa: ANN401
        outside, inside = _parted(parts, bound)
        inner = [part for part in inside if self._is_atom(part, "sum")]
        if len(inner) == 1:  # a sum of sums is one sum
            more, body = self._opened(inner[0])
            rest = [part for part in inside if part is not inner[0]]
            return product([*outside, self._sum([*rest, *body], (*bound, *more))])
        out = list(outside)
        for group, used in _components(inside, bound):
            kind = "sum+" if all(is_positive(part) for part in group) else "sum"
            out.append(self._atom(kind, group, used, _REAL))
        named = indices(*inside)
        out += [size(name) for var, name in bound if not _has(named, var)]
        return product(out)

    def largest(self, real: Any, bound: Bound) -> Any:  # noqa: ANN401
        """The largest over all of `bound`."""
        outside, inside = _parted(monomials(real), bound)
        if not inside:
            return total(outside)
        if len(inside) > 1:
            return total([*outside, self._atom("max", [total(inside)], bound, _REAL)])
        constant, varying = _parted(factors(inside[0]), bound)
        if not all(is_positive(part) for part in constant):
            constant, varying = [], [inside[0]]
        return total([*outside, product([*constant, self._largest(product(varying), bound)])])

    def _largest(self, real: Any, bound: Bound) -> Any:  # noqa: ANN401
        if _is(real, LARGER):
            return LARGER(*(self.largest(side, bound) for side in real.children()))
        if self._is_atom(real, "max"):
            more, (body,) = self._opened(real)
            return self._atom("max", [body], (*bound, *more), _REAL)
        return self._atom("max", [real], bound, _REAL)

    def everywhere(self, claim: Any, bound: Bound) -> Any:  # noqa: ANN401
        """That a claim holds for all of `bound`."""
        claim = z3.simplify(claim)
        outside, inside = _parted(list(claim.children()) if z3.is_and(claim) else [claim], bound)
        out = list(outside)
        for part in inside:
            if self._is_atom(part, "all"):
                more, (body,) = self._opened(part)
                out.append(self._atom("all", [body], (*bound, *more), _BOOL))
            else:
                out.append(self._atom("all", [part], bound, _BOOL))
        return z3.And(*out)

    def _atom(self, kind: str, parts: Sequence[Any], bound: Bound, sort: Any) -> Any:  # noqa: ANN401
        """A reduction under the name that all equal ones get."""
        named = indices(*parts)
        bound = tuple((var, name) for var, name in bound if _has(named, var))
        free = [var for var in named if not any(var.eq(b) for b, _ in bound)]
        best: tuple[str, Bound, tuple[Any, ...], tuple[Any, ...]] | None = None
        for order in itertools.permutations(bound):
            inner = tuple((z3.Int(f"b{i} {n}"), n) for i, (_, n) in enumerate(order))
            outer = tuple(z3.Int(f"f{i}") for i in range(len(free)))
            swap = [(v, b) for (v, _), (b, _) in zip(order, inner, strict=True)]
            swap += list(zip(free, outer, strict=True))
            body = tuple(z3.simplify(z3.substitute(part, *swap), som=True) for part in parts)
            texts = sorted(part.sexpr() for part in body)
            key = f"{kind} {[n for _, n in order]} {texts}"
            if best is None or key < best[0]:
                best = (key, inner, outer, body)
        assert best is not None
        self._atoms[best[0]] = best[1:]
        return _apply(best[0], free, sort)

    def _is_atom(self, term: Any, kind: str) -> bool:  # noqa: ANN401
        name = name_of(term)
        return name in self._atoms and name.split(" ", 1)[0].rstrip("+") == kind

    def _opened(self, atom: Any) -> tuple[Bound, list[Any]]:  # noqa: ANN401
        """The bound variables (new ones) and the body of a reduction."""
        inner, outer, body = self._atoms[atom.decl().name()]
        fresh = tuple((self.index(), name) for _, name in inner)
        swap = [(old, new) for (old, _), (new, _) in zip(inner, fresh, strict=True)]
        swap += list(zip(outer, atom.children(), strict=True))
        return fresh, [z3.substitute(part, *swap) for part in body]


def _apply(name: str, free: Sequence[Any], sort: Any) -> Any:  # noqa: ANN401
    if not free:
        return z3.Const(name, sort)
    return z3.Function(name, *([_INT] * len(free)), sort)(*free)


def subterms(*terms: Any) -> Iterator[Any]:  # noqa: ANN401
    """Every distinct sub-term, operands first."""
    seen: set[int] = set()

    def walk(term: Any) -> Iterator[Any]:  # noqa: ANN401
        if term.get_id() in seen:
            return
        seen.add(term.get_id())
        for child in term.children():
            yield from walk(child)
        yield term

    for term in terms:
        yield from walk(term)


def indices(*terms: Any) -> list[Any]:  # noqa: ANN401
    """The index variables that occur, by name."""
    found = [t for t in subterms(*terms) if z3.is_const(t) and z3.is_int(t) and not _is_number(t)]
    return sorted(found, key=str)


def _is_number(term: Any) -> bool:  # noqa: ANN401
    return bool(z3.is_int_value(term))


def _has(among: Sequence[Any], var: Any) -> bool:  # noqa: ANN401
    return any(other.eq(var) for other in among)


def _parted(parts: Sequence[Any], bound: Bound) -> tuple[list[Any], list[Any]]:
    """Parts that lack every bound variable, and the others."""
    outside: list[Any] = []
    inside: list[Any] = []
    for part in parts:
        named = indices(part)
        (inside if any(_has(named, var) for var, _ in bound) else outside).append(part)
    return outside, inside


def _components(parts: Sequence[Any], bound: Bound) -> list[tuple[list[Any], Bound]]:
    """Factors that share bound variables stay together; a product of sums otherwise."""
    groups: list[tuple[list[Any], Bound]] = []
    for part in parts:
        named = indices(part)
        used = tuple((var, name) for var, name in bound if _has(named, var))
        group = [part]
        rest: list[tuple[list[Any], Bound]] = []
        for other, others_used in groups:
            if any(_has([v for v, _ in used], var) for var, _ in others_used):
                group += other
                used += tuple(b for b in others_used if not _has([v for v, _ in used], b[0]))
            else:
                rest.append((other, others_used))
        groups = [*rest, (group, used)]
    return groups
