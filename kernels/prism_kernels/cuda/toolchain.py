"""Is what compiles CUDA kernels installed? It needs neither a GPU nor a driver, only the extra.

numba-cuda makes LLVM IR and NVVM turns it into LTO-IR; nvJitLink makes the cubin and reports what
it needs. All are wheels of the `cuda` extra, where a part may be missing on its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from prism.errors import KernelError, one_line, to_install

INSTALL = to_install("cuda")

SIMULATOR = "NUMBA_ENABLE_CUDASIM"

_DISTRIBUTIONS = (
    "numba",
    "llvmlite",
    "numba-cuda",
    "cuda-bindings",
    "nvidia-nvvm",
    "nvidia-nvjitlink",
    "nvidia-cuda-nvcc-cu12",  # holds NVVM in CUDA 12
    "nvidia-nvjitlink-cu12",
)


@cache
def require_cuda() -> None:
    """Refuse to go on without the `cuda` extra.

    Raises:
        KernelError: says which part is missing, and how to install it.
    """
    if importlib.util.find_spec("numba_cuda") is None:  # numba has an old `numba.cuda` of its own
        raise KernelError(f"CUDA kernels need numba-cuda, which is not installed: {INSTALL}")
    if os.environ.get(SIMULATOR, "0") != "0":
        raise KernelError(f"{SIMULATOR} is set, which keeps numba-cuda from compiling: unset it")
    for module, part in (("nvvm", "NVVM"), ("nvjitlink", "nvJitLink")):
        try:
            importlib.import_module(f"cuda.bindings.{module}").version()
        except Exception as error:  # the loader has exceptions of its own
            raise KernelError(
                f"CUDA kernels need {part}, which cannot be loaded ({one_line(error)}): {INSTALL}"
            ) from error
    try:
        _import_numba_cuda()
    except Exception as error:
        raise KernelError(
            f"numba-cuda cannot be imported ({one_line(error)}): {INSTALL}"
        ) from error


def _import_numba_cuda() -> None:
    """Import what a first compilation would, despite NumPy 2.5.

    numba-cuda 0.30 names `np.row_stack` while it is imported, which NumPy 2.5 has no more, and uses
    what it deprecates; its makers will not follow NumPy any further (numba-cuda issue 907).
    """
    is_lent = not hasattr(np, "row_stack")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            if is_lent:
                np.row_stack = np.vstack  # type: ignore[attr-defined]  # noqa: NPY201 - see above
            importlib.import_module("numba.cuda.extending")
            importlib.import_module("numba.cuda.np.arrayobj")
        finally:
            if is_lent:
                del np.row_stack  # type: ignore[attr-defined]  # noqa: NPY201 - see above


def missing() -> str | None:
    """Why CUDA kernels cannot be compiled here, or None."""
    try:
        require_cuda()
    except KernelError as error:
        return str(error)
    return None


@cache
def toolchain_versions() -> tuple[tuple[str, str], ...]:
    """What a cubin depends on beside its source."""
    found = []
    for name in _DISTRIBUTIONS:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    require_cuda()
    for library in ("nvvm", "nvjitlink"):  # which may be the system's, not a wheel's
        numbers = importlib.import_module(f"cuda.bindings.{library}").version()
        found.append((library, ".".join(map(str, numbers))))
    return tuple(found)
