"""What the launcher uses of numba-cuda and the CUDA driver, in one place, and why it may be absent.

numba-cuda is imported here and nowhere else at run time, late, so that whoever has no GPU needs
neither. Tests put stand-ins in place of the modules.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from prism.errors import KernelError, one_line
from prism_kernels.cuda.compile import kernel_function, kernel_signature
from prism_kernels.cuda.toolchain import missing
from prism_kernels.cuda.torch_library import TorchLibrary, library_on

LEAST_CAPABILITY = (8, 0)
"""Kernels use instructions that older GPUs lack (bfloat16)."""

INSTEAD = (
    "run on a machine with an NVIDIA GPU, or choose --target sm_90 (compiles, predicts) or "
    "--target lockstep (simulates)"
)


@dataclass(frozen=True, slots=True)
class Api:
    """Modules and functions of numba-cuda."""

    cuda: Any
    """`numba.cuda`."""
    driver: Any
    """`numba.cuda.cudadrv.driver`."""
    bindings: Any
    """`cuda.bindings.driver`."""
    function: Callable[..., Callable[..., None]] = kernel_function
    """(text of a kernel file, its name, which kernel) -> the function of that kernel."""
    signature: Callable[[Mapping[str, Any]], Any] = kernel_signature
    """A kernel's entry in the metadata -> its Numba signature."""
    library: Callable[[int], TorchLibrary] = library_on
    """Number of a GPU -> torch there, for kernels that are left to a library."""


@cache
def gpu_problem() -> str | None:
    """Why no kernel can run on a GPU here, and what to do; None where one can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return f"no NVIDIA driver is installed here (libcuda.so.1): {INSTEAD}"
    count = ctypes.c_int(0)
    if (status := driver.cuInit(0)) or (status := driver.cuDeviceGetCount(ctypes.byref(count))):
        return f"the NVIDIA driver finds no GPU that works (CUDA error {status}): {INSTEAD}"
    if not count.value:
        return f"the NVIDIA driver finds no GPU here: {INSTEAD}"
    for name in ("NUMBA_DISABLE_CUDA", "NUMBA_ENABLE_CUDASIM"):
        if os.environ.get(name, "0") != "0":
            return f"{name} is set, which keeps numba-cuda from the GPU: unset it"
    return missing()


def load_api() -> Api:
    """The real modules, once it is known that a GPU is there.

    Raises:
        KernelError: it is not, or numba-cuda cannot use it.
    """
    if problem := gpu_problem():
        raise KernelError(problem)
    try:
        api = Api(
            importlib.import_module("numba.cuda"),
            importlib.import_module("numba.cuda.cudadrv.driver"),
            importlib.import_module("cuda.bindings.driver"),
        )
        device = api.cuda.get_current_device()
        capability = tuple(device.compute_capability)[:2]
    except Exception as error:  # whatever a driver may raise
        raise KernelError(
            f"the GPU here cannot be used by numba-cuda ({one_line(error)}): {INSTEAD}"
        ) from error
    if capability < LEAST_CAPABILITY:
        found = ".".join(map(str, capability))
        raise KernelError(
            f"the GPU here has compute capability {found}, kernels need 8.0: {INSTEAD}"
        )
    return api


def configured(dispatcher: Any, blocks: int, threads: int, stream: Any, shared_bytes: int) -> Any:  # noqa: ANN401 - numba's
    """A dispatcher ready to be called with the kernel's arguments."""
    with warnings.catch_warnings():
        # numba-cuda warns of every grid under 128 blocks: whether it is worth it, the tuner sees
        warnings.simplefilter("ignore")
        return dispatcher[blocks, threads, stream, shared_bytes]
