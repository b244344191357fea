"""A contestant's process: prepares one call, then times it as often as it is told.

The parent sends requests and reads replies, one JSON object a line, over standard input and
output: {"op": "prepare", "contestant", "task", "cpus", "outputs"}, then {"op": "run", "calls"} any
number of times, until the input ends. User code may print: its standard output is moved to the
error stream before anything of it is imported.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from prism.bench.contestants import Prepared, contestant
from prism.bench.stream import CacheFlusher
from prism.bench.task import Task

WARM_UP_CALLS = 3


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
        except Exception as error:  # whatever the contestant raises, the parent says
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


class Session:
    """A prepared contestant and what empties the caches before each of its calls."""

    def __init__(self, request: dict[str, Any]) -> None:
        cpus = request["cpus"]
        self._prepared: Prepared = contestant(request["contestant"]).prepare(
            Task.from_json(request["task"])
        )
        self._flusher = CacheFlusher(cpus)
        result = self._prepared.call()
        outputs = self._prepared.outputs(result)
        np.savez(Path(request["outputs"]), *outputs)
        for _ in range(WARM_UP_CALLS - 1):
            self._prepared.call()
        gc.collect()
        gc.disable()  # no collection falls into a timed call
        self.ready = {
            "warm_s": timed(self._prepared.call, self._flusher)[0],
            "byte_count": self._prepared.byte_count,
            "note": self._prepared.note,
        }

    def run(self, calls: int) -> dict[str, Any]:
        """Time `calls` calls; the first one after the pause of a round does not count."""
        timed(self._prepared.call, self._flusher)
        pairs = [timed(self._prepared.call, self._flusher) for _ in range(calls)]
        return {"times": [wall for wall, _ in pairs], "cpu": [cpu for _, cpu in pairs]}


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
