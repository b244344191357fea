"""Whether a kernel computes its program: compared with float64 before it may be timed.

`check` runs in a worker, once per kernel: fresh copies of the inputs, outputs filled with NaN, on
every case that `prepare` has left (`cases`).

Two measures of error: the norm of the difference over the norm of the reference, held to what the
case allows; and the relative error of every element that is not tiny, so that one wrong tile of
many does not drown in the norm. NaN and infinities must stand where the reference has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from prism.dtypes import dtype_of
from prism.record import Outcome
from prism.tune.cases import CASES, ELEMENT_FACTOR, Array, Array64, CheckData

if TYPE_CHECKING:
    from prism.protocols import Kernel

PART = 1 << 18
"""Elements of an input that are transformed at once."""

TINY = 0.1
"""The error of an element is relative to itself or to this share of the root mean square."""

INACCURATE_FACTOR = 100.0
"""Up to this many times what is allowed a kernel is inaccurate, beyond it is wrong."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """How a kernel did: the outcome, the largest norm error over all cases, and where it failed."""

    outcome: Outcome
    max_error: float | None
    detail: str = ""


class Inputs:
    """Arrays for a kernel, used again from case to case and kernel to kernel.

    Memory that is new to a process takes longer to get than to fill.
    """

    def __init__(self, data: CheckData) -> None:
        self.base = data.inputs()
        self.arrays = [np.empty(array.shape, array.dtype) for array in self.base]

    def fill(self, case: str) -> list[Array]:
        """The inputs of a case, whatever a kernel has left there."""
        for array, drawn in zip(self.arrays, self.base, strict=True):
            for mine, given in _parts(array, drawn):
                mine[...] = CASES[case](given)
        return self.arrays


def check(kernel: Kernel, data: CheckData, inputs: Inputs | None = None) -> CheckResult:
    """Run a kernel on every case and compare; the first failure ends it.

    `inputs`: those of `data`, where they are there already.
    """
    inputs = inputs or Inputs(data)
    base = inputs.base
    worst = 0.0
    for case in data.cases:
        arrays = inputs.fill(case.name)
        references = data.references(case.name)
        outputs = nan_filled(references, data.dtype)
        kernel.run_into(arrays, outputs)
        result = compare(outputs, references, case.allowed, data.element_factor)
        worst = max(worst, result.max_error or 0.0)
        if result.outcome is not Outcome.OK:
            return CheckResult(
                result.outcome, result.max_error, f"on {case.name} inputs: {result.detail}"
            )
        if case.name == "drawn":
            for name, array, before in zip(data.arguments, arrays, base, strict=True):
                if not all(np.array_equal(*bits) for bits in _parts(_bits(array), _bits(before))):
                    return CheckResult(Outcome.WRONG, worst, f"writes into its input {name}")
    return CheckResult(Outcome.OK, worst)


def _parts(one: Array, other: Array) -> Iterator[tuple[Array, Array]]:
    """Two arrays of one shape in parts that fit a cache: temporaries of large ones take longest."""
    flat, given = one.reshape(-1), other.reshape(-1)
    for start in range(0, flat.size, PART):
        yield flat[start : start + PART], given[start : start + PART]


def _bits(array: Array) -> Array:
    """The elements as bytes: NaN equals itself, and comparing is fast."""
    return array.reshape(-1).view(np.uint8)


def nan_filled(references: Sequence[Array64], dtype: str) -> tuple[Array, ...]:
    """Output arrays in the kernel's dtype in which an element left unwritten shows."""
    return tuple(np.full(reference.shape, np.nan, dtype_of(dtype)) for reference in references)


def compare(
    outputs: Sequence[Array],
    references: Sequence[Array64],
    allowed: float,
    element_factor: float = ELEMENT_FACTOR,
) -> CheckResult:
    """Hold outputs against float64 references; `allowed` is the norm error."""
    worst = 0.0
    for index, (output, reference) in enumerate(zip(outputs, references, strict=True)):
        result = _compare_one(output.astype(np.float64), reference, allowed, element_factor)
        worst = max(worst, result.max_error or 0.0)
        if result.outcome is not Outcome.OK:
            return CheckResult(result.outcome, result.max_error, f"out{index}: {result.detail}")
    return CheckResult(Outcome.OK, worst)


def _compare_one(
    output: Array64, reference: Array64, allowed: float, element_factor: float
) -> CheckResult:
    finite = np.isfinite(reference)
    same = (output == reference) | (np.isnan(output) & np.isnan(reference))
    odd = np.where(finite, ~np.isfinite(output), ~same)
    if odd.any():
        where = tuple(int(i) for i in np.argwhere(odd)[0])
        return CheckResult(
            Outcome.WRONG,
            None,
            f"{np.count_nonzero(odd)} of {odd.size} elements are or are not finite where the "
            f"reference is the other; first at {where}: {output[where]} for {reference[where]}",
        )
    expected = np.where(finite, reference, 0.0)
    difference = np.abs(np.where(finite, output, 0.0) - expected)
    if math.isinf(allowed):
        return CheckResult(Outcome.OK, None)
    norm = float(np.linalg.norm(expected))
    error = float(np.linalg.norm(difference)) / (norm or 1.0)
    if error > allowed:
        outcome = Outcome.INACCURATE if error <= INACCURATE_FACTOR * allowed else Outcome.WRONG
        return CheckResult(outcome, error, f"norm error {error:.2g}, allowed {allowed:.2g}")
    rms = norm / np.sqrt(max(1, expected.size))
    scale = np.maximum(np.abs(expected), TINY * rms)
    bad = difference > element_factor * allowed * scale
    if norm > 0 and bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        return CheckResult(
            Outcome.WRONG,
            error,
            f"{np.count_nonzero(bad)} of {bad.size} elements are off by more than "
            f"{element_factor * allowed:.2g}; first at {where}: {output[where]} for "
            f"{reference[where]}",
        )
    return CheckResult(Outcome.OK, error)
