"""Elementwise operators on values of `z3_reals`: what is computed, and where it is defined.

As `prism.egraph.exact` has it: 1/0 is the one infinity, 1 divided by it is 0; whatever else would
come of it is infinite or undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import z3

from prism_constraints.z3_reals import (
    LARGER,
    SQRT,
    Value,
    exponential,
    inverse,
    known,
    logarithm,
)

_NO = z3.BoolVal(False)  # noqa: FBT003 - Z3's way
_ONE, _ZERO = z3.RealVal(1), z3.RealVal(0)


def add(a: Value, b: Value) -> Value:
    """Infinite where one is, and the other finite."""
    return Value(a.real + b.real, z3.And(a.finite, b.finite), _one_infinite(a, b))


def _one_infinite(a: Value, b: Value) -> Any:  # noqa: ANN401 - z3 ships no types
    return z3.simplify(z3.Or(z3.And(a.infinite, b.finite), z3.And(a.finite, b.infinite)))


def multiply(a: Value, b: Value) -> Value:
    """Infinite where one is and the other is not zero."""
    infinite = z3.Or(
        z3.And(a.infinite, b.infinite),
        z3.And(a.infinite, b.finite, b.real != 0),
        z3.And(b.infinite, a.finite, a.real != 0),
    )
    return Value(a.real * b.real, z3.And(a.finite, b.finite), z3.simplify(infinite))


def reciprocal(a: Value) -> Value:
    """Infinite at zero, zero at infinity."""
    real = inverse(a.real)
    if not z3.is_false(z3.simplify(a.infinite)):
        real = z3.If(a.infinite, _ZERO, real)
    finite = z3.Or(z3.And(a.finite, a.real != 0), a.infinite)
    return Value(real, z3.simplify(finite), z3.And(a.finite, a.real == 0))


def larger(a: Value, b: Value) -> Value:
    """The larger of both."""
    return Value(
        LARGER(a.real, b.real),
        z3.And(a.finite, b.finite),
        z3.simplify(z3.Or(_one_infinite(a, b), z3.And(a.infinite, b.infinite))),
    )


def negative(a: Value) -> Value:
    """The one infinity has no sign."""
    return Value(-a.real, a.finite, a.infinite)


def _absolute(a: Value) -> Value:
    return Value(z3.If(a.real >= 0, a.real, -a.real), a.finite, a.infinite)


def _exp(a: Value) -> Value:
    return Value(exponential(a.real), a.finite, _NO)


def _log(a: Value) -> Value:
    return Value(logarithm(a.real), z3.And(a.finite, a.real > 0), z3.And(a.finite, a.real == 0))


def _sqrt(a: Value) -> Value:
    return Value(SQRT(z3.simplify(a.real, som=True)), z3.And(a.finite, a.real >= 0), a.infinite)


def _sigmoid(a: Value) -> Value:
    return reciprocal(add(known(_ONE), _exp(negative(a))))


def _smooth(name: str) -> Callable[[Value], Value]:
    """A function of which nothing is known but that it is one."""
    function = z3.Function(name, z3.RealSort(), z3.RealSort())
    return lambda a: Value(function(z3.simplify(a.real, som=True)), a.finite, _NO)


OPERATORS: Mapping[str, Callable[..., Value]] = MappingProxyType(
    {
        "Abs": _absolute,
        "Add": add,
        "Div": lambda a, b: multiply(a, reciprocal(b)),
        "Exp": _exp,
        "GeluErf": _smooth("gelu-erf"),
        "GeluTanh": _smooth("gelu-tanh"),
        "Log": _log,
        "Maximum": larger,
        "Minimum": lambda a, b: negative(larger(negative(a), negative(b))),
        "Mul": multiply,
        "Neg": negative,
        "Recip": reciprocal,
        "Relu": lambda a: larger(a, known(_ZERO)),
        "Sigmoid": _sigmoid,
        "Silu": lambda a: multiply(a, _sigmoid(a)),
        "Sqrt": _sqrt,
        "Square": lambda a: multiply(a, a),
        "Sub": lambda a, b: add(a, negative(b)),
        "Tanh": _smooth("tanh"),
    }
)

__all__ = ["OPERATORS", "add", "larger", "multiply", "negative", "reciprocal"]
