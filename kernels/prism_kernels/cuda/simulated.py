"""The lockstep simulator as a backend: emitted CUDA kernels run where there is no GPU.

For tests and for looking at a kernel, not for choosing one: its clock is the wall clock of a
simulation in Python, and what it reports says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism.dtypes import dtype_of
from prism_kernels.cuda.backend import Facts, Memory, worst
from prism_kernels.lockstep import simulate

LIBRARY = f"NumPy {np.__version__}, in the place of torch"
"""What multiplies where a kernel is left to a library."""


@dataclass(frozen=True, slots=True, eq=False)
class HostMemory:
    """A NumPy array in the place of GPU memory."""

    array: NDArray[Any]

    @property
    def address(self) -> int:
        """Where it starts."""
        return int(self.array.ctypes.data)


@dataclass(frozen=True, slots=True)
class SimulatedCode:
    """A kernel as the simulator takes it."""

    text: str
    meta: Mapping[str, Any]
    seed: int
    facts: Facts

    def launch(self, memories: Sequence[Memory], stream: int) -> None:
        """Run to the end; the simulator makes what else there is itself.

        Raises:
            LockstepFault: a race, a divergent barrier, an access out of bounds and the like.
        """
        del stream
        arrays = []
        for memory in memories:
            assert isinstance(memory, HostMemory)
            arrays.append(memory.array)
        first = len(self.meta["arguments"])
        last = first + len(self.meta["outputs"])
        simulate(self.text, dict(self.meta), arrays[:first], arrays[first:last], seed=self.seed)


class SimulatedBackend:
    """The simulator (`prism_kernels.cuda.backend.Backend`)."""

    name = "lockstep"
    stream = 0
    device_id = 0
    has_arrays = False
    clock = "wall seconds of the lockstep simulator"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def load(self, path: Path, text: str, meta: Mapping[str, Any]) -> SimulatedCode:
        """Nothing is compiled."""
        del path
        launches = meta["launches"]
        ours = [{"shared_bytes": x["shared_bytes"]} for x in launches if "library" not in x]
        library = {} if len(ours) == len(launches) else {"library": LIBRARY}
        return SimulatedCode(text, meta, self._seed, {**worst(ours), **library})

    def allocate(self, shape: tuple[int, ...], dtype: str) -> HostMemory:
        """An array."""
        return HostMemory(np.empty(shape, dtype_of(dtype)))

    def copy_in(self, array: NDArray[Any], memory: Memory, stream: int) -> None:
        """From an array."""
        del stream
        assert isinstance(memory, HostMemory)
        memory.array[...] = array

    def copy_out(self, memory: Memory, array: NDArray[Any], stream: int) -> None:
        """Into an array."""
        del stream
        assert isinstance(memory, HostMemory)
        array[...] = memory.array

    def new_array(self, shape: tuple[int, ...], dtype: str) -> object:
        """An array; nobody has others here."""
        return np.empty(shape, dtype_of(dtype))

    def await_stream(self, stream: int, other: int) -> None:
        """Everything runs at once."""

    def timed(self, launch: Callable[[], None]) -> float:
        """Wall seconds of the simulation."""
        start = time.perf_counter()
        launch()
        return time.perf_counter() - start

    def flush(self) -> None:
        """There is no cache to speak of."""

    def overheads(self) -> Facts:
        """A launch costs nothing worth telling."""
        return MappingProxyType({})
