"""torch's matmul (cuBLAS) for the kernels of a graph that are left to a library.

It runs on the stream of our kernels and on their memory: addresses become tensors without a copy,
and the result is written in place (`out=`). torch is imported here and nowhere else at run time,
late, when the first such kernel is planned or loaded.

Products are computed as torch is told to: of half types on tensor cores with float32 accumulation,
of float32 in float32. TF32 is off in torch unless the user switches it on, and a switch of the
whole process is not for us to touch; a kernel was tuned and checked with what torch does by itself.
Where types differ (a tensor between kernels is float32) float32 copies are multiplied.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol

from prism.errors import KernelError, one_line
from prism_kernels.cuda.product import Matrices, Product

CHOICE = "PRISM_CUDA_LIBRARY"
"""Variable that decides whether kernels are left to a library: `torch` or `none`."""

MOST_PREPARED = 64
"""Sets of addresses whose tensors are kept."""

_STORED: Mapping[str, str] = MappingProxyType(
    {"float32": "<f4", "float16": "<f2", "bfloat16": "<i2"}
)
"""Dtype -> type string of `__cuda_array_interface__`, which has no bfloat16: its bits."""


def switched() -> str | None:
    """What the user says about libraries: `torch`, `none`, or nothing.

    Raises:
        KernelError: something else.
    """
    chosen = os.environ.get(CHOICE, "").strip().lower()
    if chosen not in {"", "torch", "none"}:
        raise KernelError(f"{CHOICE} is {chosen!r}: it may be torch or none")
    return chosen or None


def switched_off() -> str | None:
    """Why no kernel is left to a library, whatever is installed; None where one may be."""
    try:
        is_off = switched() == "none"
    except KernelError as error:
        return str(error)
    return f"a kernel is left to a library, and {CHOICE}=none forbids it" if is_off else None


@cache
def torch_problem() -> str | None:
    """Why torch cannot run a kernel on the GPU here, and what to do; None where it can."""
    what = "a kernel is left to a library, which on a GPU is torch"
    if not _is_installed():
        return f"{what}, and torch is not installed: pip install torch"
    try:
        torch = importlib.import_module("torch")
        if torch.version.cuda is None:
            return f"{what}, and the torch here is built without CUDA: install one that is not"
        if not torch.cuda.is_available():
            return f"{what}, and torch sees no GPU here"
    except Exception as error:  # whatever importing a package of that size may raise
        return f"{what}, and torch cannot be imported ({one_line(error)})"
    return None


def expectation_problem() -> str | None:
    """Why torch is not expected on a machine that is not here; None where it is.

    It is where it is installed on the machine that plans, since people set up both alike; the
    variable says otherwise. torch is not imported for that.
    """
    if (off := switched_off()) is not None:
        return off
    if switched() == "torch" or _is_installed():
        return None
    return (
        "a kernel is left to a library, which on a GPU is torch: it is not installed here and so "
        f"not expected there; {CHOICE}=torch says that it will be"
    )


def _is_installed() -> bool:
    """Whether torch is there; it is not imported."""
    return "torch" in sys.modules or importlib.util.find_spec("torch") is not None


class Device(Protocol):
    """Where torch multiplies."""

    torch: Any
    """The module."""
    place: Any
    """The `torch.device`."""

    def tensor(self, address: int, elements: int, dtype: str) -> Any:  # noqa: ANN401 - a tensor
        """The elements at an address, in one dimension; no copy."""

    def on(self, stream: int) -> AbstractContextManager[Any]:
        """Within it, work goes to the stream with this handle."""


@dataclass(frozen=True, slots=True)
class _Interface:
    """Memory as `__cuda_array_interface__` has it."""

    address: int
    elements: int
    kind: str

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.elements,),
            "typestr": self.kind,
            "data": (self.address, False),
            "strides": None,
            "version": 2,
        }


class CudaDevice:
    """The GPU with this number."""

    def __init__(self, torch: Any, number: int) -> None:  # noqa: ANN401 - the module
        self.torch = torch
        self.place = torch.device("cuda", number)
        self._streams: dict[int, Any] = {}

    def tensor(self, address: int, elements: int, dtype: str) -> Any:  # noqa: ANN401 - a tensor
        """Through `__cuda_array_interface__`."""
        memory = _Interface(address, elements, _STORED[dtype])
        made = self.torch.as_tensor(memory, device=self.place)
        return made.view(self.torch.bfloat16) if dtype == "bfloat16" else made

    def on(self, stream: int) -> AbstractContextManager[Any]:
        """A context of torch's, for a stream that numba-cuda or torch made."""
        cuda = self.torch.cuda
        if stream not in self._streams:
            # a handle of 0 would make `ExternalStream` take a stream of torch's own
            self._streams[stream] = (
                cuda.ExternalStream(stream, device=self.place)
                if stream
                else cuda.default_stream(self.place)
            )
        entered: AbstractContextManager[Any] = cuda.stream(self._streams[stream])
        return entered


def library_on(number: int) -> TorchLibrary:
    """What multiplies on the GPU with this number.

    Raises:
        KernelError: it is not installed, or sees no GPU; or the user forbids it.
    """
    problem = switched_off() or torch_problem()
    if problem is not None:
        raise KernelError(problem)
    return TorchLibrary(CudaDevice(importlib.import_module("torch"), number))


class TorchLibrary:
    """torch on one device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.name = f"torch {device.torch.__version__}"
        self._widens: dict[str, bool] = {}

    def types(self, left: str, right: str, out: str) -> tuple[Any, Any]:
        """The torch types to multiply in and into, for operands and a result that are stored so."""
        torch = self.device.torch
        is_direct = left == right and (out == left or (out == "float32" and self._widened(left)))
        names = (left, out) if is_direct else ("float32", "float32")
        return getattr(torch, names[0]), getattr(torch, names[1])

    def _widened(self, dtype: str) -> bool:
        """Whether torch multiplies a half type into float32 results here (from 2.8 on, on GPUs).

        It is tried, once, with a wait for the result: when a kernel is loaded and not in a run.
        """
        if dtype not in self._widens:
            torch, place = self.device.torch, self.device.place
            try:
                ones = torch.ones((16, 16), dtype=getattr(torch, dtype), device=place)
                out = torch.empty((16, 16), dtype=torch.float32, device=place)
                torch.ops.aten.mm.dtype_out(ones, ones, torch.float32, out=out)
                self._widens[dtype] = bool((out == 16).all())
            except (AttributeError, RuntimeError):
                self._widens[dtype] = False
        return self._widens[dtype]


class TorchKernel:
    """A library's kernel of a file, ready to be launched."""

    def __init__(
        self,
        library: TorchLibrary,
        product: Product,
        takes: Sequence[int],
        arrays: Sequence[tuple[int, str]],
    ) -> None:
        """`arrays` are the elements and the dtype of each array that it `takes`."""
        self._library = library
        self._product = product
        self.takes = takes
        self._arrays = arrays
        self._types = library.types(*(arrays[m.parameter][1] for m in product.operands))
        self._prepared: dict[tuple[int, ...], Callable[[], None]] = {}

    def launcher(self, stream: int) -> Callable[..., None]:
        """What enqueues it on a stream, called with the addresses of its arrays."""

        def launch(*addresses: int) -> None:
            multiply = self._prepared.get(addresses)
            with self._library.device.on(stream):
                if multiply is None:
                    multiply = self._prepare(addresses)
                multiply()

        return launch

    def _prepare(self, addresses: tuple[int, ...]) -> Callable[[], None]:
        """The product of the arrays at these addresses; kept, as arrays stay where they are."""
        if len(self._prepared) == MOST_PREPARED:
            self._prepared.clear()
        device = self._library.device
        tensors = [
            device.tensor(address, *array)
            for address, array in zip(addresses, self._arrays, strict=True)
        ]
        views = [_view(tensors[m.parameter], m) for m in self._product.operands]
        self._prepared[addresses] = _multiplication(device, self._product, views, *self._types)
        return self._prepared[addresses]


def _view(tensor: Any, value: Matrices) -> Any:  # noqa: ANN401 - tensors
    """The tensor as its axes are, or as matrices where each group is one axis."""
    if value.is_strided:
        return tensor.as_strided(value.shape, value.strides)
    extents, strides = zip(*value.axes, strict=True)
    return tensor.as_strided(extents, strides)


def _multiplication(
    device: Device,
    product: Product,
    views: Sequence[Any],
    computed: Any,  # noqa: ANN401 - torch's
    into: Any,  # noqa: ANN401 - torch's
) -> Callable[[], None]:
    """What multiplies; copies are made when it is called, since what is copied changes."""
    torch, shape, out = device.torch, product.out.shape, views[2]
    multiply = _multiplier(torch, computed, into, is_one=len(shape) == 2)
    left = _operand(views[0], product.left, computed)
    right = _operand(views[1], product.right, computed)
    if product.out.is_strided and out.dtype == into:
        return lambda: multiply(left(), right(), out)

    def run() -> None:
        whole = torch.empty(shape, dtype=into, device=device.place)
        multiply(left(), right(), whole)
        out.copy_(whole.reshape(out.shape))

    return run


def _operand(view: Any, value: Matrices, computed: Any) -> Callable[[], Any]:  # noqa: ANN401
    """The matrices, copied where they are of another type or no strides describe them."""
    if value.is_strided and view.dtype == computed:
        return lambda: view
    return lambda: view.reshape(value.shape).to(computed)


def _multiplier(
    torch: Any,  # noqa: ANN401 - the module
    computed: Any,  # noqa: ANN401 - torch's
    into: Any,  # noqa: ANN401 - torch's
    *,
    is_one: bool,
) -> Callable[[Any, Any, Any], None]:
    """What multiplies one pair of matrices, or many, into a third."""
    if into == computed:
        plain = torch.mm if is_one else torch.bmm
        return lambda a, b, c: plain(a, b, out=c)
    operators = torch.ops.aten
    widening = (operators.mm if is_one else operators.bmm).dtype_out
    return lambda a, b, c: widening(a, b, into, out=c)
