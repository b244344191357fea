"""The laws of the uninterpreted functions that occur in a claim, for Z3 to reason with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import z3

from prism_constraints.z3_reals import (
    ABOVE_ZERO,
    AT_LEAST_ZERO,
    NOT_ZERO,
    SIZE,
    name_of,
    subterms,
)


def laws_of(terms: Sequence[Any]) -> tuple[list[Any], Callable[[Any], Any]]:
    """Laws of the functions that occur, and a function that puts constants in their place."""
    swaps: list[tuple[Any, Any]] = []
    laws: list[Any] = []
    by_function: dict[str, list[tuple[Any, Any]]] = {}
    for i, term in enumerate(subterms(*terms)):
        if name_of(term).startswith(SIZE):
            laws.append(term >= 1)
        if not term.children():
            laws += _sign_laws(name_of(term), term)
        if not z3.is_app_of(term, z3.Z3_OP_UNINTERPRETED) or not term.children():
            continue
        constant = z3.Const(f"c{i}", term.sort())
        operands = [z3.substitute(child, *swaps[::-1]) for child in term.children()]
        laws += _laws(term, constant, operands)
        if not z3.is_int(term.arg(0)):
            others = by_function.setdefault(term.decl().name(), [])
            for other, other_operands in others:
                same = [a == b for a, b in zip(operands, other_operands, strict=True)]
                laws.append(z3.Implies(z3.And(*same), constant == other))
            others.append((constant, operands))
        swaps.append((term, constant))
    return laws, lambda term: z3.substitute(term, *swaps[::-1])


def _sign_laws(name: str, value: Any) -> list[Any]:  # noqa: ANN401
    """What is known of a variable or a sum of positive values by its name."""
    if name.startswith("sum+ ") or name.endswith(f"!{ABOVE_ZERO}"):
        return [value > 0]
    if name.endswith(f"!{AT_LEAST_ZERO}"):
        return [value >= 0]
    return [value != 0] if name.endswith(f"!{NOT_ZERO}") else []


def _laws(term: Any, value: Any, operands: Sequence[Any]) -> list[Any]:  # noqa: ANN401
    known_laws = _sign_laws(term.decl().name(), value)
    if known_laws:
        return known_laws
    (x, *rest) = operands
    match term.decl().name():
        case "inv":
            return [z3.If(x == 0, value == 0, x * value == 1)]
        case "exp":
            return [value > 0]
        case "sqrt":
            return [z3.Implies(x >= 0, z3.And(value >= 0, value * value == x))]
        case "larger":
            (y,) = rest
            return [value >= x, value >= y, z3.Or(value == x, value == y)]
        case _:
            return []
