"""The cache's tuned kernels: an entry of use is one of this very situation that loads and is right.

What lies there is data and is vetted; an entry of no use is deleted with one warning.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from pathlib import Path

from prism.cache import CacheWarning, write_atomically
from prism.errors import KernelError, ParseError, PrismError
from prism.files import read_regular
from prism.ir import format_program
from prism.limits import require_texts
from prism.optimized import MAX_BYTES, Optimized, from_json
from prism.tune import TuneResult


def cached_kernel(path: Path, wanted: Optimized, budget: float) -> Optimized | None:
    """A tuned kernel from the cache, if as much time was spent on it as is offered now.

    An entry that is of no use is deleted, so that it costs one warning, not one per call.
    """
    try:
        entry = json.loads(read_regular(path, MAX_BYTES))
        require_texts(kernel=entry["kernel"], optimized=entry["optimized"])
        if entry["budget_s"] < budget and entry["stopped"] != "strategy":
            return None
        made = from_json(entry["optimized"], entry["kernel"], str(path), wanted.target)
        _require_wanted(made, wanted)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, RecursionError, PrismError) as error:
        drop_entry(path, f"the cached kernel {path} is not used: {type(error).__name__}: {error}")
        return None
    return made


def _require_wanted(made: Optimized, wanted: Optimized) -> None:
    if _situation(made) != _situation(wanted):
        raise ParseError("it is of another program, size, dtype or target")
    if made.winner is None:
        raise KernelError("its kernel does not load here")


def _situation(made: Optimized) -> tuple[object, ...]:
    return format_program(made.program), dict(made.sizes), made.dtype, made.target


def drop_entry(path: Path, message: str) -> None:
    """Delete a bad entry and say so."""
    with contextlib.suppress(OSError):
        path.unlink()
    warn(message)


def store_kernel(path: Path, made: Optimized, result: TuneResult, budget: float) -> None:
    """Keep a tuned kernel, and how much time was spent on it."""
    entry = {
        "budget_s": budget,
        "stopped": result.stopped,
        "kernel": made.source,
        "optimized": made.to_json(),
    }
    try:
        write_atomically(path, json.dumps(entry))
    except PrismError as error:
        warn(f"the kernel is not cached: {error}")


def warn(message: str) -> None:
    """Say that the cache is not used as it should be."""
    warnings.warn(message, CacheWarning, stacklevel=4)
