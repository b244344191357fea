"""The CPU target: block graphs to Numba source, compiled for the host and run on all threads."""

from __future__ import annotations
