"""Stand-ins for a GPU: a backend on host memory, the array libraries, and numba-cuda's surface.

`HostGpu` runs kernels in the lockstep simulator but takes addresses, as a GPU does: arrays of the
stand-in libraries lie in host memory, and results really come from what the launcher hands over.
"""

from __future__ import annotations

import ctypes
import warnings
from types import SimpleNamespace

import numpy as np
from kernels.fake_torch import FakeTorch

from prism.dtypes import dtype_of
from prism_kernels.cuda.gpu_api import Api
from prism_kernels.cuda.simulated import SimulatedBackend
from prism_kernels.cuda.torch_library import CudaDevice, TorchLibrary
from prism_kernels.lockstep import simulate

# --- a backend that takes addresses


def at(address, shape, dtype):
    """The array at an address."""
    size = int(np.prod(shape, dtype=int)) * dtype_of(dtype).itemsize
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype_of(dtype)).reshape(
        shape
    )


class HostCode:
    facts = {"registers": 32, "shared_bytes": 0, "spills": 0}  # noqa: RUF012 - a stand-in

    def __init__(self, text, meta, log, addresses):
        self.text, self.meta, self.log, self.addresses = text, meta, log, addresses

    def launch(self, memories, stream):
        self.log.append(("launch", stream))
        self.addresses[:] = [memory.address for memory in memories]
        slots = [*self.meta["arguments"], *self.meta["outputs"]]
        arrays = [
            at(memory.address, tuple(slot["shape"]), self.meta["dtype"])
            for slot, memory in zip(slots, memories, strict=False)
        ]
        taken = {k for launch in self.meta["launches"] for k in launch["takes"]}
        assert taken == set(range(len(memories)))
        first = len(self.meta["arguments"])
        simulate(self.text, self.meta, arrays[:first], arrays[first:])


class HostGpu(SimulatedBackend):
    """GPU 0, whose memory is the host's."""

    name = "cuda"
    stream = 5
    has_arrays = True
    clock = ""

    def __init__(self):
        super().__init__()
        self.log = []
        self.addresses = []  # of the memories of the latest launch

    def load(self, path, text, meta):
        return HostCode(text, meta, self.log, self.addresses)

    def new_array(self, shape, dtype):
        return Interface(np.empty(shape, dtype_of(dtype)))

    def await_stream(self, stream, other):
        self.log.append(("await", stream, other))


# --- array libraries


class TorchDtype:
    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"torch.{self.name}"

    def __eq__(self, other):
        return str(self) == str(other)

    __hash__ = None


class Tensor:
    """A PyTorch tensor on GPU `index`."""

    is_cuda = True
    layout = "strided"

    def __init__(self, array, index=0):
        self.array, self.device = array, SimpleNamespace(index=index)

    @property
    def shape(self):
        return self.array.shape

    @property
    def dtype(self):
        return TorchDtype(self.array.dtype.name)

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")

    def detach(self):
        return self

    resolve_neg = detach

    def contiguous(self):
        return Tensor(np.ascontiguousarray(self.array).reshape(self.shape), self.device.index)

    def clone(self):
        return Tensor(self.array.copy(), self.device.index)

    def data_ptr(self):
        return self.array.ctypes.data


class HostTensor(Tensor):
    """A PyTorch tensor in host memory."""

    is_cuda = False

    def __array__(self, dtype=None, copy=None):
        return self.array


TORCH_STREAM, CUPY_STREAM = 11, 22

TORCH = SimpleNamespace(
    Tensor=Tensor,
    strided="strided",
    empty=lambda shape, dtype, device: Tensor(np.empty(shape, dtype_of(dtype.name)), device.index),
    cuda=SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=TORCH_STREAM)),
)


class CupyArray:
    """A CuPy array on GPU `device_id`."""

    def __init__(self, array, device_id=0):
        self.array, self.device = array, SimpleNamespace(id=device_id)
        self.shape, self.dtype = array.shape, array.dtype
        self.data = SimpleNamespace(ptr=array.ctypes.data)

    def copy(self):
        return CupyArray(self.array.copy(), self.device.id)


CUPY = SimpleNamespace(
    ndarray=CupyArray,
    empty=lambda shape, dtype: CupyArray(np.empty(shape, dtype)),
    ascontiguousarray=lambda given: CupyArray(np.ascontiguousarray(given.array), given.device.id),
    cuda=SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=CUPY_STREAM)),
)


class Interface:
    """An array with nothing but `__cuda_array_interface__`."""

    def __init__(self, array, stream=None, **others):
        self.array, self.stream, self.others = array, stream, others

    @property
    def __cuda_array_interface__(self):
        contiguous = self.array.flags.c_contiguous
        return {
            "shape": self.array.shape,
            "typestr": self.array.dtype.str,
            "data": (self.array.ctypes.data, False),
            "strides": None if contiguous else self.array.strides,
            "stream": self.stream,
            "version": 3,
            **self.others,
        }


class _Tensor(ctypes.Structure):
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


_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))


class Dlpack:
    """An array with nothing but `__dlpack__`; `device_type` 2 is a GPU."""

    def __init__(self, array, device_type=2, device_id=0, offset=0):
        self.array, self.device, self.offset = array, (device_type, device_id), offset
        self.streams = []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        array, counts = self.array, ctypes.c_int64 * max(1, self.array.ndim)
        self.shape = counts(*array.shape)
        self.strides = counts(*(s // array.itemsize for s in array.strides))
        code = 4 if array.dtype.name == "bfloat16" else 2
        self.tensor = _Tensor(
            array.ctypes.data - self.offset, *self.device, array.ndim, code, 8 * array.itemsize, 1,
            self.shape, None if array.flags.c_contiguous else self.strides, self.offset,
        )  # fmt: skip
        return _new_capsule(ctypes.addressof(self.tensor), b"dltensor", None)


# --- numba-cuda


class Stream:
    def __init__(self, log, handle):
        self.log, self.handle = log, handle

    def synchronize(self):
        self.log.append(("synchronize", self.handle))


class Event:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def record(self, stream):
        self.log.append(("record", self.name, getattr(stream, "handle", stream)))

    def synchronize(self):
        self.log.append(("await event", self.name))

    def wait(self, stream):
        self.log.append(("wait", self.name, getattr(stream, "handle", stream)))


class Buffer:
    """Device memory of bytes."""

    def __init__(self, log, shape, dtype):
        self.log, self.array = log, np.zeros(shape, dtype)
        self.device_ctypes_pointer = ctypes.c_size_t(self.array.ctypes.data)

    def copy_to_device(self, array, stream):
        assert (array.dtype, array.ndim) == (np.uint8, 1)
        self.array[...] = array
        self.log.append(("copy in", getattr(stream, "handle", stream)))

    def copy_to_host(self, array, stream):
        array[...] = self.array
        self.log.append(("copy out", getattr(stream, "handle", stream)))


class Kernel:
    regs_per_thread, shared_mem_per_block, local_mem_per_thread = 40, 16, 8

    def __init__(self, handle):
        function = SimpleNamespace(handle=handle)
        self._codelibrary = SimpleNamespace(get_cufunc=lambda: function)


class Handle(int):
    """A CUkernel or CUfunction."""


class CUkernel(Handle):
    pass


class CUfunction(Handle):
    pass


def _function(text, where, kernel="kernel"):
    """Instead of a kernel's function what a log calls it."""
    del text
    return where if kernel == "kernel" else f"{where}:{kernel}"


class FakeNumba:
    """`numba.cuda`, its driver and `cuda.bindings.driver`; `log` says what they were asked."""

    def __init__(self, handle=None, **attributes):
        self.log, self.events, self.fails = [], 0, None
        self.status, self.attribute_status = 0, 0
        self.handle = CUkernel(77) if handle is None else handle
        self.torch = FakeTorch(self.log)
        self.device = SimpleNamespace(
            **{
                "id": 0,
                "name": b"NVIDIA H200",
                "compute_capability": (9, 0),
                "L2_CACHE_SIZE": 60 << 20,
                "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 << 10,
                "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 228 << 10,
                "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
                "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
                "MULTIPROCESSOR_COUNT": 132,
                "MEMORY_CLOCK_RATE": 3201000,
                "GLOBAL_MEMORY_BUS_WIDTH": 6144,
                "CLOCK_RATE": 1980000,
                **attributes,
            }
        )

    def library(self, number):
        return TorchLibrary(CudaDevice(self.torch, number))

    @property
    def api(self):
        def signature(launch):
            return launch["parameters"]

        return Api(self, self, self, _function, signature, self.library)

    def get_current_device(self):
        return self.device

    def stream(self):
        return Stream(self.log, 7)

    def external_stream(self, handle):
        self.log.append(("external stream", handle))
        return Stream(self.log, handle)

    def event(self, timing):
        self.events += 1
        return Event(self.log, f"event {self.events}{'' if timing else ' without time'}")

    def event_elapsed_time(self, start, end):
        self.log.append(("elapsed", start.name, end.name))
        return 0.25

    def device_array(self, shape, dtype):
        return Buffer(self.log, shape, dtype)

    def device_memset(self, buffer, value, size, stream):
        assert buffer.array.nbytes == size
        self.log.append(("memset", size, stream.handle))

    def jit(self, signature, launch_bounds=None):
        self.log.append(("jit", signature, launch_bounds))
        return lambda function: Dispatcher(self, str(function))

    # cuda.bindings.driver

    CUkernel, CUfunction = CUkernel, CUfunction
    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic shared bytes"
    )

    def cuKernelSetAttribute(self, name, value, handle, device):  # noqa: N802 - the driver's
        self.log.append(("kernel attribute", name, value, int(handle), device))
        return (self.attribute_status,)

    def cuFuncSetAttribute(self, handle, name, value):  # noqa: N802 - the driver's
        self.log.append(("function attribute", int(handle), name, value))
        return (self.attribute_status,)

    def cuCtxSynchronize(self):  # noqa: N802 - the driver's
        return (self.status,)


class Dispatcher:
    def __init__(self, numba, name):
        self.numba, self.name = numba, name
        self.overloads = {"the one": Kernel(numba.handle)}

    def __getitem__(self, key):
        blocks, threads, stream, shared_bytes = key
        if blocks < 128:
            warnings.warn("Grid size 1 will likely result in under-utilization", stacklevel=2)
        handle = getattr(stream, "handle", stream)

        def launch(*arguments):
            if self.numba.fails:
                raise self.numba.fails
            self.numba.log.append(
                ("launch", self.name, blocks, threads, handle, shared_bytes, arguments)
            )

        return launch
