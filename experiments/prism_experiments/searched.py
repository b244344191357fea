"""One search in a process of its own, for `bench_search`; prints one JSON line.

    python -m prism_experiments.searched PROGRAM '{"max_ops": 11}' ['{"n": 8, "d": 4096}']

Before the search a small one is run with the same options, so that imports and first uses are not
counted; the peak of memory is that of the process. With sizes, it is also counted how many of the
graphs can be instantiated there: the CPU target accepts the muGraph of some config. Of many graphs
as many as `ASKED` are asked about, evenly spaced.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from prism.frontend import load_program
from prism.ir import SGraph, bind_sizes
from prism.plugins import Group, make
from prism.protocols import Target
from prism.search import SearchOptions, SearchResult, search
from prism.tune import build_space, instantiate

ASKED = 300
"""Graphs that are instantiated."""

TRIED = 400
"""Configs of one graph that are tried; nearly all graphs take the first or second."""


def main(arguments: Sequence[str]) -> None:
    """Search and print."""
    name, given, *shape = arguments
    options = SearchOptions(**json.loads(given))
    search(load_program("matmul")[1], options)
    result = search(load_program(name)[1], options)
    peak = peak_mb()
    found = [g for g in result.graphs if not g.is_fallback]
    counters = result.counters
    answer: dict[str, Any] = {
        "search_s": result.search_s,
        "graphs": len(found),
        "plans": sum(len(g.graph.kernels) > 1 for g in found),
        "complete": result.complete,
        "cuts": list(result.cuts),
        "counters": {k: v for k, v in counters.items() if isinstance(v, int)},
        "seconds": counters["seconds"],
        "peak_mb": peak,
    }
    if shape:
        answer["asked"], answer["instantiable"] = instantiable(result, json.loads(shape[0]))
    print(json.dumps(answer))


def peak_mb() -> float:
    """The most memory this process has had."""
    status = Path("/proc/self/status")
    if status.is_file():
        # the kernel's other count goes on from what the parent had when it forked
        words = status.read_text().split()
        return int(words[words.index("VmHWM:") + 1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def instantiable(result: SearchResult, sizes: dict[str, int]) -> tuple[int, int]:
    """How many graphs were asked about, and how many of them the CPU takes at these sizes."""
    bound = bind_sizes(result.program, sizes)
    found = [g.graph for g in result.graphs if not g.is_fallback]
    asked = found[:: -(-len(found) // ASKED) or 1]
    target: Target = make(Group.TARGET, "cpu")
    return len(asked), sum(_is_accepted(graph, bound, target) for graph in asked)


def _is_accepted(graph: SGraph, sizes: dict[str, int], target: Target) -> bool:
    """Whether some config is not refused."""
    space = build_space((("graph", graph),), sizes, target)
    return any(
        target.refusal(instantiate(space.graphs[0], config), "float32") is None
        for config in islice(space, TRIED)
    )


if __name__ == "__main__":
    main(sys.argv[1:])
