"""Exponentials in graphs of several kernels: in range wherever the program's are."""

# Annotations are dims here, not types.

from __future__ import annotations

from functools import cache
from itertools import islice

import numpy as np
import pytest
import stacked
from kernels.cut import cut
from kernels.programs import TOLERANCE, relative_error, run_filled
from kernels.several import (
    ATTENTION,
    EXP_IN_MEMORY,
    SUM_APART,
    bare,
    from_logits,
    masked,
    mu_of,
    stable,
)
from kernels.test_guards import PROGRAMS, assert_as_good_as_numpy, logits
from kernels.test_guards import mu_of as one_kernel
from kernels.tiles import run_kernels
from stacked import graph

import prism
from prism.errors import KernelError
from prism.ir import (
    check_mugraph,
    evaluate,
    evaluate_graph,
    format_sgraph,
)
from prism.search import SearchOptions, search
from prism_kernels.lower import lower, tile_programs
from prism_kernels.tile import Accumulate, Load, Map, Reduce, Running, Store

SIZES = {"q": 5, "e": 8, "k": 23, "f": 10}
ROWS = {**ATTENTION, "sums in kernels of their own": (SUM_APART, ({"x": 3}, {"x": 4}, {}))}


def decoding(name, function=bare, sizes=SIZES):
    text, counts = ROWS[name]
    return mu_of(graph(function, text), sizes, *counts)


def softmax(logits):
    with np.errstate(invalid="ignore"):
        e = np.exp(logits.astype("float64") - logits.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)


def expected(q, k, v):
    return softmax(q.astype("float64") @ k.astype("float64").T) @ v


def arrays(rng, dtype="float32", scale=1.0):
    shapes = ((5, 8), (23, 8), (23, 10))
    q, k, v = (np.asarray(rng.standard_normal(shape), dtype) for shape in shapes)
    return q * np.asarray(scale, dtype), k, v


@pytest.mark.parametrize(
    ("name", "function"),
    [*((name, bare) for name in ROWS), ("loop over the parts", stable), ("parts of parts", stable)],
)
def test_flash_decoding_is_right_for_logits_of_any_size(compiled, rng, name, function):
    kernel = compiled(decoding(name, function))
    for scale in (1.0, 100.0, 1e4):
        given = arrays(rng, scale=scale)
        (out,) = run_filled(kernel, given)
        assert relative_error(out, expected(*given)) <= TOLERANCE["float32"]


def test_flash_decoding_is_right_in_float64(compiled, rng):
    kernel = compiled(decoding("loop over the parts"), "float64")
    given = arrays(rng, "float64", 300.0)
    (out,) = run_filled(kernel, given)
    assert relative_error(out, expected(*given)) <= TOLERANCE["float64"]


@pytest.mark.parametrize("name", ["one pass", "loop over the parts"])
def test_parts_in_which_all_is_masked_count_for_nothing(compiled, rng, name):
    counts = ATTENTION[name][1]
    kernel = compiled(mu_of(masked(name), {"q": 7, "k": 23, "f": 10}, *counts))
    a = np.asarray(30 * rng.standard_normal((7, 23)), "float32")
    v = np.asarray(rng.standard_normal((23, 10)), "float32")
    a[0, 6:] = a[1, :18] = a[2, 4:19] = a[3, 1:] = -np.inf
    a[4] = -np.inf
    a[5, 11] = np.nan
    (out,) = kernel(a, v)
    want = softmax(a) @ v
    np.testing.assert_array_equal(np.isnan(out), np.isnan(want))
    assert np.isnan(out[[4, 5]]).all()
    assert relative_error(out[[0, 1, 2, 3, 6]], want[[0, 1, 2, 3, 6]]) <= TOLERANCE["float32"]


def test_a_part_far_below_the_others_vanishes_and_one_far_above_decides(compiled, rng):
    kernel = compiled(
        mu_of(masked("one pass"), {"q": 2, "k": 12, "f": 3}, {"x": 3, "i": 1}, {"x": 1})
    )
    a = np.zeros((2, 12), "float32")
    a[0, 4:8], a[1, 4:8] = -3e38, 3e38
    v = np.asarray(rng.standard_normal((12, 3)), "float32")
    (out,) = kernel(a, v)
    np.testing.assert_allclose(out[0], v[[0, 1, 2, 3, 8, 9, 10, 11]].mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out[1], v[4:8].mean(0), rtol=1e-5, atol=1e-6)


# -- how it is done


def test_a_reference_is_stored_once_for_all_values_that_carry_it():
    lowered = lower(decoding("one pass"))
    assert [t.name for t in lowered.between] == ["t0", "t1", "t0_max"]
    assert lowered.between[2].shape == (3, 5)
    first, second = lowered.programs
    stores = {n.target: n for n in first.nodes if isinstance(n, Store)}
    assert stores["t0_max"].stack == ("s", "x")
    assert sum(n.source == "t0_max" for n in second.nodes if isinstance(n, Load)) == 1


def test_a_reference_that_no_later_kernel_needs_is_not_stored():
    lowered = lower(decoding("scores in memory"))
    assert [t.name for t in lowered.between] == ["t0"]
    text = stacked.THREE  # without exponentials there are no references
    mu = mu_of(graph(stacked.rmsnorm, text), {"n": 3, "d": 9, "h": 4}, {"x": 3}, {}, {"x": 2})
    assert lower(mu) == tile_programs(mu)


def test_a_reference_that_is_the_same_in_all_blocks_is_not_stacked():
    """The blocks split f of v, not the keys; the sums are whole in each of them."""
    text = """\
    kernel 0
      grid x
      map m[v,f,x]
      map m[t0,f,x]
      a = load a[q, k]
      v = load v[k, f]
      %2 = exp(a)
      %3 = matmul[k](%2, v)
      %4 = sum[k](%2)
      save %3 as t0[q, f]
      save %4 as t1[q]
    kernel 1
      t0 = load t0[q, f]
      t1 = load t1[q]
      %2 = div(t0, t1)
      save %2 as out0[q, f]
    """
    lowered = lower(mu_of(graph(from_logits, text), {"q": 3, "k": 7, "f": 6}, {"x": 2}, {}))
    first, second = lowered.programs
    # the quotient drops the reference, so kernel 1 does not load it and kernel 0 does not store it
    assert [t.name for t in lowered.between] == ["t0", "t1"]
    assert not any(isinstance(n, Map) and n.op == "exp" for n in second.nodes)
    assert {n.single for n in first.nodes if isinstance(n, Store)} == {(), ("x",)}


def test_a_loop_over_the_parts_carries_a_running_reference():
    _, second = lower(decoding("loop over the parts")).programs
    assert sum(isinstance(n, Running) for n in second.nodes) == 1
    scaled = [n for n in second.nodes if isinstance(n, Accumulate) and n.scales]
    assert len(scaled) == 2


def test_one_pass_over_the_parts_takes_one_maximum():
    _, second = lower(decoding("one pass")).programs
    assert sum(isinstance(n, Reduce) and n.op == "max" for n in second.nodes) == 1
    assert sum(isinstance(n, Map) and n.op == "exp" for n in second.nodes) == 1


def test_an_exponential_stored_before_it_is_summed_is_taken_as_the_program_takes_it():
    """Where the program takes exp(x) the graph may; where it takes exp(x - max) it may not."""
    counts = ({"x": 3}, {})
    assert lower(mu_of(graph(bare, EXP_IN_MEMORY), SIZES, *counts))
    with pytest.raises(KernelError, match="taken without its maximum"):
        lower(mu_of(graph(stable, EXP_IN_MEMORY), SIZES, *counts))


def test_a_stored_exponential_that_is_needed_as_it_is_is_stored_as_it_is(compiled, rng):
    """silu has no rule for references, and a value not yet summed cannot be put together again."""

    def gated(a: "q k", v: "k f"):
        e = prism.exp(a)
        return prism.silu(e), (e @ v) / prism.sum(e, axis=-1, keepdims=True)

    text = """\
    kernel 0
      grid x
      map m[a,q,x]
      map m[t0,q,x]
      a = load a[q, k]
      %1 = exp(a)
      save %1 as t0[q, k]
    kernel 1
      t0 = load t0[q, k]
      v = load v[k, f]
      %2 = silu(t0)
      %3 = matmul[k](t0, v)
      %4 = sum[k](t0)
      %5 = div(%3, %4)
      save %2 as out0[q, k]
      save %5 as out1[q, f]
    """
    mu = mu_of(graph(gated, text), {"q": 4, "k": 9, "f": 5}, {"x": 2}, {})
    assert [t.name for t in lower(mu).between] == ["t0"]
    a, v = (np.asarray(rng.standard_normal(s), "float32") for s in ((4, 9), (9, 5)))
    first, second = run_filled(compiled(mu), (a, v))
    e = np.exp(a.astype("float64"))
    assert relative_error(first, e / (1 + np.exp(-e))) <= TOLERANCE["float32"]
    assert relative_error(second, softmax(a) @ v) <= TOLERANCE["float32"]


# -- cut wherever they may be cut


@cache
def found(name):
    """The program, and the searched graphs of one kernel, block and iteration."""
    program = prism.trace(PROGRAMS[name])
    graphs = search(program, SearchOptions(grid_dims=1, max_graphs=60, budget_s=None)).graphs
    mus = (one_kernel(g, program, 1) for g in graphs)
    return program, tuple({format_sgraph(mu.graph): mu for mu in mus}.values())


def cuts(name, seeds):
    program, mus = found(name)
    for seed, mu in enumerate(mus):
        for dim in dict(mu.sizes):
            for k in range(seeds):
                two = cut(mu, dim, 2 + k % 2, 100 * seed + k)
                if two is not None:
                    yield program, two


@pytest.mark.parametrize("name", PROGRAMS)
def test_cut_graphs_compute_their_program(name):
    rng = np.random.default_rng(0)
    for program, mu in islice(cuts(name, 1), 40):
        check_mugraph(mu)
        sizes = dict(mu.sizes)
        given = {a.name: rng.standard_normal([sizes[d] for d in a.axes]) for a in program.arguments}
        for out, want in zip(evaluate_graph(mu, given), evaluate(program, given), strict=True):
            np.testing.assert_allclose(out, want, rtol=1e-8)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_cut_graph_is_refused_or_right_wherever_its_program_is(name):
    accepted = 0
    for program, mu in islice(cuts(name, 2), 60):
        try:
            lowered = lower(mu)
        except KernelError:
            continue
        accepted += 1
        first = lowered.programs[0]
        for given in logits(program):
            inputs = {i.name: given[first.inputs[i.name].position] for i in program.inputs}
            with np.errstate(all="ignore"):
                outputs = run_kernels(lowered, inputs)["out0"]
            assert_as_good_as_numpy(outputs, name, given)
    assert accepted


@pytest.mark.parametrize("name", ["stable", "attention", "gini"])
def test_compiled_cuts_that_store_references_are_right_too(compiled, name):
    kept = []
    for program, mu in cuts(name, 6):
        try:
            lowered = lower(mu)
        except KernelError:
            continue
        if len(lowered.between) > len(tile_programs(mu).between):
            kept.append((program, mu))
    assert kept
    for program, mu in kept[:2]:
        kernel = compiled(mu)
        for given in logits(program):
            assert_as_good_as_numpy(kernel(*given)[0], name, given)
