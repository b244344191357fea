"""Reads the DLPack capsule of an array on a GPU, ready to be used on a stream."""

from __future__ import annotations

from typing import Any

from prism import dlpack
from prism.dlpack import CUDA, Tensor

__all__ = ["CUDA", "Tensor", "read"]

_LEGACY_STREAM = 1
"""DLPack's name for the default stream: 0 is ambiguous there."""


def read(value: Any, stream: int) -> Tensor:  # noqa: ANN401 - anything with `__dlpack__`
    """The tensor of an object on a GPU, ready to be used on `stream`.

    Raises:
        ValueError: what the object gives is no capsule of a tensor.
    """
    return dlpack.read(value, stream=stream or _LEGACY_STREAM)
