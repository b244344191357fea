"""Arrays that live on a GPU, whoever made them: PyTorch, CuPy, and what speaks their protocols.

A kernel wants an address of C-contiguous elements and a stream; results come back in the library of
the inputs. It moves several elements at once, so the address must be a multiple of 16 bytes: arrays
are, and views that start somewhere inside one are copied, or refused. PyTorch and CuPy are asked in
their own words, since the protocols say less: PyTorch gives no `__cuda_array_interface__` for a
tensor that requires a gradient, and calls bfloat16 "<V2" there. Neither is imported: an array of
theirs exists only where they are loaded.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prism.errors import UsageError
from prism_kernels.cuda import dlpack

NewArray = Callable[[tuple[int, ...], str], object]
"""Makes an array on the GPU, of a shape and a dtype."""

ALIGNMENT = 16
"""Bytes that the address of an argument is a multiple of."""

_TYPES = {"<f2": "float16", "<f4": "float32", "<f8": "float64", "<V2": "bfloat16"}
"""Type string of `__cuda_array_interface__` -> dtype."""


@dataclass(frozen=True, slots=True)
class View:
    """A GPU array as a launch sees it."""

    address: int
    shape: tuple[int, ...]
    dtype: str
    device_id: int | None
    """The GPU it is on, where the array says so."""
    owner: object
    """Keeps the memory alive; a contiguous copy where the array was not."""


class Library(Protocol):
    """What makes arrays on a GPU."""

    def owns(self, value: object) -> bool:
        """Whether this is an array of the library's, on a GPU."""

    def stream(self, value: Any) -> int | None:  # noqa: ANN401 - one of its arrays
        """The stream that work on the array goes to; None where the library does not say."""

    def view(self, value: Any, stream: int, what: str) -> View:  # noqa: ANN401
        """The array, C-contiguous and aligned; a copy is made where it is not.

        Raises:
            UsageError: it cannot be read; `what` names it.
        """

    def empty(
        self,
        shape: tuple[int, ...],
        like: Any,  # noqa: ANN401
        new_array: NewArray,
    ) -> tuple[object, int]:
        """A new array of the library's own, of the device and dtype of `like`, and its address.

        Where the library makes none, `new_array` of the backend does.
        """


class Torch:
    """PyTorch tensors on a GPU."""

    def owns(self, value: object) -> bool:
        """Whether this is one."""
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(value, torch.Tensor) and bool(value.is_cuda)

    def stream(self, value: Any) -> int | None:  # noqa: ANN401
        """PyTorch's current stream on the tensor's device."""
        torch: Any = sys.modules["torch"]
        return int(torch.cuda.current_stream(value.device).cuda_stream)

    def view(self, value: Any, stream: int, what: str) -> View:  # noqa: ANN401
        """The tensor without its gradient."""
        del stream
        torch: Any = sys.modules["torch"]
        if value.layout is not torch.strided:
            raise UsageError(f"{what} is a tensor of layout {value.layout}: make it dense")
        tensor = value.detach().resolve_neg().contiguous()
        if tensor.data_ptr() % ALIGNMENT:
            tensor = tensor.clone()
        dtype = str(tensor.dtype).removeprefix("torch.")
        index = tensor.device.index
        return View(int(tensor.data_ptr()), tuple(tensor.shape), dtype, index, tensor)

    def empty(
        self,
        shape: tuple[int, ...],
        like: Any,  # noqa: ANN401
        new_array: NewArray,
    ) -> tuple[object, int]:
        """`torch.empty`."""
        del new_array
        torch: Any = sys.modules["torch"]
        made = torch.empty(shape, dtype=like.dtype, device=like.device)
        return made, int(made.data_ptr())


class Cupy:
    """CuPy arrays."""

    def owns(self, value: object) -> bool:
        """Whether this is one."""
        cupy = sys.modules.get("cupy")
        return cupy is not None and isinstance(value, cupy.ndarray)

    def stream(self, value: Any) -> int | None:  # noqa: ANN401
        """CuPy's current stream."""
        del value
        cupy: Any = sys.modules["cupy"]
        return int(cupy.cuda.get_current_stream().ptr)

    def view(self, value: Any, stream: int, what: str) -> View:  # noqa: ANN401
        """The array."""
        del stream, what
        cupy: Any = sys.modules["cupy"]
        array = cupy.ascontiguousarray(value)
        if array.data.ptr % ALIGNMENT:
            array = array.copy()
        # it makes a scalar an array of one element
        shape, device_id = tuple(value.shape), int(array.device.id)
        return View(int(array.data.ptr), shape, array.dtype.name, device_id, array)

    def empty(
        self,
        shape: tuple[int, ...],
        like: Any,  # noqa: ANN401
        new_array: NewArray,
    ) -> tuple[object, int]:
        """`cupy.empty`."""
        del new_array
        cupy: Any = sys.modules["cupy"]
        made = cupy.empty(shape, like.dtype)
        return made, int(made.data.ptr)


class CudaArrayInterface:
    """Anything else with `__cuda_array_interface__`, such as Numba's device arrays."""

    def owns(self, value: object) -> bool:
        """Whether this is one."""
        return _has(value, "__cuda_array_interface__")

    def stream(self, value: Any) -> int | None:  # noqa: ANN401
        """The stream that the interface names."""
        stream = value.__cuda_array_interface__.get("stream")
        return None if stream is None else int(stream)

    def view(self, value: Any, stream: int, what: str) -> View:  # noqa: ANN401
        """The array; one that is not contiguous cannot be copied by a protocol."""
        del stream
        interface = value.__cuda_array_interface__
        shape, kind = tuple(interface["shape"]), str(interface["typestr"])
        dtype = _TYPES.get(kind, kind)
        if interface.get("mask") is not None:
            raise UsageError(f"{what} is a masked array: fill it first")
        strides = interface.get("strides")
        if strides is not None and not _is_contiguous(shape, strides, int(kind[2:])):
            raise UsageError(f"{what} is not C-contiguous, and its library is not known: copy it")
        address = int(interface["data"][0])
        _require_aligned(address, shape, what)
        return View(address, shape, dtype, None, value)

    def empty(
        self,
        shape: tuple[int, ...],
        like: Any,  # noqa: ANN401
        new_array: NewArray,
    ) -> tuple[object, int]:
        """One of the backend's own."""
        kind = str(like.__cuda_array_interface__["typestr"])
        return _made(new_array, shape, _TYPES.get(kind, kind))


class Dlpack:
    """Anything else with `__dlpack__`, on a GPU."""

    def owns(self, value: object) -> bool:
        """Whether this is one."""
        given: Any = value
        if not (_has(value, "__dlpack__") and _has(value, "__dlpack_device__")):
            return False
        return int(given.__dlpack_device__()[0]) == dlpack.CUDA

    def stream(self, value: Any) -> int | None:  # noqa: ANN401
        """None: the producer is told our stream and takes care."""
        del value
        return None

    def view(self, value: Any, stream: int, what: str) -> View:  # noqa: ANN401
        """The array; one that is not contiguous cannot be copied by a protocol."""
        try:
            tensor = dlpack.read(value, stream)
        except Exception as error:  # whatever the producer may raise
            raise UsageError(f"{what} cannot be read through DLPack: {error}") from error
        if not _is_contiguous(tensor.shape, tensor.strides, 1):
            raise UsageError(f"{what} is not C-contiguous, and its library is not known: copy it")
        _require_aligned(tensor.address, tensor.shape, what)
        return View(tensor.address, tensor.shape, tensor.dtype, tensor.device_id, tensor.capsule)

    def empty(
        self,
        shape: tuple[int, ...],
        like: Any,  # noqa: ANN401
        new_array: NewArray,
    ) -> tuple[object, int]:
        """One of the backend's own."""
        return _made(new_array, shape, dlpack.read(like, 0).dtype)


LIBRARIES: tuple[Library, ...] = (Torch(), Cupy(), CudaArrayInterface(), Dlpack())
"""The first that owns an array speaks for it."""


def library_of(value: object) -> Library | None:
    """Who made an array on a GPU; None for anything else."""
    return next((library for library in LIBRARIES if library.owns(value)), None)


def _has(value: object, name: str) -> bool:
    """Whether an object has a protocol; asking may raise (a tensor that requires a gradient)."""
    try:
        return not isinstance(value, type) and hasattr(value, name)
    except Exception:  # a property of a stranger's
        return False


def _require_aligned(address: int, shape: Sequence[int], what: str) -> None:
    if address % ALIGNMENT and math.prod(shape) > 1:
        raise UsageError(
            f"{what} does not start at a multiple of {ALIGNMENT} bytes, and its library is not "
            "known: copy it"
        )


def _made(new_array: NewArray, shape: tuple[int, ...], dtype: str) -> tuple[object, int]:
    made: Any = new_array(shape, dtype)
    return made, int(made.__cuda_array_interface__["data"][0])


def _is_contiguous(shape: Sequence[int], strides: Sequence[int] | None, unit: int) -> bool:
    """Whether these strides, in `unit`, are those of C order; dims of one element have none."""
    if strides is None or math.prod(shape) == 0:
        return True
    expected = unit
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True
