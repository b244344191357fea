"""Reads a DLPack capsule: where a tensor of another library lies, in host memory or on a GPU.

NumPy reads capsules of host memory only, and of its own dtypes: bfloat16 is none of them. Readers
of CUDA capsules belong to libraries that may not be there. The structures are those of dlpack.h,
which are fixed for ever.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CPU, CUDA = 1, 2
"""kDLCPU, kDLCUDA."""

_NAMES = {(2, 16): "float16", (2, 32): "float32", (2, 64): "float64", (4, 16): "bfloat16"}
"""(type code, bits) -> dtype; 2 are floats, 4 bfloat16."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a capsule says; strides in elements, None for C order."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    device_type: int
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


def read(value: Any, **options: object) -> Tensor:  # noqa: ANN401 - anything with `__dlpack__`
    """The tensor of an object; `options` are those of `__dlpack__`, such as a stream.

    The capsule stays ours unconsumed: when it goes, it releases its tensor itself.

    Raises:
        ValueError: what the object gives is no capsule of a tensor.
    """
    capsule = value.__dlpack__(**options)
    tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    dims = range(tensor.ndim)
    kind = (tensor.code, tensor.bits)
    return Tensor(
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=tuple(tensor.shape[i] for i in dims),
        strides=tuple(tensor.strides[i] for i in dims) if tensor.strides else None,
        dtype=_NAMES.get(kind if tensor.lanes == 1 else (-1, 0), "an unknown dtype"),
        device_type=tensor.device_type,
        device_id=tensor.device_id,
        capsule=capsule,
    )


def bits_of(value: Any) -> NDArray[np.uint16] | None:  # noqa: ANN401 - anything at all
    """A view of a bfloat16 tensor in host memory as its bits; None for anything else.

    Raises whatever the producer does, such as for a tensor that requires a gradient.
    """
    if not hasattr(value, "__dlpack__") or not hasattr(value, "__dlpack_device__"):
        return None
    if int(value.__dlpack_device__()[0]) != CPU:
        return None
    tensor = read(value)
    if tensor.dtype != "bfloat16":
        return None
    return np.asarray(_Exported(tensor))


class _Exported:
    """A tensor of 16-bit elements as NumPy's array interface; arrays made of it keep it alive."""

    def __init__(self, tensor: Tensor) -> None:
        self._capsule = tensor.capsule
        strides = tensor.strides
        self.__array_interface__ = {
            "version": 3,
            "typestr": "<u2",
            "shape": tensor.shape,
            "strides": None if strides is None else tuple(2 * s for s in strides),
            "data": (tensor.address, False),
        }
