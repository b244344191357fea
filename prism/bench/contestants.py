"""The contestants: one small class each, which turns a task into a call that can be timed.

A contestant runs in a worker process of its own. Whatever costs time once (imports, compilation,
conversion of the inputs to its own arrays) belongs in `prepare`; the call it returns is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prism.bench.stream import StreamMeter, allowed_cpus
from prism.bench.task import Task, make_inputs
from prism.errors import UsageError
from prism.plugins import load_attribute, made

Outputs = tuple[NDArray[np.generic], ...]

OURS = "prism"
"""The contestant the others are compared with."""

STREAM = "stream"
"""Not a rival: the worker that measures the stream bandwidth, in turn with the others."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call ready to be timed; `outputs` reads what it returned, to compare the contestants."""

    call: Callable[[], Any]
    outputs: Callable[[Any], Outputs]
    byte_count: int = 0
    """Bytes one call reads, where that is what the contestant is there for (the stream)."""
    note: str = ""
    """What a reader of the times should know."""


class Contestant(Protocol):
    """One way to run a program."""

    def prepare(self, task: Task) -> Prepared:
        """Everything but the timed call; runs in the worker process."""


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
    """The user's own function on NumPy arrays."""

    def prepare(self, task: Task) -> Prepared:
        """Load the function."""
        from prism.frontend import load_program  # noqa: PLC0415 - the stream needs no front end

        function, program = load_program(task.program)
        inputs = make_inputs(program, task)
        return Prepared(lambda: function(*inputs), as_outputs)


class StreamContestant:
    """Reads memory with every thread, as fast as it goes."""

    def prepare(self, task: Task) -> Prepared:
        """Allocate what is read."""
        meter = StreamMeter(allowed_cpus()[: task.threads])
        return Prepared(meter.read, lambda _: (), meter.byte_count)


CONTESTANTS: Mapping[str, Callable[[], Contestant]] = MappingProxyType(
    {"numpy": NumpyContestant},
)
"""Name -> rival. A new rival is a class above and a row here."""

_WORKERS: Mapping[str, Callable[[], Contestant]] = MappingProxyType(
    {**CONTESTANTS, OURS: PrismContestant, STREAM: StreamContestant}
)


def contestant(name: str) -> Contestant:
    """The contestant called `name`, ours and the stream included, or `FILE.py:CLASS`.

    Raises:
        UsageError: there is none of that name.
        PluginError: no such file or class.
    """
    if ".py:" in name:
        chosen: Contestant = made(f"contestant {name!r}", load_attribute(name))
        return chosen
    if name not in _WORKERS:
        raise UsageError(
            f"no contestant named {name!r}; known: {', '.join(sorted(CONTESTANTS))} "
            "(or give FILE.py:CLASS)"
        )
    return _WORKERS[name]()
