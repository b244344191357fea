"""A fresh interpreter at the other end of a pipe, which may be killed at any time.

Never a fork: compilers and thread pools do not survive one. Never through the user's `__main__`:
scripts need no guard. No pool of the standard library can kill one worker that hangs.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import tempfile

START_TIMEOUT_S = 120.0
"""Importing a compiler from a cold disk takes a while."""

_CODE = "import sys; sys.path[:] = {path!r}; from {module} import main; main({descriptor})"
_LAST_BYTES = 4000
"""Of what it printed, where its last line is looked for."""


class Child:
    """A process that runs `main(descriptor)` of a module; `connection` is our end of its pipe."""

    def __init__(self, module: str) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        descriptor = theirs.fileno()
        code = _CODE.format(path=sys.path, module=module, descriptor=descriptor)
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=(descriptor,),
            start_new_session=True,  # an interrupt reaches the parent alone, which ends the child
        )
        theirs.close()

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def stop(self) -> str:
        """Kill the process; how it ended and the last line it printed. Again does nothing."""
        if self._output.closed:
            return ""
        self._process.kill()
        status = self._process.wait()
        self.connection.close()
        self._output.seek(0)
        lines = self._output.read()[-_LAST_BYTES:].decode(errors="replace").strip().splitlines()
        self._output.close()
        return f"status {status}: {lines[-1] if lines else 'nothing printed'}"
