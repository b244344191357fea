"""Norms of rows, alone and before a product with weights."""

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


def layernorm_linear(x: "n d", g: "d", b: "d", w: "d h") -> Tensor:
    """LayerNorm with weight and bias, then a linear layer."""
    return pr.layer_norm(x, g, b) @ w


def residual_rmsnorm(x: "n d", y: "n d", g: "d") -> tuple[Tensor, Tensor]:
    """A layer's result added to the residual stream, and the norm the next layer reads."""
    residual = x + y
    return residual, pr.rms_norm(residual, g, eps=1e-5)
