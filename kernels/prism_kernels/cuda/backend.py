"""What a CUDA kernel needs of whatever runs it: memory, copies, streams, launches and a clock.

Two implement it: the GPU (`prism_kernels.cuda.gpu`) and the lockstep simulator
(`prism_kernels.cuda.simulated`). All else about a loaded kernel is written once, over this.

Streams are the driver's handles, as PyTorch and CuPy give them; 0 is the default stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Facts = Mapping[str, int | float | str]


def worst(found: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """What several kernels take at most: the facts of a file; nothing where there are none."""
    return {name: max(facts[name] for facts in found) for name in (found[0] if found else ())}


class Memory(Protocol):
    """Memory that a kernel reads or writes."""

    @property
    def address(self) -> int:
        """Where it starts."""


class Code(Protocol):
    """The compiled kernels of a file."""

    @property
    def facts(self) -> Facts:
        """`registers`, `shared_bytes`, `spills`, as far as known; the `library`, if one is used."""

    def launch(self, memories: Sequence[Memory], stream: int) -> None:
        """Enqueue one run of all kernels, in order.

        `memories` are the arguments, the outputs, the tensors between kernels, the workspace.
        """


class Backend(Protocol):
    """Where kernels run. Its own stream takes what nobody else's stream is for."""

    name: str
    stream: int
    device_id: int
    has_arrays: bool
    """Whether PyTorch, CuPy and others may have arrays there."""
    clock: str
    """What `timed` measures with, where it is not the GPU's clock."""

    def load(self, path: Path, text: str, meta: Mapping[str, Any]) -> Code:
        """Compile the text of a kernel file.

        Raises:
            KernelError: it does not compile, or asks for more than there is.
        """

    def allocate(self, shape: tuple[int, ...], dtype: str) -> Memory:
        """Memory for an array; it goes when the object does."""

    def copy_in(self, array: NDArray[Any], memory: Memory, stream: int) -> None:
        """From a C-contiguous array; the array may change once this returns."""

    def copy_out(self, memory: Memory, array: NDArray[Any], stream: int) -> None:
        """Into a C-contiguous array, which is filled once this returns."""

    def new_array(self, shape: tuple[int, ...], dtype: str) -> object:
        """An array for the user, with `__cuda_array_interface__`."""

    def await_stream(self, stream: int, other: int) -> None:
        """What is enqueued on `stream` from now on waits for what is on `other` by now."""

    def timed(self, launch: Callable[[], None]) -> float:
        """Seconds of what `launch` enqueues on the backend's own stream, waited for."""

    def flush(self) -> None:
        """Evict caches before the next timed run."""

    def overheads(self) -> Facts:
        """What a launch costs beside the kernel, measured once; empty where that says nothing."""


def flat_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of a C-contiguous array, in one dimension: the same memory."""
    return array.reshape(-1).view(np.uint8)
