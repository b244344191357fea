"""Memory that knows what was written, and who touched what since the last barrier.

A memory is a dict from element index to float32 value that holds what was written and nothing else:
a look-up fails for an element that nobody wrote and for one that is not there, negative ones too,
at no cost to those that are. What each thread reads and writes goes into its `Log`, dicts from
element to the place in the source; where threads run in any order, logs are all that is needed to
find races (`prism_kernels.lockstep.races`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

Values = dict[int, np.float32]
Site = int
"""Index of a place in the source, see `prism_kernels.lockstep.code`."""

ARRAY_DTYPES = MappingProxyType(
    {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}
)
"""Storage dtype -> the dtype of its NumPy array; bfloat16 as bits."""


@dataclass(slots=True)
class Log:
    """What one thread did to one memory since threads were last in step."""

    thread: int
    reads: dict[int, Site] = field(default_factory=dict)
    writes: dict[int, Site] = field(default_factory=dict)
    adds: dict[int, Site] = field(default_factory=dict)
    """Atomic additions."""

    def is_empty(self) -> bool:
        """Whether the thread touched nothing."""
        return not (self.reads or self.writes or self.adds)

    def copy(self) -> Log:
        """What it holds now."""
        return Log(self.thread, dict(self.reads), dict(self.writes), dict(self.adds))

    def take(self) -> Log:
        """A copy; this one is emptied."""
        copy = self.copy()
        self.clear()
        return copy

    def clear(self) -> None:
        """Forget everything; the dicts stay, threads hold them."""
        self.reads.clear()
        self.writes.clear()
        self.adds.clear()


@dataclass(slots=True)
class Memory:
    """A shared or global memory of `size` float32 values, and the logs of a block's threads."""

    name: str
    size: int
    values: Values
    logs: Sequence[Log]
    history: list[list[Log]] = field(default_factory=list)
    """Of global memory: what each block that has begun did to it."""


def read_array(array: NDArray[np.generic], dtype: str) -> Values:
    """The elements of an argument as float32 values."""
    flat = array.reshape(-1)
    if dtype == "bfloat16":
        wide = (flat.astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        wide = flat.astype(np.float32)
    return dict(enumerate(wide))


def write_array(values: Values, array: NDArray[np.generic], dtype: str) -> None:
    """Put what was written into an output; the rest of it stays as it is."""
    at = np.fromiter(values.keys(), np.intp, len(values))
    wide = np.fromiter(values.values(), np.float32, len(values))
    flat = array.reshape(-1)
    if dtype == "bfloat16":  # the values were rounded when they were stored
        flat[at] = (wide.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    else:
        flat[at] = wide.astype(ARRAY_DTYPES[dtype])
