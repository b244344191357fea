"""Reads a DLPack capsule: where a tensor of another library lies on the GPU.

NumPy reads capsules of host memory only, and readers of CUDA capsules belong to libraries that may
not be there. The structures are those of dlpack.h, which are fixed for ever.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

CUDA = 2
"""kDLCUDA."""

_LEGACY_STREAM = 1
"""DLPack's name for the default stream: 0 is ambiguous there."""

_NAMES = {(2, 16): "float16", (2, 32): "float32", (2, 64): "float64", (4, 16): "bfloat16"}
"""(type code, bits) -> dtype; 2 are floats, 4 bfloat16."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a capsule says; strides in elements, None for C order."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    device_id: int
    capsule: object
    """Keeps the memory alive."""


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def read(value: Any, stream: int) -> Tensor:  # noqa: ANN401 - anything with `__dlpack__`
    """The tensor of an object on a GPU, ready to be used on `stream`.

    The capsule stays ours unconsumed: when it goes, it releases its tensor itself.

    Raises:
        ValueError: what the object gives is no capsule of a tensor.
    """
    capsule = value.__dlpack__(stream=stream or _LEGACY_STREAM)
    tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    dims = range(tensor.ndim)
    kind = (tensor.code, tensor.bits)
    return Tensor(
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=tuple(tensor.shape[i] for i in dims),
        strides=tuple(tensor.strides[i] for i in dims) if tensor.strides else None,
        dtype=_NAMES.get(kind if tensor.lanes == 1 else (-1, 0), "an unknown dtype"),
        device_id=tensor.device_id,
        capsule=capsule,
    )
