"""The compiler front end that emitted kernels go through: numba-cuda, which is named here.

Kernels are Python over the names of `dialect` and `tensor_dialect`; what they call is written with
what this module hands out, and it alone says how a function becomes LTO-IR. So another front end
is another module with these names:

* `types`: `float32`, `uint32`, `uint16`, `void`, `CPointer`, `RangeType`, `UniTuple`;
* `intrinsic`: makes a function of the dialect from a signature and a builder of LLVM IR, inline PTX
  among it; it must compile where there is no GPU;
* `lower_builtin`, `cgutils`, `iternext_impl`, `RefType`: how loops count in 32 bits (`loops`);
* `to_ltoir`: a function, the types of its pointers and the launch bounds to LTO-IR.

numba-cuda is in maintenance; its successor numba-cuda-mlir builds MLIR and has inline PTX as a
function of its own: it would need the builders of `intrinsics`, `vectors` and `tensor_cores` anew,
their PTX stays. What launches compiled kernels is apart from this (`gpu_api`), and so is whether
numba-cuda is installed (`toolchain`).

Importing this module imports numba-cuda (the `cuda` extra).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, types
from numba.cuda import cgutils
from numba.cuda.core.imputils import RefType, iternext_impl
from numba.cuda.extending import intrinsic, lower_builtin

__all__ = [
    "RefType",
    "cgutils",
    "intrinsic",
    "iternext_impl",
    "lower_builtin",
    "to_ltoir",
    "types",
]


def to_ltoir(
    function: Callable[..., None],
    signature: Any,  # noqa: ANN401 - a Numba type
    capability: tuple[int, int],
    threads: int,
) -> bytes:
    """Compile a kernel for a compute capability and blocks of so many threads, at most.

    Whatever numba-cuda and NVVM raise comes through.
    """
    ltoir, _ = cuda.compile(
        function,
        signature,
        cc=capability,
        device=False,
        debug=False,  # whatever the environment asks of Numba
        opt=True,
        fastmath=False,
        abi="numba",
        output="ltoir",
        launch_bounds=threads,
    )
    return bytes(ltoir)
