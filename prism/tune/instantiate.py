"""Turns a config into a muGraph: an sGraph with every size and every d_p fixed.

MuGraphs are made one at a time, when a strategy asks for them; the space holds only numbers.
"""

from __future__ import annotations

from prism.errors import GraphError
from prism.ir import MuGraph
from prism.tune.space import Config, GraphSpace, is_legal


def instantiate(space: GraphSpace, config: Config) -> MuGraph:
    """The muGraph of a config.

    Raises:
        GraphError: the counts are not legal for the graph at these sizes.
    """
    sizes = dict(space.sizes)
    for op, counts in zip(space.graph.kernels, config.par_sizes, strict=True):
        if not is_legal(op, dict(counts), sizes):
            raise GraphError(f"{config}: a tile would be empty at sizes {sizes}")
    return MuGraph(space.graph, space.sizes, config.par_sizes, config.schedule)
