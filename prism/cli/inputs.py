"""Programs and sizes as commands get them, checked before any work starts."""

from __future__ import annotations

from pathlib import Path

from prism.artifact import Artifact, FoundGraph
from prism.errors import UsageError
from prism.files import check_writable
from prism.limits import check_memory

__all__ = ["check_memory", "check_output", "find_graph"]


def check_output(path: Path | None) -> None:
    """Refuse a place that cannot be written, before any work is done for it.

    Raises:
        UsageError: the path is a folder or special file, or nothing can be written beside it.
    """
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder; name a file in it")
    check_writable(path)


def find_graph(artifact: Artifact, file: str, graph_id: str) -> FoundGraph:
    """A graph of an artifact by its id, or by how its id alone begins.

    Raises:
        UsageError: there is none; lists those there are.
    """
    for found in artifact.graphs:
        if found.id == graph_id:
            return found
    begins = [found for found in artifact.graphs if graph_id and found.id.startswith(graph_id)]
    if len(begins) == 1:
        return begins[0]
    known = ", ".join(g.id for g in artifact.graphs[:20])
    more = ", ..." if len(artifact.graphs) > 20 else ""
    raise UsageError(f"{file} has no graph {graph_id!r}; it has {known or 'none'}{more}")
