"""How far a kernel's results may be from the reference of a case: measured, not chosen.

The reference has to be finite in the kernel's dtype. Rounding the inputs alone (a change of half a
unit in the last place) moves it, and so does computing the program as it stands in the kernel's
arithmetic: a few times as much is allowed on top of the dtype's tolerance. Where that would be too
much the program is ill-conditioned and the case says nothing about digits, but a kernel still has
to be finite where every step of the program is. Kernels store float16 and bfloat16 but compute in
float32: there the unit is float32's, and storing the result is allowed for apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prism.dtypes import TOLERANCES, computed_in, dtype_of, limits_of
from prism.ir import (
    Apply,
    Output,
    Program,
    Read,
    evaluate,  # noqa: TID251 - the function, not the module of that name
    live_nodes,
)

Array = NDArray[np.generic]
Array64 = NDArray[np.float64]

ROUNDING_FACTOR = 10.0
"""How often the effect of rounding the inputs may recur in a kernel's own rounding."""

OWN_FACTOR = 4.0
"""How often the error of the program as it stands, in the kernel's arithmetic, may recur."""

STORING_FACTOR = 2.0
"""How often the effect of storing the results in their dtype is allowed for."""

TINY = 0.1
"""The error of an element is relative to itself or to this share of the root mean square."""

COMPARED_PART = 1 << 16
"""Elements that are compared at once."""

ILL_CONDITIONED = 100.0
"""A case whose allowance would exceed this many tolerances says nothing about digits."""

_NEED_NONZERO = frozenset({"div", "reciprocal", "rsqrt", "log"})


@dataclass(frozen=True, slots=True)
class Measured:
    """A reference, the norm error allowed, and whether the program itself comes out finite.

    `element`: the error of one element that the program's own arithmetic explains.
    """

    references: tuple[Array64, ...]
    allowed: float
    is_finite: bool
    element: float = 0.0
    stays_in_range: Callable[[], bool] = lambda: False
    """Whether no step of the program overflows, and no divisor vanishes."""

    def tells_digits(self, dtype: str) -> bool:
        """Whether results can be compared at all."""
        return self.allowed <= ILL_CONDITIONED * TOLERANCES[dtype]


def measure(  # noqa: PLR0913 - a case of a program, and how far it is shaken
    program: Program,
    base: dict[str, Array],
    dtype: str,
    transform: Callable[[Array], Array],
    shake: Mapping[str, Array64],
    *,
    lenient: bool = False,
) -> Measured | None:
    """The reference of a case and what it allows; None where it is not finite."""

    def transformed(_: str, array: Array) -> Array:
        return transform(array)

    shaking = _Shaking(transform, shake, {n: a.size for n, a in base.items()})
    tolerance = TOLERANCES[dtype]
    precision = np.float64 if computed_in(dtype) == "float64" else np.float32
    references = evaluate(program, base, np.float64, transformed)
    with np.errstate(over="ignore"):
        rounded = tuple(r.astype(dtype_of(dtype)).astype(np.float64) for r in references)
    if not all(np.all(np.isfinite(r)) for r in rounded):
        return Measured(rounded, tolerance, is_finite=False) if lenient else None
    shaken = evaluate(program, base, np.float64, shaking)
    own = evaluate(program, base, precision, transformed)
    is_finite = all(np.all(np.isfinite(o)) for o in own)
    by_rounding, by_storing = (_errors(r, references) for r in (shaken, rounded))
    # where the program overflows a kernel does not have to
    by_itself = _errors(own, references) if is_finite else _Errors(0.0, 0.0)
    allowed = _largest(
        tolerance,
        ROUNDING_FACTOR * by_rounding.norm,
        STORING_FACTOR * by_storing.norm,
        OWN_FACTOR * by_itself.norm,
    )
    return Measured(
        references,
        allowed,
        is_finite,
        # of ten million elements some are off by much more than the norm says
        OWN_FACTOR * _largest(by_rounding.element, by_itself.element),
        lambda: _stays_in_range(program, base, dtype, transformed),
    )


def allowance(measured: Measured, dtype: str, *, is_far: bool) -> float | None:
    """The error that a case allows; None if it says nothing about a kernel.

    It is infinite where results only have to be finite. `is_far`: whether the inputs are such that
    the program itself may not stand them.
    """
    tells_digits = measured.tells_digits(dtype)
    if tells_digits and not is_far:
        return measured.allowed
    if not (tells_digits or measured.is_finite) or not measured.stays_in_range():
        return None
    return measured.allowed if tells_digits and _says_something(measured, dtype) else math.inf


def _says_something(measured: Measured, dtype: str) -> bool:
    """Whether no result vanishes."""
    stored = limits_of(dtype)
    return all(np.any(np.abs(r) > stored.tiny / stored.eps) for r in measured.references)


def _stays_in_range(program: Program, base: dict[str, Array], dtype: str, read: Read) -> bool:
    """Whether no step of the program overflows, and no divisor vanishes."""
    divisors = {
        n.operands[-1] for n in program.nodes if isinstance(n, Apply) and n.op in _NEED_NONZERO
    }
    results = {o.tensor for o in program.outputs}
    dims = program.tensor_dims()
    steps = [i for i in live_nodes(program) if isinstance(program.nodes[i], Apply)]
    every = replace(program, outputs=tuple(Output(i, tuple(sorted(dims[i]))) for i in steps))
    inside, stored = limits_of(computed_in(dtype)), limits_of(dtype)
    for i, value in zip(steps, evaluate(every, base, np.float64, read), strict=True):
        size = np.abs(value)
        vanishes = i in divisors and np.any(size < inside.tiny)
        largest = stored.largest if i in results else inside.largest
        if vanishes or not np.all(size <= largest):
            return False
    return True


def factors_of(program: Program, dtype: str, seed: int) -> dict[str, Array64]:
    """What shakes each argument: rounding up or down at random.

    A repeated pattern of signs does: drawing 16 million of them would take longer than the rest.
    """
    rng = np.random.default_rng(seed)
    half_ulp = limits_of(computed_in(dtype)).eps / 2
    return {a.name: 1.0 + rng.choice((-half_ulp, half_ulp), 4093) for a in program.arguments}


class _Shaking:
    """Arguments of a case as if every element had been rounded once more; given in order."""

    def __init__(
        self,
        transform: Callable[[Array], Array],
        factors: Mapping[str, Array64],
        sizes: Mapping[str, int],
    ) -> None:
        self._transform = transform
        self._factors = factors
        self._sizes = sizes
        self._at = dict.fromkeys(sizes, 0)

    def __call__(self, name: str, array: Array) -> Array64:
        """The next piece of an argument, or the whole of it."""
        at = self._at[name]
        self._at[name] = (at + array.size) % self._sizes[name]
        factors = np.roll(self._factors[name], -at)
        shaken = np.array(self._transform(array), np.float64, order="C")
        flat = shaken.reshape(-1)
        whole = flat.size // factors.size * factors.size
        flat[:whole].reshape(-1, factors.size)[...] *= factors
        flat[whole:] *= factors[: flat.size - whole]
        return shaken


@dataclass(frozen=True, slots=True)
class _Errors:
    """The norm of the error over the reference's, and the largest error of an element."""

    norm: float
    element: float


def _errors(results: Sequence[Array64], references: Sequence[Array64]) -> _Errors:
    found = [_error(o, r) for o, r in zip(results, references, strict=True)]
    return _Errors(_largest(*(e.norm for e in found)), _largest(*(e.element for e in found)))


def _largest(*errors: float) -> float:
    """The largest error; NaN, from a program that leaves its domain, is more than any number."""
    return math.inf if any(map(math.isnan, errors)) else max(errors)


def _error(result: Array64, reference: Array64) -> _Errors:
    """In parts that fit a cache: temporaries of large arrays take longest."""
    norm = float(np.linalg.norm(reference))
    least = floor_of(norm, reference.size)
    one, other = result.reshape(-1), reference.reshape(-1)
    squares = element = 0.0
    for start in range(0, other.size, COMPARED_PART):
        part = other[start : start + COMPARED_PART]
        error = np.abs(one[start : start + COMPARED_PART] - part)
        squares += float(error @ error)
        element = _largest(element, float(np.max(error / np.maximum(np.abs(part), least))))
    return _Errors(math.sqrt(squares) / (norm or 1.0), element)


def floor_of(norm: float, size: int) -> float:
    """What the error of an element is relative to where the element itself is smaller."""
    rms = norm / math.sqrt(max(1, size))
    return TINY * rms or 1.0
