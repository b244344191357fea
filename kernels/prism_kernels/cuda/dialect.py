"""What emitted CUDA source may say: the contract between emitter, compiler and simulator.

A kernel file is Python that three readers understand: a person, Numba (which compiles it), and the
lockstep simulator (which runs it, see `prism_kernels.lockstep`). It defines one function

    def kernel(in_x, in_w, out0, workspace):

or several (`kernel0`, `kernel1`, ..) that are launched one after the other, of statements that
assign (also `+=` and the like), loop (`for i in range(..)` with a positive step) or branch (`if`),
over these names and no others:

* its parameters: pointers, read and written by `load_*` and `store_*` at element indices only;
* `cuda.threadIdx.x`, `cuda.blockIdx.x`: grids and blocks have one dimension;
* `cuda.shared.array(0, f32, alignment=16)`: the block's dynamic shared memory, once per kernel;
  `cuda.local.array(n, f32)`: registers, for loops with literal bounds to unroll over;
* `u32`, `f32`: casts. Every sum of indices is wrapped in `u32`: plain literals are 64-bit, and cost
  registers (the same RMSNorm kernel on sm_90: 168, not 56);
* `INF`, `NAN`, `LOWEST`: float32 constants;
* the functions of `FUNCTIONS`, the statements of `VECTORS` and the collectives of `COLLECTIVES`.

Storage may be float32, float16 or bfloat16 (`DTYPES`); everything is computed in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

DTYPES: Mapping[str, int] = MappingProxyType({"float32": 4, "float16": 2, "bfloat16": 2})
"""Storage dtype -> bytes of an element; float16 and bfloat16 are read and written as uint16."""

CASTS = ("u32", "f32")
CONSTANTS = ("INF", "NAN", "LOWEST")
"""The float32 infinity, not a number, and the smallest finite number."""

FUNCTIONS: Mapping[str, int] = MappingProxyType(
    {
        # memory: (pointer, element index[, value])
        **{f"load_{dtype}": 2 for dtype in DTYPES},
        **{f"store_{dtype}": 3 for dtype in DTYPES},
        "atomic_add_float32": 3,
        # index arithmetic on u32
        "quotient": 2,
        "remainder": 2,
        "smaller": 2,
        # float32, NaN and infinities as NumPy has them
        "maximum": 2,
        "minimum": 2,
        "bound": 1,  # to the finite numbers; NaN stays
        "absolute": 1,
        "divide": 2,  # within 2 units in the last place
        "sqrt": 1,
        "exp": 1,
        "log": 1,
        "tanh": 1,
        "sigmoid": 1,
        "silu": 1,
        "gelu_tanh": 1,
        "gelu_erf": 1,
    }
)
"""Function of `prism_kernels.cuda.intrinsics` -> how many arguments it takes."""

VECTORS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        f"{action}{count}_{dtype}": (dtype, count)
        for action in ("load", "store")
        for dtype, size in DTYPES.items()
        for count in (2, 4, 8)
        if count * size <= 16
    }
)
"""Statement of `prism_kernels.cuda.vectors` -> dtype, count of neighbours it moves in one access.

`load4_float16(registers, at, pointer, index)` writes them, as float32, into a local array from `at`
on; `store4_float16(pointer, index, registers, at)` takes them from there. The index must be a
multiple of the count.
"""

COLLECTIVES: Mapping[str, int] = MappingProxyType(
    {
        # all threads of a block
        "syncthreads": 0,
        # all threads of a warp: (mask of all 32, value, lane mask or distance)
        "syncwarp": 0,
        "shfl_xor_sync": 3,
        "shfl_down_sync": 3,
        "shfl_up_sync": 3,
        "shfl_sync": 3,
        "any_sync": 2,
        "all_sync": 2,
        "ballot_sync": 2,
    }
)
"""Attribute of `cuda` -> how many arguments it takes. None may be reached by some threads only."""

FULL_MASK = 0xFFFFFFFF
WARP = 32
