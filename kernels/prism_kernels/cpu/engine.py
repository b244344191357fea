"""Machine code that goes with its kernel: each kernel file is compiled into an engine of its own.

Numba compiles everything into one LLVM engine and takes nothing out of it again. A process that
tunes, or that optimizes one program after the other, would keep the code of every kernel it ever
loaded, 0.7 MB for a small one, 3 MB for attention. So while a kernel file is run, Numba has another
engine, which the functions compiled then hold and which goes with the last of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite.binding import ffi, newpassmanagers  # type: ignore[import-untyped]  # no stubs
from numba.core.codegen import JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys


def _free_pass_managers() -> None:
    """Let llvmlite 0.50 free its pass managers, most of what a compilation leaves behind.

    They inherit from `ObjectRef` first, whose `_dispose` does nothing, so that the one written for
    them is never called. A release of llvmlite that mends it is left alone.
    """
    own = getattr(newpassmanagers, "NewPassManager", None)
    dispose = getattr(own, "_dispose", None)
    for kind in (newpassmanagers.ModulePassManager, newpassmanagers.FunctionPassManager):
        if dispose is not None and kind._dispose is ffi.ObjectRef._dispose:  # noqa: SLF001 - see above
            kind._dispose = dispose  # noqa: SLF001 - see above


_free_pass_managers()


@contextmanager
def own_engine() -> Iterator[None]:
    """Whatever Numba compiles in this block, in this thread, goes into a new engine.

    Other threads wait with compiling until the block is left, as they do for every compilation.
    """
    with global_compiler_lock:
        context = cpu_target.target_context
        rtsys.initialize(context)  # its functions, which are for all, must not be compiled in here
        kept = {
            name: getattr(context, name) for name in ("_internal_codegen", "cached_internal_func")
        }
        context._internal_codegen = JITCPUCodegen("prism_kernel")  # noqa: SLF001 - as `subtarget` does
        context.cached_internal_func = {}  # helpers of one engine do not serve another
        try:
            yield
        finally:
            for name, value in kept.items():
                setattr(context, name, value)
