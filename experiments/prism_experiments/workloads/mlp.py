"""Gated feed-forward layers, whole and in parts."""

# Annotations are dims here, not types.
# mypy: disable-error-code="name-defined,valid-type"

from __future__ import annotations

from typing import Any

from prism import frontend as pr

Tensor = Any


def swiglu_paper(x: "n d", w1: "d f", w2: "d f") -> Tensor:
    """The gated unit as in the paper; models have the same."""
    return pr.silu(x @ w1) * (x @ w2)


def swiglu(x: "n d", w_gate: "d f", w_up: "d f") -> Tensor:
    """The gated unit of a feed-forward layer, its down projection left out."""
    return pr.silu(x @ w_gate) * (x @ w_up)


def ffn(x: "n d", w_gate: "d f", w_up: "d f", w_down: "f h") -> Tensor:
    """A whole SwiGLU layer, down projection included."""
    return (pr.silu(x @ w_gate) * (x @ w_up)) @ w_down


def rmsnorm_mlp_paper(x: "n d", w1: "d f", w2: "d f") -> Tensor:
    """RMSNorm and a gate as in the paper: no weight, no eps, no activation, no down projection."""
    normed = x / pr.sqrt(pr.mean(x**2, axis=-1, keepdims=True))
    return (normed @ w1) * (normed @ w2)


def rmsnorm_swiglu(x: "n d", g: "d", w_gate: "d f", w_up: "d f") -> Tensor:
    """RMSNorm with weight and eps, then the gated unit: the first half of a model's MLP."""
    normed = pr.rms_norm(x, g, eps=1e-5)
    return pr.silu(normed @ w_gate) * (normed @ w_up)


def rmsnorm_mlp(x: "n d", g: "d", w_gate: "d f", w_up: "d f", w_down: "f h") -> Tensor:
    """The MLP of a model, its norm included: RMSNorm, SwiGLU, down projection."""
    normed = pr.rms_norm(x, g, eps=1e-5)
    return (pr.silu(normed @ w_gate) * (normed @ w_up)) @ w_down
