"""Programs of growing size for scaling.toml: blocks of four operators, x + relu(x @ w) @ v."""

# Annotations are dims here, not types.
# mypy: disable-error-code="name-defined,valid-type"

from __future__ import annotations

from typing import Any

from prism import frontend as pr

Tensor = Any


def residual_half(x: "n d", w1: "d f") -> Tensor:
    """2 operators: half a block."""
    return pr.relu(x @ w1)


def residual_1(x: "n d", w1: "d f", v1: "f d") -> Tensor:
    """4 operators: one block."""
    return x + pr.relu(x @ w1) @ v1


def residual_1_half(x: "n d", w1: "d f", v1: "f d", w2: "d f") -> Tensor:
    """6 operators."""
    return pr.relu(residual_1(x, w1, v1) @ w2)


def residual_2(x: "n d", w1: "d f", v1: "f d", w2: "d f", v2: "f d") -> Tensor:
    """8 operators: two blocks."""
    return residual_1(residual_1(x, w1, v1), w2, v2)


def residual_2_half(x: "n d", w1: "d f", v1: "f d", w2: "d f", v2: "f d", w3: "d f") -> Tensor:
    """10 operators."""
    return pr.relu(residual_2(x, w1, v1, w2, v2) @ w3)


def residual_3(
    x: "n d", w1: "d f", v1: "f d", w2: "d f", v2: "f d", w3: "d f", v3: "f d"
) -> Tensor:
    """12 operators: three blocks."""
    return residual_1(residual_2(x, w1, v1, w2, v2), w3, v3)


def residual_4(
    x: "n d",
    w1: "d f",
    v1: "f d",
    w2: "d f",
    v2: "f d",
    w3: "d f",
    v3: "f d",
    w4: "d f",
    v4: "f d",
) -> Tensor:
    """16 operators: four blocks."""
    return residual_1(residual_3(x, w1, v1, w2, v2, w3, v3), w4, v4)
