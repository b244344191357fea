"""Thread graphs: that threads may share one is proved, read, and computed thread by thread."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from nested import RIGHT
from strategies import random_sgraph

from prism import frontend as pr
from prism.egraph import AxiomFile, load_axioms, make_axiom_set
from prism.errors import GraphError
from prism.frontend import trace
from prism.ir import (
    Apply,
    BlockGraph,
    GraphOp,
    InputLoader,
    Mapping,
    MapVar,
    OutputSaver,
    ParDim,
    ParKind,
    parse_sgraph,
    thread_graphs,
    thread_kernel,
)
from prism.ir.blocks import _Launch
from prism.ir.evaluate import Value
from prism.search import SearchOptions, search
from prism.search.explain import explain
from prism.search.explain_threads import ThreadExplainer, explain_threads
from prism.verify import ThreadProofs, Verdict, claim_of, verify_graphs

SIZES = {"n": 7, "d": 5, "h": 6, "k": 3, "c": 4}


@pytest.fixture(scope="module")
def axioms():
    return load_axioms()


@pytest.fixture(scope="module")
def proofs(axioms):
    return ThreadProofs(axioms)


def size_of(dim):
    return SIZES[dim.rstrip("'")]


def launched(shared, counts, tensors):
    """What the threads write, so many of them along each block dim."""
    sizes = {d: size_of(d) for node in shared.block.loaders for d in node.dims}
    with np.errstate(all="ignore"):
        return _Launch(0, shared, sizes, counts, tensors).run()


def is_true(shared, seed=0):
    """Whether threads that share the work compute what one thread does, for uneven shares too."""
    random = np.random.default_rng(seed)
    tensors = {
        n.source: Value(n.dims, random.uniform(0.5, 2.0, [size_of(d) for d in n.dims]))
        for n in shared.block.loaders
    }
    alone = replace(shared, grid=(), mapping=Mapping(frozenset()))
    whole = launched(alone, {}, tensors)
    for count in (2, 3):
        counts = {p.name: count for p in shared.grid}
        try:
            given = launched(shared, counts, tensors)
        except (GraphError, ValueError):  # shares that do not fit together
            return False
        for name, value in whole.items():
            if not np.allclose(given[name].array, value.array, equal_nan=True):
                return False
    return True


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_threads_may_share_what_is_derived(first, proofs):
    graphs = [random_sgraph(seed, 8) for seed in range(first, first + 20)]
    assert proofs.faults(graphs) == (None,) * len(graphs)
    explainer = ThreadExplainer()
    for graph in graphs:
        assert explainer.explain(graph) is None
        for kernel in graph.kernels:
            threads = thread_graphs(kernel)
            assert proofs.fault(kernel, threads) is None
            assert all(is_true(thread_kernel(kernel, one)) for one in threads)


def test_thread_graphs_in_every_stage_of_two_loops_are_proved(proofs):
    graphs = list(RIGHT.values())
    assert proofs.faults(graphs) == (None,) * len(graphs)


CHAIN = """
sgraph
program p
  dims n, d
  args x[n, d], y[n]
  x = input x[n, d]
  y = input y[n]
  %2 = exp(x)
  %3 = mul(%2, y)
  return %3[n, d]
kernel 0
  x = load x[n, d]
  y = load y[n]
  %2 = exp(x)
  %3 = mul(%2, y)
  save %3 as out0[n, d]
"""

PARS = tuple(ParDim(f"th{k}", ParKind.BLOCK) for k in (0, 1))


def every_map(border, grid):
    """Every mapping of some values that gives each at most one dim along each block dim."""
    places = [(value, par.name, dims) for par in grid for value, dims in border.items()]
    for choice in product(*[(None, *dims) for _, _, dims in places]):
        yield Mapping(
            frozenset(
                MapVar(value, dim, par)
                for (value, par, _), dim in zip(places, choice, strict=True)
                if dim is not None
            )
        )


@pytest.mark.parametrize("pars", [1, 2])
def test_of_all_maps_those_that_are_proved_are_true_and_the_others_false(pars, proofs):
    graph = parse_sgraph(CHAIN)
    (kernel,) = graph.kernels
    (derived,) = thread_graphs(kernel)
    border = {"x": ("n", "d"), "y": ("n",), "%3": ("n", "d")}
    found = {True: 0, False: 0}
    for mapping in every_map(border, PARS[:pars]):
        one = replace(derived, grid=PARS[:pars], mapping=mapping)
        claim = claim_of(thread_kernel(kernel, one))
        holds = proofs.holds([claim])[claim]
        found[holds] += 1
        assert holds == (explain_threads(graph, kernel, one) is None), mapping
        if holds or pars == 1 or found[False] % 5 == 0:
            assert holds == is_true(thread_kernel(kernel, one)), mapping
        # (2) is a rule of the IR: shares of shares would be right too, and are of no use
        is_refused = proofs.fault(kernel, [one]) is not None
        assert is_refused or holds
    # rows, columns or nothing along each block dim
    assert found[True] == 3**pars


def test_a_wrong_map_is_refused_with_a_reason(proofs):
    graph = parse_sgraph(CHAIN)
    (kernel,) = graph.kernels
    (one,) = thread_graphs(kernel)
    lost = Mapping(one.mapping.true - {MapVar("y", "n", "th0")})
    wrong = replace(one, mapping=lost)
    assert "not of y (constraint 3)" in proofs.fault(kernel, [wrong])
    reason = explain_threads(graph, kernel, wrong)
    assert reason.startswith("threads that share %2, %3, along th0: ")
    assert "a tile along n and all of y[n]" in reason


def reducing(op, mapping, grid=PARS[:1]):
    """A thread graph with a reduction over d inside, which no rule of the IR lets pass."""
    nodes = (
        InputLoader("x", ("n", "d")),
        Apply("exp", (0,)),
        Apply(op, (1,), "d"),
        Apply("sqrt", (2,)),
        OutputSaver(3, "%3", ("n",)),
    )
    return GraphOp(grid, (), mapping, BlockGraph(nodes))


@pytest.mark.parametrize("op", ["sum", "mean", "max"])
@pytest.mark.parametrize(
    ("maps", "is_right"),
    [("m[x,d,th0]", False), ("m[x,n,th0] m[%3,n,th0]", True), ("", True)],
)
def test_threads_share_no_reduction_along_the_dim_it_is_over(op, maps, is_right, proofs):
    names = (part[2:-1].split(",") for part in maps.split())
    shared = reducing(op, Mapping(frozenset(MapVar(*name) for name in names)))
    claim = claim_of(shared)
    assert proofs.holds([claim])[claim] is is_right
    assert is_true(shared) is is_right
    graph = replace(parse_sgraph(CHAIN), kernels=(shared,))
    assert (explain(graph) is None) is is_right


def test_names_make_no_other_claim(axioms):
    proofs = ThreadProofs(axioms)
    first = parse_sgraph(CHAIN)
    assert proofs.faults([first]) == (None,)
    assert len(proofs) == 1
    other = CHAIN.replace("n, d", "rows, columns").replace("[n]", "[rows]")
    assert proofs.faults([parse_sgraph(other)]) == (None,)
    assert len(proofs) == 1


def test_what_is_asked_together_or_before_changes_nothing(axioms):
    graphs = [random_sgraph(seed, 6) for seed in range(30)]
    together = ThreadProofs(axioms)
    assert together.faults(graphs) == (None,) * 30
    one_by_one = ThreadProofs(axioms)
    for graph in Random(0).sample(graphs, 30):
        assert one_by_one.faults([graph]) == (None,)
    assert len(together) == len(one_by_one)


def without(axioms, *names):
    """The axiom set without some rules, each a form of its own after a comment."""
    files = []
    for file in axioms.files:
        kept = [p for p in file.text.split("\n\n") if not any(f'"{n}"' in p for n in names)]
        files.append(AxiomFile(file.name, "\n\n".join(kept)))
    return make_axiom_set(tuple(files))


def test_a_graph_whose_threads_are_not_proved_is_not_proved(axioms):
    graph = parse_sgraph(CHAIN)  # no grid and no loop, so nothing else needs the rule
    weaker = without(axioms, "exp-part")
    assert len(weaker.axioms) == len(axioms.axioms) - 1
    assert verify_graphs(graph.program, [graph], axioms) == (Verdict.PROVED,)
    assert verify_graphs(graph.program, [graph], weaker) == (Verdict.NOT_PROVED,)
    (reason,) = ThreadProofs(weaker).faults([graph])
    assert reason == (
        "kernel 0: nothing proves that threads may share the elementwise operators %2, %3"
    )


def test_a_search_says_why_such_a_graph_is_rejected(axioms, tmp_path):
    for file in without(axioms, "exp-part").files:
        (tmp_path / Path(file.name).name).write_text(file.text, encoding="utf-8")
    program = trace(lambda x, w: pr.exp(x) @ w, x="n d", w="d h")
    for folder, is_weak in (("prism", False), (str(tmp_path), True)):
        # along h alone nothing but threads takes tiles of the exponential
        result = search(program, SearchOptions(axioms=(folder,), grid_dims=1, max_accumulators=0))
        reasons = [r.reason for r in result.rejected if r.verdict is Verdict.NOT_PROVED]
        assert any("threads may share" in reason for reason in reasons) is is_weak
        along = {v.dim for g in result.graphs for k in g.graph.kernels for v in k.mapping.true}
        assert ("h" in along) is not is_weak


def test_without_axioms_nothing_is_proved():
    proofs = ThreadProofs(make_axiom_set(()))
    assert None not in proofs.faults([parse_sgraph(CHAIN)])
    assert len(proofs) == 0


def test_more_dims_than_the_e_graph_takes_are_not_proved(proofs):
    dims = tuple(f"d{k}" for k in range(24))
    nodes = (InputLoader("x", dims), Apply("exp", (0,)), OutputSaver(1, "%1", dims))
    grid = tuple(ParDim(f"th{k}", ParKind.BLOCK) for k in range(24))
    for count, is_proved in ((22, True), (24, False)):
        true = {MapVar(v, dims[k], grid[k].name) for v in ("x", "%1") for k in range(count)}
        shared = GraphOp(grid[:count], (), Mapping(frozenset(true)), BlockGraph(nodes))
        claim = claim_of(shared)
        assert proofs.holds([claim])[claim] is is_proved


GROWING = (
    '(rewrite (Tanh x) (Tanh (Abs x)) :ruleset parallel :name "tanh-grows")\n\n'
    '(rewrite (Tanh x) (Tanh (Neg x)) :ruleset parallel :name "tanh-grows-too")'
)


def test_a_rule_that_grows_for_ever_takes_no_other_claim_along(axioms):
    growing = make_axiom_set((*axioms.files, AxiomFile("growing.egg", GROWING)))
    lacking = without(growing, "maximum-part-part")
    right = parse_sgraph(CHAIN)
    culprit = parse_sgraph(CHAIN.replace("exp(", "tanh(").replace("mul(", "maximum("))
    for graphs in ([right, culprit], [culprit, right]):
        faults = dict(zip(graphs, ThreadProofs(lacking).faults(graphs), strict=True))
        assert faults[right] is None
        assert "nothing proves" in faults[culprit]
