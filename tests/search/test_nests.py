"""A loop inside a loop: the search beside brute force, and what a nest does not allow."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import nested
import numpy as np
import pytest
import search_programs as programs
from brute_force import accumulators, expressions, key
from brute_force_nests import random_arrays, right_nests

from prism import frontend as pr
from prism.egraph import load_axioms
from prism.errors import UsageError
from prism.identity import graph_id
from prism.ir import (
    InputLoader,
    LoopStage,
    MuGraph,
    bind_sizes,
    evaluate,
    evaluate_graph,
    loop_stages,
)
from prism.plugins import Group, installed
from prism.search import SearchOptions, explain, program_graph, search
from prism.verdict import Verdict
from prism.verify import Verifier

NESTS = SearchOptions(
    loop_dims=2, max_ops=40, max_accumulators=9, grid_dims=0, budget_s=None, max_graphs=None
)


def rms_linear(x: "n d", w: "d h"):
    return (x @ w) / pr.sqrt(pr.sum(x * x, axis=-1, keepdims=True))


def late_attention(q: "q e", k: "k e", v: "k f"):
    e = pr.exp(q @ k.T)
    return (e @ v) / pr.sum(e, axis=-1, keepdims=True)


@cache
def found(function, options=NESTS):
    return search(programs.trace(function), options)


def nests_of(result):
    return [g for g in result.graphs if len(g.graph.kernels[0].loops) == 2]


SMALL = [
    programs.matmul,
    programs.softmax,
    programs.exp_matmul,
    programs.scaled,
    programs.matmul_and_max,
    programs.elementwise,
    programs.biased,
    programs.multiplied,
    programs.total,
    nested.largest_row,
]
LARGER = [rms_linear, late_attention]


@pytest.mark.parametrize(
    "function",
    [*SMALL, *(pytest.param(f, marks=pytest.mark.slow) for f in LARGER)],
    ids=lambda f: f.__name__,
)
def test_the_search_lists_the_nests_that_brute_force_finds(function):
    program = programs.trace(function)
    right = list(right_nests(program))
    verdicts = Verifier(program, load_axioms()).verify(right)
    expected = set()
    for graph, verdict in zip(right, verdicts, strict=True):
        # numbers alone also take partial values put side by side, and summed afterwards
        assert (verdict is Verdict.PROVED) == (explain(graph) is None)
        if verdict is Verdict.PROVED:
            expected.add(key(graph))
    assert found(function).complete
    own = expressions(program_graph(program), bare=True)
    listed = (g.graph for g in nests_of(found(function)))
    assert {key(g) for g in listed if expressions(g, bare=True) == own} == expected
    assert expected


@pytest.mark.parametrize("counts", [(2, 3), (3, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("function", [rms_linear, late_attention, programs.matmul_and_max])
def test_what_is_found_computes_the_program(function, counts):
    result = found(function, replace(NESTS, max_ops=11, max_accumulators=3, grid_dims=1))
    program = result.program
    # halved, then in three, each has chunks that differ and none that is empty
    sizes = bind_sizes(program, {n: 15 + 2 * i for i, n in enumerate(program.size_names)})
    arrays = random_arrays(program, sizes, 0)
    wanted = evaluate(program, arrays)
    assert nests_of(result)
    for graph in nests_of(result):
        (kernel,) = graph.graph.kernels
        pars = tuple((p.name, 2) for p in kernel.grid)
        pars += tuple((p.name, n) for p, n in zip(kernel.loops, counts, strict=True))
        got = evaluate_graph(MuGraph(graph.graph, tuple(sizes.items()), (pars,)), arrays)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12)
        assert graph.verdict is Verdict.PROVED
        assert explain(graph.graph) is None


def test_the_graphs_with_one_loop_are_those_of_a_search_for_one_loop():
    one = found(rms_linear, replace(NESTS, loop_dims=1))
    two = found(rms_linear)
    ids = {g.id for g in two.graphs}
    assert {g.id for g in one.graphs} == ids - {g.id for g in nests_of(two)}
    assert not nests_of(one)


@pytest.mark.parametrize("graph", ["matmul", "attention", "total", "largest row", "scaled"])
def test_nests_written_by_hand_are_found(graph):
    wanted = nested.RIGHT[graph]
    options = replace(NESTS, grid_dims=len(wanted.kernels[0].grid))
    function = {
        "matmul": nested.matmul,
        "attention": late_attention,
        "total": nested.total,
        "largest row": nested.largest_row,
        "scaled": nested.scaled,
    }[graph]
    assert key(wanted) in {key(g.graph) for g in found(function, options).graphs}


def test_every_stage_of_a_nest_occurs():
    stages = Counter(
        stage for g in nests_of(found(rms_linear)) for stage in loop_stages(g.graph.kernels[0])
    )
    assert set(stages) == set(LoopStage) - {LoopStage.ONCE}  # a size or a constant, here none


def test_loops_divide_different_dims():
    for graph in nests_of(found(late_attention)):
        true = graph.graph.kernels[0].mapping.true
        outer, inner = ({v.dim for v in true if v.par == par} for par in "ij")
        assert outer
        assert inner
        assert outer.isdisjoint(inner)


def test_budgets_count_the_accumulators_of_both_loops():
    few = found(rms_linear, replace(NESTS, max_accumulators=2))
    assert few.counters["cut"]["max_accumulators"]
    wide = {g.id: g.accumulator_count for g in nests_of(found(rms_linear))}
    listed = {g.id for g in nests_of(few)}
    assert listed == {name for name, count in wide.items() if count <= 2}
    assert all(len(accumulators(g.graph)) <= 2 for g in nests_of(few))


def test_operators_are_counted_as_for_one_loop():
    for graph in nests_of(found(programs.total)):
        nodes = graph.graph.kernels[0].block.nodes
        assert graph.op_count >= sum(isinstance(n, InputLoader) for n in nodes) + 2


@pytest.mark.parametrize("name", [n for n in installed(Group.ENCODING) if n != "boolean"])
def test_every_encoding_leads_to_the_same_nests(name):
    result = found(programs.scaled, replace(NESTS, encoding=name, grid_dims=1))
    usual = found(programs.scaled, replace(NESTS, grid_dims=1))
    assert [g.id for g in result.graphs] == [g.id for g in usual.graphs]
    assert nests_of(result)


def test_an_assignment_that_an_encoding_leaves_out_loses_its_nests(tmp_path):
    lost = "m[w,d,j] m[w,h,i] m[x,d,j]"
    file = tmp_path / "forgetful.py"
    file.write_text(
        "from prism.ir import Enumeration\n"
        "from prism_constraints.boolean import BooleanEncoding\n"
        "class Forgetful(BooleanEncoding):\n"
        "    def enumerate(self, problem, *, limit=None):\n"
        "        every = super().enumerate(problem, limit=limit)\n"
        f"        kept = tuple(a for a in every.assignments if str(a) != {lost!r})\n"
        "        return Enumeration(kept, every.complete)\n"
    )
    result = found(programs.matmul, replace(NESTS, encoding=f"{file}:Forgetful"))
    gone = {g.id for g in found(programs.matmul).graphs} - {g.id for g in result.graphs}
    mapped = {
        g.id for g in found(programs.matmul).graphs if str(g.graph.kernels[0].mapping) == lost
    }
    assert gone == mapped != set()


def test_kernels_of_plans_have_nests_too():
    result = found(
        programs.exp_matmul,
        replace(NESTS, max_kernels=2, max_ops=11, max_accumulators=2, max_graphs=400),
    )
    plans = [g for g in result.graphs if len(g.graph.kernels) == 2]
    assert any(len(k.loops) == 2 for g in plans for k in g.graph.kernels)
    assert len({graph_id(g.graph) for g in plans}) == len(plans)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loop_dims": 0}, "loop_dims must be 1 to 2, not 0"),
        ({"loop_dims": 3}, "loop_dims must be 1 to 2, not 3"),
        ({"mode": "tune"}, "mode tune searches one loop"),
        ({"generator": "forward"}, "generator forward searches one loop"),
    ],
)
def test_what_cannot_search_nests_says_so(options, message):
    with pytest.raises(UsageError, match=message):
        search(programs.trace(programs.matmul), replace(NESTS, **options))
