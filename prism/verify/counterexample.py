"""Looks for sizes and values at which two computations differ, by evaluating both in NumPy.

Small random sizes (those of a graph multiples of its numbers of chunks, which the proofs assume
too) and values of several kinds. A difference counts only where the reference is defined.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prism.errors import GraphError, SizeError
from prism.ir import (
    MuGraph,
    Program,
    SGraph,
    evaluate,  # noqa: TID251 - the function, not the module of that name
    evaluate_graph,
    stack_dims,
)

Array = NDArray[np.float64]

ATTEMPTS = 12
MAX_SIZE = 4
CHUNKS = (1, 2, 3)
SMALLER = 0.125
"""Keeps zeros and signs, and makes an overflow go away."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Sizes and an entry of an output at which reference and candidate differ.

    `fault` says why the candidate has no value to compare, if it has none.
    """

    sizes: Mapping[str, int]
    output: int
    entry: tuple[int, ...]
    reference: float
    candidate: float
    fault: str = ""

    def __str__(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        if self.fault:
            return f"at {sizes} the candidate gives no such value: {self.fault}"
        place = ", ".join(map(str, self.entry))
        return (
            f"at {sizes}, out{self.output}[{place}] is {self.reference:.6g} and the candidate "
            f"gives {self.candidate:.6g}"
        )


def find_counterexample(
    reference: Program,
    candidate: Program | SGraph,
    *,
    seed: int = 0,
    attempts: int = ATTEMPTS,
    is_proved: bool = False,
) -> Counterexample | None:
    """The first difference found, or None. The arguments of both pair up by position.

    Where `is_proved`, only what cannot be an effect of float64 counts: differences well above the
    rounding of ordinary values, and undefined values that stay so for smaller inputs (no overflow).
    """
    rng = np.random.default_rng(seed)
    for attempt in range(attempts):
        found = _attempt(reference, candidate, rng, attempt, is_proved=is_proved)
        if found is not None:
            return found
    return None


def _attempt(
    reference: Program,
    candidate: Program | SGraph,
    rng: np.random.Generator,
    attempt: int,
    *,
    is_proved: bool,
) -> Counterexample | None:
    sizes, counts = _draw_sizes(reference, candidate, rng)
    roots = {d.name: d.size for d in reference.dims}
    arrays = [
        _draw(rng, tuple(1 if d is None else sizes[roots[d]] for d in a.axes), attempt)
        for a in reference.arguments
    ]
    free = {name: sizes[name] for name in reference.size_names} | _named(counts)
    found = _compared(
        reference, candidate, arrays, free, counts, magnitude=1.0 if is_proved else 0.0
    )
    if is_proved and found is not None and not math.isfinite(found.candidate):
        smaller = [a * SMALLER for a in arrays]
        if _compared(reference, candidate, smaller, free, counts, magnitude=1.0) is None:
            return None
    return found


def _compared(  # noqa: PLR0913 - the inputs of one evaluation, each a different thing
    reference: Program,
    candidate: Program | SGraph,
    arrays: Sequence[Array],
    free: Mapping[str, int],
    counts: Sequence[Mapping[str, int]],
    *,
    magnitude: float,
) -> Counterexample | None:
    """How the candidate differs on these arrays; `magnitude` is that of intermediate values."""
    named = dict(zip((a.name for a in reference.arguments), arrays, strict=True))
    wanted = evaluate(reference, named)
    try:
        given = _run(candidate, arrays, counts)
    except (GraphError, SizeError) as error:
        return Counterexample(free, 0, (), 0.0, float("nan"), str(error))
    for index, (a, b) in enumerate(zip(wanted, given, strict=True)):
        if a.shape != b.shape:
            fault = f"out{index} has shape {b.shape}, not {a.shape}"
            return Counterexample(free, index, (), 0.0, float("nan"), fault)
        entry = _difference(a, b, magnitude)
        if entry is not None:
            return Counterexample(free, index, entry, float(a[entry]), float(b[entry]))
    return None


def _draw_sizes(
    reference: Program, candidate: Program | SGraph, rng: np.random.Generator
) -> tuple[dict[str, int], list[dict[str, int]]]:
    """Sizes of the reference's dimensions, and numbers of chunks of the candidate's kernels."""
    counts = _draw_counts(candidate, rng) if isinstance(candidate, SGraph) else []
    multiple = math.lcm(*(math.prod(kernel.values()) for kernel in counts))
    sizes = {
        d.name: d.fixed or multiple * int(rng.integers(1, MAX_SIZE + 1))
        for d in reference.dims
        if d.size == d.name
    }
    return sizes, counts


def _draw_counts(graph: SGraph, rng: np.random.Generator) -> list[dict[str, int]]:
    """Numbers of chunks, kernel by kernel; of what has a fixed size only those that divide it."""
    roots = {d.name: d.size for d in graph.program.dims}
    stacks = stack_dims(graph)
    fixed = {d.name: d.fixed for d in graph.program.dims if d.fixed is not None}
    choices = CHUNKS if len(graph.kernels) == 1 else CHUNKS[:-1]  # sizes grow with each kernel
    out: list[dict[str, int]] = []
    for k, kernel in enumerate(graph.kernels):
        left = dict(fixed)
        counts: dict[str, int] = {}
        for par in (*kernel.grid, *kernel.loops):
            split = {v.dim for v in kernel.mapping.true if v.par == par.name}
            # what this kernel stacks along gets its size here
            split -= {dim for dim, (maker, _) in stacks.items() if maker == k}
            known = {roots.get(dim, dim) for dim in split} & left.keys()
            legal = [c for c in choices if all(left[d] % c == 0 for d in known)]
            counts[par.name] = int(rng.choice(legal))
            left |= {d: left[d] // counts[par.name] for d in known}
        fixed |= {dim: counts[par] for dim, (maker, par) in stacks.items() if maker == k}
        out.append(counts)
    return out


def _named(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The numbers of chunks by name; of several kernels, `x` of kernel 1 is `x@1`."""
    if len(counts) == 1:
        return dict(counts[0])
    return {f"{name}@{k}": n for k, kernel in enumerate(counts) for name, n in kernel.items()}


def _run(
    candidate: Program | SGraph, arrays: Sequence[Array], counts: Sequence[Mapping[str, int]]
) -> tuple[Array, ...]:
    """The candidate's outputs.

    Raises:
        GraphError: a graph whose blocks contradict each other.
        SizeError: it does not take these sizes.
    """
    program = candidate.program if isinstance(candidate, SGraph) else candidate
    named = dict(zip((a.name for a in program.arguments), arrays, strict=True))
    if isinstance(candidate, Program):
        return evaluate(candidate, named)
    sizes: dict[str, int] = {}
    for argument, array in zip(program.arguments, arrays, strict=True):
        sizes |= {d: n for d, n in zip(argument.axes, array.shape, strict=True) if d is not None}
    by_root = {d.size: sizes[d.name] for d in program.dims if d.name in sizes}
    mu = MuGraph(
        candidate,
        tuple((d.name, by_root[d.size]) for d in program.dims),
        tuple(
            tuple((p.name, of_kernel[p.name]) for p in (*kernel.grid, *kernel.loops))
            for kernel, of_kernel in zip(candidate.kernels, counts, strict=True)
        ),
    )
    return evaluate_graph(mu, named)


def _draw(rng: np.random.Generator, shape: tuple[int, ...], attempt: int) -> Array:
    """Values of both signs, positive ones, or small integers with zeros, in turn."""
    match attempt % 3:
        case 0:
            return rng.normal(0.0, 1.0, shape)
        case 1:
            return rng.uniform(0.2, 2.0, shape)
        case _:
            return rng.integers(-2, 3, shape).astype(np.float64)


def _difference(wanted: Array, given: Array, magnitude: float) -> tuple[int, ...] | None:
    """Where the arrays differ by more than rounding, among the entries that are defined."""
    defined = np.isfinite(wanted)
    scale = float(np.abs(wanted[defined]).max(initial=magnitude))
    with np.errstate(invalid="ignore"):
        close = np.abs(wanted - given) <= 1e-4 * np.abs(wanted) + 1e-7 * scale
    wrong = np.argwhere(defined & ~close)
    return tuple(int(i) for i in wrong[0]) if len(wrong) else None
