"""Whether what a contestant computes is the program: its norm error against float64.

It may be off by a few times what our kernels may: libraries round every step to the dtype, our
tolerances are for one rounding at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from prism.bench.task import Task, make_inputs
from prism.dtypes import TOLERANCES, dtype_of
from prism.ir import Program, evaluate  # noqa: TID251 - the function, not the module of that name

ERROR_FACTOR = 4.0

Reference = tuple[NDArray[np.float64], ...]


def allowed_error(dtype: str) -> float:
    """The norm error that a contestant may have."""
    return ERROR_FACTOR * TOLERANCES[dtype]


def reference_of(program: Program, task: Task) -> Reference:
    """The outputs in float64."""
    names = (argument.name for argument in program.arguments)
    return evaluate(program, dict(zip(names, make_inputs(program, task), strict=True)))


def norm_error(outputs: Sequence[NDArray[np.generic]], reference: Reference, dtype: str) -> float:
    """Norm of the difference over the norm of the reference, the largest of all outputs.

    Infinite for another number of outputs, another shape, or a hole where the dtype can hold the
    reference.
    """
    if [o.shape for o in outputs] != [r.shape for r in reference]:
        return float("inf")
    return max(map(_error, outputs, reference, [dtype] * len(reference)))


def _error(output: NDArray[np.generic], reference: NDArray[np.float64], dtype: str) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        counts = np.isfinite(reference.astype(dtype_of(dtype)))
    expected, found = reference[counts], output.astype(np.float64)[counts]
    if not np.all(np.isfinite(found)):
        return float("inf")
    norm = float(np.linalg.norm(expected))
    return float(np.linalg.norm(found - expected)) / (norm or 1.0)
