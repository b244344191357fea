"""The shipped workloads: plain NumPy-style functions, their dims as annotations.

On NumPy arrays they compute at once; that is the NumPy baseline they are measured against.
"""

# Annotations are dims here, not types.
# mypy: disable-error-code="name-defined,valid-type"

from __future__ import annotations

from typing import Any

from prism import frontend as pr

Tensor = Any


def rmsnorm(x: "n d", g: "d", w: "d h") -> Tensor:
    """RMSNorm with a weight, then a linear layer."""
    scale = pr.sqrt(pr.mean(x**2, axis=-1, keepdims=True) + 1e-5)
    return ((x * g) / scale) @ w


def rmsnorm_paper(x: "n d", w: "d h") -> Tensor:
    """RMSNorm and a linear layer as in the paper: no weight, no eps."""
    return (x / pr.sqrt(pr.mean(x**2, axis=-1, keepdims=True))) @ w


def softmax_matmul(x: "n k", w: "k h") -> Tensor:
    """Figure 1 of the paper: a softmax without its maximum subtracted, then a product."""
    e = pr.exp(x)
    return (e / pr.sum(e, axis=-1, keepdims=True)) @ w


def matmul(x: "n d", w: "d h") -> Tensor:
    """A matrix product."""
    return x @ w
