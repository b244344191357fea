"""A stand-in for torch on a GPU: tensors over host memory, streams and products that it notes down.

It computes what torch would, from memory at addresses, so results really come from what is handed
over. It refuses what torch refuses: other types than one, `out=` of another shape or type.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

from prism.dtypes import dtype_of

POOL_STREAM = 99
"""What torch takes for a stream of handle 0 that it is told is another's."""

_KINDS = {"<f4": "float32", "<f2": "float16", "<i2": "int16"}


class HostTensor:
    """A tensor; `dtype` is the name."""

    def __init__(self, array, dtype):
        self.array, self.dtype = array, dtype

    @property
    def shape(self):
        return self.array.shape

    def as_strided(self, shape, strides):
        steps = [s * self.array.itemsize for s in strides]
        last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        assert last < self.array.size, "setStorage: out of bounds"
        return HostTensor(np.lib.stride_tricks.as_strided(self.array, shape, steps), self.dtype)

    def reshape(self, shape):
        return HostTensor(self.array.reshape(shape), self.dtype)

    def view(self, dtype):
        return HostTensor(self.array.view(dtype_of(dtype)), dtype)

    def to(self, dtype):
        return self if dtype == self.dtype else HostTensor(self.array.astype(dtype), dtype)

    def copy_(self, other):
        self.array[...] = other.array.astype(dtype_of(self.dtype))

    def __eq__(self, number):
        return self.array == number

    __hash__ = None


class FakeTorch:
    """The module; `log` says what it was asked for, `widening` whether mm has `out_dtype`."""

    __version__ = "2.99"
    float32, float16, bfloat16 = "float32", "float16", "bfloat16"

    def __init__(self, log, *, widening=True):
        self.log, self.current = log, None
        self.cuda = SimpleNamespace(
            ExternalStream=lambda handle, device: (handle or POOL_STREAM, device),
            default_stream=lambda device: (0, device),
            stream=self._stream,
        )
        wide = SimpleNamespace(dtype_out=self._widened if widening else self._not_there)
        self.ops = SimpleNamespace(aten=SimpleNamespace(mm=wide, bmm=wide))

    def device(self, kind, number):
        return f"{kind}:{number}"

    def as_tensor(self, memory, device):
        interface = memory.__cuda_array_interface__
        dtype = _KINDS[interface["typestr"]]
        (count,), (address, is_read_only) = interface["shape"], interface["data"]
        assert (device, is_read_only) == ("cuda:0", False)
        data = (ctypes.c_uint8 * (count * np.dtype(dtype).itemsize)).from_address(address)
        return HostTensor(np.frombuffer(data, dtype), dtype)

    def empty(self, shape, dtype, device):
        self.log.append(("torch empty", shape, dtype))
        return HostTensor(np.full(shape, np.nan, dtype_of(dtype)), dtype)

    def ones(self, shape, dtype, device):
        return HostTensor(np.ones(shape, dtype_of(dtype)), dtype)

    def mm(self, left, right, *, out):
        assert left.array.ndim == 2
        self._multiply("mm", left, right, left.dtype, out)

    def bmm(self, left, right, *, out):
        assert left.array.ndim == 3
        self._multiply("bmm", left, right, left.dtype, out)

    def _widened(self, left, right, out_dtype, *, out):
        assert left.dtype in {"float16", "bfloat16"}
        self._multiply("widened", left, right, out_dtype, out)

    def _not_there(self, left, right, out_dtype, *, out):
        raise NotImplementedError("Could not run 'aten::mm.dtype_out' on this backend")

    def _multiply(self, name, left, right, dtype, out):
        assert left.dtype == right.dtype, "expected both to have the same dtype"
        product = np.matmul(left.array.astype(np.float32), right.array.astype(np.float32))
        assert (out.dtype, out.shape) == (dtype, product.shape)
        out.array[...] = product.astype(dtype_of(dtype))
        self.log.append((f"torch {name}", self.current, left.dtype, out.dtype))

    @contextmanager
    def _stream(self, stream):
        before, self.current = self.current, stream[0]
        assert stream[1] == "cuda:0"
        try:
            yield
        finally:
            self.current = before
