"""Kernels with a loop inside a loop, on the CPU and in the simulator: right, in range, refused."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from random import Random

import nested
import numpy as np
import pytest
from kernels.programs import TOLERANCE, assert_computes, random_arguments
from kernels.several import mu_of, stable
from kernels.simulated import SHARED_LIMIT, launched, simulated
from kernels.simulated import assert_computes as assert_simulated

from prism import frontend as pr
from prism.errors import KernelError
from prism.ir import MuGraph, bind_sizes, evaluate
from prism.plugins import Group, make
from prism.search import SearchOptions, search
from prism.tune import Config, build_space, instantiate
from prism_kernels.cpu.target import CpuTarget
from prism_kernels.cuda.emit import emit
from prism_kernels.lockstep import FaultKind, LockstepFault
from prism_kernels.lower import lower, tile_programs
from prism_kernels.nests import form_nests
from prism_kernels.tile import Accumulate, Running, Stage

SIZES = {
    "even": {"n": 8, "d": 32, "h": 48, "q": 6, "e": 16, "k": 32, "f": 8},
    "ragged": {"n": 7, "d": 29, "h": 37, "q": 5, "e": 13, "k": 23, "f": 9},
}
COUNTS = ({"x": 2, "i": 2, "j": 3}, {"x": 1, "i": 3, "j": 2})
RUNNABLE = [name for name in nested.RIGHT if name != "one dim split twice"]


def instantiated(name, sizes, counts):
    graph = nested.RIGHT[name]
    (kernel,) = graph.kernels
    return mu_of(graph, sizes, {p.name: counts[p.name] for p in (*kernel.grid, *kernel.loops)})


# --- right ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNNABLE)
@pytest.mark.parametrize("size", SIZES)
def test_they_compute_their_program_on_the_cpu(compiled, rng, name, size):
    mu = instantiated(name, SIZES[size], COUNTS[0])
    kernel = compiled(mu)
    arguments = random_arguments(mu.graph.program, SIZES[size], rng)
    assert_computes(kernel, mu.graph.program, arguments, TOLERANCE["float32"])


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", RUNNABLE)
def test_they_compute_their_program_in_the_simulator(rng, name, size, counts):
    mu = instantiated(name, SIZES[size], counts)
    arguments = random_arguments(mu.graph.program, SIZES[size], rng)
    for options in ({"S": 0, "T": 64}, {"S": 2, "T": 128}, {"shared_limit": 1 << 10}):
        assert_simulated(mu, arguments, **options)


def rms_linear(x: "n d", w: "d h"):
    return (x @ w) / pr.sqrt(pr.sum(x * x, axis=-1, keepdims=True))


def bare(q: "q e", k: "k e", v: "k f"):
    e = pr.exp(q @ k.T)
    return (e @ v) / pr.sum(e, axis=-1, keepdims=True)


@cache
def found(function):
    options = SearchOptions(
        loop_dims=2, grid_dims=1, max_ops=11, max_accumulators=4, budget_s=None, max_graphs=None
    )
    graphs = search(pr.trace(function), options).graphs
    return tuple(g.graph for g in graphs if len(g.graph.kernels[0].loops) == 2)


def drawn(graph, seed):
    """A muGraph of some choice of counts in which both loops run, at sizes drawn."""
    random, program = Random(seed), graph.program
    sizes = {n: random.choice((6, 7, 13, 16, 33)) for n in program.size_names}
    (space,) = build_space((("g", graph),), bind_sizes(program, sizes), CpuTarget()).graphs
    looped = [c for c in space.counts if min(n for p, n in c[0] if p in "ij") > 1]
    return instantiate(space, Config("g", random.choice(looped), ()))


@pytest.mark.parametrize("function", [rms_linear, bare, nested.scaled])
def test_searched_nests_are_right_in_the_simulator(rng, function):
    graphs = found(function)
    for seed, graph in enumerate(Random(0).sample(graphs, min(20, len(graphs)))):
        mu = drawn(graph, seed)
        arguments = random_arguments(graph.program, dict(mu.sizes), rng)
        assert_simulated(mu, arguments, seed=seed, T=64, S=seed % 3)


@pytest.mark.parametrize("function", [rms_linear, bare])
def test_searched_nests_are_right_on_the_cpu(compiled, rng, function):
    for seed, graph in enumerate(Random(1).sample(found(function), 2)):
        mu = drawn(graph, seed)
        arguments = random_arguments(graph.program, dict(mu.sizes), rng)
        assert_computes(compiled(mu), graph.program, arguments, TOLERANCE["float32"])


@pytest.mark.slow
@pytest.mark.parametrize("function", [rms_linear, bare, nested.scaled])
def test_many_searched_nests_are_right(compiled, rng, function):
    graphs = found(function)
    for seed, graph in enumerate(Random(3).sample(graphs, min(24, len(graphs)))):
        mu = drawn(graph, seed)
        arguments = random_arguments(graph.program, dict(mu.sizes), rng)
        assert_simulated(mu, arguments, seed=seed, T=64, S=seed % 3)
        assert_computes(compiled(mu), graph.program, arguments, TOLERANCE["float32"])


# --- exponentials -----------------------------------------------------------------------------


def test_exponentials_stay_in_range_whichever_loop_cuts_what(rng):
    """Keys in the outer loop or the inner one, queries in the other: a reference runs along one."""
    for seed, graph in enumerate(Random(2).sample(found(bare), 16)):
        mu = drawn(graph, seed)
        sizes = dict(mu.sizes)
        arguments = [30 * a for a in random_arguments(graph.program, sizes, rng)]
        arrays = {a.name: x for a, x in zip(graph.program.arguments, arguments, strict=True)}
        (want,) = evaluate(pr.trace(stable), arrays)
        (got,) = simulated(mu, [np.asarray(a, np.float32) for a in arguments], T=64, S=seed % 3)
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3 * np.abs(want).max())


def test_a_reference_belongs_to_one_loop():
    program = lower(instantiated("attention", SIZES["even"], COUNTS[0])).programs[0]
    (running,) = (i for i, n in enumerate(program.nodes) if isinstance(n, Running))
    assert program.stages[running] is Stage.BETWEEN
    assert program.ended(running) == 0
    scaled = [n for n in program.nodes if isinstance(n, Accumulate) and n.scales]
    assert {m for n in scaled for m, _ in n.scales} == {running}
    assert len(scaled) == 2


# --- what is emitted --------------------------------------------------------------------------


def test_the_inner_loop_adds_up_where_the_outer_one_puts_its_tile():
    """The sum over j is a slice of out0: nothing is copied."""
    program = tile_programs(instantiated("matmul", SIZES["even"], COUNTS[0])).programs[0]
    nests = form_nests(program)
    ((product, inner),) = nests.sinks.items()
    assert nests.slices == {inner: inner + 1}
    assert program.stages[product : inner + 2] == (Stage.BODY, Stage.BETWEEN, Stage.AFTER)
    source = CpuTarget().emit(instantiated("matmul", SIZES["even"], COUNTS[0]), "float32").text
    assert "tile_out0 = offset(out0, start)" in source
    assert "stack(" not in source.split("def block")[-1]


def test_both_loops_are_written_one_inside_the_other():
    mu = instantiated("rmsnorm", SIZES["even"], COUNTS[0])
    for text in (
        CpuTarget().emit(mu, "float32").text,
        emit(mu, "float32", SHARED_LIMIT, "lockstep").text,
    ):
        loops = re.findall(r"^( +)for ((?:inner_)?start) in range", text, re.MULTILINE)
        assert [name for _, name in loops][:2] == ["start", "inner_start"]
        assert len(loops[1][0]) == len(loops[0][0]) + 4


@pytest.mark.parametrize("name", ["rmsnorm", "matmul"])
def test_no_barrier_of_a_nest_can_be_left_out(rng, name):
    mu = replace(instantiated(name, SIZES["ragged"], COUNTS[1]), schedule=(("T", 64), ("S", 2)))
    source = emit(mu, "float32", SHARED_LIMIT, "lockstep")
    arguments = random_arguments(mu.graph.program, SIZES["ragged"], rng)
    launched(source.text, source.meta, arguments)
    lines = source.text.splitlines(keepends=True)
    places = [k for k, line in enumerate(lines) if line.strip() == "cuda.syncthreads()"]
    assert len(places) > 1
    for k in places:
        with pytest.raises(LockstepFault) as caught:
            launched("".join(lines[:k] + lines[k + 1 :]), source.meta, arguments)
        assert caught.value.fault.kind in {FaultKind.RACE, FaultKind.UNWRITTEN_READ}


# --- refused, estimated, without one of the loops ----------------------------------------------


def test_two_loops_over_one_dim_are_refused():
    mu = instantiated("one dim split twice", SIZES["even"], {"i": 2, "j": 2})
    with pytest.raises(KernelError, match="i cuts d and j cuts d; two loops must cut different"):
        lower(mu)


REPEATED = """\
kernel 0
  loop i, j
  map m[w,d,j] m[w,h,i]
  map m[x,d,j]
  x = load x[n, d]
  w = load w[d, h]
  %2 = matmul[d](x, w)
  %3 = sum[d](x)
  %4 = accumulate[j] sum(%2)
  %5 = accumulate[i] concat[h](%4)
  %6 = accumulate[j] sum(%3)
  %7 = accumulate[i] sum(%6)
  %8 = div(%5, %7)
  save %8 as out0[n, h]
"""


def test_what_no_iteration_changes_is_not_added_up_over_a_loop_of_a_nest():
    graph = nested.graph(nested.matmul, REPEATED)
    with pytest.raises(KernelError, match="over i, one of two loops, of a value that is the same"):
        lower(mu_of(graph, SIZES["even"], {"i": 2, "j": 2}))


def test_a_loop_of_one_iteration_leaves_the_other():
    graph = nested.RIGHT["matmul"]
    sizes = {d: SIZES["even"][d] for d in "ndh"}
    (space,) = build_space((("g", graph),), sizes, CpuTarget()).graphs
    for counts in ((("x", 2), ("i", 1), ("j", 4)), (("x", 2), ("i", 4), ("j", 1))):
        mu = instantiate(space, Config("g", (counts,), ()))
        (kernel,) = mu.graph.kernels
        assert [p.name for p in kernel.loops] == ["i"]
        assert dict(mu.par_sizes[0]) == {"x": 2, "i": 4}
        (want,) = evaluate(graph.program, arrays := ones(mu))
        np.testing.assert_array_equal(simulated(mu, list(arrays.values()))[0], want)


def ones(mu: MuGraph):
    sizes = dict(mu.sizes)
    return {
        a.name: np.ones([sizes[d] for d in a.axes], np.float32) for a in mu.graph.program.arguments
    }


def test_estimates_know_that_the_inner_loop_runs_in_every_iteration_of_the_outer():
    sizes = {"n": 4, "d": 4096, "h": 4096}
    for target in (CpuTarget(), make(Group.TARGET, "cpu")):
        once = target.estimate(instantiated("matmul", sizes, {"x": 1, "i": 1, "j": 32}), "float32")
        often = target.estimate(
            instantiated("matmul", sizes, {"x": 1, "i": 512, "j": 32}), "float32"
        )
        assert often > once
