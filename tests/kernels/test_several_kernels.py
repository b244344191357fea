"""Graphs of several kernels on the CPU: emitted, run, refused, tuned, saved."""

# Annotations are dims here, not types.

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import stacked
from found_graphs import Found, Graph
from kernels.programs import TOLERANCE, assert_computes, random_arguments, relative_error
from kernels.several import mu_of

import prism
from prism.driver import tune
from prism.errors import KernelError
from prism.ir import BlockGraph, InputLoader, OutputSaver, SGraph, evaluate_graph
from prism.optimized import Optimized, Winner, compiled
from prism.protocols import Device
from prism_kernels.cpu import cost
from prism_kernels.cpu import device as device_module
from prism_kernels.cpu.team import TEAM
from prism_kernels.lower import lower
from prism_kernels.tile import Axis, Store

SIZES = {
    "ragged": {"n": 7, "d": 61, "h": 37, "f": 43, "q": 5, "e": 13, "k": 83},
    "one row": {"n": 1, "d": 17, "h": 5, "f": 9, "q": 1, "e": 3, "k": 11},
}


def two_outputs(x: "n d", w: "d h"):
    y = x @ w
    return y, prism.sum(y * y, axis=-1)


TWO_OUTPUTS = stacked.graph(
    two_outputs,
    """\
    kernel 0
      grid x
      map m[w,h,x]
      map m[out0,h,x]
      map m[t0,s,x]
      x = load x[n, d]
      w = load w[d, h]
      %2 = matmul[d](x, w)
      %3 = square(%2)
      %4 = sum[h](%3)
      save %2 as out0[n, h]
      save %4 as t0[s, n]
    kernel 1
      t0 = load t0[s, n]
      %1 = sum[s](t0)
      save %1 as out1[n]
    """,
)

EVEN = {"n": 8, "d": 64, "h": 48, "f": 40, "q": 6, "e": 16, "k": 96}

GRAPHS = {**stacked.RIGHT, "two outputs": TWO_OUTPUTS}


def instantiated(graph, sizes, grid=3, loop=2):
    """Every grid dim in `grid` chunks, every loop in `loop`."""
    counts = (
        {**{p.name: grid for p in op.grid}, **{p.name: loop for p in op.loops}}
        for op in graph.kernels
    )
    return mu_of(graph, sizes, *counts)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("size", SIZES)
def test_they_compute_their_program_at_every_size(compiled, rng, name, size):
    graph, dtype = GRAPHS[name], "float64" if size == "ragged" else "float32"
    mu = instantiated(graph, SIZES[size])
    arguments = random_arguments(graph.program, SIZES[size], rng, dtype)
    assert_computes(compiled(mu, dtype), graph.program, arguments, TOLERANCE[dtype])


@pytest.mark.parametrize("name", ["split rmsnorm", "two outputs"])
@pytest.mark.parametrize("counts", [(2, 1), (17, 5), (1, 1)])
def test_any_number_of_parts_will_do(compiled, rng, name, counts):
    """One part too, though the tuner never asks for it."""
    graph, sizes = GRAPHS[name], {"n": 3, "d": 17, "h": 17}
    grid, loop = counts
    mu = instantiated(graph, sizes, grid, 1)
    if name == "split rmsnorm":
        mu = mu_of(graph, sizes, {"x": grid, "y": 2, "i": 1}, {"x": 3, "i": loop})
    arguments = random_arguments(graph.program, sizes, rng)
    assert_computes(compiled(mu), graph.program, arguments, TOLERANCE["float32"])


@pytest.mark.parametrize("threads", [1, 2])
def test_they_are_right_on_any_number_of_threads(compiled, rng, threads):
    graph, sizes = GRAPHS["split rmsnorm"], SIZES["ragged"]
    kernel = compiled(mu_of(graph, sizes, {"x": 5, "y": 3, "i": 2}, {"x": 4, "i": 3}))
    arguments = random_arguments(graph.program, sizes, rng)
    TEAM.start()
    TEAM.limit(threads)
    try:
        for _ in range(3):  # what the last run left behind does no harm
            assert_computes(kernel, graph.program, arguments, TOLERANCE["float32"])
    finally:
        TEAM.limit(TEAM.threads)


def test_the_ir_and_the_kernels_agree_on_graphs_that_are_wrong(compiled, rng):
    """The kernels run the graph as it stands, whatever it computes."""
    graph, sizes = stacked.WRONG["the sum of maxima"], SIZES["ragged"]
    mu = instantiated(graph, sizes)
    arguments = random_arguments(graph.program, sizes, rng, "float64")
    names = (a.name for a in graph.program.arguments)
    (expected,) = evaluate_graph(mu, dict(zip(names, arguments, strict=True)))
    (out,) = compiled(mu, "float64")(*arguments)
    assert relative_error(out, expected) <= TOLERANCE["float64"]


# -- lowering


def test_a_stack_dim_is_no_axis_of_the_kernel_that_makes_it():
    lowered = lower(instantiated(GRAPHS["split k"], EVEN))
    (first, second), (between,) = lowered.programs, lowered.between
    assert (between.name, between.shape) == ("t0", (3, 8, 48))
    (store,) = (n for n in first.nodes if isinstance(n, Store))
    assert store.stack == ("s", "x")
    assert not store.single
    assert first.axes[first.nodes.index(store)] == (Axis("n"), Axis("h", "y"))
    assert [g.dim for g in first.grid] == ["d", "h"]
    assert second.axes[0] == (Axis("s"), Axis("n"), Axis("h", "x"))
    assert second.sizes["s"] == 3


def test_arrays_are_numbered_arguments_first_and_what_is_between_last():
    lowered = lower(instantiated(GRAPHS["flash decoding"], EVEN))
    first, second = lowered.programs
    assert [t.position for t in (*first.inputs.values(), first.outputs["out0"])] == [0, 1, 2, 3]
    names = [t.name for t in lowered.between]
    for program in lowered.programs:
        tensors = {**program.inputs, **program.outputs}
        assert {tensors[n].position - 4: n for n in program.between} == dict(enumerate(names))
    assert set(first.outputs) - set(second.outputs) == set(names)


def with_nodes(mu, kernel, nodes):
    """The muGraph with other nodes in one of its kernels."""
    kernels = list(mu.graph.kernels)
    kernels[kernel] = replace(kernels[kernel], block=BlockGraph(tuple(nodes)))
    return replace(mu, graph=SGraph(mu.graph.program, tuple(kernels)))


def test_a_kernel_reads_only_what_was_written_before(cpu):
    mu = instantiated(GRAPHS["split k"], EVEN)
    load, *rest = mu.graph.kernels[1].block.nodes
    broken = with_nodes(mu, 1, (load, *rest, InputLoader("t9", ("n",))))
    message = "reads 't9', which is no input of matmul and saved by no earlier kernel"
    assert message in cpu.refusal(broken, "float32")
    with pytest.raises(KernelError, match="t9"):
        cpu.emit(broken, "float32")


def test_a_tensor_that_nobody_reads_is_refused(cpu):
    mu = instantiated(GRAPHS["split k"], EVEN)
    nodes = mu.graph.kernels[0].block.nodes
    broken = with_nodes(mu, 0, (*nodes, OutputSaver(0, "t9", ("n", "d"))))
    message = "writes 't9', which is no output of matmul and read by no later kernel"
    assert message in cpu.refusal(broken, "float32")


def test_what_lies_between_the_kernels_must_fit_into_memory(cpu):
    sizes = {"n": 4096, "d": 4096, "h": 4096}
    mu = mu_of(GRAPHS["split k"], sizes, {"x": 64, "y": 64}, {"x": 4})
    assert "tensors between its kernels need 4096 MB" in cpu.refusal(mu, "float32")
    assert "8192 MB" in cpu.refusal(mu, "float64")


# -- files and metadata


def test_the_file_says_what_runs_after_what(cpu):
    mu = instantiated(GRAPHS["split rmsnorm"], EVEN)
    source = cpu.emit(mu, "float32")
    assert "kernels block0, block1, run one after the other, for rmsnorm" in source.text
    assert "chunks:   kernel 0: x = 3, y = 3, i = 2; kernel 1: x = 3, i = 2" in source.text
    assert source.text.index("def block0(") < source.text.index("def block1(")
    assert json.loads(json.dumps(source.meta)) == source.meta
    assert source.meta["launches"] == [
        {"block": "block0", "blocks": 9},
        {"block": "block1", "blocks": 3},
    ]
    assert [t["shape"] for t in source.meta["between"]] == [[3, 8, 48], [3, 8]]
    assert source == cpu.emit(mu, "float32")


def test_names_of_tensors_between_kernels_do_not_get_mixed_up(compiled, rng):
    """They name variables in the file, where a quote mark cannot stand."""
    text = re.sub(r"\bt0\b", "t'", stacked.SPLIT_RMSNORM)
    text = re.sub(r"\bt1\b", "t_", text)
    graph = stacked.graph(stacked.rmsnorm, text)
    arguments = random_arguments(graph.program, EVEN, rng)
    kernel = compiled(instantiated(graph, EVEN))
    assert_computes(kernel, graph.program, arguments, TOLERANCE["float32"])


# -- predictions

MACHINE = Device("a machine", 2, 512, 32 << 10, 1 << 20, 32 << 20, 34.0)


@pytest.fixture
def estimated(cpu, monkeypatch):
    """`estimated(mu)`: predicted seconds on one known machine."""
    monkeypatch.setattr(device_module, "device", lambda: MACHINE)
    return lambda mu: cpu.estimate(mu, "float32")


def test_each_kernel_adds_a_launch(estimated):
    mu = instantiated(GRAPHS["three kernels"], SIZES["one row"])
    assert estimated(mu) > 3 * cost.LAUNCH_S


def test_parts_by_far_too_small_are_predicted_slower(estimated):
    sizes = {"n": 8, "d": 4096, "h": 512}
    few, many = (
        estimated(mu_of(GRAPHS["split k"], sizes, {"x": parts, "y": 1}, {"x": 2}))
        for parts in (2, 512)
    )
    assert few < many


def test_what_the_last_kernel_left_in_the_cache_is_predicted_cheap(estimated, monkeypatch):
    sizes = {"n": 64, "d": 512, "h": 2048, "f": 4096}
    mu = mu_of(GRAPHS["ffn"], sizes, {"x": 2}, {"x": 2, "i": 8})
    warm = estimated(mu)
    monkeypatch.setattr(cost, "_left_in_cache", lambda *_: set())
    assert warm < estimated(mu)


def test_options_of_any_kernel_are_offered(cpu):
    sizes = {"n": 8, "d": 2048, "f": 2048, "h": 2048}
    assert set(cpu.schedules(GRAPHS["ffn"], sizes)) == {"KB"}


# -- the whole way


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.usefixtures("cache")
def test_they_are_tuned_beside_others():
    graph = GRAPHS["split rmsnorm"]
    result = tune(
        Found(graph.program, (Graph("g0", graph),)),
        {"n": 3, "d": 101, "h": 67},
        trials=1,
        strategy="random",
        seed=1,
    )
    assert result.outcomes == {"ok": 1}
    assert "def block1" in result.best.source


@pytest.mark.usefixtures("cache")
def test_a_saved_one_loads_and_is_the_same(cpu, tmp_path, rng):
    graph, sizes = GRAPHS["flash decoding"], {"q": 5, "e": 13, "k": 83, "f": 43}
    mu = mu_of(graph, sizes, {"x": 4, "i": 3}, {"x": 2})
    mu = replace(mu, sizes=tuple(sorted(mu.sizes)))
    winner = Winner("g0", mu, cpu.emit(mu, "float32").text)
    made = compiled(Optimized(graph.program, sizes, "float32", "cpu", winner, {}))
    assert not made.is_fallback
    arguments = random_arguments(graph.program, sizes, rng)
    made.save(tmp_path / "saved")
    again = Optimized.load(tmp_path / "saved")
    assert again.winner == made.winner
    np.testing.assert_array_equal(again(*arguments), made(*arguments))
    assert_computes(again._kernel, graph.program, arguments, TOLERANCE["float32"])
