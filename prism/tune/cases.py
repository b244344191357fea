"""On which inputs a kernel is checked, and what each of them allows: the cases.

`prepare` runs once per tuning run, in the parent: it draws the inputs in the kernel's dtype,
evaluates the program on them in float64 and leaves both as .npy files for the workers.

Cases are transformations of one base draw (`CASES`): as drawn, large, negative, zero. Where a
program takes exponentials, inputs are also shifted up and down and spread wide (`FAR`): exp(x) for
exp(x - max x) shows there. Where it subtracts they are shifted up, and all equal: a sum that
cancels where the program's own does not, E[x^2] - E[x]^2 for E[(x - E[x])^2], shows there. No case
is held as a whole: `evaluate` reads the base draw and transforms it on the way, in pieces.

What a case allows is measured (`prism.tune.allowance`). Where a normal draw leaves the domain of
the program (the logarithm of a negative number), inputs are drawn positive instead, and a note says
so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from prism.dtypes import HALF, TOLERANCES, dtype_of
from prism.ir import Apply, DataDim, Program, definitions_of
from prism.tune.allowance import (
    ILL_CONDITIONED,
    Array,
    Array64,
    allowance,
    factors_of,
    measure,
)

ELEMENT_FACTOR = 100.0
"""An element may be off by this many tolerances, relative to itself or to a tenth of the rms."""

HALF_ELEMENT_FACTOR = 10.0
"""The same for float16 and bfloat16: with 100 tolerances a missing element would pass."""

TAIL_FACTOR = 10.0
"""An element may be off by this many times more where the program's own arithmetic explains it."""

FAR_SHARE = 1e-5
"""Of the elements of a case of `FAR`: there a softmax is a step, and rounding may choose another
row of ten million (measured: 1 of 12.6 million elements)."""

DRAWN_PART = 1 << 20
"""Elements that one generator draws: inputs do not depend on the number of threads."""

FRESH = 16
"""Parts of an argument that are drawn before they are repeated in other places."""

THREADS = 4
"""Threads that draw inputs."""

LARGE = 1 << 24
"""Bytes of inputs beyond which a trial checks the first case, and its leader every other one."""

DRAWN = "drawn"
"""The first case of every program: inputs as they are drawn."""

CASES: Mapping[str, Callable[[Array], Array]] = MappingProxyType(
    {
        DRAWN: lambda x: x,
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


@dataclass(frozen=True, slots=True)
class Case:
    """A case that counts: its name and the norm error allowed; infinite if it has to be finite.

    `element`: the error of one element that the program's own arithmetic explains.
    """

    name: str
    allowed: float
    element: float = 0.0

    @property
    def tells_digits(self) -> bool:
        """Whether results are compared, and not only seen to be finite."""
        return math.isfinite(self.allowed)


@dataclass(frozen=True, slots=True)
class Limits:
    """What results are held to: the norm error, each element's, and of how many it may be more."""

    norm: float
    element: float
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckData:
    """What `prepare` left in `folder`: argument names in order, cases, notes for the report."""

    folder: Path
    dtype: str
    arguments: tuple[str, ...]
    output_count: int
    cases: tuple[Case, ...]
    notes: tuple[str, ...] = ()
    input_bytes: int = 0

    def inputs(self) -> tuple[Array, ...]:
        """The base draw, read-only views of the files."""
        files = [self.folder / f"input{i}.npy" for i in range(len(self.arguments))]
        loaded = (np.load(file, mmap_mode="r", allow_pickle=False) for file in files)
        # a file knows dtypes of NumPy's own only: bfloat16 comes back as bytes
        return tuple(array.view(dtype_of(self.dtype)) for array in loaded)

    @property
    def is_large(self) -> bool:
        """Whether to fill the inputs of every case takes longer than to time a kernel."""
        return self.input_bytes > LARGE

    def limits(self, case: Case) -> Limits:
        """What a case allows."""
        usual = (HALF_ELEMENT_FACTOR if self.dtype in HALF else ELEMENT_FACTOR) * case.allowed
        element = min(max(usual, case.element), TAIL_FACTOR * usual)
        return Limits(case.allowed, element, FAR_SHARE if case.name in FAR else 0.0)

    def references(self, case: str) -> tuple[Array64, ...]:
        """The float64 outputs of a case."""
        return tuple(
            np.load(self.folder / f"{case}{i}.npy", allow_pickle=False)
            for i in range(self.output_count)
        )


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
    shake = factors_of(program, dtype, seed)
    measured = measure(program, base, dtype, CASES[DRAWN], shake)
    if measured is None or not measured.tells_digits(dtype):
        notes.append(
            "inputs are drawn between 0.5 and 1.5: on normal ones the program leaves its domain "
            "or is ill-conditioned"
        )
        base = _draw(program, sizes, kind, seed, positive=True)
        # better a weak check than none: these inputs are taken whatever they say
        measured = measure(program, base, dtype, CASES[DRAWN], shake, lenient=True)
        assert measured is not None
    most = ILL_CONDITIONED * TOLERANCES[dtype]
    cases = [Case(DRAWN, min(measured.allowed, most), measured.element)]
    _save(folder, DRAWN, measured.references)

    preparation = _Preparation(program, base, dtype, shake, folder)
    with ThreadPoolExecutor(1) as writer:
        saved = writer.submit(_save, folder, "input", base.values())
        # not at once: NumPy's products take every core and wait awake for each other
        for tried in map(preparation.chain, _chains(_names(program, names))):
            cases += [case for case in tried.values() if case is not None]
            reason = "the program is not finite or ill-conditioned"
            left_out = (n for n, c in tried.items() if c is None and n not in FAR.values())
            notes += [f"case {name!r} left out: {reason}" for name in left_out]
        saved.result()
    return CheckData(
        folder,
        dtype,
        tuple(base),
        len(program.outputs),
        tuple(cases),
        tuple(notes),
        sum(array.nbytes for array in base.values()),
    )


@dataclass(frozen=True, slots=True)
class _Preparation:
    """What the cases beside the first one are made of."""

    program: Program
    base: dict[str, Array]
    dtype: str
    shake: Mapping[str, Array64]
    folder: Path

    def chain(self, names: Sequence[str]) -> dict[str, Case | None]:
        """A case and those in its place, up to one that tells of digits; None: says nothing."""
        tried: dict[str, Case | None] = {}
        for name in names:
            case = tried[name] = self.case(name)
            if case is not None and case.tells_digits:
                break
        return tried

    def case(self, name: str) -> Case | None:
        """A case, its references saved; None if it says nothing about a kernel."""
        measured = measure(self.program, self.base, self.dtype, CASES[name], self.shake)
        allowed = None if measured is None else allowance(measured, self.dtype, is_far=name in FAR)
        if measured is None or allowed is None:
            return None
        _save(self.folder, name, measured.references)
        return Case(name, allowed, measured.element)


def _chains(names: Iterable[str]) -> list[list[str]]:
    """Names in their order, those that stand in for another one (`FAR`) with it."""
    chains: dict[str, list[str]] = {}
    for name in names:
        first = FAR.get(name)
        chains.setdefault(first if first in chains else name, []).append(name)
    return list(chains.values())


def _names(program: Program, names: Sequence[str]) -> Iterator[str]:
    """Those of the names whose cases say something about the program's operators."""
    ops = {n.op for n in program.nodes if isinstance(n, Apply)}
    ops |= {op for d in definitions_of(ops) for op in d.basic_ops}
    shown = {word for op, words in SHOWN_BY.items() if op in ops for word in words}
    yield from (n for n in names if n in ALWAYS or (n in FAR and n.split()[0] in shown))


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
            parts = [
                drawn.reshape(-1)[i : i + DRAWN_PART] for i in range(0, drawn.size, DRAWN_PART)
            ]

            def fill(k: int, parts: list[Array] = parts, number: int = number) -> None:
                rng = np.random.Generator(np.random.SFC64((seed, number, k)))
                size = parts[k].size
                if k >= FRESH:
                    again, by = parts[rng.integers(FRESH)], int(rng.integers(DRAWN_PART))
                    sign = kind.type(1 if positive else rng.choice((-1, 1)))
                    # as np.roll does, without a copy between
                    np.multiply(again[DRAWN_PART - by :][:size], sign, out=parts[k][:by])
                    np.multiply(again[: max(0, size - by)], sign, out=parts[k][by:])
                elif positive:
                    parts[k][...] = rng.random(size, precision) + precision(0.5)
                else:
                    parts[k][...] = rng.standard_normal(size, precision)

            list(threads.map(fill, range(len(parts))[:FRESH]))
            list(threads.map(fill, range(len(parts))[FRESH:]))
            arrays[argument.name] = drawn
    return arrays


def _save(folder: Path, name: str, arrays: Iterable[Array]) -> None:
    for i, array in enumerate(arrays):
        np.save(folder / f"{name}{i}.npy", array, allow_pickle=False)
