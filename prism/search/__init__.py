"""The search: op DAGs of the cone, mappings, loop stages, verified graphs (see `search`)."""

from __future__ import annotations

from prism.artifact import FoundGraph
from prism.identity import PROGRAM_ID, graph_id
from prism.search.assemble import program_graph
from prism.search.dimension import DimensionPruner
from prism.search.explain import explain
from prism.search.generators import GENERATORS
from prism.search.options import (
    MODES,
    TUNED_KERNELS,
    VERIFY,
    RejectedGraph,
    SearchOptions,
    SearchResult,
)
from prism.search.pruning import (
    Bounded,
    Classifier,
    Ended,
    Equality,
    Gate,
    Grown,
    Matched,
    Matcher,
    Narrowed,
    Offered,
    Partial,
    Placed,
    Pruner,
    Saved,
    Staged,
    Tiled,
)
from prism.search.search import Progress, search
from prism.search.situation import Situated, Situation

__all__ = [
    "GENERATORS",
    "MODES",
    "PROGRAM_ID",
    "TUNED_KERNELS",
    "VERIFY",
    "Bounded",
    "Classifier",
    "DimensionPruner",
    "Ended",
    "Equality",
    "FoundGraph",
    "Gate",
    "Grown",
    "Matched",
    "Matcher",
    "Narrowed",
    "Offered",
    "Partial",
    "Placed",
    "Progress",
    "Pruner",
    "RejectedGraph",
    "Saved",
    "SearchOptions",
    "SearchResult",
    "Situated",
    "Situation",
    "Staged",
    "Tiled",
    "explain",
    "graph_id",
    "program_graph",
    "search",
]
