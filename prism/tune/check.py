"""Whether a kernel computes its program: compared with float64 before it may be timed.

`prepare` runs once per tuning run, in the parent: it draws the inputs in the kernel's dtype,
evaluates the program on them in float64 and leaves both as .npy files for the workers. `check` runs
in a worker, once per kernel: fresh copies of the inputs, outputs filled with NaN, every case.

Cases are transformations of one base draw (`CASES`): as drawn, large, negative, zero. A case counts
only where it says something about the kernel: the reference is finite in the kernel's dtype, and
the program is not ill-conditioned there, that is, rounding the inputs alone (a change of half a
unit in the last place) moves the reference by little. What such rounding does move is allowed on
top of the dtype's tolerance. Kernels store float16 and bfloat16 but compute in float32: there the
unit is float32's, and storing the result is allowed for apart. Where a normal draw leaves the
domain of the program (the logarithm of a negative number), inputs are drawn positive instead, and a
note says so.

Where a program takes exponentials, inputs are also shifted up and down and spread wide, as far as
the case still counts (`FAR`): exp(x) for exp(x - max x) shows there. Such a case counts only where
no step of the program itself leaves the range of the dtype.

Two measures of error: the norm of the difference over the norm of the reference, held to the
tolerance of the dtype; and the relative error of every element that is not tiny, so that one wrong
tile of many does not drown in the norm. NaN and infinities must stand where the reference has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from prism.dtypes import HALF, TOLERANCES, computed_in, dtype_of, limits_of
from prism.ir import (
    Apply,
    DataDim,
    Output,
    Program,
    definitions_of,
    evaluate,  # noqa: TID251 - the function, not the module of that name
    live_nodes,
)
from prism.record import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prism.protocols import Kernel

Array = NDArray[np.generic]
Array64 = NDArray[np.float64]

ELEMENT_FACTOR = 100.0
"""An element may be off by this many tolerances, relative to itself or ..."""

TINY = 0.1
"""... to this share of the root mean square, whichever is larger."""

HALF_ELEMENT_FACTOR = 10.0
"""The same for float16 and bfloat16: with 100 tolerances a missing element would pass."""

INACCURATE_FACTOR = 100.0
"""Up to this many tolerances a kernel is inaccurate, beyond it is wrong."""

ROUNDING_FACTOR = 10.0
"""How often the effect of rounding the inputs may recur in a kernel's own rounding."""

STORING_FACTOR = 2.0
"""How often the effect of storing the results in their dtype is allowed for."""

ILL_CONDITIONED = 100.0
"""A case whose allowance would exceed this many tolerances says nothing and is left out."""

CASES: Mapping[str, Callable[[Array], Array]] = MappingProxyType(
    {
        "drawn": lambda x: x,
        "large": lambda x: np.multiply(x, 30, dtype=x.dtype),
        "negative": lambda x: -np.abs(x),
        "zeros": np.zeros_like,
        "raised by 1000": lambda x: np.add(x, 1000, dtype=x.dtype),
        "raised by 100": lambda x: np.add(x, 100, dtype=x.dtype),
        "lowered by 1000": lambda x: np.subtract(x, 1000, dtype=x.dtype),
        "lowered by 100": lambda x: np.subtract(x, 100, dtype=x.dtype),
        "spread by 1000": lambda x: np.multiply(x, 1000, dtype=x.dtype),
        "spread by 100": lambda x: np.multiply(x, 100, dtype=x.dtype),
    }
)
"""Name -> how the case's inputs follow from the base draw."""

ALWAYS = frozenset({"large", "negative", "zeros"})
"""The cases of every program, beside the one as drawn."""

FAR: Mapping[str, str | None] = MappingProxyType(
    {
        "raised by 1000": None,
        "raised by 100": "raised by 1000",
        "lowered by 1000": None,
        "lowered by 100": "lowered by 1000",
        "spread by 1000": None,
        "spread by 100": "spread by 1000",
    }
)
"""Cases for programs that take exponentials, each unless the other one counts."""

_NEED_NONZERO = frozenset({"div", "reciprocal", "rsqrt", "log"})


@dataclass(frozen=True, slots=True)
class Case:
    """A case that counts: its name and the norm error allowed."""

    name: str
    allowed: float


@dataclass(frozen=True, slots=True)
class CheckData:
    """What `prepare` left in `folder`: argument names in order, cases, notes for the report."""

    folder: Path
    dtype: str
    arguments: tuple[str, ...]
    output_count: int
    cases: tuple[Case, ...]
    notes: tuple[str, ...] = ()

    def inputs(self) -> tuple[Array, ...]:
        """The base draw, read-only views of the files."""
        files = [self.folder / f"input{i}.npy" for i in range(len(self.arguments))]
        loaded = (np.load(file, mmap_mode="r", allow_pickle=False) for file in files)
        # a file knows dtypes of NumPy's own only: bfloat16 comes back as bytes
        return tuple(array.view(dtype_of(self.dtype)) for array in loaded)

    @property
    def element_factor(self) -> float:
        """How many tolerances an element may be off."""
        return HALF_ELEMENT_FACTOR if self.dtype in HALF else ELEMENT_FACTOR

    def references(self, case: str) -> tuple[Array64, ...]:
        """The float64 outputs of a case."""
        return tuple(
            np.load(self.folder / f"{case}{i}.npy", allow_pickle=False)
            for i in range(self.output_count)
        )


@dataclass(frozen=True, slots=True)
class CheckResult:
    """How a kernel did: the outcome, the largest norm error over all cases, and where it failed."""

    outcome: Outcome
    max_error: float | None
    detail: str = ""


def prepare(  # noqa: PLR0913 - what is checked, and how far
    program: Program,
    sizes: dict[DataDim, int],
    dtype: str,
    seed: int,
    folder: Path,
    *,
    names: Sequence[str] = tuple(CASES),
) -> CheckData:
    """Draw inputs, evaluate the program on every case, and store both in `folder`.

    `names` are the cases beside the first, which is always there; all by default.
    """
    rng = np.random.default_rng(seed)
    kind = dtype_of(dtype)
    notes: list[str] = []
    base = _draw(program, sizes, kind, rng, positive=False)
    measured = _measure(program, base, dtype, rng)
    if measured is None:
        notes.append(
            "inputs are drawn between 0.5 and 1.5: on normal ones the program leaves its domain "
            "or is ill-conditioned"
        )
        base = _draw(program, sizes, kind, rng, positive=True)
        measured = _measure(program, base, dtype, rng, lenient=True)
        assert measured is not None
    cases = [Case("drawn", measured[0])]
    _save(folder, "input", base.values())
    _save(folder, "drawn", measured[1])
    far = FAR if _takes_exponentials(program) else {}
    for name in (n for n in names if n in ALWAYS or n in far):
        if far.get(name) in {c.name for c in cases}:
            continue
        arrays = {argument: CASES[name](array) for argument, array in base.items()}
        measured = _measure(program, arrays, dtype, rng)
        if measured is None or (name in far and not _stays_in_range(program, arrays, dtype)):
            if name not in far.values():
                reason = "the program is not finite or ill-conditioned"
                notes.append(f"case {name!r} left out: {reason}")
        else:
            cases.append(Case(name, measured[0]))
            _save(folder, name, measured[1])
    return CheckData(folder, dtype, tuple(base), len(program.outputs), tuple(cases), tuple(notes))


def check(kernel: Kernel, data: CheckData) -> CheckResult:
    """Run a kernel on every case and compare; the first failure ends it."""
    base = data.inputs()
    worst = 0.0
    for case in data.cases:
        arrays = [np.array(CASES[case.name](array), order="C") for array in base]
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
                if not np.array_equal(array, before, equal_nan=True):
                    return CheckResult(Outcome.WRONG, worst, f"writes into its input {name}")
    return CheckResult(Outcome.OK, worst)


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


def _draw(
    program: Program,
    sizes: dict[DataDim, int],
    kind: np.dtype[np.generic],
    rng: np.random.Generator,
    *,
    positive: bool,
) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for argument in program.arguments:
        shape = tuple(1 if d is None else sizes[d] for d in argument.axes)
        precision = np.float64 if kind == np.float64 else np.float32
        drawn = (
            rng.random(shape, precision) + 0.5
            if positive
            else rng.standard_normal(shape, precision)
        )
        arrays[argument.name] = np.asarray(drawn, kind)
    return arrays


def _measure(
    program: Program,
    arrays: dict[str, Array],
    dtype: str,
    rng: np.random.Generator,
    *,
    lenient: bool = False,
) -> tuple[float, tuple[Array64, ...]] | None:
    """The error allowed on these inputs and the reference; None where they say nothing.

    A lenient measure takes the inputs whatever they say: better a weak check than none.
    """
    references = evaluate(program, arrays)
    tolerance = TOLERANCES[dtype]
    with np.errstate(over="ignore"):
        rounded = tuple(r.astype(dtype_of(dtype)).astype(np.float64) for r in references)
    if not all(np.all(np.isfinite(r)) for r in rounded):
        return (tolerance, rounded) if lenient else None
    eps = limits_of(computed_in(dtype)).eps
    shaken = evaluate(program, {name: _shake(a, eps, rng) for name, a in arrays.items()})
    moved = max(_distance(s, r) for s, r in zip(shaken, references, strict=True))
    stored = max(_distance(s, r) for s, r in zip(rounded, references, strict=True))
    allowed = max(ROUNDING_FACTOR * moved, STORING_FACTOR * stored)
    if not allowed <= ILL_CONDITIONED * tolerance:
        return (ILL_CONDITIONED * tolerance, references) if lenient else None
    return max(tolerance, allowed), references


def _takes_exponentials(program: Program) -> bool:
    ops = {n.op for n in program.nodes if isinstance(n, Apply)}
    return "exp" in ops or any("exp" in d.basic_ops for d in definitions_of(ops))


def _stays_in_range(program: Program, arrays: dict[str, Array], dtype: str) -> bool:
    """Whether no step of the program overflows, and no divisor or result vanishes."""
    divisors = {
        n.operands[-1] for n in program.nodes if isinstance(n, Apply) and n.op in _NEED_NONZERO
    }
    results = {o.tensor for o in program.outputs}
    dims = program.tensor_dims()
    steps = [i for i in live_nodes(program) if isinstance(program.nodes[i], Apply)]
    every = replace(program, outputs=tuple(Output(i, tuple(sorted(dims[i]))) for i in steps))
    inside, stored = limits_of(computed_in(dtype)), limits_of(dtype)
    for i, value in zip(steps, evaluate(every, arrays), strict=True):
        size = np.abs(value)
        vanishes = i in divisors and np.any(size < inside.tiny)
        says_nothing = i in results and not np.any(size > stored.tiny / stored.eps)
        largest = stored.largest if i in results else inside.largest
        if vanishes or says_nothing or not np.all(size <= largest):
            return False
    return True


def _shake(array: Array, eps: float, rng: np.random.Generator) -> Array64:
    """The array as if every element had been rounded once more, up or down at random."""
    half_ulp = eps / 2
    # a repeated pattern of signs does: drawing 16 million of them would take longer than the rest
    signs = rng.choice((-half_ulp, half_ulp), 4093)
    factors = 1.0 + np.resize(signs, array.shape)
    return np.asarray(array.astype(np.float64) * factors)


def _distance(one: Array64, reference: Array64) -> float:
    norm = float(np.linalg.norm(reference))
    return float(np.linalg.norm(one - reference)) / (norm or 1.0)


def _save(folder: Path, name: str, arrays: Iterable[Array]) -> None:
    for i, array in enumerate(arrays):
        np.save(folder / f"{name}{i}.npy", array, allow_pickle=False)
