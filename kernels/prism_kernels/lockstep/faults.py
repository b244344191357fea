"""What can be wrong with a kernel that runs: a value per fault, and the exception that carries it.

A fault names the source line, the block, the threads and the element, and says what to do. A file
outside the dialect is no fault but a plain `KernelError`: it does not run at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from prism.errors import KernelError

MAX_THREADS_SHOWN = 8
"""Runs of threads that a message lists."""


class FaultKind(Enum):
    """What went wrong."""

    DIVERGENT_BARRIER = "divergent barrier"
    """Not all threads of a block reach the same `cuda.syncthreads()`."""
    DIVERGENT_COLLECTIVE = "divergent collective"
    """Not all lanes of a warp reach the same collective, or the mask is not that of all lanes."""
    RACE = "race"
    """Two threads touch an element between two barriers, one of them writes."""
    UNWRITTEN_READ = "unwritten read"
    """An element is read that nobody wrote."""
    OUT_OF_BOUNDS = "out of bounds"
    """An index is negative or too large."""
    UNDEFINED = "undefined variable"
    """A variable is read before any assignment to it ran."""
    INPUT_WRITE = "input write"
    """The kernel writes into an input argument."""
    UNWRITTEN_OUTPUT = "unwritten output"
    """An output has elements that no thread wrote."""
    ENDLESS = "endless"
    """A loop runs more iterations than the limit."""
    UNFINISHED_COPY = "unfinished copy"
    """An element is touched while a copy into it is under way, or nobody waits for the copy."""
    MISALIGNED = "misaligned"
    """An access of several elements starts at an index that is no multiple of their count."""
    WRONG_TYPE = "wrong type"
    """Packed words are read as a float32 number, or the other way round."""
    ARITHMETIC = "arithmetic"
    """A division by zero, a step of zero, a shift by more bits than there are."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, and where it is: `line` counts from 1, `threads` are indices in the block."""

    kind: FaultKind
    message: str
    block: int | None = None
    threads: tuple[int, ...] = ()
    line: int | None = None
    memory: str | None = None
    element: int | None = None


class LockstepFault(KernelError):  # noqa: N818 - a fault of the kernel, not of the simulator
    """A kernel that does something wrong when it runs; `fault` says what."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault

    def __reduce__(self) -> tuple[type[LockstepFault], tuple[Fault]]:
        return type(self), (self.fault,)  # by default the message would be taken for the fault


def spans(numbers: Iterable[int]) -> str:
    """Numbers as a reader wants them: `0-15, 20`."""
    ordered = enumerate(sorted(numbers))
    runs = [[n for _, n in run] for _, run in groupby(ordered, lambda pair: pair[1] - pair[0])]
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    if len(texts) > MAX_THREADS_SHOWN:
        texts = [*texts[:MAX_THREADS_SHOWN], ".."]
    return ", ".join(texts)
