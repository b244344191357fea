"""A loaded CUDA kernel: arrays brought to where it runs, launches, results brought back.

Only sealed files are loaded (`prism_kernels.seal`), and compiled anew in each process. What runs
them is a backend (`prism_kernels.cuda.backend`): a GPU, or the lockstep simulator.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism.dtypes import TOLERANCES
from prism.errors import SizeError, UsageError
from prism_kernels.cuda.arrays import View, library_of
from prism_kernels.cuda.backend import Backend, Code, Facts, Memory, flat_bytes
from prism_kernels.cuda.runtime import runtime_digest
from prism_kernels.seal import read_sealed
from prism_kernels.signature import Array, Signature, Slot

MOST_NUMBERS = 64
"""Plain numbers kept on the GPU."""


def load_cuda_kernel(
    path: Path, meta: dict[str, Any], backend: Backend, predicted_s: float | None = None
) -> CudaKernel:
    """Compile a sealed kernel file for a backend.

    Raises:
        KernelError: it is not sealed by this user, was changed, does not compile, or asks for more
            than the backend has.
    """
    text = read_sealed(path, meta, runtime_digest())
    return CudaKernel(backend, backend.load(path, text, meta), meta, predicted_s)


class CudaKernel:
    """A compiled kernel file (`prism.protocols.Kernel`): one kernel, or several in a row."""

    def __init__(
        self,
        backend: Backend,
        code: Code,
        meta: Mapping[str, Any],
        predicted_s: float | None = None,
    ) -> None:
        self._backend = backend
        self._code = code
        self._signature = Signature.of(meta)
        self._dtype: str = meta["dtype"]
        self._program: str = meta["program"]
        self._workspace_elements: int = meta["workspace_elements"]
        self._between = [tuple(tensor["shape"]) for tensor in meta["between"]]
        self._scratch: dict[int, tuple[Memory, ...]] = {}
        self._numbers: dict[bytes, Memory] = {}
        self._turn = threading.Lock()
        clock = {"clock": backend.clock} if backend.clock else {}
        self.facts: Facts = {**code.facts, **backend.overheads(), **clock}
        self.predicted_s = predicted_s

    def takes(self, value: object) -> bool:
        """Whether this is an array on the GPU."""
        return self._backend.has_arrays and library_of(value) is not None

    def direct(self, given: Sequence[object]) -> tuple[Any, ...] | None:
        """Nothing: to launch is what a call takes."""
        del given
        return None

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:  # noqa: ANN401 - see prism.protocols
        """Run on the program's arguments; fresh outputs.

        NumPy arrays give NumPy arrays. Arrays on the GPU give arrays of their own library there,
        without waiting for the kernel: it is enqueued on the stream of the arguments.

        Raises:
            KernelError: NumPy arrays of a wrong number, shape, dtype or layout.
            UsageError: GPU arrays of another dtype or device, or mixed with others.
            SizeError: GPU arrays of another shape.
        """
        if any(map(self.takes, arrays)):
            return self._on_device(arrays)
        self._signature.check_arguments(arrays)
        outputs = tuple(np.empty(o.shape, self._signature.dtype) for o in self._signature.outputs)
        bound = self._bound(arrays, outputs)
        bound.run()
        bound.finish()
        return outputs

    def run_into(self, arrays: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run with the caller's output arrays, writing every element.

        What the kernel does to its arguments shows in the caller's arrays, as if it ran on them.

        Raises:
            KernelError: as for `bind`.
        """
        bound = self.bind(arrays, outputs)
        bound.run()
        bound.finish()
        bound.restore(arrays)

    def bind(self, arrays: Sequence[Array], outputs: Sequence[Array]) -> BoundCudaKernel:
        """The kernel on copies of the caller's arrays; `finish` brings the outputs back.

        Raises:
            KernelError: wrong number, shape, dtype or layout; an output that shares memory with
                another array or cannot be written.
        """
        self._signature.check_arguments(arrays)
        self._signature.check_outputs(arrays, outputs)
        bound = self._bound(arrays, outputs)
        bound.fill()
        return bound

    def _bound(self, arrays: Sequence[Array], outputs: Sequence[Array]) -> BoundCudaKernel:
        backend = self._backend
        places = [backend.allocate(array.shape, self._dtype) for array in (*arrays, *outputs)]
        for array, place in zip(arrays, places, strict=False):
            backend.copy_in(array, place, backend.stream)
        return BoundCudaKernel(backend, self._code, places, self._new_scratch(), outputs)

    def _new_scratch(self) -> tuple[Memory, ...]:
        """Memory for the tensors between kernels and for the workspace, if there is one."""
        shapes = list(self._between)
        if self._workspace_elements:
            shapes.append((self._workspace_elements,))
        return tuple(self._backend.allocate(shape, "float32") for shape in shapes)

    def _scratch_for(self, stream: int) -> tuple[Memory, ...]:
        """That of launches on a stream, which take turns; other streams have others."""
        with self._turn:
            if stream not in self._scratch:
                self._scratch[stream] = self._new_scratch()
            return self._scratch[stream]

    def _on_device(self, values: Sequence[object]) -> tuple[Any, ...]:
        slots = self._signature.arguments
        if len(values) != len(slots):
            raise UsageError(f"{self._program} takes {len(slots)} arrays, not {len(values)}")
        stream = self._join_streams(values)
        memories: list[Memory] = [
            self._argument(slot, value, stream) for slot, value in zip(slots, values, strict=True)
        ]
        first = next(value for value in values if self.takes(value))
        made = [self._new_output(slot, first) for slot in self._signature.outputs]
        memories += [place for _, place in made]
        self._code.launch([*memories, *self._scratch_for(stream)], stream)
        return tuple(array for array, _ in made)

    def _join_streams(self, values: Sequence[object]) -> int:
        """The stream of the first argument that has one, made to wait for those of the others."""
        found = (library.stream(v) for v in values if (library := library_of(v)) is not None)
        streams = list(dict.fromkeys(stream for stream in found if stream is not None))
        for other in streams[1:]:
            self._backend.await_stream(streams[0], other)
        return streams[0] if streams else 0

    def _argument(self, slot: Slot, value: object, stream: int) -> Memory:
        what = f"argument {slot.name!r} of {self._program}"
        library = library_of(value)
        if library is not None:
            view = library.view(value, stream, what)
            self._require_fit(view, slot, what)
            return view
        if not isinstance(value, bool | int | float):
            raise UsageError(
                f"{what} is in host memory and others are on the GPU: put all arguments in one "
                "place"
            )
        self._require_shape((), slot, what)
        return self._number(value)

    def _number(self, value: float) -> Memory:
        """A plain number on the GPU; kept, since a copy would wait for the stream in each call."""
        array = np.asarray(value, self._signature.dtype)
        key = array.tobytes()
        with self._turn:
            if key not in self._numbers:
                if len(self._numbers) == MOST_NUMBERS:
                    self._numbers.clear()
                place = self._backend.allocate((), self._dtype)
                self._backend.copy_in(array, place, self._backend.stream)
                # reading it back waits for it, so that every stream may use it
                self._backend.copy_out(place, np.empty_like(array), self._backend.stream)
                self._numbers[key] = place
            return self._numbers[key]

    def _require_fit(self, view: View, slot: Slot, what: str) -> None:
        if view.dtype != self._dtype:
            known = view.dtype in TOLERANCES
            instead = f", or optimize with dtype={view.dtype!r}" if known else ""
            raise UsageError(
                f"{what} has dtype {view.dtype}, the kernel is made for {self._dtype}: cast it"
                f"{instead}"
            )
        self._require_shape(view.shape, slot, what)
        if view.device_id not in {None, self._backend.device_id}:
            raise UsageError(
                f"{what} is on GPU {view.device_id}, the kernel on GPU {self._backend.device_id}: "
                "move it there"
            )

    def _require_shape(self, shape: tuple[int, ...], slot: Slot, what: str) -> None:
        if shape != slot.shape:
            raise SizeError(
                f"{what} has shape {shape}, the kernel is made for {slot.shape}: optimize the "
                "program for these sizes as well"
            )

    def _new_output(self, slot: Slot, like: object) -> tuple[object, Memory]:
        library = library_of(like)
        assert library is not None
        made, address = library.empty(slot.shape, like, self._backend.new_array)
        return made, View(address, slot.shape, self._dtype, self._backend.device_id, made)


class BoundCudaKernel:
    """A kernel with copies of its arrays (`prism.protocols.Bound`)."""

    def __init__(
        self,
        backend: Backend,
        code: Code,
        places: Sequence[Memory],
        scratch: Sequence[Memory],
        outputs: Sequence[NDArray[Any]],
    ) -> None:
        self._backend = backend
        self._code = code
        self._memories = [*places, *scratch]
        arguments = len(places) - len(outputs)
        self._inputs = places[:arguments]
        self._results = list(zip(outputs, places[arguments:], strict=True))

    def fill(self) -> None:
        """Start from what the caller's outputs hold: an element left unwritten shows."""
        for array, place in self._results:
            self._backend.copy_in(array, place, self._backend.stream)

    def run(self) -> None:
        """Enqueue one run."""
        self._code.launch(self._memories, self._backend.stream)

    def run_timed(self) -> float:
        """Run once; seconds of the kernel by the backend's clock."""
        return self._backend.timed(self.run)

    def finish(self) -> None:
        """Bring the outputs back."""
        for array, place in self._results:
            self._backend.copy_out(place, array, self._backend.stream)

    def restore(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Bring back the arguments that the kernel changed."""
        for array, place in zip(arrays, self._inputs, strict=True):
            now = np.empty_like(array)
            self._backend.copy_out(place, now, self._backend.stream)
            if array.flags.writeable and not np.array_equal(flat_bytes(now), flat_bytes(array)):
                array[...] = now
