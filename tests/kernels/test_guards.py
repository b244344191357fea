"""No searched graph takes an exponential out of range where its program does not."""

# Annotations are dims here, not types.

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from kernels.tiles import run_tile

import prism
from prism.errors import GraphError, KernelError
from prism.ir import MuGraph, bind_sizes
from prism.search import SearchOptions, program_graph, search
from prism.tune.instantiate import instantiate
from prism.tune.space import Config, GraphSpace
from prism_kernels.lower import lower
from prism_kernels.tile import Running

SIZES = {"s": 7, "t": 6, "e": 5, "d": 3}


def slot_weights(a: "s t"):
    p = prism.softmax(0.05 * a, axis=0)
    return p / prism.sum(p, axis=1, keepdims=True)


def slot(a: "s t", v: "t e"):
    p = prism.softmax(a, axis=0)
    return (p / prism.sum(p, axis=1, keepdims=True)) @ v


def key_mass(a: "s t"):
    return prism.sum(prism.softmax(a, axis=1), axis=0)


def dual(a: "s t"):
    return prism.softmax(0.5 * a, axis=0) * prism.softmax(0.5 * a, axis=1)


def two(a: "s t", b: "t e"):
    return prism.softmax(a, axis=0) @ prism.softmax(b, axis=1)


def gini(a: "s t"):
    return 1 - prism.sum(prism.softmax(a, axis=1) ** 2, axis=1)


def weighted(a: "s t", g: "t"):
    return prism.softmax(0.05 * a, axis=1) * g


def tempered(a: "s t", c: ""):
    return prism.softmax(a / c, axis=-1)


def ratio(a: "s t", v: "t e", w: "t e"):
    p = prism.softmax(a, axis=-1)
    return (p @ v) / (p @ w)


def log_softmax(a: "s t"):
    return prism.log_softmax(a, axis=-1)


def both_axes(a: "s t", v: "t e"):
    return prism.softmax(a, axis=(0, 1)) @ v


def product_of_softmaxes(a: "s t", b: "s t", v: "t e"):
    return prism.softmax(a + b, axis=-1) @ v


def stable(a: "s t", v: "t e"):
    return prism.softmax(a, axis=-1) @ v


def attention(q: "s d", k: "t d", v: "t e"):
    return prism.softmax((q @ k.T) * 0.125, axis=-1) @ v


PROGRAMS = {
    f.__name__: f
    for f in (
        slot_weights,
        slot,
        key_mass,
        dual,
        two,
        gini,
        weighted,
        tempered,
        ratio,
        log_softmax,
        both_axes,
        product_of_softmaxes,
        stable,
        attention,
    )
}
LOOPED = ("weighted", "stable", "attention", "tempered")
"""Programs for which a loop over the softmax must stay within reach."""


@pytest.fixture(scope="module")
def found():
    """`found(name)`: the program, and the muGraphs of the search by counts."""
    known = {}

    def of(name):
        if name not in known:
            program = prism.trace(PROGRAMS[name])
            result = search(program, SearchOptions(grid_dims=1, max_graphs=150, budget_s=None))
            known[name] = program, result.graphs
        return known[name]

    return of


def mu_of(graph, program, count):
    """The graph with `count` chunks along the loop and one along the grid."""
    sizes = bind_sizes(program, {d: SIZES[d] for d in program.size_names})
    (op,) = graph.graph.kernels
    counts = (*((p.name, 1) for p in op.grid), *((p.name, count) for p in op.loops))
    space = GraphSpace(graph.id, graph.graph, tuple(sizes.items()), (), ())
    return instantiate(space, Config(graph.id, (counts,), ()))


def accepted(graphs, program, count):
    """The graphs at these counts that are not refused, and their tile programs."""
    for graph in graphs:
        try:
            mu = mu_of(graph, program, count)
            (tile,) = lower(mu).programs
            yield mu, tile
        except (KernelError, GraphError):
            continue


def logits(program, seed=0):
    """Argument arrays, in float32, with which exponentials of the bare logits are out of range."""
    rng = np.random.default_rng(seed)
    drawn = [rng.standard_normal([SIZES[d] for d in a.axes]) for a in program.arguments]
    shape = drawn[0].shape
    tilt = np.arange(shape[0])[:, None] * 60.0, np.arange(shape[1]) * -60.0
    first = [drawn[0] * s for s in (1, 30, 100, 3000)]
    first += [drawn[0] + c for c in (100, -120, 2000, -2400)] + [drawn[0] + t for t in tilt]
    for array in first:
        yield [np.asarray(x, "float32") for x in (array, *drawn[1:])]
        if len(drawn) > 1:
            yield [np.asarray(x, "float32") for x in (array, drawn[1] * 100 + 50, *drawn[2:])]


def assert_as_good_as_numpy(outputs, name, arrays):
    """No error much larger than that of the program in NumPy, or than the logits' rounding."""
    function = PROGRAMS[name]
    with np.errstate(all="ignore"):
        given = np.asarray(function(*arrays))
        exact = np.asarray(function(*(a.astype("float64") for a in arrays)))
    fine = np.isfinite(given)
    assert np.isfinite(outputs[fine]).all()
    rounding = 1e-5 * np.linalg.norm(exact[fine])
    rounding += 2e-7 * np.abs(arrays[0]).max() * (exact.size**0.5 if "log" in name else 0)
    error, allowed = (np.linalg.norm((x - exact)[fine]) for x in (outputs, given))
    assert error <= 20 * allowed + rounding


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_searched_graph_is_refused_or_right_wherever_its_program_is(found, name):
    program, graphs = found(name)
    count = 0
    for _, tile in accepted(graphs, program, 1):
        count += 1
        for arrays in logits(program):
            inputs = {i.name: arrays[tile.inputs[i.name].position] for i in program.inputs}
            with np.errstate(all="ignore"):
                outputs = run_tile(tile, inputs)["out0"]
            assert_as_good_as_numpy(outputs, name, arrays)
    assert count


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_kernels_with_a_loop_are_right_too(compiled, found, name):
    program, graphs = found(name)
    looped = (mu for mu, tile in accepted(graphs, program, 3) if tile.loop is not None)
    for mu in islice(looped, 2):
        kernel = compiled(mu)
        for arrays in logits(program):
            assert_as_good_as_numpy(kernel(*arrays)[0], name, arrays)


def test_the_program_itself_is_never_refused(found):
    for name in PROGRAMS:
        program, _ = found(name)
        sizes = bind_sizes(program, {d: SIZES[d] for d in program.size_names})
        lower(MuGraph(program_graph(program), tuple(sizes.items()), ((),)))


@pytest.mark.parametrize("name", LOOPED)
def test_online_softmax_stays_within_reach(found, name):
    program, graphs = found(name)
    tiles = [tile for _, tile in accepted(graphs, program, 3)]
    assert any(isinstance(n, Running) for tile in tiles for n in tile.nodes)
