"""Draws instances of two computations: sizes, numbers of chunks, and the values of the inputs.

Sizes are small; those of a graph are multiples of its numbers of chunks, which the proofs assume
too. Values come in several kinds, small whole numbers first: they are the easiest to read. Each
array has a generator of its own, so that a NumPy expression says how to draw it again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prism.ir import DataDim, Program, SGraph, stack_dims

Array = NDArray[np.float64]

MAX_SIZE = 4
MOST_PLACES = 2**18
"""Of all dimensions together: sizes grow with the product of the numbers of chunks."""
CHUNKS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A way to draw: a method of NumPy's generator and its arguments; `is_single`: one for all."""

    method: str
    arguments: tuple[float, ...]
    is_single: bool = False

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """An array."""
        method = getattr(rng, self.method)
        values = method(*self.arguments) if self.is_single else method(*self.arguments, shape)
        return np.asarray(values + np.zeros(shape), np.float64)

    def source(self, shape: tuple[int, ...]) -> str:
        """What follows the generator in the NumPy expression that draws the same."""
        arguments = [f"{number:g}" for number in self.arguments]
        if self.is_single:
            return f"{self.method}({', '.join(arguments)}) + np.zeros({shape})"
        return f"{self.method}({', '.join((*arguments, str(shape)))})"


_WHOLE = "integers"
_KINDS = (
    _Kind(_WHOLE, (-2, 3)),
    _Kind("normal", (0, 1)),
    _Kind("uniform", (0.2, 2)),
    _Kind(_WHOLE, (1, 4)),
    _Kind("normal", (0, 0.001)),
    _Kind("normal", (0, 8)),
    _Kind("normal", (0, 2), is_single=True),
    _Kind(_WHOLE, (0, 2)),  # many zeros: what is divided by one of them is undefined
)

KIND_COUNT = len(_KINDS)
WHOLE_KINDS = tuple(i for i, kind in enumerate(_KINDS) if kind.method == _WHOLE)
"""Those of whole numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """The values of an input; `source` is an expression that makes them, if there is one."""

    array: Array
    source: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """Sizes by name of the reference's dimensions, chunks kernel by kernel, inputs in order."""

    sizes: Mapping[DataDim, int]
    counts: tuple[Mapping[str, int], ...]
    inputs: tuple[Drawn, ...]

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The values of the inputs."""
        return tuple(drawn.array for drawn in self.inputs)

    @property
    def value_count(self) -> int:
        """How many values there are."""
        return sum(drawn.array.size for drawn in self.inputs)

    @property
    def multiple(self) -> int:
        """What sizes have to be multiples of."""
        return math.lcm(*(math.prod(kernel.values()) for kernel in self.counts))

    def with_arrays(self, arrays: Sequence[Array]) -> Instance:
        """The same sizes with other values."""
        return replace(self, inputs=tuple(map(Drawn, arrays)))


class Draw:
    """Draws instances for a reference and a candidate; the same number draws the same."""

    def __init__(self, reference: Program, candidate: Program | SGraph, seed: int) -> None:
        self._seed = seed
        self._candidate = candidate
        self._sizes = {d.name: d.fixed for d in reference.dims if d.size == d.name}
        roots = {d.name: d.size for d in reference.dims}
        self._dims = tuple(roots.values())
        self._axes = [
            tuple(None if d is None else roots[d] for d in argument.axes)
            for argument in reference.arguments
        ]

    @property
    def free(self) -> tuple[DataDim, ...]:
        """The sizes that may be chosen."""
        return tuple(name for name, fixed in self._sizes.items() if fixed is None)

    def instance(self, number: int) -> Instance:
        """Random sizes, with values of each kind in turn."""
        rng = np.random.default_rng((self._seed, number))
        counts = _draw_counts(self._candidate, rng) if isinstance(self._candidate, SGraph) else []
        self._thin_out(counts, rng)
        empty = Instance({}, tuple(counts), ())
        sizes = {
            name: fixed or empty.multiple * int(rng.integers(1, MAX_SIZE + 1))
            for name, fixed in self._sizes.items()
        }
        if self._places(sizes) > MOST_PLACES:
            sizes = self._of_size(empty.multiple)
        return self.values(replace(empty, sizes=sizes), number, number % KIND_COUNT)

    def _thin_out(self, counts: list[dict[str, int]], rng: np.random.Generator) -> None:
        """Leave parallel dimensions in one chunk until sizes that are multiples are affordable."""
        split = [(kernel, par) for kernel in counts for par in kernel if kernel[par] > 1]
        rng.shuffle(split)
        for kernel, par in split:
            multiple = Instance({}, tuple(counts), ()).multiple
            if self._places(self._of_size(multiple)) <= MOST_PLACES:
                return
            kernel[par] = 1

    def _of_size(self, size: int) -> dict[DataDim, int]:
        """Every free dimension of one size."""
        return {name: fixed or size for name, fixed in self._sizes.items()}

    def _places(self, sizes: Mapping[DataDim, int]) -> int:
        return math.prod(sizes[dim] for dim in self._dims)

    def values(self, instance: Instance, number: int, kind: int) -> Instance:
        """The same sizes with new values."""
        inputs: list[Drawn] = []
        for position, axes in enumerate(self._axes):
            shape = tuple(1 if d is None else instance.sizes[d] for d in axes)
            seed = (self._seed, number, position)
            array = _KINDS[kind].draw(np.random.default_rng(seed), shape)
            source = f"np.random.default_rng({seed}).{_KINDS[kind].source(shape)}"
            inputs.append(Drawn(array, source))
        return replace(instance, inputs=tuple(inputs))

    def sized(self, instance: Instance, sizes: Mapping[DataDim, int]) -> Instance:
        """The instance with smaller sizes: what lies beyond them is left out."""
        arrays = [
            np.asarray(array[tuple(slice(None if d is None else sizes[d]) for d in axes)])
            for axes, array in zip(self._axes, instance.arrays, strict=True)
        ]
        return replace(instance, sizes=sizes, inputs=tuple(map(Drawn, arrays)))


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
