"""A digest of the modules that give emitted CUDA files their meaning, without importing them.

Importing `intrinsics` imports numba-cuda, which a machine that only emits may not have.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

MODULES = (
    "dialect.py",
    "frontend.py",
    "functions.py",
    "intrinsics.py",
    "loops.py",
    "product.py",
    "tensor_cores.py",
    "tensor_dialect.py",
    "vectors.py",
)


@cache
def runtime_digest() -> str:
    """Changes with what emitted files mean: a file or machine code made with another is stale."""
    folder = Path(__file__).parent
    sources = ((folder / name).read_bytes() for name in MODULES)
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:12]
