"""What the search calls proved, two more witnesses: the placement interpreter and NumPy.

The interpreter is asked in production too, of every graph that is proved (`prism.search.judging`).
NumPy runs the graph block by block (`prism.ir.blocks`), which knows nothing of either.
"""

from __future__ import annotations

from functools import cache
from random import Random

import pytest
from verify.mutants_make import workloads
from verify.mutants_store import is_right

from prism.frontend import load_program
from prism.ir import stack_dims
from prism.search import SearchOptions, explain, search
from prism.search.explain_threads import ThreadExplainer
from prism.verify import Verdict

SHAPES = {
    "one loop": SearchOptions(max_graphs=40, budget_s=100.0),
    "two loops": SearchOptions(max_graphs=40, budget_s=100.0, loop_dims=2),
    "two kernels": SearchOptions(max_graphs=120, budget_s=100.0, max_kernels=2),
}


@cache
def found(workload, shape):
    _, program = load_program(workload)
    result = search(program, SHAPES[shape])
    assert not result.rejected
    return result.graphs


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("workload", workloads())
def test_what_is_proved_is_right_block_by_block_and_placed(workload, shape, thorough):
    graphs = found(workload, shape)
    threads = ThreadExplainer()
    drawn = Random(3).sample(graphs, len(graphs) if thorough else min(len(graphs), 2))
    for k, one in enumerate(drawn):
        assert one.verdict is Verdict.PROVED
        assert explain(one.graph) is None
        assert threads.explain(one.graph) is None
        # two sizes and kinds of values, two chunks of everything or three
        assert is_right(one.graph, [k]), one.id
        assert is_right(one.graph, [k + 1], count=2 if stack_dims(one.graph) else 3), one.id


@pytest.mark.slow
def test_graphs_of_all_shapes_are_among_them():
    missing = {"a kernel", "two kernels", "no loop", "one loop", "two loops", "a stack"}
    for workload in workloads():
        for shape in SHAPES:
            for one in found(workload, shape):
                missing -= traits(one.graph)
            if not missing:  # the others need not be searched in this worker
                return
    assert not missing


def traits(graph):
    """What a graph has of all that graphs may have."""
    kernels = {1: "a kernel", 2: "two kernels"}
    loops = ("no loop", "one loop", "two loops")
    out = {kernels[len(graph.kernels)], *(loops[len(k.loops)] for k in graph.kernels)}
    return out | {"a stack"} if stack_dims(graph) else out
