"""A process of the session seen from the parent: it answers with JSON lines, within a limit.

Answers come over a pipe of their own (`channel`), so that nothing the process prints can be taken
for one; what it prints goes to the session's log, whose end is quoted when it dies. A process that
hangs, dies or answers garbage raises `Lost`, which costs the step under way and nothing else. It
leads its own session: ending it ends what it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prism_experiments.gpu.channel import DESCRIPTOR
from prism_experiments.gpu.results import Status, clean

MAX_ANSWER = 16 * 2**20
"""A longer line is no answer."""

WATCH_S = 0.5
"""How often a silent process is asked whether it lives."""

WORDS = 4000
"""Bytes of the log that are looked at for last words."""


class Lost(Exception):  # noqa: N818 - an event of the session, not an error of ours
    """A process that gave no answer: how that ended, and what is known about it."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Child:
    """One process: `python ARGUMENTS`, its output appended to `log`."""

    def __init__(
        self, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        self._buffer = b""
        self._answers, theirs = os.pipe()
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                # -P: the current folder shadows nothing
                [sys.executable, "-P", *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=(theirs,),
                env={**os.environ, **(environment or {}), DESCRIPTOR: str(theirs)},
                start_new_session=True,
            )
        os.close(theirs)

    def __enter__(self) -> Self:
        """The process itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends it, whatever happened."""
        self.close()

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a request; that the process is gone shows in the answer."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self, deadline: float) -> dict[str, Any]:
        """The next answer, by `deadline` (monotonic clock); texts and numbers in it are clean.

        Raises:
            Lost: there is none.
        """
        start = time.monotonic()
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                waited = time.monotonic() - start
                raise Lost(Status.TIMEOUT, f"no answer for {waited:.0f} s; {self._said()}")
            if len(self._buffer) > MAX_ANSWER:
                raise Lost(Status.GARBAGE, "an answer without an end")
            is_over = self._process.poll() is not None
            if not select.select([self._answers], [], [], 0 if is_over else min(left, WATCH_S))[0]:
                if is_over:
                    raise Lost(Status.CRASH, self._last_words())
                continue
            part = os.read(self._answers, 1 << 16)
            if not part:
                raise Lost(Status.CRASH, self._last_words())
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return _parsed(line)

    def close(self) -> None:
        """End the process and everything in its session; again does nothing."""
        if self._answers < 0:
            return
        # what leads the session may be gone while what it started lives on
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        os.close(self._answers)
        self._answers = -1

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(WATCH_S)
        code = self._process.poll()
        if code is None:
            return f"the process closed its answers; {self._said()}"
        how = f"signal {-code}" if code < 0 else f"status {code}"
        return f"the process ended with {how}; {self._said()}"

    def _said(self) -> str:
        """The last line that the process printed."""
        with self._log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - WORDS))
            lines = log.read().decode(errors="replace").strip().splitlines()
        return f"it last printed: {lines[-1][:500]}" if lines else "it printed nothing"


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise Lost(Status.GARBAGE, f"not an answer: {line[:200].decode(errors='replace')!r}")
    cleaned: dict[str, Any] = clean(answer)
    return cleaned
