"""Makes an instance on which two computations differ smaller, so that a person can read it.

Sizes first (what lies beyond is left out, or drawn anew), down to one; then the number of chunks
of each parallel dimension; then each value becomes the simplest number that still shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from prism.ir import DataDim
from prism.verify.instances import WHOLE_KINDS, Array, Draw, Instance

MOST_VALUES = 48
"""Inputs with more values are left as they were drawn."""
REDRAWS = 6

Shows = Callable[[Instance], bool]


@dataclass(slots=True)
class Shrinker:
    """Shrinks with at most `tries` evaluations; `shows`: the computations still differ alike."""

    draw: Draw
    shows: Shows
    tries: int

    def smallest(self, instance: Instance) -> Instance:
        """A smaller instance that still shows the difference."""
        instance = self._fixpoint(instance, self._fewer_chunks)
        instance = self._fixpoint(instance, self._smaller_sizes)
        if instance.value_count <= MOST_VALUES:
            instance = self._fixpoint(instance, self._simpler_values)
        return instance

    def _fixpoint(
        self, instance: Instance, step: Callable[[Instance], Instance | None]
    ) -> Instance:
        while (smaller := step(instance)) is not None:
            instance = smaller
        return instance

    def _holds(self, instance: Instance) -> bool:
        self.tries -= 1
        return self.tries >= 0 and self.shows(instance)

    def _fewer_chunks(self, instance: Instance) -> Instance | None:
        for k, kernel in enumerate(instance.counts):
            for par, count in kernel.items():
                counts = list(instance.counts)
                counts[k] = {**kernel, par: 1}
                fewer = replace(instance, counts=tuple(counts))
                if count > 1 and self._holds(fewer):
                    return fewer
        return None

    def _smaller_sizes(self, instance: Instance) -> Instance | None:
        for name in self.draw.free:
            for size in range(instance.multiple, instance.sizes[name], instance.multiple):
                for smaller in self._of_size(instance, {**instance.sizes, name: size}):
                    if self._holds(smaller):
                        return smaller
        return None

    def _of_size(self, instance: Instance, sizes: dict[DataDim, int]) -> Iterator[Instance]:
        cut = self.draw.sized(instance, sizes)
        if cut.value_count <= MOST_VALUES:  # of others it is said how to draw them
            yield cut
        for number in range(REDRAWS):
            yield self.draw.values(cut, number, WHOLE_KINDS[number % len(WHOLE_KINDS)])

    def _simpler_values(self, instance: Instance) -> Instance | None:
        """One pass over all values; None if none became simpler."""
        arrays = [np.array(array) for array in instance.arrays]
        has_changed = False
        for array in arrays:
            for place in np.ndindex(array.shape):
                has_changed |= self._simplify(instance, arrays, array, place)
        return instance.with_arrays(arrays) if has_changed else None

    def _simplify(
        self, instance: Instance, arrays: list[Array], array: Array, place: tuple[int, ...]
    ) -> bool:
        old = float(array[place])
        for value in _simpler(old):
            array[place] = value
            if self._holds(instance.with_arrays(arrays)):
                return True
        array[place] = old
        return False


def _simpler(value: float) -> Iterator[float]:
    """Numbers that are easier to read, the easiest first."""
    seen = (0.0, 1.0, 2.0, -1.0, float(round(value)), round(value, 1), round(value, 3))
    for other in dict.fromkeys(seen):
        if other == value:
            return
        yield other
