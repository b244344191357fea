"""The GPU as a backend: kernels compiled and launched by numba-cuda's dispatcher."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism.dtypes import dtype_of
from prism.errors import DeviceLostError, KernelError, PrismError, one_line
from prism.protocols import Device
from prism_kernels.cuda.backend import Facts, Memory, flat_bytes, worst
from prism_kernels.cuda.devices import GPUS, SHARED_DEFAULT, Gpu
from prism_kernels.cuda.dialect import WARP
from prism_kernels.cuda.gpu_api import Api, configured, load_api
from prism_kernels.cuda.product import read_product
from prism_kernels.cuda.profile import GpuClock
from prism_kernels.cuda.torch_library import TorchKernel, TorchLibrary

_NOT_LOST = frozenset({0, 3, 201})
"""Answers of the driver: all is well, it was never asked before, no context in this thread."""


@dataclass(frozen=True, slots=True, eq=False)
class GpuMemory:
    """Bytes on the GPU, owned by numba-cuda."""

    buffer: Any

    @property
    def address(self) -> int:
        """Where they start."""
        return int(self.buffer.device_ctypes_pointer.value)


class GpuKernel:
    """One kernel compiled for the GPU at hand."""

    def __init__(
        self,
        dispatcher: Any,  # noqa: ANN401 - numba's
        launch: Mapping[str, Any],
        stream_of: Callable[[int], Any],
    ) -> None:
        """`stream_of` gives Numba's object for a stream."""
        self._dispatcher = dispatcher
        self._stream_of = stream_of
        self.takes: Sequence[int] = launch["takes"]
        self._shape = (launch["blocks"], launch["threads"])
        self._shared_bytes: int = launch["shared_bytes"]
        kernel = next(iter(dispatcher.overloads.values()))
        self.facts = {
            "registers": int(kernel.regs_per_thread),
            "shared_bytes": int(kernel.shared_mem_per_block) + self._shared_bytes,
            "spills": int(kernel.local_mem_per_thread),
        }

    def launcher(self, stream: int) -> Any:  # noqa: ANN401 - numba's
        """What enqueues it on a stream."""
        handle = self._stream_of(stream)
        return configured(self._dispatcher, *self._shape, handle, self._shared_bytes)


class GpuCode:
    """The kernels of a file, ours and those of a library, launched one after the other."""

    def __init__(
        self, backend: GpuBackend, kernels: Sequence[GpuKernel | TorchKernel], library: str
    ) -> None:
        self._backend = backend
        self._kernels = kernels
        self._launchers: dict[int, list[Any]] = {}
        self.facts: Facts = {
            **worst([kernel.facts for kernel in kernels if isinstance(kernel, GpuKernel)]),
            **({"library": library} if library else {}),
        }

    def launch(self, memories: Sequence[Memory], stream: int) -> None:
        """Enqueue one run.

        Raises:
            KernelError: the driver refuses it.
            DeviceLostError: an earlier kernel broke the device for this process.
        """
        with self._backend.guard("launch"):
            launchers = self._launchers.get(stream) or self._prepared(stream)
            addresses = [memory.address for memory in memories]
            for kernel, launcher in zip(self._kernels, launchers, strict=True):
                launcher(*[addresses[k] for k in kernel.takes])

    def _prepared(self, stream: int) -> list[Any]:
        launchers = [kernel.launcher(stream) for kernel in self._kernels]
        self._launchers[stream] = launchers
        return launchers


class GpuBackend:
    """The GPU at hand (`prism_kernels.cuda.backend.Backend`)."""

    name = "cuda"
    has_arrays = True
    clock = ""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._library: TorchLibrary | None = None
        with self.guard("start"):
            self._device = api.cuda.get_current_device()
            self.device_id = int(self._device.id)
            own = api.cuda.stream()
            self.stream = _as_int(own.handle)
            self._streams: dict[int, Any] = {0: 0, self.stream: own}
            self._clock = GpuClock(api, own, self._attribute("L2_CACHE_SIZE"))

    def load(self, path: Path, text: str, meta: Mapping[str, Any]) -> GpuCode:
        """Compile by numba-cuda for this GPU; what a library runs is handed to torch.

        Raises:
            KernelError: it does not compile, or asks for more than the GPU has; torch is needed
                and is not here.
        """
        kernels: list[GpuKernel | TorchKernel] = []
        library = None
        for launch in meta["launches"]:
            if "library" not in launch:
                kernels.append(self._load(path, text, launch))
                continue
            library = library or self._torch()
            product = read_product(text, launch["kernel"])
            arrays = list(zip(_elements(meta, launch), launch["parameters"], strict=True))
            kernels.append(TorchKernel(library, product, launch["takes"], arrays))
        return GpuCode(self, kernels, library.name if library else "")

    def _torch(self) -> TorchLibrary:
        """What runs library kernels on this GPU, loaded when it is first needed.

        Raises:
            KernelError: torch is not here.
        """
        if self._library is None:
            with self.guard("start torch"):
                self._library = self._api.library(self.device_id)
        return self._library

    def _load(self, path: Path, text: str, launch: Mapping[str, Any]) -> GpuKernel:
        most, shared = self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"), launch["shared_bytes"]
        if shared > most:
            raise KernelError(
                f"{path}: a block asks for {shared} bytes of shared memory, the GPU has {most}"
            )
        function = self._api.function(text, str(path), launch["kernel"])
        signature = self._api.signature(launch)
        with self.guard(f"{path}: does not compile"):
            # one signature makes a dispatcher of one kernel, which takes addresses as they are
            dispatcher = self._api.cuda.jit(signature, launch_bounds=launch["threads"])(function)
            kernel = GpuKernel(dispatcher, launch, self.numba_stream)
            if kernel.facts["spills"]:  # see `compile.ONE_BLOCK`
                bounds = (launch["threads"], 1)
                dispatcher = self._api.cuda.jit(signature, launch_bounds=bounds)(function)
                kernel = GpuKernel(dispatcher, launch, self.numba_stream)
            if shared > SHARED_DEFAULT:
                self._allow_shared(dispatcher, shared)
            return kernel

    def _allow_shared(self, dispatcher: Any, size: int) -> None:  # noqa: ANN401 - numba's
        """Raise the kernel's limit of dynamic shared memory, which numba-cuda does not."""
        bindings = self._api.bindings
        kernel = next(iter(dispatcher.overloads.values()))
        handle = kernel._codelibrary.get_cufunc().handle  # noqa: SLF001 - there is no other way
        name = bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        if isinstance(handle, bindings.CUkernel):
            (status,) = bindings.cuKernelSetAttribute(name, size, handle, self.device_id)
        else:  # numba-cuda before 0.21
            (status,) = bindings.cuFuncSetAttribute(bindings.CUfunction(int(handle)), name, size)
        if int(status):
            raise KernelError(f"{size} bytes of shared memory are refused: {status!r}")

    def allocate(self, shape: tuple[int, ...], dtype: str) -> GpuMemory:
        """Bytes for an array.

        Raises:
            KernelError: the memory is full.
        """
        size = int(np.prod(shape, dtype=np.int64)) * dtype_of(dtype).itemsize
        with self.guard(f"allocate {size} bytes"):
            return GpuMemory(self._api.cuda.device_array(size, np.uint8))

    def copy_in(self, array: NDArray[Any], memory: Memory, stream: int) -> None:
        """Enqueue a copy from host memory."""
        assert isinstance(memory, GpuMemory)
        with self.guard("copy to the GPU"):
            memory.buffer.copy_to_device(flat_bytes(array), stream=self.numba_stream(stream))

    def copy_out(self, memory: Memory, array: NDArray[Any], stream: int) -> None:
        """Copy to host memory and wait for it."""
        assert isinstance(memory, GpuMemory)
        handle = self.numba_stream(stream)
        with self.guard("copy from the GPU"):
            memory.buffer.copy_to_host(flat_bytes(array), stream=handle)
            if handle:
                handle.synchronize()

    def new_array(self, shape: tuple[int, ...], dtype: str) -> object:
        """A device array of Numba's."""
        with self.guard("allocate a result"):
            made: object = self._api.cuda.device_array(shape, dtype_of(dtype))
            return made

    def await_stream(self, stream: int, other: int) -> None:
        """An event on `other` that `stream` waits for."""
        with self.guard("join streams"):
            event = self._api.cuda.event(timing=False)
            event.record(self.numba_stream(other))
            event.wait(self.numba_stream(stream))

    def timed(self, launch: Callable[[], None]) -> float:
        """Seconds by CUDA events."""
        with self.guard("run"):
            return self._clock.timed(launch)

    def flush(self) -> None:
        """Evict the L2 cache; enqueued."""
        with self.guard("flush the L2 cache"):
            self._clock.flush()

    def overheads(self) -> Facts:
        """What a launch costs the device and the host."""
        with self.guard("measure an empty kernel"):
            return self._clock.overheads()

    def numba_stream(self, handle: int) -> Any:  # noqa: ANN401 - numba's, or 0
        """Numba's object for a stream."""
        if handle not in self._streams:
            self._streams[handle] = self._api.cuda.external_stream(handle)
        return self._streams[handle]

    def gpu(self) -> Gpu:
        """The facts of this GPU, in the words of the table of those that are not at hand."""
        major, minor = tuple(self._device.compute_capability)[:2]
        arch = f"sm_{major}{minor}"
        known = GPUS.get(arch, GPUS["sm_90"])
        name = self._device.name
        # two transfers a clock; the clock is in kHz, the bus in bits
        transfers = 2e3 * self._attribute("MEMORY_CLOCK_RATE", 0)
        rate = transfers * self._attribute("GLOBAL_MEMORY_BUS_WIDTH", 0) / 8 / 1e9
        clock = self._attribute("CLOCK_RATE", 0) / 1e6
        return Gpu(
            name=name.decode() if isinstance(name, bytes) else str(name),
            arch=arch,
            sms=self._attribute("MULTIPROCESSOR_COUNT"),
            shared_bytes_sm=self._attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            shared_bytes_block=self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            threads_sm=self._attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
            blocks_sm=self._attribute("MAX_BLOCKS_PER_MULTIPROCESSOR", known.blocks_sm),
            fma_sm=known.fma_sm,
            mma_sm=known.mma_sm,
            clock_ghz=clock or known.clock_ghz,
            l2_bytes=self._attribute("L2_CACHE_SIZE"),
            dram_gbps=rate or known.dram_gbps,
            launch_s=known.launch_s,
        )

    def _attribute(self, name: str, default: int | None = None) -> int:
        """An attribute of the device; newer drivers may no longer tell some."""
        try:
            return int(getattr(self._device, name))
        except Exception:
            if default is None:
                raise
            return default

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Turn what numba-cuda and the driver raise into errors of ours."""
        try:
            yield
        except PrismError:
            raise
        except Exception as error:  # each layer below has exceptions of its own
            text = one_line(error)
            if self._is_lost():
                raise DeviceLostError(
                    f"{what}: the kernel broke the GPU for this process: {text}"
                ) from error
            raise KernelError(f"{what}: {text}") from error

    def _is_lost(self) -> bool:
        """Whether the device refuses all work from now on, as after an illegal access."""
        (status,) = self._api.bindings.cuCtxSynchronize()
        return int(status) not in _NOT_LOST


def _elements(meta: Mapping[str, Any], launch: Mapping[str, Any]) -> list[int]:
    """How many elements the arrays have that a kernel takes; no library takes the workspace."""
    arrays = [*meta["arguments"], *meta["outputs"], *meta["between"]]
    return [math.prod(arrays[k]["shape"]) for k in launch["takes"]]


@cache
def gpu_backend() -> GpuBackend:
    """The GPU at hand, one for the process.

    Raises:
        KernelError: there is none, or the `cuda` extra is missing; says what to do.
    """
    return GpuBackend(load_api())


def device_of(gpu: Gpu) -> Device:
    """A GPU as the tuner knows devices."""
    return Device(
        name=gpu.name,
        threads=gpu.sms * gpu.threads_sm,
        vector_bits=32 * WARP,
        l1_bytes=gpu.shared_bytes_sm,
        l2_bytes=gpu.l2_bytes,
        l3_bytes=0,
        stream_gbps=gpu.dram_gbps,
        kind="gpu",
        arch=gpu.arch,
        multiprocessors=gpu.sms,
    )


def _as_int(handle: Any) -> int:  # noqa: ANN401 - an integer, or what a binding makes of one
    return int(getattr(handle, "value", handle) or 0)
