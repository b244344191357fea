"""Functions that expand to operators of the table: softmax, norms, variance.

They are written with the functions a user has, so they trace and compute alike.
"""

from __future__ import annotations

from prism.frontend import functions as f
from prism.frontend.functions import Operand
from prism.frontend.operations import Axis


def softmax(x: Operand, axis: Axis = -1) -> Operand:
    """exp(x) / sum(exp(x)) along `axis`; the largest x is subtracted, so that exp is at most 1."""
    e = f.exp(x - f.max(x, axis=axis, keepdims=True))
    return e / f.sum(e, axis=axis, keepdims=True)


def logsumexp(x: Operand, axis: Axis = None, *, keepdims: bool = False) -> Operand:
    """log(sum(exp(x))) along `axis`, safe from overflow."""
    largest = f.max(x, axis=axis, keepdims=True)
    total = f.log(f.sum(f.exp(x - largest), axis=axis, keepdims=keepdims))
    return total + (largest if keepdims else f.max(x, axis=axis))


def log_softmax(x: Operand, axis: Axis = -1) -> Operand:
    """log(softmax(x)) along `axis`."""
    shifted = x - f.max(x, axis=axis, keepdims=True)
    return shifted - f.log(f.sum(f.exp(shifted), axis=axis, keepdims=True))


def var(x: Operand, axis: Axis = None, *, keepdims: bool = False) -> Operand:
    """The mean squared distance from the mean along `axis`."""
    centred = x - f.mean(x, axis=axis, keepdims=True)
    return f.mean(f.square(centred), axis=axis, keepdims=keepdims)


def rms_norm(
    x: Operand, weight: Operand | None = None, eps: float = 0.0, axis: Axis = -1
) -> Operand:
    """X / sqrt(mean(x^2) + eps) along `axis`, times the weight.

    A weight of one dimension lies along `axis`; any other broadcasts as it is.
    """
    mean_square = f.mean(f.square(x), axis=axis, keepdims=True)
    normed = x / f.sqrt(mean_square + eps)
    return normed if weight is None else normed * _along(weight, x, axis)


def layer_norm(
    x: Operand,
    weight: Operand | None = None,
    bias: Operand | None = None,
    eps: float = 1e-5,
    axis: Axis = -1,
) -> Operand:
    """(x - mean) / sqrt(var + eps) along `axis`, times the weight, plus the bias.

    A weight or bias of one dimension lies along `axis`; any other broadcasts as it is.
    """
    centred = x - f.mean(x, axis=axis, keepdims=True)
    variance = f.mean(f.square(centred), axis=axis, keepdims=True)
    normed = centred / f.sqrt(variance + eps)
    if weight is not None:
        normed = normed * _along(weight, x, axis)
    return normed if bias is None else normed + _along(bias, x, axis)


def _along(weight: Operand, x: Operand, axis: Axis) -> Operand:
    """A weight with one element for each place of the normalised axis, laid along that axis."""
    ranks = getattr(weight, "ndim", 0), getattr(x, "ndim", 0)
    if not isinstance(axis, int) or ranks[0] != 1:
        return weight
    for _ in range((-axis if axis < 0 else ranks[1] - axis) - 1):
        weight = f.expand_dims(weight, -1)
    return weight
