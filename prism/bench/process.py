"""A worker process seen from the parent: starts it with a clean environment, talks, ends it.

A contestant that fails, dies or takes too long raises `ContestantError`; that costs the contestant,
never the run.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from prism.bench.stream import pinned

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

STEERING_PREFIXES = (
    "OPENBLAS_",  # OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE pick a kernel for another machine
    "GOTO_",
    "MKL_",
    "BLIS_",
    "NVPL_",
    "OMP_",
    "KMP_",
    "GOMP_",
    "VECLIB_",
    "NPY_DISABLE_CPU",
    "NPY_ENABLE_CPU",
    "NUMBA_NUM_THREADS",
    "NUMBA_CPU_",
    "NUMBA_DISABLE_JIT",
    "PRISM_CPU_",  # ours: as the rivals' are, how long threads wait is as we ship it
)
"""Variables that would give one contestant another library or another machine than its rivals."""


class ContestantError(Exception):
    """A contestant that cannot be timed, and why."""


def worker_environment(base: Mapping[str, str], threads: int) -> dict[str, str]:
    """The environment of a worker: nothing that steers a library, equal thread counts."""
    clean = {k: v for k, v in base.items() if not k.startswith(STEERING_PREFIXES)}
    return {
        **clean,
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
        # with -P the current folder shadows nothing; the parent's path finds the same packages
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }


class Worker:
    """One contestant's process, pinned to `cpus` from its first instruction on."""

    def __init__(self, cpus: Sequence[int], threads: int) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self._buffer = b""
        with pinned(cpus):
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "prism.bench.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
                env=worker_environment(os.environ, threads),
                start_new_session=True,  # an interrupt reaches the parent alone, which ends it
            )

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a request and wait for its reply.

        Raises:
            ContestantError: the contestant failed, died or did not answer in time.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            raise ContestantError(self._last_words()) from None
        reply: dict[str, Any] = json.loads(self._read_line(timeout_s))
        if "error" in reply:
            raise ContestantError(reply["error"])
        return reply

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._stderr):
            if pipe is not None:
                pipe.close()

    def _read_line(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise ContestantError(f"no answer in {timeout_s:.0f} s")
            part = self._process.stdout.read(1 << 16)
            if not part:
                raise ContestantError(self._last_words())
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _last_words(self) -> str:
        """Why a process ended: its status and the last line of its errors."""
        status = self._process.wait()
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return f"the process ended with status {status}: {lines[-1] if lines else 'no message'}"
