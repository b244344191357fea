"""Graphs of two kernels: the search lists what brute force finds (`brute_force_kernels`).

Without loops, at most one grid dim in each kernel. Graphs are compared up to the order of a
commutative operator's operands and the names of what lies between kernels.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import brute_force_kernels
import pytest
import search_programs as programs
from brute_force import Expected, count_of, generated
from brute_force_kernels import combining, expected_plans, plan_key
from brute_force_terms import vocabulary

from prism import frontend as pr
from prism.ir import OPS, Apply, check_sgraph, stack_dims
from prism.search import SearchOptions, explain, search
from prism.search.plans import cuts as plan_cuts
from prism.search.plans import pieces

PLANS = SearchOptions(
    grid_dims=1, max_kernels=2, max_ops=40, max_accumulators=0, budget_s=None, max_graphs=None
)
"""Without accumulators there are few loops, and they are left out."""


def listed(program, *, tied=True):
    """The graphs of two kernels without a loop, of brute force's operators and not more of them."""
    result = search(program, replace(PLANS, without=() if tied else ("dimension",)))
    assert result.complete
    assert not result.rejected
    most, words = count_of(program), vocabulary(program)
    out = {}
    for graph in (g.graph for g in result.graphs):
        check_sgraph(graph)
        if len(graph.kernels) == 1 or any(k.loops for k in graph.kernels):
            continue
        stacks = stack_dims(graph)
        nodes = [n for k in graph.kernels for n in k.block.nodes if isinstance(n, Apply)]
        ops = [n.op for n in nodes if n.dim not in stacks]
        if len(nodes) - combining(graph) <= most and words.issuperset(ops):
            out[plan_key(graph)] = graph
    return out


def assert_same(found, expected):
    lost, invented = expected.keys() - found.keys(), found.keys() - expected.keys()
    assert not lost
    assert not invented


# --- programs whose graphs one can list by hand -------------------------------------------------


def copied_and_multiplied(x: "n d", w: "d h"):
    return x, x @ w


def copied_and_applied(x: "n d", w: "d h"):
    return pr.exp(x) @ w, x


def kept_and_read(x: "n d", w: "d h"):
    y = x @ w
    return y, pr.exp(y)


def twice(x: "n d", w: "d h"):
    y = x @ w
    return y, y


def three_of_one(x: "n d", w: "d h"):
    e = pr.exp(x)
    return e, pr.sum(e, axis=1), e @ w


def more_than_may_be_saved(x: "n d"):
    e = pr.exp(x)
    return e, pr.sum(e, axis=1), pr.max(e, axis=1), pr.sum(e, axis=0)


NAMED = [
    *(programs.matmul, programs.row_max, programs.exp_sum, programs.exp_matmul, programs.scaled),
    *(programs.softmax, programs.multiplied, programs.matmul_and_max, programs.biased),
    *(copied_and_multiplied, copied_and_applied, kept_and_read, twice, three_of_one),
    more_than_may_be_saved,
]


@pytest.mark.parametrize("function", NAMED, ids=lambda f: f.__name__)
def test_programs_of_known_shape_in_two_kernels(function):
    program = programs.trace(function)
    expected = Expected(program, count_of(program))
    proved, unproved = expected_plans(expected, tied=True)
    assert proved
    assert not unproved
    assert_same(listed(program), proved)


def test_a_product_has_the_two_kernels_one_expects():
    """Blocks share the depth and stack what they have; then rows or columns are summed."""
    graphs = listed(programs.trace(programs.matmul)).values()
    assert len(graphs) == 2
    assert all(len(stack_dims(g)) == 1 for g in graphs)
    assert {v.dim for g in graphs for v in g.kernels[1].mapping.true} == {"n", "h"}


# --- generated programs -------------------------------------------------------------------------

SEEDS = (
    *(1, 4, 10, 11, 13, 17, 21, 29, 30, 34, 38, 41, 44),
    *(47, 50, 57, 60, 61, 63, 66, 68, 69),
)
"""Programs whose numbers coincide by nothing but the axioms, which brute force does in a second."""


@pytest.mark.parametrize("seed", SEEDS)
def test_the_search_lists_the_plans_that_brute_force_finds(seed):
    program = generated(seed)
    expected = Expected(program, count_of(program))
    assert expected.dags
    proved, unproved = expected_plans(expected, tied=True)
    assert proved
    assert not unproved
    assert_same(listed(program), proved)
    assert all(explain(graph) is None for graph in proved.values())


@pytest.mark.parametrize("seed", [4, 34, 44])
def test_so_it_does_without_dimension_matching(seed):
    program = generated(seed)
    proved, _ = expected_plans(Expected(program, count_of(program)), tied=False)
    assert_same(listed(program, tied=False), proved)


def test_the_programs_are_not_all_alike():
    counts = Counter(count_of(generated(seed)) for seed in SEEDS)
    assert len(SEEDS) >= 20
    assert all(counts[size] >= 3 for size in (2, 3, 4))


@pytest.mark.parametrize("most", [1, 2])
def test_so_it_does_where_fewer_values_may_be_saved(most, monkeypatch):
    """The limit leaves out what it says, nothing else; and brute force sees what is lost."""
    program = programs.trace(three_of_one)
    every = listed(program)
    monkeypatch.setattr(brute_force_kernels, "MOST_SAVED", most)
    proved, _ = expected_plans(Expected(program, count_of(program)), tied=True)
    assert every.keys() - proved.keys()
    monkeypatch.setattr(plan_cuts, "MAX_CROSSING", most)
    assert_same(listed(program), proved)
    assert search(program, PLANS).counters["cut"]["crossing"] > 0


# --- what is cut is said ------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["MAX_COLUMNS", "MAX_OPTIONS"])
def test_a_kernel_that_is_not_looked_at_in_full_makes_the_search_incomplete(limit, monkeypatch):
    monkeypatch.setattr(pieces, limit, 1)
    result = search(programs.trace(programs.exp_matmul), PLANS)
    assert not result.complete
    assert [cut for cut in result.cuts if cut.startswith("kernels: ")]


# --- more, slower -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("function", [programs.softmax_matmul, programs.late_softmax_matmul])
def test_so_it_does_for_larger_programs(function):
    program = programs.trace(function)
    expected = Expected(program, count_of(program))
    for tied in (True, False):
        proved, unproved = expected_plans(expected, tied=tied)
        assert not unproved
        assert_same(listed(program, tied=tied), proved)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 200, 20))
def test_the_search_lists_the_plans_of_more_programs(first):
    """A program that the numbers say more about than the axioms is set aside, but not many are."""
    compared = 0
    for seed in range(first, first + 20):
        program = generated(seed)
        if count_of(program) > 3:
            continue
        expected = Expected(program, count_of(program))
        if not expected.dags or not expected.is_defined or expected.unproved():
            continue
        compared += 1
        proved, _ = expected_plans(expected, tied=True)
        found = listed(program)
        assert not found.keys() - proved.keys()
        lost = {operators_of(proved[k]) for k in proved.keys() - found.keys()}
        # of an op DAG that the generation rules reach nothing is lost
        assert not lost & {operators_of(g) for g in found.values()}
    assert compared >= 6


def operators_of(graph):
    """The op DAG of a graph as nested text, whatever kernel computes it."""
    stacks, known, out = stack_dims(graph), {}, {}
    for kernel in graph.kernels:
        text = []
        for i, node in enumerate(kernel.block.nodes):
            operands = [text[j] for j in kernel.block.operands(i)]
            if isinstance(node, Apply) and node.dim not in stacks:
                ordered = sorted(operands) if OPS[node.op].is_commutative else operands
                text.append(f"{node.op}[{node.dim}]({', '.join(ordered)})")
            elif operands:
                text.append(operands[0])
            else:
                text.append(known.get(getattr(node, "source", None), str(node)))
        for saver in kernel.block.savers:
            known[saver.target] = text[saver.operand]
            if saver.target.startswith("out"):
                out[saver.target] = text[saver.operand]
    return tuple(sorted(out.items()))
