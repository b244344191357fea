"""What each function of the dialect means on Python numbers, and the kinds it takes and gives.

float32 values are `numpy.float32` scalars, whose arithmetic rounds to float32; indices are Python
integers. The functions compute in float64 and round once, so they are right to the last bit or
two; at the ends of the range, and for NaN, they do what NumPy does on float64.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np

F16, F32, U32 = np.float16, np.float32, np.uint32

INF, NAN, LARGEST = F32(np.inf), F32(np.nan), np.finfo(F32).max
CONSTANTS: Mapping[str, np.float32] = MappingProxyType(
    {"INF": INF, "NAN": NAN, "LOWEST": F32(-LARGEST)}
)
"""Constant of the dialect -> its value."""


class Kind(Enum):
    """What Numba makes of an expression; an integer and a float32 together make a float64."""

    INT = "an integer"
    FLOAT = "a float32"
    BOOL = "a truth value"


@dataclass(frozen=True, slots=True)
class Function:
    """A pure function: the kinds of its operands, the kind of its result, and its meaning."""

    operands: tuple[Kind, ...]
    result: Kind
    call: Callable[..., Any]


def _maximum(x: np.float32, y: np.float32) -> np.float32:
    return x if x >= y or math.isnan(x) else y


def _minimum(x: np.float32, y: np.float32) -> np.float32:
    return x if x <= y or math.isnan(x) else y


def _bound(x: np.float32) -> np.float32:
    if x > LARGEST:
        return LARGEST
    return F32(-LARGEST) if x < -LARGEST else x


def _sqrt(x: np.float32) -> np.float32:
    return F32(math.sqrt(x)) if x >= 0 else NAN


def _exp(x: np.float32) -> np.float32:
    try:
        return F32(math.exp(x))
    except OverflowError:
        return INF


def _log(x: np.float32) -> np.float32:
    if x > 0:
        return F32(math.log(x))
    return F32(-np.inf) if x == 0 else NAN


def _tanh(x: np.float32) -> np.float32:
    return F32(math.tanh(x))


def _logistic(x: float) -> float:
    """The logistic function; exp of a non-positive number only, which cannot overflow."""
    if x >= 0.0:
        return 1.0 / (1.0 + math.exp(-x))
    small = math.exp(x)
    return small / (1.0 + small)


def _sigmoid(x: np.float32) -> np.float32:
    return F32(_logistic(float(x)))


def _silu(x: np.float32) -> np.float32:
    return F32(float(x) * _logistic(float(x)))


def _gelu_tanh(x: np.float32) -> np.float32:
    """The GELU 0.5 x (1 + tanh(u)) = x sigmoid(2 u), which does not cancel for negative x."""
    value = float(x)
    bend = math.sqrt(2.0 / math.pi) * (value + 0.044715 * value * value * value)
    return F32(value * _logistic(2.0 * bend))


def _gelu_erf(x: np.float32) -> np.float32:
    """The GELU 0.5 x erfc(-x / sqrt 2), which does not cancel for negative x."""
    value = float(x)
    return F32(0.5 * value * math.erfc(-value * math.sqrt(0.5)))


def _index(call: Callable[[int, int], int]) -> Function:
    return Function((Kind.INT, Kind.INT), Kind.INT, call)


def _unary(call: Callable[[np.float32], np.float32]) -> Function:
    return Function((Kind.FLOAT,), Kind.FLOAT, call)


def _binary(call: Callable[[np.float32, np.float32], np.float32]) -> Function:
    return Function((Kind.FLOAT, Kind.FLOAT), Kind.FLOAT, call)


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "quotient": _index(operator.floordiv),
        "remainder": _index(operator.mod),
        "smaller": _index(min),
        "maximum": _binary(_maximum),
        "minimum": _binary(_minimum),
        "bound": _unary(_bound),
        "absolute": _unary(abs),
        "divide": _binary(operator.truediv),
        "sqrt": _unary(_sqrt),
        "exp": _unary(_exp),
        "log": _unary(_log),
        "tanh": _unary(_tanh),
        "sigmoid": _unary(_sigmoid),
        "silu": _unary(_silu),
        "gelu_tanh": _unary(_gelu_tanh),
        "gelu_erf": _unary(_gelu_erf),
    }
)
"""Function of the dialect that touches no memory -> its meaning."""


def round_float16(x: np.float32) -> np.float32:
    """To the nearest float16, ties to even."""
    return F32(F16(x))


def round_bfloat16(x: np.float32) -> np.float32:
    """To the nearest bfloat16, ties to even: a bfloat16 is the upper half of a float32."""
    if math.isnan(x):
        return NAN
    bits = int(x.view(U32))
    bits += 0x7FFF + ((bits >> 16) & 1)
    return U32(bits & 0xFFFF0000).view(F32)


ROUND: Mapping[str, Callable[[np.float32], np.float32] | None] = MappingProxyType(
    {"float32": None, "float16": round_float16, "bfloat16": round_bfloat16}
)
"""Storage dtype -> what storing does to a float32; None: nothing."""
