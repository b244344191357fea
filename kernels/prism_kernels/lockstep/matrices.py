"""What tensor-core instructions mean: packed words, and matrices that a warp has in fragments.

The layouts are those of `prism_kernels.cuda.tensor_dialect`. Products are exact in float32 and
added up in it; the GPU adds in another order and rounds a little less well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from prism_kernels.cuda.dialect import WARP
from prism_kernels.lockstep.copies import UNDER_WAY, UnderWayError
from prism_kernels.lockstep.functions import F16, F32, U32, Function, Kind, round_bfloat16
from prism_kernels.lockstep.memory import Values

Numbers = NDArray[np.float32]
Words = list[int]

HALF = 0xFFFF
TF32_BITS = 0xFFFFE000
"""The bits of a float32 that a product of tf32 numbers reads."""
_GROUP, _PLACE = np.arange(WARP) >> 2, np.arange(WARP) & 3


class MisalignedError(Exception):
    """An index that an access of several elements cannot start at."""


class NotNumberError(Exception):
    """An element of shared memory that is read as a number, and is none."""


class NotWordError(Exception):
    """An element of shared memory that is read as a packed word, and is none."""


# -- packed words


def _bits_float16(numbers: Numbers) -> NDArray[np.uint16]:
    return numbers.astype(F16).view(np.uint16)


def _bits_bfloat16(numbers: Numbers) -> NDArray[np.uint16]:
    """Of numbers that are bfloat16 already."""
    return (numbers.view(U32) >> U32(16)).astype(np.uint16)


def _numbers_float16(words: NDArray[np.uint32]) -> Numbers:
    """Two numbers for each word."""
    return words.view(F16).astype(F32)


def _numbers_bfloat16(words: NDArray[np.uint32]) -> Numbers:
    return (words.view(np.uint16).astype(U32) << U32(16)).view(F32)


BITS: Mapping[str, Callable[[Numbers], NDArray[np.uint16]]] = MappingProxyType(
    {"float16": _bits_float16, "bfloat16": _bits_bfloat16}
)
NUMBERS: Mapping[str, Callable[[NDArray[np.uint32]], Numbers]] = MappingProxyType(
    {"float16": _numbers_float16, "bfloat16": _numbers_bfloat16}
)


def packer(dtype: str) -> Callable[[Values, int, int, int], Words]:
    """What reads elements of a global array as words: (values, index, elements, how many count)."""
    bits = BITS[dtype]

    def packed(values: Values, index: int, elements: int, count: int) -> Words:
        if index % elements:
            raise MisalignedError(index)
        found = [values[i] for i in range(index, index + min(count, elements))]
        found += [F32(0.0)] * (elements - len(found))
        return bits(np.array(found, F32)).view(U32).tolist()  # type: ignore[no-any-return]

    return packed


def row_of(values: dict[int, Any], reads: dict[int, int], index: int, site: int) -> Words:
    """The row of a matrix that starts at an index of shared memory."""
    if index % 4:
        raise MisalignedError(index)
    reads.update(dict.fromkeys(range(index, index + 4), site))
    row = [values[i] for i in range(index, index + 4)]
    for i, word in enumerate(row, index):
        if type(word) is not int:
            raise (UnderWayError if word is UNDER_WAY else NotWordError)(i)
    return row


def not_number(value: object, index: int) -> NoReturn:
    """Say what an element of shared memory is that is no float32 number."""
    raise (UnderWayError if value is UNDER_WAY else NotNumberError)(index)


def _number(dtype: str, half: int) -> Function:
    unpacked = NUMBERS[dtype]

    def number(word: int) -> np.float32:
        return unpacked(np.array([word], U32))[half]  # type: ignore[no-any-return]

    return Function((Kind.INT,), Kind.FLOAT, number)


def _pair(dtype: str) -> Function:
    bits, is_short = BITS[dtype], dtype == "bfloat16"

    def pair(low: np.float32, high: np.float32) -> int:
        both = [round_bfloat16(low), round_bfloat16(high)] if is_short else [low, high]
        return int(bits(np.array(both, F32)).view(U32)[0])

    return Function((Kind.FLOAT, Kind.FLOAT), Kind.INT, pair)


def _low_halves(first: int, second: int) -> int:
    return (first & HALF) | (second & HALF) << 16


def _high_halves(first: int, second: int) -> int:
    return first >> 16 | second & ~HALF


def _as_tf32(x: np.float32) -> np.float32:
    """To the nearest number of 11 significant bits, ties away from zero."""
    if not np.isfinite(x):
        return x
    return U32((int(x.view(U32)) + 0x1000) & TF32_BITS).view(F32)


def _tf32_rest(x: np.float32) -> np.float32:
    """What rounding to tf32 took off."""
    return _as_tf32(F32(x - _as_tf32(x))) if np.isfinite(x) else F32(0.0)


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        **{f"low_{dtype}": _number(dtype, 0) for dtype in NUMBERS},
        **{f"high_{dtype}": _number(dtype, 1) for dtype in NUMBERS},
        **{f"pair_{dtype}": _pair(dtype) for dtype in NUMBERS},
        "low_halves": Function((Kind.INT, Kind.INT), Kind.INT, _low_halves),
        "high_halves": Function((Kind.INT, Kind.INT), Kind.INT, _high_halves),
        "as_tf32": Function((Kind.FLOAT,), Kind.FLOAT, _as_tf32),
        "tf32_rest": Function((Kind.FLOAT,), Kind.FLOAT, _tf32_rest),
    }
)
"""Function of `tensor_dialect.CONVERSIONS` -> its meaning."""

# -- matrices: what a warp does with the operands of its 32 lanes

Lanes = Sequence[tuple[Any, ...]]


def _added(left: Numbers, right: Numbers, lanes: Lanes) -> list[list[np.float32]]:
    """The totals of each lane, with the product of two matrices."""
    old = np.array([lane[2] for lane in lanes], F32)
    g, q = _GROUP, _PLACE
    places = (g, 2 * q), (g, 2 * q + 1), (g + 8, 2 * q), (g + 8, 2 * q + 1)
    totals = np.zeros((16, 8), F32)
    for k, place in enumerate(places):
        totals[place] = old[:, k]
    totals += left @ right
    return [list(lane) for lane in np.stack([totals[place] for place in places], axis=1)]


def _multiply_packed(dtype: str) -> Callable[[Lanes], list[list[np.float32]]]:
    unpacked = NUMBERS[dtype]

    def multiply(lanes: Lanes) -> list[list[np.float32]]:
        words = np.array([[*a, *b] for a, b, _ in lanes], U32)
        pairs = unpacked(words).reshape(WARP, 6, 2)
        left, right = np.zeros((16, 16), F32), np.zeros((16, 8), F32)
        g, q = _GROUP, _PLACE
        for half in (0, 1):
            for k, (row, depth) in enumerate(((0, 0), (8, 0), (0, 8), (8, 8))):
                left[g + row, 2 * q + half + depth] = pairs[:, k, half]
            for k, depth in enumerate((0, 8)):
                right[2 * q + half + depth, g] = pairs[:, 4 + k, half]
        return _added(left, right, lanes)

    return multiply


def _multiply_tf32(lanes: Lanes) -> list[list[np.float32]]:
    numbers = np.array([[*a, *b] for a, b, _ in lanes], F32)
    numbers = (numbers.view(U32) & U32(TF32_BITS)).view(F32)
    left, right = np.zeros((16, 8), F32), np.zeros((8, 8), F32)
    g, q = _GROUP, _PLACE
    for k, (row, depth) in enumerate(((0, 0), (8, 0), (0, 4), (8, 4))):
        left[g + row, q + depth] = numbers[:, k]
    right[q, g], right[q + 4, g] = numbers[:, 4], numbers[:, 5]
    return _added(left, right, lanes)


def _deal_matrices(lanes: Lanes, *, transposed: bool) -> list[Words]:
    """Rows of four matrices to words of each lane."""
    rows = np.array([row for (row,) in lanes], U32).view(np.uint16).reshape(4, 8, 8)
    if transposed:
        rows = rows.transpose(0, 2, 1)
    words = np.ascontiguousarray(rows).view(U32)  # matrix, row, pair
    return [[int(words[m, lane >> 2, lane & 3]) for m in range(4)] for lane in range(WARP)]


def _ldmatrix(lanes: Lanes) -> list[Words]:
    return _deal_matrices(lanes, transposed=False)


def _ldmatrix_transposed(lanes: Lanes) -> list[Words]:
    return _deal_matrices(lanes, transposed=True)


WARP_STATEMENTS: Mapping[str, Callable[[Lanes], Sequence[Any]]] = MappingProxyType(
    {
        "mma_float16": _multiply_packed("float16"),
        "mma_bfloat16": _multiply_packed("bfloat16"),
        "mma_tf32": _multiply_tf32,
        "ldmatrix": _ldmatrix,
        "ldmatrix_transposed": _ldmatrix_transposed,
    }
)
"""Name -> from the operands of each lane to what each writes."""
