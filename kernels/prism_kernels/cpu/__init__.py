"""The CPU target: block graphs to Numba source, compiled for the host and run on all threads."""

from __future__ import annotations

from prism.errors import KernelError

try:
    import numba  # noqa: F401 - whether it can be
except ValueError as error:  # what it says of a setting does not name it
    raise KernelError(f"Numba does not start: {error} (see NUMBA_NUM_THREADS)") from error
