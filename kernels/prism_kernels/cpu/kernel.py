"""A loaded CPU kernel.

Only sealed files are loaded (`prism_kernels.seal`). Nothing but their text is read: the machine
code is made anew in each process (0.1-0.7 s), because Numba keeps it as a pickle, which no seal
covers.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from prism.dtypes import computed_in
from prism.errors import KernelError
from prism.record import digest
from prism_kernels.cpu.device import maximum_threads
from prism_kernels.cpu.direct import Direct, is_known_layout
from prism_kernels.cpu.emit_file import runtime_digest
from prism_kernels.cpu.engine import own_engine
from prism_kernels.cpu.launch import address_of, empty_launch_s, launcher, read_all
from prism_kernels.cpu.results import Result, aligned_empty
from prism_kernels.cpu.team import TEAM
from prism_kernels.seal import read_sealed
from prism_kernels.signature import Signature

_Scratch = tuple[NDArray[np.generic], ...]
Step = Callable[[Sequence[NDArray[np.generic]]], None]


def load_kernel(path: Path, meta: dict[str, Any]) -> CpuKernel:
    """Compile a sealed kernel file.

    Raises:
        KernelError: it is not sealed by this user, was changed, or does not compile.
    """
    text = read_sealed(path, meta, runtime_digest())
    module = ModuleType(f"prism_kernel_{digest(text)[:16]}")
    module.__file__ = str(path)
    try:
        code = compile(text, str(path), "exec")
        with own_engine():
            exec(code, module.__dict__)  # sealed: see above
    except Exception as error:
        raise KernelError(f"{path}: does not compile: {type(error).__name__}: {error}") from error
    return CpuKernel(module, meta)


class CpuKernel:
    """A compiled kernel (`prism.protocols.Kernel`). Calls from several threads take turns.

    What the kernels of a graph hand on to one another, and their workspace, is allocated once.
    """

    predicted_s: float | None = None

    def __init__(self, module: ModuleType, meta: dict[str, Any]) -> None:
        self._module = module  # keeps the machine code alive
        self._steps = _steps(module, meta["launches"])
        self._signature = Signature.of(meta)
        dtype = np.dtype(computed_in(self._signature.dtype.name))
        outputs = self._signature.outputs
        self._between = tuple(aligned_empty(tuple(t["shape"]), dtype) for t in meta["between"])
        elements: int = meta["workspace_elements"] * maximum_threads()
        self._workspace = aligned_empty((elements,), dtype)
        self._results = tuple(Result(o.shape, self._signature.dtype) for o in outputs)
        self._scratch: _Scratch | None = self._own
        self._turn = threading.RLock()  # a finalizer or a handler of a signal may call us too
        self._direct = self._make_direct(meta["launches"])
        self._shares = any(each.get("blocks", 1) > 1 for each in meta["launches"])
        _LOADED.add(self)

    def _make_direct(self, launches: Sequence[Mapping[str, Any]]) -> Direct | None:
        """The short way in, where there is one: none of the library's kernels, and our threads."""
        if any("library" in each for each in launches) or not is_known_layout():
            return None
        if any(each["blocks"] > 1 for each in launches) and not TEAM.start():
            return None
        signature = self._signature
        kernels = [(_block(self._module, each), each["blocks"]) for each in launches]
        rest = [address_of(array) for array in self._own]
        return Direct(kernels, signature, rest)

    @property
    def _own(self) -> _Scratch:
        """The arrays that a launch takes besides arguments and results, in their order."""
        return (*self._between, self._workspace)

    @property
    def facts(self) -> Mapping[str, int | float | str]:
        """`launch_overhead_s`, what a launch takes that does nothing."""
        return {"launch_overhead_s": round(empty_launch_s(), 9)}

    def takes(self, value: object) -> bool:
        """Nothing: its arrays are NumPy's."""
        del value
        return False

    def direct(self, given: Sequence[object]) -> tuple[NDArray[np.generic], ...] | None:
        """Run on arguments that are just what the kernel reads; otherwise None, and nothing ran."""
        direct = self._direct
        if direct is None:
            return None
        if self._shares and not TEAM.is_started:
            TEAM.start()
        with self._launching():
            outputs = tuple([result.again() for result in self._results])
            return outputs if direct.run(*given, *outputs) else None

    def __call__(self, *arrays: NDArray[np.generic]) -> tuple[NDArray[np.generic], ...]:
        """Run on the program's arguments; fresh outputs.

        Raises:
            KernelError: wrong number, shape, dtype or layout of the arrays.
        """
        self._signature.check_arguments(arrays)
        outputs = tuple(result.array() for result in self._results)
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
        self.bind(arrays, outputs).run_timed()

    def bind(
        self, arrays: Sequence[NDArray[np.generic]], outputs: Sequence[NDArray[np.generic]]
    ) -> BoundCpuKernel:
        """The kernel on the caller's arrays, which stay where they are.

        Raises:
            KernelError: as for `run_into`.
        """
        self._signature.check_arguments(arrays)
        self._signature.check_outputs(arrays, outputs)
        return BoundCpuKernel(lambda: self._run_bound(arrays, outputs))

    def _run_bound(
        self, arrays: Sequence[NDArray[np.generic]], outputs: Sequence[NDArray[np.generic]]
    ) -> None:
        if self._direct is not None:
            with self._launching():
                if self._direct.run(*arrays, *outputs):
                    return
        self._launch(arrays, outputs)

    def _launching(self) -> AbstractContextManager[object]:
        """The lock under which our kernels run: one for all where threads share the blocks."""
        return TEAM.turn if self._shares else self._turn

    def _launch(
        self, arrays: Sequence[NDArray[np.generic]], outputs: Sequence[NDArray[np.generic]]
    ) -> None:
        with self._turn:
            own = self._scratch
            try:
                self._scratch = None
                # there is none where a step of ours was interrupted by a call on this thread
                scratch = own or tuple(aligned_empty(a.shape, a.dtype) for a in self._own)
                for step in self._steps:
                    step([*arrays, *outputs, *scratch])
            finally:
                self._scratch = own

    def _after_fork(self) -> None:
        """In a child process: whoever was calling us is not there."""
        self._turn = threading.RLock()
        self._scratch = self._own


_LOADED: WeakSet[CpuKernel] = WeakSet()


def _after_fork() -> None:
    for kernel in tuple(_LOADED):
        kernel._after_fork()  # noqa: SLF001 - this module's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _steps(module: ModuleType, launches: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    """What to call with all arrays, one after the other: launches together, or the library."""
    out: list[Step] = []
    for is_library, group in groupby(launches, lambda each: "library" in each):
        if is_library:
            out += [getattr(module, each["library"]) for each in group]
        else:
            ours = [(_block(module, each), each["blocks"]) for each in group]
            out.append(launcher(ours))
    return tuple(out)


def _block(module: ModuleType, launched: Mapping[str, Any]) -> int:
    """The address of a block function."""
    address: int = getattr(module, launched["block"]).address
    return address


class BoundCpuKernel:
    """A kernel on arrays in place (`prism.protocols.Bound`)."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run

    def run_timed(self) -> float:
        """Run once; seconds of the launch."""
        start = time.perf_counter()
        self._run()
        return time.perf_counter() - start

    def finish(self) -> None:
        """Nothing is left to do: the kernel writes the caller's arrays."""


@cache
def _eviction_array(size: int) -> NDArray[np.float32]:
    return np.ones(size, np.float32)


def evict_caches() -> None:
    """Read an array several times the size of the last cache on every thread.

    One thread is not enough: cores may own separate parts of the cache.
    """
    read_all(_eviction_array(32 << 20))
