"""The search: op DAGs of the cone, mappings, loop stages, verified graphs (see `search`)."""

from __future__ import annotations

from prism.artifact import FoundGraph
from prism.identity import PROGRAM_ID, graph_id
from prism.search.assemble import program_graph
from prism.search.explain import explain
from prism.search.options import RejectedGraph, SearchOptions, SearchResult
from prism.search.pruning import (
    Equality,
    Gate,
    Matched,
    Matcher,
    Offered,
    Partial,
    Placed,
    Pruner,
    Saved,
)
from prism.search.search import Progress, search

__all__ = [
    "PROGRAM_ID",
    "Equality",
    "FoundGraph",
    "Gate",
    "Matched",
    "Matcher",
    "Offered",
    "Partial",
    "Placed",
    "Progress",
    "Pruner",
    "RejectedGraph",
    "Saved",
    "SearchOptions",
    "SearchResult",
    "explain",
    "graph_id",
    "program_graph",
    "search",
]
