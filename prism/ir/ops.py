"""The operator table `OPS`: one row per predefined operator, the only place that lists them.

A row says how many operands the operator takes, how its result's dimensions follow from theirs
(by `kind`), what it means in NumPy on float64 (`numpy`), how it is written as a term for the
e-graph (`term`), and in which operands it is linear (what the placement analysis and the
range-safe pass need). Every interpreter of programs (evaluation, terms, placement, emitters) has
one entry per row; tests compare the lists.

Composites such as softmax or rms_norm are not rows: the front end expands them. Rows that users
define in a file beside their axioms (`prism.ir.operators`) are added to the table and never change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from prism.ir.operators import Definition


class OpKind(Enum):
    """How the dimensions of the result follow from those of the operands."""

    ELEMENTWISE = "elementwise"
    """Union of the operands' dimensions (broadcasting is by name)."""
    REDUCE = "reduce"
    """The operand's dimensions without `dim`."""
    CONTRACT = "contract"
    """Union of both operands' dimensions without `dim`, which both must have."""
    ALONG = "along"
    """Union of the operands' dimensions. It mixes places along `dim`, which the first must have: it
    needs the whole of it."""


class Linearity(Enum):
    """When an operator applied to partial values (summands) gives a partial value."""

    NONE = "none"
    EACH = "each"
    """Linear in each operand of `linear_in` alone, the others being whole."""
    JOINT = "joint"
    """Linear in all operands together: f(sum a, sum b) = sum f(a, b)."""


@dataclass(frozen=True, slots=True)
class OpSpec:
    """A predefined operator, or one that a user defined.

    `numpy` takes float64 arrays already aligned for broadcasting (ELEMENTWISE, CONTRACT as the
    elementwise product), an array and an axis (REDUCE), or aligned arrays with `axis` and `size` of
    the dim (ALONG). `term` is a template of the e-graph term: {0}, {1} are the operands' terms and
    {dim} the id of the dimension.
    """

    name: str
    kind: OpKind
    arity: int
    numpy: Callable[..., NDArray[np.float64]]
    term: str
    linearity: Linearity = Linearity.NONE
    linear_in: tuple[int, ...] = ()
    is_commutative: bool = False
    definition: Definition | None = None
    """What a user's operator is defined by."""


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    # exp of a non-positive number only, so that no argument overflows
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _gelu_erf(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(0.5 * x * (1.0 + _erf(x / math.sqrt(2.0))))


def _gelu_tanh(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))))


_EW, _RED = OpKind.ELEMENTWISE, OpKind.REDUCE
_EACH, _JOINT = Linearity.EACH, Linearity.JOINT

BUILT_IN = (
    OpSpec("add", _EW, 2, np.add, "(Add {0} {1})", _JOINT, (0, 1), is_commutative=True),
    OpSpec("sub", _EW, 2, np.subtract, "(Sub {0} {1})", _JOINT, (0, 1)),
    OpSpec("mul", _EW, 2, np.multiply, "(Mul {0} {1})", _EACH, (0, 1), is_commutative=True),
    OpSpec("div", _EW, 2, np.divide, "(Div {0} {1})", _EACH, (0,)),
    OpSpec("maximum", _EW, 2, np.maximum, "(Maximum {0} {1})", is_commutative=True),
    OpSpec("minimum", _EW, 2, np.minimum, "(Minimum {0} {1})", is_commutative=True),
    OpSpec("neg", _EW, 1, np.negative, "(Neg {0})", _EACH, (0,)),
    OpSpec("reciprocal", _EW, 1, np.reciprocal, "(Recip {0})"),
    OpSpec("exp", _EW, 1, np.exp, "(Exp {0})"),
    OpSpec("log", _EW, 1, np.log, "(Log {0})"),
    OpSpec("sqrt", _EW, 1, np.sqrt, "(Sqrt {0})"),
    OpSpec("rsqrt", _EW, 1, lambda x: 1.0 / np.sqrt(x), "(Recip (Sqrt {0}))"),
    OpSpec("square", _EW, 1, np.square, "(Square {0})"),
    OpSpec("abs", _EW, 1, np.abs, "(Abs {0})"),
    OpSpec("relu", _EW, 1, lambda x: np.maximum(x, 0.0), "(Relu {0})"),
    OpSpec("silu", _EW, 1, lambda x: x * _sigmoid(x), "(Silu {0})"),
    OpSpec("gelu_tanh", _EW, 1, _gelu_tanh, "(GeluTanh {0})"),
    OpSpec("gelu_erf", _EW, 1, _gelu_erf, "(GeluErf {0})"),
    OpSpec("sigmoid", _EW, 1, _sigmoid, "(Sigmoid {0})"),
    OpSpec("tanh", _EW, 1, np.tanh, "(Tanh {0})"),
    OpSpec("sum", _RED, 1, np.sum, "(Sum {0} {dim})", _EACH, (0,)),
    # the divisor is the size of the whole dimension, also inside a block that holds part of it
    OpSpec("mean", _RED, 1, np.mean, "(Div (Sum {0} {dim}) (Size {dim}))", _EACH, (0,)),
    OpSpec("max", _RED, 1, np.max, "(MaxOver {0} {dim})"),
    OpSpec(
        "matmul",
        OpKind.CONTRACT,
        2,
        np.multiply,
        "(Matmul {0} {1} {dim})",
        _EACH,
        (0, 1),
        is_commutative=True,
    ),
)

_TABLE = {row.name: row for row in BUILT_IN}

OPS: Mapping[str, OpSpec] = MappingProxyType(_TABLE)
"""Name -> row. It only ever grows: what was read from it stays right."""


def add_row(spec: OpSpec) -> None:
    """Add a user's operator, once (`prism.ir.operators.define`)."""
    assert spec.definition is not None
    assert spec.name not in _TABLE
    _TABLE[spec.name] = spec
