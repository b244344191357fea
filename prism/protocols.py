"""What a plug-in must offer: the protocols between the search, the tuner and their plug-ins.

They stand here, below every stage, so that plug-ins import `prism` and no stage imports a plug-in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from prism.ir import Enumeration, MappingProblem, MuGraph, SGraph


@runtime_checkable
class Encoding(Protocol):
    """Turns a mapping problem into a solver model and enumerates its assignments."""

    name: str

    def enumerate(self, problem: MappingProblem, *, limit: int | None = None) -> Enumeration:
        """All assignments up to symmetry, sorted; at most `limit` of them.

        `complete` is true only when the enumeration is known to be exhaustive.
        """


@dataclass(frozen=True, slots=True)
class Device:
    """The machine a kernel runs on. Sizes in bytes; `stream_gbps` is measured read bandwidth."""

    name: str
    threads: int
    vector_bits: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    stream_gbps: float


@dataclass(frozen=True, slots=True)
class KernelSource:
    """An emitted kernel: one readable, importable source file.

    `meta` is JSON-able and all `Target.load` needs beside the file: argument order, shapes,
    output shapes, dtype, blocks per launch, workspace bytes.
    """

    text: str
    meta: dict[str, Any] = field(hash=False)


class Kernel(Protocol):
    """A compiled kernel, ready to run in this process."""

    def __call__(self, *arrays: NDArray[np.generic]) -> tuple[NDArray[np.generic], ...]:
        """Run on the program's arguments (C-contiguous, the kernel's dtype); fresh outputs."""

    def run_into(
        self, arrays: Sequence[NDArray[np.generic]], outputs: Sequence[NDArray[np.generic]]
    ) -> None:
        """Run with the caller's output arrays (C-contiguous), writing every element."""


class Target(Protocol):
    """A place kernels run: emits and loads them, and predicts what they cost."""

    name: str

    def device(self) -> Device:
        """The machine at hand."""

    def schedules(self, graph: SGraph, sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
        """The emitter's own options for this graph: name -> choices, the default first."""

    def estimate(self, mu: MuGraph, dtype: str) -> float:
        """Predicted seconds of one run, for ordering candidates only."""

    def refusal(self, mu: MuGraph, dtype: str) -> str | None:
        """Why this muGraph cannot run here (resources, an unsupported operator), or None."""

    def emit(self, mu: MuGraph, dtype: str) -> KernelSource:
        """Emit the kernel's source.

        Raises:
            KernelError: the muGraph is refused.
        """

    def load(self, path: Path, meta: dict[str, Any]) -> Kernel:
        """Compile the emitted file at `path` in this process."""

    def flush(self) -> None:
        """Evict caches, so that the next timed run reads its arguments from memory."""
