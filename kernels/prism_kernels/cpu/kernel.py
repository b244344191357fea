"""A loaded CPU kernel.

Only sealed files are loaded (`prism_kernels.seal`). Nothing but their text is read: the machine
code is made anew in each process (0.1-0.7 s), because Numba keeps it as a pickle, which no seal
covers.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism.errors import KernelError
from prism.record import digest
from prism_kernels.cpu.device import maximum_threads
from prism_kernels.cpu.emit_file import runtime_digest
from prism_kernels.cpu.launch import address_of, launch, read_all
from prism_kernels.seal import read_sealed

_ALIGN = 64


def load_kernel(path: Path, meta: dict[str, Any]) -> CpuKernel:
    """Compile a sealed kernel file.

    Raises:
        KernelError: it is not sealed by this user, was changed, or does not compile.
    """
    text = read_sealed(path, meta, runtime_digest())
    module = ModuleType(f"prism_kernel_{digest(text)[:16]}")
    module.__file__ = str(path)
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)  # sealed: see above
    except Exception as error:
        raise KernelError(f"{path}: does not compile: {type(error).__name__}: {error}") from error
    return CpuKernel(module, meta)


class CpuKernel:
    """A compiled kernel (`prism.protocols.Kernel`). Calls from several threads take turns."""

    def __init__(self, module: ModuleType, meta: dict[str, Any]) -> None:
        self._module = module  # keeps the machine code alive
        self._address: int = module.block.address
        self._blocks: int = meta["blocks"]
        self._dtype = np.dtype(meta["dtype"])
        self._arguments = [(a["name"], tuple(a["shape"])) for a in meta["arguments"]]
        self._outputs = [(o["name"], tuple(o["shape"])) for o in meta["outputs"]]
        elements: int = meta["workspace_elements"] * maximum_threads()
        self._workspace = aligned_empty((elements,), self._dtype)
        self._turn = threading.Lock()

    def __call__(self, *arrays: NDArray[np.generic]) -> tuple[NDArray[np.generic], ...]:
        """Run on the program's arguments; fresh outputs.

        Raises:
            KernelError: wrong number, shape, dtype or layout of the arrays.
        """
        self._check(arrays, self._arguments, "argument")
        outputs = tuple(aligned_empty(shape, self._dtype) for _, shape in self._outputs)
        self._launch(arrays, outputs)
        return outputs

    def run_into(
        self, arrays: Sequence[NDArray[np.generic]], outputs: Sequence[NDArray[np.generic]]
    ) -> None:
        """Run with the caller's output arrays, writing every element.

        Raises:
            KernelError: wrong number, shape, dtype or layout; an output that shares memory with
                another array or cannot be written.
        """
        self._check(arrays, self._arguments, "argument")
        self._check(outputs, self._outputs, "output")
        for k, out in enumerate(outputs):
            if not out.flags.writeable:
                raise KernelError(f"output {self._outputs[k][0]} cannot be written")
            if any(np.may_share_memory(out, a) for a in (*arrays, *outputs[:k])):
                raise KernelError(f"output {self._outputs[k][0]} shares memory with another array")
        self._launch(arrays, outputs)

    def _launch(
        self, arrays: Sequence[NDArray[np.generic]], outputs: Sequence[NDArray[np.generic]]
    ) -> None:
        with self._turn:
            launch(self._address, self._blocks, [*arrays, *outputs, self._workspace])

    def _check(
        self,
        arrays: Sequence[NDArray[np.generic]],
        expected: Sequence[tuple[str, tuple[int, ...]]],
        kind: str,
    ) -> None:
        if len(arrays) != len(expected):
            raise KernelError(f"{len(arrays)} {kind}s given, the kernel has {len(expected)}")
        for array, (name, shape) in zip(arrays, expected, strict=True):
            if not isinstance(array, np.ndarray) or array.dtype != self._dtype:
                given = getattr(array, "dtype", type(array).__name__)
                raise KernelError(
                    f"{kind} {name} must be a NumPy array of {self._dtype}, not {given}"
                )
            if array.shape != shape:
                raise KernelError(
                    f"{kind} {name} has shape {array.shape}, the kernel needs {shape}"
                )
            if not array.flags.c_contiguous:
                raise KernelError(f"{kind} {name} must be C-contiguous: np.ascontiguousarray")


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[np.generic]:
    """An uninitialised array that starts on a cache line."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + _ALIGN, np.uint8)
    start = -address_of(raw) % _ALIGN
    return np.ndarray(shape, dtype, raw, start)


@cache
def _eviction_array(size: int) -> NDArray[np.float32]:
    return np.ones(size, np.float32)


def evict_caches() -> None:
    """Read an array several times the size of the last cache on every thread.

    One thread is not enough: cores may own separate parts of the cache.
    """
    read_all(_eviction_array(32 << 20))
