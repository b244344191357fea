"""The dtypes of arguments and results: how close a kernel must come, what they can hold.

NumPy has no bfloat16; ml_dtypes adds it. Whatever arrays are stored in, kernels compute in float32
or wider, so there are two sets of limits: of what is stored, and of what is computed with.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from prism.errors import UsageError

TOLERANCES: Mapping[str, float] = MappingProxyType(
    {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}
)
"""Dtype -> the largest norm error relative to float64. No other dtype is known."""

HALF = frozenset({"float16", "bfloat16"})
"""Dtypes to store in, not to compute with."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a format holds: its relative spacing, its largest and its smallest normal number."""

    eps: float
    largest: float
    tiny: float


def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy dtype of that name.

    Raises:
        UsageError: Prism does not know the dtype, or it needs a package that is missing.
    """
    if name not in TOLERANCES:
        raise UsageError(f"unknown dtype {name!r}; known: {', '.join(TOLERANCES)}")
    return np.dtype(_ml_dtypes().bfloat16) if name == "bfloat16" else np.dtype(name)


@cache
def limits_of(name: str) -> Limits:
    """What the dtype of that name holds."""
    dtype = dtype_of(name)
    found: Any = _ml_dtypes().finfo(dtype) if name == "bfloat16" else np.finfo(dtype)
    return Limits(float(found.eps), float(found.max), float(found.tiny))


def _ml_dtypes() -> Any:  # noqa: ANN401 - a module
    """The package that adds bfloat16 to NumPy; the other dtypes do without it."""
    try:
        return importlib.import_module("ml_dtypes")
    except ImportError as error:
        raise UsageError(
            "NumPy has no bfloat16 of its own, and the package that adds it is missing: "
            "pip install ml-dtypes"
        ) from error


def computed_in(name: str) -> str:
    """The dtype that kernels compute in where arrays are stored in this one."""
    return "float32" if name in HALF else name
