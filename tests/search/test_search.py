"""The search as a whole: what it must find, what it must never find, its budgets and counts."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

import pytest
import search_programs as programs
from strategies import random_program

from prism.errors import PluginError, UsageError
from prism.identity import PROGRAM_ID, graph_id
from prism.ir import (
    Accumulator,
    AccumulatorKind,
    Apply,
    Argument,
    DimInfo,
    Input,
    LoopStage,
    Output,
    Program,
    check_sgraph,
    format_sgraph,
    loop_stages,
    parse_sgraph,
)
from prism.search import SearchOptions, explain, search
from prism.verdict import Verdict

REFERENCE = SearchOptions(max_ops=11, max_accumulators=3, budget_s=None)
"""The limits of the authors' own search."""

WORKLOADS = {
    f.__name__: f
    for f in (programs.rmsnorm_paper, programs.rmsnorm, programs.softmax_matmul, programs.matmul)
}
OTHERS = {
    f.__name__: f
    for f in (
        programs.stable_softmax_matmul,
        programs.swiglu,
        programs.layernorm_linear,
        programs.two_outputs,
        programs.residual,
        programs.elementwise,
        programs.row_max,
        programs.total,
        programs.identity,
        programs.inverse,
        programs.gram,
    )
}


@pytest.fixture(scope="module")
def results():
    """One search per workload under the reference's limits."""
    return {name: search(programs.trace(f), REFERENCE) for name, f in WORKLOADS.items()}


def others(result):
    return [g for g in result.graphs if not g.is_fallback]


def stage_of(graph, op):
    (kernel,) = graph.kernels
    stages = loop_stages(kernel)
    return {
        stages[i]
        for i, node in enumerate(kernel.block.nodes)
        if isinstance(node, Apply) and node.op == op
    }


def concatenates(graph):
    """Whether a value is put together in fast memory; a tile stored in the loop is not."""
    (block,) = [k.block for k in graph.kernels]
    read = {j for i, n in enumerate(block.nodes) if isinstance(n, Apply) for j in n.operands}
    return any(
        isinstance(n, Accumulator) and n.kind is AccumulatorKind.CONCAT and i in read
        for i, n in enumerate(block.nodes)
    )


def test_the_counts_under_the_reference_limits(results, golden):
    lines = []
    for name, result in results.items():
        found = others(result)
        plain = [g for g in found if not concatenates(g.graph)]
        c = result.counters
        lines.append(
            f"{name}: {c['dags']} op DAGs, {c['candidates']} candidates, {len(found)} graphs, "
            f"{len(plain)} without concatenating accumulators"
        )
        assert result.complete
        assert c["proved"] == c["candidates"] == len(found)
    golden("search/counts", "\n".join(lines))


def test_rmsnorm_has_at_least_the_papers_nine(results):
    assert len(others(results["rmsnorm_paper"])) >= 9


@pytest.mark.parametrize("name", ["rmsnorm_paper", "rmsnorm", "softmax_matmul"])
def test_the_fused_kernel_divides_after_the_loop_and_looks_best(results, name):
    best = results[name].graphs[0].graph
    assert stage_of(best, "matmul") == {LoopStage.BODY}
    assert stage_of(best, "div") == {LoopStage.AFTER}
    assert [p.name for p in best.kernels[0].grid] == ["x", "y"]


def test_a_stable_softmax_stays_stable_where_it_looks_best():
    result = search(
        programs.trace(programs.stable_softmax_matmul), SearchOptions(max_graphs=60, budget_s=None)
    )
    best = result.graphs[0].graph.kernels[0].block.nodes
    assert any(isinstance(node, Apply) and node.op == "max" for node in best)
    assert any(isinstance(node, Apply) and node.op == "sub" for node in best)


def test_every_output_dim_becomes_a_grid_dim_and_every_contraction_a_loop(results):
    maps = [str(g.graph.kernels[0].mapping) for g in others(results["matmul"])]
    assert "m[out0,h,y] m[out0,n,x] m[w,d,i] m[w,h,y] m[x,d,i] m[x,n,x]" in maps
    assert "m[out0,n,x] m[x,n,x]" in maps
    assert len(maps) == len(set(maps)) == 12  # 3 grids x (no loop, n, d, h)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_graph_is_sound_explained_and_right(results, name):
    for i, found in enumerate(results[name].graphs):
        check_sgraph(found.graph)
        assert explain(found.graph) is None
        assert programs.computes_its_program(found.graph, seed=i)


@pytest.mark.parametrize("name", WORKLOADS)
def test_graphs_are_distinct_and_named_by_what_they_are(results, name):
    found = results[name].graphs
    assert len({g.id for g in found}) == len(found)
    for g in others(results[name]):
        assert g.id == graph_id(g.graph) == graph_id(parse_sgraph(format_sgraph(g.graph)))
        assert g.verdict is Verdict.PROVED
        assert g.op_count <= 11
        assert g.accumulator_count <= 3


@pytest.mark.parametrize("name", OTHERS)
def test_any_program_finishes_and_gives_useful_graphs(name):
    start = time.process_time()
    result = search(programs.trace(OTHERS[name]), SearchOptions(max_graphs=60, budget_s=None))
    assert time.process_time() - start < 30
    assert result.counters["not_proved"] == result.counters["gave_up"] == 0
    assert others(result)
    for i, found in enumerate(result.graphs):
        assert explain(found.graph) is None
        assert programs.computes_its_program(found.graph, seed=i)


def test_a_division_by_a_full_matrix_is_never_moved_past_the_product():
    result = search(programs.trace(programs.divided), SearchOptions(max_graphs=None, budget_s=None))
    assert result.complete
    for found in result.graphs:
        nodes = found.graph.kernels[0].block.nodes
        dims = found.graph.kernels[0].block.tensor_dims()
        for i, node in enumerate(nodes):
            if isinstance(node, Apply) and node.op == "div":
                # of x and y, or of w and y element by element; never of a product
                assert dims[i] >= {"d"}
        assert programs.computes_its_program(found.graph, seed=5)


def test_a_product_with_a_full_matrix_finds_graphs():
    assert len(others(search(programs.trace(programs.multiplied)))) > 9


def test_the_program_itself_is_always_there_and_last():
    result = search(programs.trace(programs.matmul), SearchOptions(max_ops=1))
    (only,) = result.graphs
    assert (only.id, only.is_fallback) == (PROGRAM_ID, True)
    assert only.verdict is Verdict.PROVED
    assert programs.computes_its_program(only.graph, seed=0)


def test_a_search_repeats_itself():
    program = programs.trace(programs.rmsnorm)
    options = SearchOptions(max_graphs=40, budget_s=None)
    first, second = (search(program, options) for _ in range(2))
    assert [(g.id, g.graph) for g in first.graphs] == [(g.id, g.graph) for g in second.graphs]


def test_encodings_lead_to_the_same_graphs(results):
    for name in ("matmul", "softmax_matmul"):
        options = replace(REFERENCE, encoding="backtracking")
        other = search(programs.trace(WORKLOADS[name]), options)
        assert [g.id for g in other.graphs] == [g.id for g in results[name].graphs]
        assert set(other.counters["encodings"]) == {"backtracking"}


def test_every_mapping_comes_from_the_encoding(tmp_path, results):
    """An encoding that drops one assignment loses exactly the graphs of that assignment."""
    lost = "m[out0,n,x] m[w,d,i] m[x,d,i] m[x,n,x]"
    file = tmp_path / "forgetful.py"
    file.write_text(
        "from prism.ir import Enumeration\n"
        "from prism_constraints.backtracking import BacktrackingEncoding\n"
        "class Forgetful(BacktrackingEncoding):\n"
        "    name = 'forgetful'\n"
        "    def enumerate(self, problem, *, limit=None):\n"
        "        every = super().enumerate(problem, limit=limit)\n"
        f"        kept = tuple(a for a in every.assignments if str(a) != {lost!r})\n"
        "        return Enumeration(kept, every.complete)\n"
    )
    options = replace(REFERENCE, encoding=f"{file}:Forgetful")
    result = search(programs.trace(programs.rmsnorm_paper), options)
    base = results["rmsnorm_paper"]
    missing = {g.id for g in base.graphs} - {g.id for g in result.graphs}
    assert missing == {g.id for g in base.graphs if str(g.graph.kernels[0].mapping) == lost}
    assert missing
    assert result.complete


def test_an_encoding_that_stops_early_makes_the_search_incomplete(tmp_path):
    file = tmp_path / "lazy.py"
    file.write_text(
        "from prism_constraints.backtracking import BacktrackingEncoding\n"
        "class Lazy(BacktrackingEncoding):\n"
        "    def enumerate(self, problem, *, limit=None):\n"
        "        return super().enumerate(problem, limit=2)\n"
    )
    result = search(programs.trace(programs.matmul), SearchOptions(encoding=f"{file}:Lazy"))
    assert not result.complete
    assert any(cut.startswith("mappings") for cut in result.cuts)


@pytest.mark.parametrize(
    ("options", "budget"),
    [
        (SearchOptions(max_graphs=3, budget_s=None), "max_graphs"),
        (SearchOptions(budget_s=0.0), "budget_s"),
        (SearchOptions(max_ops=5, max_graphs=10), "max_ops"),
        (SearchOptions(max_accumulators=0, max_graphs=10), "max_accumulators"),
    ],
)
def test_every_cut_is_counted(options, budget):
    result = search(programs.trace(programs.rmsnorm_paper), options)
    assert result.counters["cut"][budget] > 0
    assert result.graphs[-1].id == PROGRAM_ID


def test_an_op_dag_that_is_over_the_budget_is_not_even_mapped():
    """Its inputs and operators count in every graph; accumulators come on top."""
    program = programs.trace(programs.multiplied)  # three inputs, two operators
    for most, dags in ((4, 0), (5, 3)):
        counters = search(program, SearchOptions(max_ops=most, budget_s=None)).counters
        assert counters["dags"] == dags
        assert counters["cut"]["max_ops"] > 0


def test_what_a_budget_leaves_is_the_best_looking():
    program = programs.trace(programs.rmsnorm_paper)
    few = search(program, SearchOptions(max_graphs=5, budget_s=None))
    many = search(program, SearchOptions(max_graphs=50, budget_s=None))
    assert [g.id for g in few.graphs[:5]] == [g.id for g in many.graphs[:5]]
    assert not few.complete


def test_a_program_too_large_for_the_e_graph_has_its_own_graph():
    names = [f"d{i}" for i in range(45)]
    nodes = tuple(Input(f"x{d}", f"x{d}", (d,)) for d in names)
    sums = tuple(Apply("sum", (i,), d) for i, d in enumerate(names))
    program = Program(
        "wide",
        tuple(DimInfo(d, d) for d in names),
        tuple(Argument(f"x{d}", (d,)) for d in names),
        (*nodes, *sums),
        tuple(Output(45 + i, ()) for i in range(45)),
    )
    result = search(program)
    assert [g.id for g in result.graphs] == [PROGRAM_ID]
    assert "45 dimensions" in result.cuts[0]


def test_grid_dims_can_be_limited():
    program = programs.trace(programs.matmul)
    for most in (0, 1):
        result = search(program, SearchOptions(grid_dims=most))
        assert others(result)
        assert all(len(g.graph.kernels[0].grid) == most for g in others(result))


def test_an_interrupt_keeps_what_is_proved():
    def press(step, done, _total):
        if step == "verify" and done > 0:
            raise KeyboardInterrupt

    result = search(programs.trace(programs.rmsnorm), SearchOptions(), press)
    assert 0 < len(others(result)) < 200
    assert not result.complete
    assert "interrupt" in result.counters["cut"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_kernels": 4}, "max_kernels must be 1 to 3, not 4"),
        ({"grid_dims": 4}, "grid_dims must be 0 to 3, not 4"),
        ({"max_ops": 0}, "max_ops must be at least 1"),
        ({"budget_s": -1.0}, "budget_s"),
        ({"without": ("spelling",)}, "no pruner 'spelling'"),
    ],
)
def test_an_option_that_cannot_be_used_says_so(options, message):
    with pytest.raises(UsageError, match=message):
        search(programs.trace(programs.matmul), SearchOptions(**options))


def test_an_unknown_encoding_lists_the_known_ones():
    with pytest.raises(PluginError, match="backtracking, boolean"):
        search(programs.trace(programs.matmul), SearchOptions(encoding="bolean"))


def renamed(program, suffix):
    """The same program with other names for dims and inputs."""

    def dim(name):
        return None if name is None else f"{name}{suffix}"

    text = format_sgraph(search(program, SearchOptions(max_graphs=1)).graphs[-1].graph)
    assert text
    nodes = tuple(
        type(n)(n.name, n.argument, tuple(map(dim, n.dims)))
        if hasattr(n, "argument")
        else type(n)(dim(n.dim))
        if not hasattr(n, "op") and hasattr(n, "dim")
        else type(n)(n.op, n.operands, dim(n.dim))
        if hasattr(n, "op")
        else n
        for n in program.nodes
    )
    return Program(
        program.name,
        tuple(type(d)(dim(d.name), dim(d.size), d.fixed) for d in program.dims),
        tuple(type(a)(a.name, tuple(map(dim, a.axes))) for a in program.arguments),
        nodes,
        tuple(type(o)(o.tensor, tuple(map(dim, o.axes))) for o in program.outputs),
    )


def test_names_of_dims_do_not_matter(results):
    program = programs.trace(programs.softmax_matmul)
    other = search(renamed(program, "q"), REFERENCE)
    base = results["softmax_matmul"]
    assert other.counters["candidates"] == base.counters["candidates"]
    assert len(other.graphs) == len(base.graphs)


@pytest.mark.parametrize("block", range(5))
def test_no_program_makes_the_search_fail(block):
    for seed in range(block * 8, block * 8 + 8):
        random = Random(seed)
        program = random_program(seed, random.randint(1, 7))
        result = search(program, SearchOptions(max_graphs=8))
        for found in result.graphs:
            check_sgraph(found.graph)
            assert explain(found.graph) is None
            assert programs.computes_its_program(found.graph, seed, largest=4)
