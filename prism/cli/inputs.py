"""Programs and sizes as commands get them, checked before any work starts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from prism.artifact import Artifact, FoundGraph
from prism.bench import border_bytes
from prism.errors import SizeError, UsageError
from prism.ir import Program


def check_memory(program: Program, sizes: Mapping[str, int]) -> None:
    """Refuse sizes whose arrays this machine cannot hold.

    Raises:
        SizeError: a size is missing, unknown or contradictory, or the arrays do not fit.
    """
    needed = border_bytes(program, dict(sizes), "float64")
    there = memory_bytes()
    if there is not None and needed > there:
        raise SizeError(
            f"the arrays of {program.name} at these sizes take {gib(needed)} in float64, in which "
            f"kernels are checked, but this machine has {gib(there)}: choose smaller sizes"
        )


def memory_bytes() -> int | None:
    """Physical memory, or None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def gib(count: int) -> str:
    """Bytes as GiB."""
    return f"{count / 2**30:.3g} GiB"


def check_output(path: Path | None) -> None:
    """Refuse a place that cannot be written, before any work is done for it.

    Asking for permission says little (root has it everywhere), so a file is made there.

    Raises:
        UsageError: the path is a folder, or nothing can be written beside it.
    """
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder; name a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def find_graph(artifact: Artifact, file: str, graph_id: str) -> FoundGraph:
    """A graph of an artifact by its id.

    Raises:
        UsageError: there is none; lists those there are.
    """
    for found in artifact.graphs:
        if found.id == graph_id:
            return found
    known = ", ".join(g.id for g in artifact.graphs[:20])
    more = ", ..." if len(artifact.graphs) > 20 else ""
    raise UsageError(f"{file} has no graph {graph_id!r}; it has {known or 'none'}{more}")
