"""On which inputs a kernel is checked, and what each of them allows: the cases.

`prepare` runs once per tuning run, in the parent: it draws the inputs in the kernel's dtype,
evaluates the program on them in float64 and leaves both as .npy files for the workers.

Cases are transformations of one base draw (`CASES`): as drawn, large, negative, zero. Where a
program takes exponentials, inputs are also shifted up and down and spread wide (`FAR`): exp(x) for
exp(x - max x) shows there. Where it subtracts they are shifted up, and all equal: a sum that
cancels where the program's own does not, E[x^2] - E[x]^2 for E[(x - E[x])^2], shows there. No case
is held as a whole: `evaluate` reads the base draw and transforms it on the way, in pieces.

What a case allows is measured. The reference has to be finite in the kernel's dtype. Rounding the
inputs alone (a change of half a unit in the last place) moves it, and so does computing the program
as it stands in the kernel's arithmetic: a few times as much is allowed on top of the dtype's
tolerance. Where that would be too much the program is ill-conditioned and the case says nothing
about digits, but a kernel still has to be finite where every step of the program is. Kernels store
float16 and bfloat16 but compute in float32: there the unit is float32's, and storing the result is
allowed for apart. Where a normal draw leaves the domain of the program (the logarithm of a negative
number), inputs are drawn positive instead, and a note says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    Read,
    definitions_of,
    evaluate,  # noqa: TID251 - the function, not the module of that name
    live_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

Array = NDArray[np.generic]
Array64 = NDArray[np.float64]

ELEMENT_FACTOR = 100.0
"""An element may be off by this many tolerances, relative to itself or to a tenth of the rms."""

HALF_ELEMENT_FACTOR = 10.0
"""The same for float16 and bfloat16: with 100 tolerances a missing element would pass."""

ROUNDING_FACTOR = 10.0
"""How often the effect of rounding the inputs may recur in a kernel's own rounding."""

OWN_FACTOR = 4.0
"""How often the error of the program as it stands, in the kernel's arithmetic, may recur."""

STORING_FACTOR = 2.0
"""How often the effect of storing the results in their dtype is allowed for."""

PART = 1 << 20
"""Elements that one generator draws: inputs do not depend on the number of threads."""

FRESH = 16
"""Parts of an argument that are drawn before they are repeated in other places."""

THREADS = 4
"""Threads that draw inputs."""

ILL_CONDITIONED = 100.0
"""A case whose allowance would exceed this many tolerances says nothing about digits."""

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
        "equal to 100": lambda x: np.full_like(x, 100),
        "equal to 1": np.ones_like,
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
        "equal to 100": None,
        "equal to 1": "equal to 100",
    }
)
"""Cases for programs with certain operators, each unless the other one tells of digits."""

SHOWN_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"exp": ("raised", "lowered", "spread"), "sub": ("raised", "equal")}
)
"""Operator -> the cases of `FAR`, by their first word, that show what may go wrong with it."""

_NEED_NONZERO = frozenset({"div", "reciprocal", "rsqrt", "log"})


@dataclass(frozen=True, slots=True)
class Case:
    """A case that counts: its name and the norm error allowed; infinite if it has to be finite."""

    name: str
    allowed: float

    @property
    def tells_digits(self) -> bool:
        """Whether results are compared, and not only seen to be finite."""
        return math.isfinite(self.allowed)


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
class _Measured:
    """A reference, the norm error allowed, and whether the program itself comes out finite."""

    references: tuple[Array64, ...]
    allowed: float
    is_finite: bool
    stays_in_range: Callable[[], bool] = lambda: False


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
    kind = dtype_of(dtype)
    notes: list[str] = []
    base = _draw(program, sizes, kind, seed, positive=False)
    shake = _factors(program, dtype, seed)
    most = ILL_CONDITIONED * TOLERANCES[dtype]
    measured = _measure(program, base, dtype, "drawn", shake)
    if measured is None or measured.allowed > most:
        notes.append(
            "inputs are drawn between 0.5 and 1.5: on normal ones the program leaves its domain "
            "or is ill-conditioned"
        )
        base = _draw(program, sizes, kind, seed, positive=True)
        # better a weak check than none: these inputs are taken whatever they say
        measured = _measure(program, base, dtype, "drawn", shake, lenient=True)
        assert measured is not None
    cases = [Case("drawn", min(measured.allowed, most))]
    _save(folder, "drawn", measured.references)
    with ThreadPoolExecutor(1) as writer:
        saved = writer.submit(_save, folder, "input", base.values())
        for name in _names(program, names):
            if FAR.get(name) in {c.name for c in cases if c.tells_digits}:
                continue
            measured = _measure(program, base, dtype, name, shake)
            allowed = None if measured is None else _allowed(measured, dtype, is_far=name in FAR)
            if measured is not None and allowed is not None:
                cases.append(Case(name, allowed))
                _save(folder, name, measured.references)
            elif name not in FAR.values():
                reason = "the program is not finite or ill-conditioned"
                notes.append(f"case {name!r} left out: {reason}")
        saved.result()
    return CheckData(folder, dtype, tuple(base), len(program.outputs), tuple(cases), tuple(notes))


def _names(program: Program, names: Sequence[str]) -> Iterator[str]:
    """Those of the names whose cases say something about the program's operators."""
    ops = {n.op for n in program.nodes if isinstance(n, Apply)}
    ops |= {op for d in definitions_of(ops) for op in d.basic_ops}
    shown = {word for op, words in SHOWN_BY.items() if op in ops for word in words}
    yield from (n for n in names if n in ALWAYS or (n in FAR and n.split()[0] in shown))


def _allowed(measured: _Measured, dtype: str, *, is_far: bool) -> float | None:
    """The error that a case allows; None if it says nothing about a kernel."""
    tells_digits = measured.allowed <= ILL_CONDITIONED * TOLERANCES[dtype]
    if tells_digits and not is_far:
        return measured.allowed
    if not (tells_digits or measured.is_finite) or not measured.stays_in_range():
        return None
    return measured.allowed if tells_digits and _says_something(measured, dtype) else math.inf


def _says_something(measured: _Measured, dtype: str) -> bool:
    """Whether no result vanishes."""
    stored = limits_of(dtype)
    return all(np.any(np.abs(r) > stored.tiny / stored.eps) for r in measured.references)


def _draw(
    program: Program,
    sizes: dict[DataDim, int],
    kind: np.dtype[np.generic],
    seed: int,
    *,
    positive: bool,
) -> dict[str, Array]:
    """An array per argument, by threads: each part of it has a generator of its own.

    Parts of a large one beyond the first `FRESH` are one of those again, begun elsewhere and with
    another sign: no two places hold the same tile, and drawing does not take longer than the rest.
    """
    precision = np.float64 if kind == np.float64 else np.float32
    arrays: dict[str, Array] = {}
    with ThreadPoolExecutor(THREADS) as threads:
        for number, argument in enumerate(program.arguments):
            drawn = np.empty(tuple(1 if d is None else sizes[d] for d in argument.axes), kind)
            parts = [drawn.reshape(-1)[i : i + PART] for i in range(0, drawn.size, PART)]

            def fill(k: int, parts: list[Array] = parts, number: int = number) -> None:
                rng = np.random.Generator(np.random.SFC64((seed, number, k)))
                size = parts[k].size
                if k >= FRESH:
                    again = np.roll(parts[rng.integers(FRESH)], rng.integers(PART))[:size]
                    sign = 1 if positive else rng.choice((-1, 1))
                    np.multiply(again, kind.type(sign), out=parts[k])
                elif positive:
                    parts[k][...] = rng.random(size, precision) + precision(0.5)
                else:
                    parts[k][...] = rng.standard_normal(size, precision)

            list(threads.map(fill, range(len(parts))[:FRESH]))
            list(threads.map(fill, range(len(parts))[FRESH:]))
            arrays[argument.name] = drawn
    return arrays


def _measure(  # noqa: PLR0913 - a case of a program, and how far it is shaken
    program: Program,
    base: dict[str, Array],
    dtype: str,
    name: str,
    shake: Mapping[str, Array64],
    *,
    lenient: bool = False,
) -> _Measured | None:
    """The reference of a case and what it allows; None where it is not finite."""

    def transformed(_: str, array: Array) -> Array:
        return CASES[name](array)

    shaking = _Shaking(CASES[name], shake, {n: a.size for n, a in base.items()})
    tolerance = TOLERANCES[dtype]
    precision = np.float64 if computed_in(dtype) == "float64" else np.float32
    references = evaluate(program, base, np.float64, transformed)
    with np.errstate(over="ignore"):
        rounded = tuple(r.astype(dtype_of(dtype)).astype(np.float64) for r in references)
    if not all(np.all(np.isfinite(r)) for r in rounded):
        return _Measured(rounded, tolerance, is_finite=False) if lenient else None
    shaken = evaluate(program, base, np.float64, shaking)
    own = evaluate(program, base, precision, transformed)
    is_finite = all(np.all(np.isfinite(o)) for o in own)
    allowed = max(
        tolerance,
        ROUNDING_FACTOR * _largest_distance(shaken, references),
        STORING_FACTOR * _largest_distance(rounded, references),
        # where the program overflows a kernel does not have to
        OWN_FACTOR * _largest_distance(own, references) if is_finite else 0.0,
    )
    return _Measured(
        references,
        math.inf if math.isnan(allowed) else allowed,
        is_finite,
        lambda: _stays_in_range(program, base, dtype, transformed),
    )


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


def _factors(program: Program, dtype: str, seed: int) -> dict[str, Array64]:
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


def _largest_distance(one: Sequence[Array64], references: Sequence[Array64]) -> float:
    return max(_distance(o, r) for o, r in zip(one, references, strict=True))


def _distance(one: Array64, reference: Array64) -> float:
    norm = float(np.linalg.norm(reference))
    return float(np.linalg.norm(one - reference)) / (norm or 1.0)


def _save(folder: Path, name: str, arrays: Iterable[Array]) -> None:
    for i, array in enumerate(arrays):
        np.save(folder / f"{name}{i}.npy", array, allow_pickle=False)
