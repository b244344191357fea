"""Which axioms the proofs of a search's first graphs need: asked after the search, on request.

Each graph is proved once more, alone, and axioms are left out of the proof until none can be
(`prism.verify.used`). That takes a second or two, so it is for the graphs that somebody will look
at; of the others nothing is known, which is not the same as that they need none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from prism.artifact import FoundGraph
from prism.egraph import AxiomSet
from prism.search import SearchResult
from prism.verdict import ProofAxioms, Verdict
from prism.verify import verify_programs

EXPLAIN_S = 2.0
"""How long to look for the fewest axioms of one graph."""
HARD_STOP_S = 10.0
"""When an answer about one graph is no longer waited for."""

Shown = Callable[[str, int, int | None], None]


def explained(result: SearchResult, axioms: AxiomSet, most: int, show: Shown) -> SearchResult:
    """The result with the axioms of its first `most` graphs, the program itself not counted.

    An interrupt ends it with what is known: nothing of the search is lost.
    """
    graphs = list(result.graphs)
    wanted = [i for i, graph in enumerate(graphs) if not graph.is_fallback][:most]
    try:
        for done, i in enumerate(wanted):
            show("axioms", done, len(wanted))
            graphs[i] = _explained(result, graphs[i], axioms)
    except KeyboardInterrupt:
        pass
    return replace(result, graphs=tuple(graphs))


def _explained(result: SearchResult, found: FoundGraph, axioms: AxiomSet) -> FoundGraph:
    answer = verify_programs(
        result.program, found.graph, axioms,
        seed=result.options.seed, explain_s=EXPLAIN_S, hard_stop_s=HARD_STOP_S,
    )  # fmt: skip
    if answer.verdict is not Verdict.PROVED or answer.used is None:
        return found
    names = tuple(axiom.name for axiom in answer.used.axioms)
    return replace(found, proof=ProofAxioms(names, answer.used.is_minimal))
