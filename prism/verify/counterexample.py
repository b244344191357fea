"""Looks for sizes and values at which two computations differ, and for the smallest ones.

Values of several kinds at small random sizes are tried in float64, what differs is made smaller
(`shrinking`), and numbers without rounding have the last word. If floats see no difference, small
instances are compared without rounding: that shows what is far below the precision of a float.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from prism.ir import Program, SGraph
from prism.verify.differences import Comparison, Difference
from prism.verify.instances import KIND_COUNT, Draw, Drawn, Instance
from prism.verify.shrinking import Shrinker

ATTEMPTS = 2 * KIND_COUNT
EXACT_ATTEMPTS = KIND_COUNT
MOST_WRITTEN = 512
"""Of larger inputs the way to draw them is given, not the values."""
MOST_SHOWN = 64
"""The same in the text for people."""
PROGRAM_TRIES, GRAPH_TRIES = 1_500, 250
"""Evaluations to make a counterexample smaller; a graph is evaluated block by block."""

Nested = float | tuple["Nested", ...]


@dataclass(frozen=True, slots=True)
class InputValues:
    """An input of a counterexample: its values, or the NumPy expression that draws them."""

    name: str
    shape: tuple[int, ...]
    values: Nested | None
    source: str | None = None

    def __str__(self) -> str:
        """A line to paste."""
        if self.values is not None and np.prod(self.shape) <= MOST_SHOWN:
            return f"{self.name} = np.array({_literal(self.values)})"
        if self.source is not None:
            return f"{self.name} = {self.source}"
        return f"# {self.name}: an array of shape {self.shape}, see --json"

    def plain(self) -> object:
        """For JSON: nested lists of numbers, or the shape and how to draw it."""
        if self.values is not None:
            return self.values
        return {"shape": self.shape, "draw": self.source}


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Sizes, inputs, and an entry of an output at which reference and candidate differ.

    `chunks` are those of a candidate that is a graph. `fault` says why the candidate has no value
    to compare, if it has none. `is_exact`: numbers without rounding differ there.
    """

    sizes: Mapping[str, int]
    output: int
    entry: tuple[int, ...]
    reference: float
    candidate: float
    fault: str = ""
    chunks: Mapping[str, int] | None = None
    inputs: tuple[InputValues, ...] = ()
    is_exact: bool = False

    def __str__(self) -> str:
        named = {**self.sizes, **(self.chunks or {})}
        sizes = ", ".join(f"{name}={size}" for name, size in named.items()) or "scalars"
        if self.fault:
            return f"at {sizes} the candidate gives no such value: {self.fault}"
        place = f"[{', '.join(map(str, self.entry))}]" if self.entry else ""
        digits = 6
        while digits < 17 and f"{self.reference:.{digits}g}" == f"{self.candidate:.{digits}g}":
            digits += 1
        return (
            f"at {sizes}, out{self.output}{place} is {self.reference:.{digits}g} and the candidate "
            f"gives {self.candidate:.{digits}g}"
        )


def find_counterexample(
    reference: Program,
    candidate: Program | SGraph,
    *,
    seed: int = 0,
    attempts: int = ATTEMPTS,
    is_proved: bool = False,
) -> Counterexample | None:
    """A difference, as small as it was made, or None. Arguments of both pair up by position.

    Where `is_proved`, only what cannot be an effect of float64 counts.
    """
    draw = Draw(reference, candidate, seed)
    comparison = Comparison(reference, candidate, is_proved=is_proved)
    for number in range(attempts):
        instance = draw.instance(number)
        found = comparison.in_floats(instance)
        if found is None:
            continue
        real = _confirmed(comparison, _smaller(comparison, draw, instance, found, candidate))
        real = real or _confirmed(comparison, instance)
        if real is not None:
            return _counterexample(reference, *real)
    if is_proved:
        return None
    for instance in _small(draw):
        difference = comparison.exactly(instance).difference
        if difference is not None:
            return _counterexample(reference, instance, difference)
    return None


def _smaller(
    comparison: Comparison,
    draw: Draw,
    instance: Instance,
    found: Difference,
    candidate: Program | SGraph,
) -> Instance:
    """An instance of the same kind of difference that is easier to read."""

    def shows(other: Instance) -> bool:
        difference = comparison.in_floats(other)
        return difference is not None and difference.kind == found.kind

    is_graph = isinstance(candidate, SGraph)
    if is_graph and found.fault:
        return instance  # with other numbers of chunks it may be another fault
    return Shrinker(draw, shows, GRAPH_TRIES if is_graph else PROGRAM_TRIES).smallest(instance)


def _confirmed(comparison: Comparison, instance: Instance) -> tuple[Instance, Difference] | None:
    """The difference on an instance, unless it is one of rounding."""
    found = comparison.in_floats(instance)
    if found is None:
        return None
    judged = comparison.exactly(instance)
    if judged.is_known and not found.fault:
        return None if judged.difference is None else (instance, judged.difference)
    return None if comparison.may_be_rounding(instance, found, judged) else (instance, found)


def _small(draw: Draw) -> Iterator[Instance]:
    """Instances of the smallest sizes, one for each kind of values."""
    for number in range(EXACT_ATTEMPTS):
        instance = draw.instance(number)
        most = {
            name: min(size, (1 + number % 2) * instance.multiple) if name in draw.free else size
            for name, size in instance.sizes.items()
        }
        yield draw.sized(instance, most)


def _counterexample(
    reference: Program, instance: Instance, difference: Difference
) -> Counterexample:
    return Counterexample(
        sizes={name: instance.sizes[name] for name in reference.size_names},
        output=difference.output,
        entry=difference.entry,
        reference=difference.reference,
        candidate=difference.candidate,
        fault=difference.fault,
        chunks=_chunks(instance) or None,
        inputs=tuple(
            _input(argument.name, drawn)
            for argument, drawn in zip(reference.arguments, instance.inputs, strict=True)
        ),
        is_exact=difference.is_exact,
    )


def _chunks(instance: Instance) -> dict[str, int]:
    """The numbers of chunks by name; of several kernels, `x` of kernel 1 is `x@1`."""
    if len(instance.counts) == 1:
        return dict(instance.counts[0])
    return {
        f"{name}@{k}": n for k, kernel in enumerate(instance.counts) for name, n in kernel.items()
    }


def _input(name: str, drawn: Drawn) -> InputValues:
    is_written = drawn.source is None or drawn.array.size <= MOST_WRITTEN
    values = _nested(drawn.array.tolist()) if is_written else None
    return InputValues(name, drawn.array.shape, values, drawn.source)


def _nested(values: object) -> Nested:
    if isinstance(values, list):
        return tuple(_nested(value) for value in values)
    assert isinstance(values, float)
    return values + 0.0  # no minus zero


def _literal(values: Nested) -> str:
    if isinstance(values, tuple):
        return f"[{', '.join(map(_literal, values))}]"
    return repr(int(values)) + "." if values == int(values) else repr(values)
