"""The forward generator, the paper's own way: partial sGraphs grown from the inputs.

spread     every map of the inputs along one parallel dim, and what it makes of each tensor
values     the tensors of partial graphs, and the operators that can be tried on them
growth     partial graphs, each grown in every way, each op DAG built in one order
concrete   maps that are chosen during the search and not by the encoding
generator  complete graphs become candidates
"""

from __future__ import annotations

from prism.search.forward.concrete import CONCRETE
from prism.search.forward.generator import ForwardGenerator

__all__ = ["CONCRETE", "ForwardGenerator"]
