"""A contestant's process: prepares one call, then times it as often as it is told.

The parent sends requests and reads replies, one JSON object a line, over standard input and
output: {"op": "prepare", "contestant", "task", "cpus", "reference"}, then {"op": "run", "calls"}
any number of times, until the input ends. User code may print: its standard output is moved to the
error stream before anything of it is imported.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

import numpy as np

from prism.bench.accuracy import Reference, allowed_error, norm_error
from prism.bench.contestants import STREAM, NotAvailableError, Prepared, Way, contestant
from prism.bench.stream import CacheFlusher
from prism.bench.task import Task
from prism.errors import one_line
from prism.operators import define_table

SETTLE_S = 0.15
"""Before the first call of a turn: the threads of OpenBLAS spin on for 100 ms after a product, and
take the cores from whoever is next (measured: onnxruntime's first five calls after NumPy took three
times as long as the others)."""
WARM_UP_CALLS = 2
"""Calls that do not count, at the start of a turn: a library's own threads have to wake."""
JUDGED_CALLS = 5
"""Timed calls by which one way is preferred to another; the fastest of them counts."""
CLOSE, FINALISTS = 2.0, 3
"""Ways that come so close to the fastest are timed again in turns, at most so many."""
WAYS_S = 60.0
"""After so long no further way is begun; one that was begun is finished."""


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, replies)


def serve(requests: TextIO, replies: TextIO) -> None:
    """Answer every request; a failure is a reply, and the last one."""
    session: Session | None = None
    for line in requests:
        request = json.loads(line)
        try:
            if request["op"] == "prepare":
                session = Session(request)
                reply: dict[str, Any] = session.ready
            else:
                assert session is not None, "the parent runs nothing before it prepares"
                reply = session.run(request["calls"])
        except NotAvailableError as error:
            reply = {"error": str(error)}
        except Exception as error:  # whatever the contestant raises, the parent says
            reply = {"error": one_line(error)}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


class Session:
    """A prepared contestant and what empties the caches before each of its calls."""

    def __init__(self, request: dict[str, Any]) -> None:
        task = Task.from_json(request["task"])
        for text, source in task.tables:
            define_table(text, source)
        self._flusher = CacheFlusher(request["cpus"])
        reference = None if request["contestant"] == STREAM else _read(request["reference"])
        prepared = contestant(request["contestant"]).prepare(task)
        ways = [Way("", lambda: prepared)] if isinstance(prepared, Prepared) else prepared
        choice = Choice(reference, task.dtype, self._flusher)
        best = choice.of(ways)
        self._prepared = best.prepared
        gc.collect()
        gc.disable()  # no collection falls into a timed call
        self.ready = {
            "warm_s": best.seconds,
            "byte_count": self._prepared.byte_count,
            "note": self._prepared.note,
            "way": best.name,
            "ways": choice.ways if best.name else {},
            "norm_error": best.error,
            "source": self._prepared.source,
        }

    def run(self, calls: int) -> dict[str, Any]:
        """Time `calls` calls."""
        warm_up(self._prepared.call, self._flusher)
        pairs = [timed(self._prepared.call, self._flusher) for _ in range(calls)]
        return {"times": [wall for wall, _ in pairs], "cpu": [cpu for _, cpu in pairs]}


@dataclass(slots=True)
class Tried:
    """One way that is right: its call, its error, and its fastest call so far."""

    name: str
    prepared: Prepared
    error: float | None
    seconds: float


@dataclass(slots=True)
class Choice:
    """Tries ways one after the other and keeps the fastest; `ways`: seconds of each, or why not.

    A disturbance may last for seconds, so those that come close run against each other once more.
    """

    reference: Reference | None
    dtype: str
    flusher: CacheFlusher
    ways: dict[str, float | str] = field(default_factory=dict)

    def of(self, ways: Sequence[Way]) -> Tried:
        """The fastest way that is right.

        Raises:
            NotAvailableError: there is none; says why of each.
        """
        deadline = time.monotonic() + WAYS_S
        close: list[Tried] = []
        for way in ways:
            if close and time.monotonic() > deadline:
                self.ways[way.name] = "not tried: no time left"
                continue
            try:
                close.append(self.tried(way))
            except Exception as error:  # whatever the library raises
                if len(ways) == 1:
                    raise
                self.ways[way.name] = one_line(error)
            close.sort(key=_seconds)
            close = [tried for tried in close if tried.seconds < CLOSE * close[0].seconds][
                :FINALISTS
            ]
        if not close:
            reasons = (f"{name}: {reason}" for name, reason in self.ways.items())
            raise NotAvailableError("; ".join(reasons) or "it has no way to run the program")
        for _ in range(JUDGED_CALLS if len(close) > 1 else 0):
            for tried in close:
                self.time(tried)
        return min(close, key=_seconds)

    def tried(self, way: Way) -> Tried:
        """One way, checked and timed.

        Raises:
            NotAvailableError: it computes something else.
        """
        prepared = way.make()
        tried = Tried(way.name, prepared, self.error(prepared), math.inf)
        warm_up(prepared.call, self.flusher)
        for _ in range(JUDGED_CALLS):
            self.time(tried)
        return tried

    def time(self, tried: Tried) -> None:
        """One more call."""
        tried.seconds = min(tried.seconds, timed(tried.prepared.call, self.flusher)[0])
        self.ways[tried.name] = tried.seconds

    def error(self, prepared: Prepared) -> float | None:
        """Its norm error, where there is a reference.

        Raises:
            NotAvailableError: it is too large.
        """
        result = prepared.call()
        if self.reference is None:
            return None
        error = norm_error(prepared.outputs(result), self.reference, self.dtype)
        if not error <= allowed_error(self.dtype):
            raise NotAvailableError(
                f"norm error {error:.2g} against float64, allowed {allowed_error(self.dtype):.2g}"
            )
        return error


def _seconds(tried: Tried) -> float:
    return tried.seconds


def _read(path: str) -> Reference:
    """The reference outputs that the parent wrote."""
    with np.load(path) as arrays:
        return tuple(arrays[f"arr_{i}"] for i in range(len(arrays.files)))


def warm_up(call: Callable[[], Any], flusher: CacheFlusher) -> None:
    """Wait until others have let go of the cores, then call without counting."""
    time.sleep(SETTLE_S)
    for _ in range(WARM_UP_CALLS):
        timed(call, flusher)


def timed(call: Callable[[], Any], flusher: CacheFlusher) -> tuple[float, float]:
    """Seconds of one call with empty caches, by the wall and by this process's CPU time."""
    flusher.flush()
    cpu = time.process_time()
    start = time.perf_counter()
    call()
    wall = time.perf_counter() - start
    return wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
