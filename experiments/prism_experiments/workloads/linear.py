"""Products of matrices."""

# Annotations are dims here, not types.
# mypy: disable-error-code="name-defined,valid-type"

from __future__ import annotations

from typing import Any

from prism import frontend as pr

Tensor = Any


def matmul(x: "n d", w: "d h") -> Tensor:
    """A matrix product."""
    return x @ w


def softmax_matmul(x: "n k", w: "k h") -> Tensor:
    """Figure 1 of the paper: a softmax without its maximum subtracted, then a product."""
    e = pr.exp(x)
    return (e / pr.sum(e, axis=-1, keepdims=True)) @ w


def lora(x: "n d", w: "d h", a: "d r", b: "r h") -> Tensor:
    """A linear layer with a low-rank update of its weights."""
    return x @ w + (x @ a) @ b
