"""What emitted CUDA source may say of tensor cores: packed words, matrices, copies under way.

The rest of the dialect is in `prism_kernels.cuda.dialect`. A *word* is an unsigned 32-bit number
that holds two neighbouring elements of float16 or bfloat16, the first in its low half; words lie in
`cuda.local.array(n, u32)`. A *fragment* is what one lane holds of a matrix that a warp multiplies,
in consecutive elements of a local array, laid out as PTX prescribes for `mma.sync`. With g = lane
// 4 and q = lane % 4, and pairs of depth in one word:

    left, 16 rows x 16 deep     (g, 2q) (g + 8, 2q) (g, 2q + 8) (g + 8, 2q + 8)      4 words
    right, 16 deep x 8 columns  (2q, g) (2q + 8, g)                                  2 words
    left, 16 rows x 8 deep      (g, q) (g + 8, q) (g, q + 4) (g + 8, q + 4)          4 float32
    right, 8 deep x 8 columns   (q, g) (q + 4, g)                                    2 float32
    totals, 16 rows x 8         (g, 2q) (g, 2q + 1) (g + 8, 2q) (g + 8, 2q + 1)      4 float32

The functions of `STATEMENTS` give nothing back: they write into local arrays or shared memory.
Indices of shared memory count float32 elements; a matrix' rows are 4 of them, 16 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PACKED = ("float16", "bfloat16")
"""Storage dtypes of which a word holds two elements."""

FETCHES: Mapping[str, tuple[str, int]] = MappingProxyType(
    {f"fetch{n}_{dtype}": (dtype, n) for dtype in PACKED for n in (1, 2, 4)}
)
"""Statement (words, at, pointer, index) -> dtype and count of the words it reads in one access.

The index must be a multiple of the elements, the pointer an argument that the kernel only reads.
"""

MULTIPLICATIONS = ("mma_float16", "mma_bfloat16", "mma_tf32")
"""(totals, at, left, i, right, j): add the product of two fragments to a third, exactly but for
float32 rounding; the last takes float32 numbers of 11 significant bits (see `as_tf32`)."""

MATRIX_LOADS = ("ldmatrix", "ldmatrix_transposed")
"""(words, at, shared, index): four matrices of 8 x 8 elements from shared memory to 4 words.

Lane l gives the index of row l % 8 of matrix l // 8, and gets of each matrix the word of row l // 4
that holds elements 2 (l % 4) and the next; `transposed`: of the transposed matrix.
"""

COPIES = tuple(f"cp_async_{dtype}" for dtype in PACKED)
"""(shared, at, pointer, index, count): start to copy 16 bytes, `count` elements and zeros after
them. Nobody may touch them until the thread has waited, nobody else until a barrier came too."""

WAITS: Mapping[str, int] = MappingProxyType({f"cp_wait{n}": n for n in range(4)})
"""Statement without arguments -> how many of the thread's latest groups of copies may stay under
way. `cp_commit` makes the copies since the last one a group."""

STATEMENTS: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(FETCHES, 4),
        **dict.fromkeys(MULTIPLICATIONS, 6),
        **dict.fromkeys(MATRIX_LOADS, 4),
        **dict.fromkeys(COPIES, 5),
        "cp_commit": 0,
        **dict.fromkeys(WAITS, 0),
    }
)
"""Function of `prism_kernels.cuda.tensor_cores` that is a statement -> its arguments."""

CONVERSIONS: Mapping[str, int] = MappingProxyType(
    {
        **{f"low_{dtype}": 1 for dtype in PACKED},  # a word's first element, as float32
        **{f"high_{dtype}": 1 for dtype in PACKED},
        **{f"pair_{dtype}": 2 for dtype in PACKED},  # two float32 numbers, rounded, as a word
        "low_halves": 2,  # of two words, as one
        "high_halves": 2,
        "as_tf32": 1,  # a float32 number rounded to 11 significant bits
        "tf32_rest": 1,  # what that took off, rounded likewise; 0 for infinities and NaN
    }
)
"""Function of `prism_kernels.cuda.tensor_cores` that gives a value -> its arguments."""

NAMES = frozenset({*STATEMENTS, *CONVERSIONS})
