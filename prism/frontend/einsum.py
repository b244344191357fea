"""Einstein summation of one or two operands, with the output written out: `"nd,dh->nh"`."""

from __future__ import annotations

import re

import numpy as np

from prism.frontend import operations as do
from prism.frontend.functions import Operand, traced_among
from prism.frontend.operations import describe_axes
from prism.frontend.site import trace_error
from prism.frontend.tensor import Tensor

_SPEC = re.compile(r"(?P<inputs>[a-zA-Z]*(?:,[a-zA-Z]*)?)->(?P<output>[a-zA-Z]*)")


def einsum(spec: str, *operands: Operand) -> Operand:
    """Products of one or two operands, summed over the letters that the output lacks."""
    tensor = traced_among(*operands)
    if tensor is None:
        return np.einsum(spec, *operands, optimize=True)
    inputs, output = _letters(spec, len(operands))
    parts = []
    for letters, operand in zip(inputs, operands, strict=True):
        if not isinstance(operand, Tensor):
            raise trace_error(f"einsum {spec!r}: every operand must be a tensor")
        if len(letters) != operand.ndim:
            axes = describe_axes(operand.axes)
            raise trace_error(f"einsum {spec!r}: {letters!r} does not fit the axes {axes}")
        parts.append((letters, operand))
    if len(parts) == 1:
        return _ordered(*_summed(*parts[0], output), output)
    (a, left), (b, right) = parts
    # what only one operand has and the output lacks is summed before the product
    a, left = _summed(a, left, output + b)
    b, right = _summed(b, right, output + a)
    order = output + "".join(c for c in a if c not in output)
    return do.product_sum(_ordered(a, left, order), _ordered(b, right, order), len(output))


def _letters(spec: str, count: int) -> tuple[list[str], str]:
    match = _SPEC.fullmatch(spec.replace(" ", ""))
    if match is None:
        raise trace_error(
            f"einsum {spec!r} is not supported; write one or two operands and the output with "
            'letters, e.g. "nd,dh->nh"'
        )
    inputs, output = match["inputs"].split(","), match["output"]
    if len(inputs) != count:
        raise trace_error(f"einsum {spec!r} names {len(inputs)} operands, but there are {count}")
    for letters in (*inputs, output):
        if len(set(letters)) != len(letters):
            raise trace_error(f"einsum {spec!r}: {letters!r} has a letter twice (no diagonals)")
    unknown = set(output) - set("".join(inputs))
    if unknown:
        raise trace_error(f"einsum {spec!r}: no operand has {', '.join(sorted(unknown))}")
    return inputs, output


def _summed(letters: str, tensor: Tensor, kept: str) -> tuple[str, Tensor]:
    gone = tuple(i for i, c in enumerate(letters) if c not in kept)
    rest = "".join(c for c in letters if c in kept)
    return rest, tensor.sum(axis=gone) if gone else tensor


def _ordered(letters: str, tensor: Tensor, order: str) -> Tensor:
    """The axes in the order of letters, of size one where the tensor has none."""
    tensor = do.permuted(tensor, [letters.index(c) for c in order if c in letters])
    return do.expanded(tensor, tuple(i for i, c in enumerate(order) if c not in letters))
