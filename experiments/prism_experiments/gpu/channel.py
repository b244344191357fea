"""The child's end of `process`: JSON lines over the pipe that the parent gave it.

Standard library only: the test runner of the session loads it before anything of the project.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DESCRIPTOR = "PRISM_GPU_ANSWERS"
"""The environment variable with the number of the descriptor."""

TESTS_DONE = "PRISM_GPU_TESTS_DONE"
"""The environment variable with the name of a file: a JSON list of the tests that were run."""


def tests_done() -> frozenset[str]:
    """The tests that an earlier process ran."""
    path = os.environ.get(TESTS_DONE)
    return frozenset(json.loads(Path(path).read_text(encoding="utf-8")) if path else ())


class Channel:
    """Sends answers to the parent."""

    def __init__(self) -> None:
        descriptor = int(os.environ.pop(DESCRIPTOR))
        # a process that we start must not keep it open
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - a C function, it takes no names
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")
        die_with_parent()

    def send(self, answer: Mapping[str, Any]) -> None:
        """Send one answer."""
        self._file.write(json.dumps(answer) + "\n")
        self._file.flush()


def die_with_parent() -> None:
    """A session that is killed must not leave a process on the GPU."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
