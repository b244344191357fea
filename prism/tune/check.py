"""Whether a kernel computes its program: compared with float64 before it may be timed.

`check` runs in a worker: copies of the inputs, outputs filled with NaN, on every case that
`prepare` has left (`cases`), or on the first case alone, which is what a trial on large inputs
begins with. Filling 500 MB takes ten times as long as running a kernel on them, so inputs are left
as they are from kernel to kernel while the case stays the same; a kernel that fails on what others
have spoilt gets fresh ones.

Two measures of error: the norm of the difference over the norm of the reference, held to what the
case allows; and the relative error of every element that is not tiny, so that one wrong tile of
many does not drown in the norm. NaN and infinities must stand where the reference has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from prism.dtypes import dtype_of
from prism.record import Outcome
from prism.tune.allowance import Array, Array64, floor_of
from prism.tune.cases import CASES, DRAWN, Case, CheckData, Limits

if TYPE_CHECKING:
    from prism.protocols import Kernel

FILLED_PART = 1 << 18
"""Elements of an input that are transformed at once."""

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
        self._case: str | None = None

    def given(self, case: str) -> list[Array]:
        """The inputs of a case, as the kernel before has left them if they are those already."""
        return self.arrays if self._case == case else self.fill(case)

    def fill(self, case: str) -> list[Array]:
        """The inputs of a case, whatever a kernel has left there."""
        self._case = case
        for array, drawn in zip(self.arrays, self.base, strict=True):
            for mine, given in _parts(array, drawn):
                mine[...] = CASES[case](given)
        return self.arrays

    def are_spoilt(self, names: Sequence[str]) -> bool:
        """Whether what a kernel gets as drawn no longer is; then it is drawn again."""
        if self._case != DRAWN or self.changed(names) is None:
            return False
        self.fill(DRAWN)
        return True

    def changed(self, names: Sequence[str]) -> str | None:
        """The name of an argument that was drawn and is no longer as it was."""
        for name, array, before in zip(names, self.arrays, self.base, strict=True):
            if not all(np.array_equal(*bits) for bits in _parts(_bits(array), _bits(before))):
                return name
        return None


def check(
    kernel: Kernel, data: CheckData, inputs: Inputs | None = None, *, is_whole: bool = True
) -> CheckResult:
    """Run a kernel on every case and compare; the first failure ends it.

    `inputs`: those of `data`, where they are there already. Where it is not `is_whole` the first
    case is all, and what the kernel leaves in its inputs is not looked at.
    """
    inputs = inputs or Inputs(data)
    worst = 0.0
    for case in data.cases if is_whole else data.cases[:1]:
        result = _on_case(kernel, data, inputs, case, is_whole=is_whole)
        # it may have been another kernel before this one
        if result.outcome is not Outcome.OK and inputs.are_spoilt(data.arguments):
            result = _on_case(kernel, data, inputs, case, is_whole=is_whole)
        worst = max(worst, result.max_error or 0.0)
        if result.outcome is not Outcome.OK:
            return result
    return CheckResult(Outcome.OK, worst)


def _on_case(
    kernel: Kernel, data: CheckData, inputs: Inputs, case: Case, *, is_whole: bool
) -> CheckResult:
    """How a kernel does on one case."""
    arrays = inputs.given(case.name)
    references = data.references(case.name)
    outputs = nan_filled(references, data.dtype)
    kernel.run_into(arrays, outputs)
    result = compare(outputs, references, data.limits(case))
    if result.outcome is not Outcome.OK:
        return replace(result, detail=f"on {case.name} inputs: {result.detail}")
    if is_whole and case.name == DRAWN and (name := inputs.changed(data.arguments)) is not None:
        return CheckResult(Outcome.WRONG, result.max_error, f"writes into its input {name}")
    return result


def _parts(one: Array, other: Array) -> Iterator[tuple[Array, Array]]:
    """Two arrays of one shape in parts that fit a cache: temporaries of large ones take longest."""
    flat, given = one.reshape(-1), other.reshape(-1)
    for start in range(0, flat.size, FILLED_PART):
        yield flat[start : start + FILLED_PART], given[start : start + FILLED_PART]


def _bits(array: Array) -> Array:
    """The elements as bytes: NaN equals itself, and comparing is fast."""
    return array.reshape(-1).view(np.uint8)


def nan_filled(references: Sequence[Array64], dtype: str) -> tuple[Array, ...]:
    """Output arrays in the kernel's dtype in which an element left unwritten shows."""
    return tuple(np.full(reference.shape, np.nan, dtype_of(dtype)) for reference in references)


def compare(
    outputs: Sequence[Array],
    references: Sequence[Array64],
    limits: Limits,
) -> CheckResult:
    """Hold outputs against float64 references."""
    worst = 0.0
    for index, (output, reference) in enumerate(zip(outputs, references, strict=True)):
        result = _compare_one(output.astype(np.float64), reference, limits)
        worst = max(worst, result.max_error or 0.0)
        if result.outcome is not Outcome.OK:
            return CheckResult(result.outcome, result.max_error, f"out{index}: {result.detail}")
    return CheckResult(Outcome.OK, worst)


def _compare_one(output: Array64, reference: Array64, limits: Limits) -> CheckResult:
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
    if math.isinf(limits.norm):
        return CheckResult(Outcome.OK, None)
    norm = float(np.linalg.norm(expected))
    error = float(np.linalg.norm(difference)) / (norm or 1.0)
    if error > limits.norm:
        outcome = Outcome.INACCURATE if error <= INACCURATE_FACTOR * limits.norm else Outcome.WRONG
        return CheckResult(outcome, error, f"norm error {error:.2g}, allowed {limits.norm:.2g}")
    bad = difference > limits.element * np.maximum(np.abs(expected), floor_of(norm, expected.size))
    if norm > 0 and np.count_nonzero(bad) > limits.share * bad.size:
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        return CheckResult(
            Outcome.WRONG,
            error,
            f"{np.count_nonzero(bad)} of {bad.size} elements are off by more than "
            f"{limits.element:.2g}; first at {where}: {output[where]} for "
            f"{reference[where]}",
        )
    return CheckResult(Outcome.OK, error)
