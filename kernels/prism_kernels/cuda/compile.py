"""Compiles an emitted CUDA kernel without a GPU: source -> LTO-IR -> cubin, and what it needs.

numba-cuda compiles for a given architecture, nvJitLink links and reports registers, shared memory
and spills; no driver is asked. Fast-math flags stay off, so that NaN stays NaN; products and sums
are contracted, which both do by default. Registers are bounded by the launch bounds alone, so that
the block always launches.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from prism.errors import KernelError, one_line
from prism.record import digest
from prism_kernels.cuda.toolchain import require_cuda

ONE_BLOCK = ("-Xptxas=--minnctapersm=1",)
"""Link options for a kernel that spills: by itself ptxas saves registers for more blocks per SM."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code of one kernel for one architecture. Sizes in bytes, per thread but `shared`."""

    arch: str
    entry: str
    """The kernel's name in the cubin."""
    registers: int
    shared_bytes: int
    """Static shared memory of a block, beside what the launch asks for."""
    stack_bytes: int
    """Local memory: arrays that are not in registers, and spills."""
    spill_store_bytes: int
    spill_load_bytes: int
    front_s: float
    """Seconds for source to LTO-IR."""
    link_s: float
    """Seconds for LTO-IR to cubin."""
    cubin: bytes

    @property
    def spills(self) -> int:
        """Bytes per thread that registers did not hold: arrays in local memory count too."""
        return max(self.stack_bytes, self.spill_store_bytes, self.spill_load_bytes)


def compile_kernel(
    text: str, launch: Mapping[str, Any], arch: str, path: Path | None = None
) -> Compiled:
    """Compile one kernel of a kernel file for an architecture such as `sm_90`.

    `launch` is its entry in the metadata. The text is run: it must be one that Prism emitted.
    `path` is the file it stands in.

    Raises:
        KernelError: the `cuda` extra is missing, or the kernel does not compile.
    """
    require_cuda()
    where = "the kernel" if path is None else str(path)
    function = kernel_function(text, where, launch["kernel"])
    start = time.perf_counter()
    ltoir = _to_ltoir(function, launch, arch, where)
    middle = time.perf_counter()
    compiled = _linked_for(ltoir, arch, where, middle - start)
    if compiled.spills:
        again = _linked_for(ltoir, arch, where, middle - start, *ONE_BLOCK)
        compiled = min(compiled, again, key=lambda c: c.spills)
    return replace(compiled, link_s=time.perf_counter() - middle)


def _linked_for(ltoir: bytes, arch: str, where: str, front_s: float, *options: str) -> Compiled:
    cubin, log = _link(ltoir, arch, where, *options)
    return Compiled(arch=arch, **_read_log(log, where), front_s=front_s, link_s=0.0, cubin=cubin)


def kernel_ptx(text: str, launch: Mapping[str, Any], arch: str, path: Path | None = None) -> str:
    """The PTX that becomes the cubin, to be read.

    Raises:
        KernelError: as `compile_kernel`.
    """
    require_cuda()
    where = "the kernel" if path is None else str(path)
    function = kernel_function(text, where, launch["kernel"])
    ltoir = _to_ltoir(function, launch, arch, where)
    with _linked(ltoir, arch, where, "-ptx") as (library, handle):
        ptx = bytearray(library.get_linked_ptx_size(handle))
        library.get_linked_ptx(handle, ptx)
    return _text(ptx)


def kernel_function(text: str, where: str, kernel: str = "kernel") -> Callable[..., None]:
    """A Python function of a kernel file, its loops ready for a GPU (`prism_kernels.cuda.loops`).

    Raises:
        KernelError: the `cuda` extra is missing, the text cannot be run, or has no such kernel.
    """
    require_cuda()
    loops = importlib.import_module("prism_kernels.cuda.loops")
    module = ModuleType(f"prism_kernel_{digest(text)[:16]}")
    try:
        tree, names = loops.count_in_32_bits(ast.parse(text, where))
        module.__dict__.update(names)
        exec(compile(tree, where, "exec"), module.__dict__)  # emitted by us
        function: Callable[..., None] = module.__dict__[kernel]
    except Exception as error:
        raise KernelError(f"{where}: not a kernel file: {one_line(error)}") from error
    return function


def kernel_signature(launch: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a Numba type
    """The type of the kernel: nothing back, a pointer for each parameter."""
    intrinsics = importlib.import_module("prism_kernels.cuda.intrinsics")
    types = importlib.import_module("prism_kernels.cuda.frontend").types
    return types.void(*(intrinsics.pointer_to(dtype) for dtype in launch["parameters"]))


def _capability(arch: str) -> tuple[int, int]:
    if not re.fullmatch(r"sm_\d{2,3}", arch):
        raise KernelError(f"{arch!r} is no architecture; one is called sm_90")
    return divmod(int(arch.removeprefix("sm_")), 10)


def _to_ltoir(
    function: Callable[..., None], launch: Mapping[str, Any], arch: str, where: str
) -> bytes:
    frontend = importlib.import_module("prism_kernels.cuda.frontend")
    capability = _capability(arch)
    try:
        ltoir: bytes = frontend.to_ltoir(
            function, kernel_signature(launch), capability, launch["threads"]
        )
    except Exception as error:  # Numba and NVVM have many, none of ours
        raise KernelError(f"{where}: does not compile for {arch}: {one_line(error)}") from error
    return ltoir


@contextlib.contextmanager
def _linked(ltoir: bytes, arch: str, where: str, *options: str) -> Iterator[tuple[Any, int]]:
    """NvJitLink's binding and a handle of the linked code; its errors inside are ours outside."""
    library = importlib.import_module("cuda.bindings.nvjitlink")
    options = (f"-arch={arch}", "-lto", *options)
    try:
        handle = library.create(len(options), list(options))
    except library.nvJitLinkError as error:
        raise KernelError(f"{where}: cannot link for {arch}: {one_line(error)}") from error
    try:
        library.add_data(handle, library.InputType.LTOIR, ltoir, len(ltoir), "kernel")
        library.complete(handle)
        yield library, handle
    except library.nvJitLinkError as error:
        log = bytearray(library.get_error_log_size(handle))
        library.get_error_log(handle, log)
        words = " ".join(_text(log).split())[:300]
        raise KernelError(
            f"{where}: does not link for {arch}: {one_line(error)}: {words}"
        ) from error
    finally:
        library.destroy(handle)


def _link(ltoir: bytes, arch: str, where: str, *options: str) -> tuple[bytes, str]:
    """The cubin, and what nvJitLink says about it."""
    with _linked(ltoir, arch, where, "-verbose", *options) as (library, handle):
        cubin = bytearray(library.get_linked_cubin_size(handle))
        library.get_linked_cubin(handle, cubin)
        log = bytearray(library.get_info_log_size(handle))
        library.get_info_log(handle, log)
    return bytes(cubin), _text(log)


def _text(log: bytearray) -> str:
    return log.decode(errors="replace").rstrip("\0")


_FACTS = {
    "entry": r"Compiling entry function '([^']+)'",
    "registers": r"Used (\d+) registers",
    "shared_bytes": r"(\d+) bytes smem",
    "stack_bytes": r"(\d+) bytes stack frame",
    "spill_store_bytes": r"(\d+) bytes spill stores",
    "spill_load_bytes": r"(\d+) bytes spill loads",
}


def _read_log(log: str, where: str) -> dict[str, Any]:
    """The facts in nvJitLink's log, by the names of `Compiled`."""
    facts: dict[str, Any] = {}
    for name, pattern in _FACTS.items():
        found = re.findall(pattern, log)
        if name == "shared_bytes" and not found:
            found = ["0"]  # said only where there is some
        if len(found) != 1:
            raise KernelError(f"{where}: nvJitLink says nothing of its {name}: {log.strip()[:300]}")
        facts[name] = found[0] if name == "entry" else int(found[0])
    return facts
