"""What a plug-in must offer: the protocols between the search, the tuner and their plug-ins.

They stand here, below every stage, so that plug-ins import `prism` and no stage imports a plug-in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from prism.ir import Assignment, Enumeration, MappingProblem, MuGraph, SGraph


@runtime_checkable
class Encoding(Protocol):
    """Turns a mapping problem into a solver model and enumerates its assignments."""

    name: str

    def enumerate(self, problem: MappingProblem, *, limit: int | None = None) -> Enumeration:
        """All assignments up to symmetry, sorted; with a limit the first `limit` of them.

        `complete` is true only when the enumeration is known to be exhaustive.
        """


@runtime_checkable
class StrongerEncoding(Encoding, Protocol):
    """An encoding that checks more than the rules of `prism.ir.mapping`, and declares what.

    It returns exactly those assignments of the other encodings that it keeps. The search states
    what placement knows (`MappingProblem.legal`) to encodings of this kind alone.
    """

    check: str
    """What is checked beside the rules, in one word."""

    def keeps(self, problem: MappingProblem, assignment: Assignment) -> bool:
        """Whether an assignment that obeys the rules passes the check."""


@dataclass(frozen=True, slots=True)
class Device:
    """The machine a kernel runs on. Sizes in bytes; `stream_gbps` is read bandwidth.

    On a GPU `threads` are those resident at once, `vector_bits` one warp's 32-bit lanes, and
    `l1_bytes` the shared memory of a multiprocessor.
    """

    name: str
    threads: int
    vector_bits: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    stream_gbps: float
    kind: str = "cpu"
    """`cpu`, `gpu` or `simulator`."""
    arch: str = ""
    """The instruction set, where one kind has several (`sm_90`)."""
    multiprocessors: int = 0
    """Of a GPU."""
    workspace_bytes: int = 0
    """What kernels may keep of their own in memory, all blocks together; 0: unknown."""

    @property
    def text(self) -> str:
        """What of it a kernel and its time depend on."""
        if self.arch:
            return f"{self.name}, {self.arch}"
        return f"{self.name}, {self.threads} threads, {self.vector_bits}-bit vectors"

    @property
    def blocks(self) -> int:
        """How many blocks it takes to keep the whole machine busy."""
        return self.multiprocessors or self.threads


@dataclass(frozen=True, slots=True)
class KernelSource:
    """An emitted kernel: one readable, importable source file.

    `meta` is JSON-able and all `Target.load` needs beside the file: argument order, shapes,
    output shapes, dtype, the tensors between kernels, a launch for each kernel, the workspace.
    """

    text: str
    meta: dict[str, Any] = field(hash=False)


class Bound(Protocol):
    """A kernel with its arrays where it wants them, to be run and timed again and again."""

    def run_timed(self) -> float:
        """Run once; seconds by the target's own clock, moving arrays not counted."""

    def finish(self) -> None:
        """Bring the outputs back into the arrays that were given."""


class Kernel(Protocol):
    """A compiled kernel, ready to run in this process."""

    @property
    def facts(self) -> Mapping[str, int | float | str]:
        """What is known once it is loaded: `registers`, `shared_bytes`, `spills` on a GPU."""

    @property
    def predicted_s(self) -> float | None:
        """Predicted seconds of one run, where loading tells more than `Target.estimate` knew."""

    def takes(self, value: object) -> bool:
        """Whether this is an array where the kernel runs (GPU memory); never NumPy's."""

    def direct(self, given: Sequence[object]) -> tuple[Any, ...] | None:
        """Run on arguments that are already just what the kernel reads, in the program's order.

        Otherwise, and where there is no shorter way than to call it, None: nothing was run.
        """

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:  # noqa: ANN401 - see `takes`
        """Run on the program's arguments; fresh outputs.

        Arguments are NumPy arrays (C-contiguous, the kernel's dtype) and so are the outputs; or
        they are what the kernel `takes`, any strides, and the outputs are of the same library.
        """

    def run_into(
        self, arrays: Sequence[NDArray[np.generic]], outputs: Sequence[NDArray[np.generic]]
    ) -> None:
        """Run with the caller's output arrays (C-contiguous), writing every element."""

    def bind(
        self, arrays: Sequence[NDArray[np.generic]], outputs: Sequence[NDArray[np.generic]]
    ) -> Bound:
        """Put the arrays where the kernel wants them, once; as for `run_into`."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What stands in for a kernel that cannot run here: its like at sizes and a target that can."""

    mu: MuGraph
    target: Target


class Target(Protocol):
    """A place kernels run: emits and loads them, and predicts what they cost."""

    name: str
    measures: bool
    """Whether kernels can run here. Where not, they are compiled and times are predicted."""
    dtypes: Sequence[str]
    """What arguments and results may be stored in (`prism.dtypes`)."""

    def device(self) -> Device:
        """The machine at hand, or the one that kernels are made for."""

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
        """Compile the emitted file at `path` in this process.

        Where the target does not measure, the kernel has facts but cannot be run.
        """

    def flush(self) -> None:
        """Evict caches, so that the next timed run reads its arguments from memory."""

    def rehearsal(self, mu: MuGraph, dtype: str) -> Rehearsal | None:
        """How to check a muGraph's kernel where the target does not measure; None: not at all."""
