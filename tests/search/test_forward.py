"""The forward generator: the cone's graphs by another way, with maps symbolic or concrete."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest
import search_programs as programs
from strategies import random_program

from prism.egraph import load_axioms, saturate
from prism.errors import UsageError
from prism.frontend import load_program
from prism.search import SearchOptions, search
from prism.search.answers import load_encoding
from prism.search.cone import build_cone
from prism.search.forward import CONCRETE
from prism.search.forward.concrete import choices
from prism.search.forward.growth import Growth
from prism.search.forward.spread import Spread
from prism.search.forward.values import Values
from prism.search.generate import Materials
from prism.search.mapper import Cuts, Limits
from prism.search.mappings import Answers
from prism.search.placement import AFTER, PARTIAL, REPLICATED, transfer
from prism.search.pruning import Gate, load_pruners
from prism.search.wiring import Arena

REFERENCE = SearchOptions(max_ops=11, max_accumulators=3, budget_s=None, max_graphs=None)
FORWARD = replace(REFERENCE, generator="forward")
EXPRESSION = ("expression",)
SMALL = replace(FORWARD, max_ops=8, grid_dims=2)


def described(result):
    """What a search found, without the order."""
    return {(g.id, g.op_count, g.accumulator_count) for g in result.graphs}


def ids(result):
    return {g.id for g in result.graphs}


# ------------------------------------------------------------------------------------- agreement


@pytest.mark.parametrize(
    "function",
    [
        programs.matmul,
        programs.rmsnorm_paper,
        programs.softmax_matmul,
        programs.swiglu,
        programs.two_outputs,
        programs.matmul_and_max,
        programs.residual,
        programs.row_max,
        programs.total,
        programs.identity,
        programs.inverse,
        programs.gram,
        programs.biased,
    ],
    ids=lambda f: f.__name__,
)
def test_both_generators_find_the_same_graphs(function):
    program = programs.trace(function)
    by_cone, by_growth = search(program, REFERENCE), search(program, FORWARD)
    assert described(by_growth) == described(by_cone)
    assert by_growth.complete
    assert by_growth.counters["candidates"] == by_cone.counters["candidates"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["rmsnorm", "swiglu_paper", "attention_paper", "qk_attention_paper", "lora", "ffn"],
)
def test_both_generators_agree_on_the_workloads_at_the_reference_limits(name):
    _, program = load_program(name)
    assert described(search(program, FORWARD)) == described(search(program, REFERENCE))


@pytest.mark.parametrize("block", range(4))
def test_both_generators_agree_on_generated_programs(block):
    options = SearchOptions(
        max_ops=9, max_accumulators=3, grid_dims=2, budget_s=None, max_graphs=None
    )
    for seed in range(block * 8, block * 8 + 8):
        program = random_program(seed, Random(seed).randint(1, 4))
        by_cone = search(program, options)
        by_growth = search(program, replace(options, generator="forward"))
        assert described(by_growth) == described(by_cone), f"seed {seed}"


# ---------------------------------------------------------------------------------------- growth


def grown_by(function, max_ops=11):
    """The tables of a growth, and the growth."""
    program = programs.trace(function)
    arena, gate, cuts = Arena(program), Gate(load_pruners(())), Cuts()
    materials = Materials(
        arena, gate, Answers(load_encoding("backtracking")), Limits(max_ops, 3, 2, 1000), cuts
    )
    cone = build_cone(program, saturate(program, load_axioms()))
    spread = Spread(arena, gate, materials.mapper().rules)
    values = Values(arena, gate, cone, spread)
    return values, Growth(materials, values, is_repeated=False)


def test_each_partial_graph_is_built_in_one_order():
    values, growth = grown_by(programs.rmsnorm_paper, max_ops=10)
    built = [frozenset(graph.values) for graph in growth.graphs(values.spread.all, ())]
    assert len(built) == len(set(built)) > 300


def test_no_class_is_computed_twice():
    values, growth = grown_by(programs.softmax_matmul, max_ops=9)
    for graph in growth.graphs(values.spread.all, ()):
        computed = [values.values[v] for v in graph.values if values.values[v].is_operator]
        assert len({value.cls for value in computed}) == len(computed)


def test_what_runs_after_the_loop_reads_accumulators_or_what_no_iteration_changes():
    values, growth = grown_by(programs.rmsnorm_paper, max_ops=9)
    every = {v for graph in growth.graphs(values.spread.all, ()) for v in graph.values}
    late = [v for v in every if values.values[v].after and not values.values[v].accumulated]
    assert late
    for value in late:
        operands = [values.values[v] for v in values.values[value].operands]
        assert any(operand.is_whole for operand in operands)
        for operand in operands:
            varies = values.spread.all & ~values.spread.row(operand.term).whole
            assert operand.is_whole or not values.left(value).placed & varies


def test_maps_are_narrowed_as_the_table_of_states_says():
    values, _ = grown_by(programs.matmul)
    spread, arena = values.spread, values._arena
    x, w = (arena.leaf(i) for i in arena.program.inputs)
    product = arena.apply("matmul", (x, w), arena.dim_index("d"))
    row = spread.row(product)
    for states, found in zip(spread.maps, row.states, strict=True):
        dims = tuple(arena.terms[t].dims for t in (x, w))
        wanted = transfer("matmul", arena.dim_index("d"), states, dims)
        assert found == (frozenset() if wanted is None else {wanted})
    number = spread.maps.index((arena.dim_index("d"),) * 2)
    assert row.states[number] == {PARTIAL}
    assert row.matched >> number & 1
    one_sided = spread.maps.index((arena.dim_index("d"), REPLICATED))
    assert not row.matched >> one_sided & 1
    assert AFTER not in set().union(*row.states)


def test_states_count_every_extension_attempted():
    result = search(programs.trace(programs.matmul), FORWARD)
    counters = result.counters
    pruners = counters["pruners"]
    # every operator over tensors is shown to the first pruner
    assert counters["states"] >= pruners["expression"]["dropped"] + counters["partial_graphs"]
    assert all(c["seen"] >= c["dropped"] >= 0 for c in pruners.values())
    assert pruners["expression"]["dropped"] > 100
    assert "nothing that is equal to the program" in pruners["expression"]["example"]


# ---------------------------------------------------------------------------------- concrete maps


@pytest.mark.parametrize("function", [programs.matmul, programs.softmax_matmul])
@pytest.mark.parametrize(
    "concrete", [kinds for n in (1, 2, 3) for kinds in combinations(CONCRETE, n)]
)
def test_concrete_maps_find_the_same_graphs_with_more_states(function, concrete):
    program = programs.trace(function)
    options = replace(SMALL, grid_dims=1)
    symbolic = search(program, options)
    result = search(program, replace(options, concrete=concrete))
    assert described(result) == described(symbolic)
    assert result.complete
    assert result.counters["states"] > symbolic.counters["states"]
    assert result.counters["concrete"] == list(concrete)


def test_symbolic_maps_save_what_concrete_ones_repeat():
    program = programs.trace(programs.rmsnorm_paper)
    states = {
        kinds: search(program, replace(SMALL, max_ops=7, concrete=kinds)).counters["states"]
        for kinds in ((), ("omap",), ("fmap",), ("imap",), CONCRETE)
    }
    assert states[()] < min(states["fmap",], states["omap",], states["imap",])
    assert states["imap",] > states["fmap",]
    assert states[CONCRETE] > 5 * max(states["fmap",], states["omap",], states["imap",])


def test_a_choice_obeys_the_rules_of_a_mapping_problem():
    inputs = [(a, b) for a in (-1, 0, 1) for b in (-1, 1, 2)]
    outputs = [(-1,), (0,), (2,)]

    def count(*kinds, grid_dims=2):
        return len(list(choices(kinds, inputs, outputs, grid_dims)))

    assert count() == 1
    assert count("fmap") == 9
    assert count("imap", grid_dims=1) == 1 + 9
    assert count("imap") == 1 + 9 + 7 * 7  # an injective map of two grid dims into two dims: 7
    assert count("omap") == 1 + 3 + 7
    # a grid dim that partitions no tensor is none: all but (whole, whole, whole)
    assert count("imap", "omap", grid_dims=1) == 1 + 9 * 3 - 1
    assert count(*CONCRETE, grid_dims=1) == 9 * (1 + 9 * 3 - 1)


def test_concrete_maps_need_the_forward_generator():
    with pytest.raises(UsageError, match="--concrete omap needs --generator forward"):
        search(programs.trace(programs.matmul), SearchOptions(concrete=("omap",)))
    with pytest.raises(UsageError, match=r"no kind of map 'pmap'.*imap, fmap, omap"):
        search(programs.trace(programs.matmul), replace(FORWARD, concrete=("pmap",)))
    with pytest.raises(UsageError, match=r"no generator 'backward'.*cone, forward"):
        search(programs.trace(programs.matmul), SearchOptions(generator="backward"))


# --------------------------------------------------------------------------------------- pruners


@pytest.mark.parametrize("name", ["dimension", "placement"])
@pytest.mark.parametrize("function", [programs.matmul, programs.exp_sum, programs.two_outputs])
def test_without_a_pruner_nothing_is_lost_and_nothing_wrong_is_found(function, name):
    program = programs.trace(function)
    base, result = search(program, SMALL), search(program, replace(SMALL, without=(name,)))
    assert ids(result) >= ids(base)
    assert result.counters["states"] >= base.counters["states"]
    assert all(r.reason.startswith("along ") for r in result.rejected)
    for graph in result.graphs:
        assert programs.computes_its_program(graph.graph, seed=3)


@pytest.mark.parametrize(("function", "max_ops"), [(programs.matmul, 3), (programs.row_max, 2)])
def test_without_expression_pruning_more_is_tried_and_nothing_lost(function, max_ops):
    program = programs.trace(function)
    options = replace(SMALL, max_ops=max_ops, grid_dims=1)
    base, result = search(program, options), search(program, replace(options, without=EXPRESSION))
    assert result.complete
    assert ids(result) >= ids(base)
    assert result.counters["states"] > base.counters["states"]
    for graph in result.graphs:
        assert programs.computes_its_program(graph.graph, seed=3)


def test_the_syntactic_check_keeps_the_programs_own_operators_and_loses_the_rest():
    program = programs.trace(programs.rmsnorm_paper)
    every = search(program, FORWARD)
    for generator in ("cone", "forward"):
        own = search(program, replace(REFERENCE, generator=generator, also=("syntactic",)))
        assert ids(own) < ids(every)
        assert own.counters["dags"] == 1
    alone = search(program, replace(FORWARD, also=("syntactic",), without=EXPRESSION))
    assert ids(alone) == ids(own)


@pytest.mark.parametrize("function", [programs.matmul, programs.rmsnorm_paper])
def test_z3_matches_dims_as_the_comparison_of_variables_does(function):
    program = programs.trace(function)
    base = search(program, replace(SMALL, concrete=("fmap",)))
    asked = search(
        program,
        replace(SMALL, concrete=("fmap",), without=("dimension",), also=("dimension-z3",)),
    )
    assert described(asked) == described(base)
    assert asked.counters["states"] == base.counters["states"]
    counts = asked.counters["pruners"]["dimension-z3"]
    assert counts["dropped"] > 0
    assert "differ in shape, as for t = " in counts["example"]


def test_a_strangers_pruner_is_shown_every_extension(tmp_path):
    file = tmp_path / "shy.py"
    file.write_text(
        "from prism.search import Grown\n"
        "class NoDivision:\n"
        "    name = 'no-division'\n"
        "    def judge(self, partial):\n"
        "        match partial:\n"
        "            case Grown(op='div'):\n"
        "                return 'no divisions today'\n"
    )
    program = programs.trace(programs.rmsnorm_paper)
    result = search(program, replace(FORWARD, also=(f"{file}:NoDivision",)))
    count = result.counters["pruners"]["no-division"]
    assert count["dropped"] > 0
    assert count["example"] == "no divisions today"
    for found in result.graphs:
        operators = found.graph.kernels[0].block.nodes
        assert found.is_fallback or all(getattr(n, "op", "") != "div" for n in operators)


# --------------------------------------------------------------------------------------- budgets


def test_a_budget_that_ends_the_growth_is_reported():
    program = programs.trace(programs.rmsnorm)
    result = search(program, replace(FORWARD, budget_s=0.2))
    assert not result.complete
    assert any(cut.startswith("time: the growth was stopped after") for cut in result.cuts)
    assert result.counters["cut"]["budget_s"] > 0


@pytest.mark.parametrize("generator", ["cone", "forward"])
def test_a_result_that_is_empty_says_what_was_left_out(generator):
    program = programs.trace(programs.rmsnorm)
    options = replace(REFERENCE, generator=generator, max_ops=5)
    result = search(program, options)
    assert [g.is_fallback for g in result.graphs] == [True]
    assert result.nearest["max_ops"] == "the program itself: 7 block operators"
    options = replace(options, max_ops=11, max_accumulators=0)
    assert "max_accumulators" in search(program, options).nearest
