"""The contestants: one small class each, which turns a task into a call that can be timed.

A contestant runs in a worker process of its own. Whatever costs time once (imports, compilation,
conversion of the inputs to its own arrays) belongs in `prepare`; the call it returns is timed. One
with several ways to run a program gives them all: the worker keeps the fastest that is right.
Contestants are plug-ins of the group `prism.contestants`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prism.bench.stream import StreamMeter, allowed_cpus
from prism.bench.task import Task, make_inputs
from prism.dtypes import HALF
from prism.errors import PrismError
from prism.plugins import Group, make

Outputs = tuple[NDArray[np.generic], ...]

OURS = "prism"
"""The contestant the others are compared with."""

ALL = "all"
"""Every installed contestant."""

STREAM = "stream"
"""Not a rival: the worker that measures the stream bandwidth, in turn with the others."""


class NotAvailableError(PrismError):
    """A contestant that cannot take part here, and why: a library or a dtype that is missing."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call ready to be timed; `outputs` reads what it returned, to check it."""

    call: Callable[[], Any]
    outputs: Callable[[Any], Outputs]
    byte_count: int = 0
    """Bytes one call reads, where that is what the contestant is there for (the stream)."""
    note: str = ""
    """What a reader of the times should know."""
    source: str = ""
    """What is run, as text, where it was made from the program."""


@dataclass(frozen=True, slots=True)
class Way:
    """One of a contestant's ways to run the program; `make` may take long, and may fail."""

    name: str
    make: Callable[[], Prepared]


class Contestant(Protocol):
    """One way to run a program."""

    def prepare(self, task: Task) -> Prepared | Sequence[Way]:
        """Everything but the timed call; runs in the worker process.

        Raises:
            NotAvailableError: it cannot take part.
        """


def as_outputs(result: Any) -> Outputs:  # noqa: ANN401 - whatever the contestant returns
    """One array or a tuple of them, as a tuple."""
    return tuple(np.asarray(r) for r in (result if isinstance(result, tuple) else (result,)))


class PrismContestant:
    """The tuned kernel, loaded from where `Optimized.save` put it."""

    def prepare(self, task: Task) -> Prepared:
        """Load and compile the kernel."""
        from prism.driver import Optimized  # noqa: PLC0415 - no rival's process pays for it

        optimized = Optimized.load(task.kernel, target=task.target)
        inputs = make_inputs(optimized.program, task)
        note = "no kernel: NumPy evaluates the program in float64" if optimized.is_fallback else ""
        return Prepared(lambda: optimized(*inputs), as_outputs, note=note)


class NumpyContestant:
    """The user's own function on NumPy arrays.

    Of float16 and bfloat16 arrays it gets float32 copies, as its users make them: NumPy multiplies
    no others through BLAS, and is ten to a hundred times slower without.
    """

    def prepare(self, task: Task) -> Prepared:
        """Load the function."""
        from prism.frontend import load_program  # noqa: PLC0415 - the stream needs no front end

        function, program = load_program(task.program)
        inputs = make_inputs(program, task)
        note = ""
        if task.dtype in HALF:
            inputs = tuple(array.astype(np.float32) for array in inputs)
            note = (
                "it runs on float32 copies made beforehand, twice the bytes: NumPy has no fast "
                f"product of {task.dtype} arrays"
            )
        return Prepared(lambda: function(*inputs), as_outputs, note=note)


class StreamContestant:
    """Reads memory with every thread, as fast as it goes."""

    def prepare(self, task: Task) -> Prepared:
        """Allocate what is read."""
        meter = StreamMeter(allowed_cpus()[: task.threads])
        return Prepared(meter.read, lambda _: (), meter.byte_count)


_OWN: Mapping[str, Callable[[], Contestant]] = MappingProxyType(
    {OURS: PrismContestant, STREAM: StreamContestant}
)


def contestant(name: str) -> Contestant:
    """The contestant called `name`, ours and the stream included, or `FILE.py:CLASS`.

    Raises:
        PluginError: there is none of that name, or no such file or class.
    """
    made: Contestant = _OWN[name]() if name in _OWN else make(Group.CONTESTANT, name)
    return made
