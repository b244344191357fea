"""What a library's form is written with: the contract between `lower` and torch or ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from prism_experiments.rivals.composites import Norm

Name = str | float
"""A value that was written, by name, or a number."""

Factors = tuple[str | None, str | None]
"""The weight and the bias of a norm."""


class Writer(Protocol):
    """A library's form in the making; every method writes one call and names its result."""

    def argument(self, index: int) -> str:
        """An argument of the program as the caller passes it."""

    def permute(self, x: str, order: tuple[int, ...]) -> str:
        """The axes in another order."""

    def unsqueeze(self, x: str, axes: tuple[int, ...]) -> str:
        """With axes of size one at these places of the result."""

    def reshape(self, x: str, shape: tuple[int, ...]) -> str:
        """The same elements in another shape."""

    def expand(self, x: Name, shape: tuple[int, ...]) -> str:
        """Repeated along axes of size one, or that it lacks in front."""

    def elementwise(self, op: str, operands: Sequence[Name]) -> str:
        """An elementwise operator of the table; at least one operand is no number."""

    def choice(self, left: Name, right: Name, yes: Name, no: Name) -> str:
        """`yes` where left > right, else `no`."""

    def reduce(self, op: str, x: str, axis: int) -> str:
        """A reduction of the table; the axis goes."""

    def matmul(self, left: str, right: str) -> str:
        """The product over the last axis of `left` and the last but one of `right`."""

    def softmax(self, x: str, axis: int) -> str:
        """The softmax along an axis."""

    def norm(self, x: str, norm: Norm, size: int, factors: Factors) -> str:
        """RMSNorm or LayerNorm along the last axis, of that size; weight and bias."""

    def attention(self, qkv: tuple[str, str, str], scale: float, mask: str | None) -> str:
        """Attention over values of four axes: batch, head, row, and place."""

    def roll(self, x: str, by: int, axis: int, size: int) -> str:
        """Moved along an axis (from the end) by that many places, what leaves comes in again."""

    def flip(self, x: str, axis: int) -> str:
        """In reverse order along an axis (from the end)."""

    def index(self, size: int, after: int) -> str:
        """0, 1, 2, ... along an axis with `after` axes of size one behind it."""
