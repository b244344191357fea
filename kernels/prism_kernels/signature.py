"""What arrays a kernel takes and gives, read from its metadata, and whether given ones fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from prism.dtypes import dtype_of
from prism.errors import KernelError

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument or output."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments and outputs of a kernel, all of one dtype."""

    arguments: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Self:
        """The signature of an emitted kernel."""

        def slots(kind: str) -> tuple[Slot, ...]:
            return tuple(Slot(entry["name"], tuple(entry["shape"])) for entry in meta[kind])

        return cls(slots("arguments"), slots("outputs"), dtype_of(meta["dtype"]))

    def check_arguments(self, arrays: Sequence[Array]) -> None:
        """Refuse arguments that the kernel was not made for.

        Raises:
            KernelError: wrong number, shape, dtype or layout.
        """
        self._check(arrays, self.arguments, "argument")

    def check_outputs(self, arrays: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Refuse output arrays that cannot be written beside these arguments.

        Raises:
            KernelError: wrong number, shape, dtype or layout; an output that shares memory with
                another array or cannot be written.
        """
        self._check(outputs, self.outputs, "output")
        for k, (slot, out) in enumerate(zip(self.outputs, outputs, strict=True)):
            if not out.flags.writeable:
                raise KernelError(f"output {slot.name} cannot be written")
            if any(np.may_share_memory(out, other) for other in (*arrays, *outputs[:k])):
                raise KernelError(f"output {slot.name} shares memory with another array")

    def _check(self, arrays: Sequence[Array], slots: Sequence[Slot], kind: str) -> None:
        if len(arrays) != len(slots):
            raise KernelError(f"{len(arrays)} {kind}s given, the kernel has {len(slots)}")
        for array, slot in zip(arrays, slots, strict=True):
            if not isinstance(array, np.ndarray) or array.dtype != self.dtype:
                given = getattr(array, "dtype", type(array).__name__)
                raise KernelError(
                    f"{kind} {slot.name} must be a NumPy array of {self.dtype}, not {given}"
                )
            if array.shape != slot.shape:
                raise KernelError(
                    f"{kind} {slot.name} has shape {array.shape}, the kernel needs {slot.shape}"
                )
            if not array.flags.c_contiguous:
                raise KernelError(f"{kind} {slot.name} must be C-contiguous: np.ascontiguousarray")
