"""`python -m prism.sweep.watched ARGS`: the command `prism ARGS`, for as long as the parent lives.

Standard input is a pipe whose other end only the parent has. When that closes, however the parent
ended, a killed one included, the whole process group ends: no cell outlives its sweep.
"""

from __future__ import annotations

import os
import runpy
import signal
import threading


def _watch() -> None:
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Watch standard input, and be `prism`; the process is the first of its group."""
    threading.Thread(target=_watch, daemon=True).start()
    # by name: the command line is built on this package
    runpy.run_module("prism", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
