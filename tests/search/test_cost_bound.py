"""The pruner `cost-bound` drops products in a bad order, and never what may be the fastest."""

from __future__ import annotations

from random import Random

import pytest
import search_programs as programs
from strategies import random_program

from prism.errors import KernelError
from prism.frontend import trace
from prism.ir import Apply, MuGraph, bind_sizes
from prism.search import SearchOptions, search
from prism.search.cost_bound import SAFETY, CostBoundPruner, TimeModel
from prism.search.pruning import Bounded
from prism.search.situation import Situation
from prism.tune.space import legal_choices
from prism_kernels.cpu.target import CpuTarget
from prism_kernels.cuda.target import OfflineTarget

TARGETS = {"cpu": CpuTarget(), "h200": OfflineTarget("h200")}
FEW_ROWS = {"n": 8, "d": 4096, "k": 4096, "h": 4096}


def chain(x: "n d", v: "d k", w: "k h"):
    return (x @ v) @ w


def searched(program, at, target, **options):
    situation = {"sizes": tuple(at.items()), "device": target.device()}
    limits = {"max_graphs": 3000, "budget_s": None}
    return search(program, SearchOptions(**situation | limits | options))


def products_of_weights(graph):
    """Whether a graph multiplies the two weights, which takes 4096^3 multiply-adds."""
    block = graph.kernels[0].block
    dims = block.tensor_dims()
    return any(
        isinstance(node, Apply) and node.op == "matmul" and dims[i] == {"d", "h"}
        for i, node in enumerate(block.nodes)
    )


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("mode", ["count", "tune"])
def test_a_product_of_weights_is_dropped_where_rows_are_few(mode, name):
    program, target = trace(chain), TARGETS[name]
    result = searched(program, FEW_ROWS, target, mode=mode)
    count = result.counters["pruners"]["cost-bound"]
    assert count["seen"] > count["dropped"] > 0
    assert "multiply-adds" in count["example"]
    assert "what the program itself takes" in result.nearest["cost-bound"]
    assert not any(products_of_weights(g.graph) for g in result.graphs)
    assert len(result.graphs) > 1


def test_it_can_be_switched_off():
    usual = searched(trace(chain), FEW_ROWS, TARGETS["cpu"])
    without = searched(trace(chain), FEW_ROWS, TARGETS["cpu"], without=("cost-bound",))
    assert any(products_of_weights(g.graph) for g in without.graphs)
    assert {g.id for g in usual.graphs} < {g.id for g in without.graphs}
    assert "cost-bound" not in without.counters["pruners"]


@pytest.mark.parametrize("missing", ["sizes", "device"])
def test_without_sizes_or_a_device_nothing_is_judged(missing):
    result = searched(trace(chain), FEW_ROWS, TARGETS["cpu"], **{missing: None})
    assert result.counters["pruners"]["cost-bound"]["seen"] == 0
    assert any(products_of_weights(g.graph) for g in result.graphs)


def best_estimate(graphs, sizes, target, random):
    """The least time that a target predicts for some counts of each graph."""
    best = float("inf")
    for found in graphs:
        (kernel,) = found.graph.kernels
        choices = legal_choices(kernel, sizes, target.device().blocks)
        for counts in random.sample(choices, min(6, len(choices))):
            try:
                mu = MuGraph(found.graph, tuple(sizes.items()), (counts,))
                best = min(best, target.estimate(mu, "float32"))
            except KernelError:
                continue
    return best


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    "function", [chain, programs.residual, programs.late_softmax_matmul, programs.multiplied]
)
def test_the_fastest_by_the_targets_own_prediction_is_kept(function, name):
    program, target, random = trace(function), TARGETS[name], Random(1)
    for _ in range(2):
        sizes = {d: random.choice((2, 16, 256, 4096)) for d in program.size_names}
        everything = searched(program, sizes, target, without=("cost-bound",), max_graphs=60)
        kept = {g.id for g in searched(program, sizes, target).graphs}
        dropped = [g for g in everything.graphs if g.id not in kept]
        bound = bind_sizes(program, sizes)
        if dropped:
            rest = [g for g in everything.graphs if g.id in kept]
            ours = best_estimate(rest, bound, target, random)
            assert ours < best_estimate(dropped, bound, target, random)


@pytest.mark.parametrize("seed", range(12))
def test_the_program_itself_is_always_kept(seed):
    program, random = random_program(seed, 4), Random(seed)
    sizes = {d: random.choice((1, 3, 64, 5000)) for d in program.size_names}
    for target in TARGETS.values():
        pruner = CostBoundPruner()
        pruner.situate(Situation.of(program, tuple(sizes.items()), target.device()))
        assert pruner.is_situated == bool(program.dims)
        dims, bound = program.tensor_dims(), bind_sizes(program, sizes)
        work = 0
        for node in program.nodes:
            if isinstance(node, Apply):
                space = frozenset[str]().union(*(dims[j] for j in node.operands))
                elements = 1
                for d in space:
                    elements *= bound[d]
                work += elements
        assert pruner.judge(Bounded(float(work))) is None


@pytest.mark.parametrize("name", TARGETS)
def test_the_least_time_is_below_what_is_predicted(name):
    model = TimeModel(TARGETS[name].device())
    for work, elements, launches in ((0, 1, 1), (1e12, 1e6, 2), (1e6, 1e9, 1)):
        assert SAFETY * model.least(work, elements, launches) < model.predicted(
            work, elements, launches, blocks=1000
        )
    assert model.predicted(1e9, 1e6, 1, blocks=1) > model.predicted(1e9, 1e6, 1, blocks=2)


def test_kernels_of_a_plan_count_their_launches_and_what_lies_between_them():
    pruner = CostBoundPruner()
    program = trace(chain)
    pruner.situate(Situation.of(program, tuple(FEW_ROWS.items()), TARGETS["h200"].device()))
    assert pruner.judge(Bounded(1e8, moved=1e6, launches=2)) is None
    assert "at least" in pruner.judge(Bounded(1e8, moved=1e12, launches=2))
    assert "at least" in pruner.judge(Bounded(1e8, launches=10_000))
