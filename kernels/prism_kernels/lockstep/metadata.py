"""What the metadata of a kernel file says about its arrays and launches, checked as it is read."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism.errors import KernelError
from prism_kernels.cuda.devices import MAX_BLOCKS, MAX_THREADS
from prism_kernels.cuda.dialect import DTYPES
from prism_kernels.lockstep.memory import ARRAY_DTYPES

Array = NDArray[np.generic]

ELEMENT_BYTES = 4
"""Of shared memory."""


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """One launch of a file."""

    kernel: str
    takes: tuple[int, ...]
    """Which arrays, in the order of the kernel's parameters."""
    blocks: int
    threads: int
    shared_elements: int


@dataclass(frozen=True, slots=True)
class LibraryShape:
    """A kernel of a file that a library runs."""

    kernel: str
    takes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FileShape:
    """A file's arrays (arguments, outputs, those between its kernels, a workspace) and launches."""

    arguments: int
    outputs: int
    elements: tuple[int, ...]
    """Of each array."""
    dtypes: tuple[str, ...]
    workspace: int | None
    """Which array it is."""
    launches: tuple[LaunchShape | LibraryShape, ...]

    @staticmethod
    def of(meta: Mapping[str, Any]) -> FileShape:
        """Read and check it.

        Raises:
            KernelError: it is no metadata of a kernel file.
        """
        arguments, outputs, between = (
            _elements(meta, kind) for kind in ("arguments", "outputs", "between")
        )
        dtype = meta.get("dtype")
        if dtype not in list(DTYPES):
            raise KernelError(f"metadata: dtype must be one of {', '.join(DTYPES)}")
        extent = _number(meta, "workspace_elements", 0, 2**32 - 1)
        own = [*between, *([extent] if extent else [])]
        given = len(arguments) + len(outputs)
        dtypes = (*[dtype] * given, *["float32"] * len(own))
        launches = meta.get("launches")
        if not isinstance(launches, (list, tuple)) or not launches:
            raise KernelError("metadata: launches must list the kernels of the file")
        return FileShape(
            len(arguments),
            len(outputs),
            (*arguments, *outputs, *own),
            dtypes,
            len(dtypes) - 1 if extent else None,
            tuple(_launch(launch, dtypes) for launch in launches),
        )

    def require_count(self, arguments: int, outputs: int) -> None:
        """Refuse another number of arrays than there are.

        Raises:
            KernelError: says how many there are.
        """
        if (arguments, outputs) != (self.arguments, self.outputs):
            raise KernelError(
                f"the metadata lists {self.arguments} arguments and {self.outputs} outputs; "
                f"{arguments} and {outputs} were given"
            )

    def checked(self, array: Array, i: int) -> Array:
        """Array i as the simulator reads it.

        Raises:
            KernelError: it does not fit.
        """
        dtype, elements = self.dtypes[i], self.elements[i]
        if array.dtype.name == "bfloat16":
            array = array.view(np.uint16)
        if array.dtype != ARRAY_DTYPES[dtype] or array.size != elements:
            found = f"{array.size} of {array.dtype}"
            raise KernelError(f"array {i} must hold {elements} numbers of {dtype}, not {found}")
        if not array.flags.c_contiguous:
            raise KernelError(f"array {i} must be C-contiguous: use numpy.ascontiguousarray")
        return array


def _launch(launch: object, dtypes: Sequence[str]) -> LaunchShape | LibraryShape:
    if not isinstance(launch, Mapping):
        raise KernelError("metadata: launches must list the kernels of the file")
    takes, parameters = launch.get("takes"), launch.get("parameters")
    if not isinstance(takes, (list, tuple)) or not isinstance(parameters, (list, tuple)):
        raise KernelError("metadata: takes and parameters must be lists")
    if not all(type(k) is int and 0 <= k < len(dtypes) for k in takes):
        raise KernelError(f"metadata: takes must list arrays from 0 to {len(dtypes) - 1}")
    if sorted(set(takes)) != list(takes):
        raise KernelError("metadata: takes must list arrays once and in order")
    expected = [dtypes[k] for k in takes]
    if list(parameters) != expected:
        raise KernelError(f"metadata: the parameters of these arrays are {', '.join(expected)}")
    if "library" in launch:
        return LibraryShape(str(launch.get("kernel")), tuple(takes))
    return LaunchShape(
        str(launch.get("kernel")),
        tuple(takes),
        _number(launch, "blocks", 1, MAX_BLOCKS),
        _number(launch, "threads", 1, MAX_THREADS),
        _number(launch, "shared_bytes", 0, 2**20) // ELEMENT_BYTES,
    )


def _number(meta: Mapping[str, Any], key: str, least: int, most: int) -> int:
    value = meta.get(key)
    if type(value) is not int or not least <= value <= most:
        raise KernelError(f"metadata: {key} must be {least} to {most}, not {value!r}")
    return value


def _elements(meta: Mapping[str, Any], kind: str) -> tuple[int, ...]:
    try:
        return tuple(math.prod(map(operator.index, array["shape"])) for array in meta[kind])
    except (KeyError, TypeError) as error:
        raise KernelError(f"metadata: {kind} must list shapes") from error
