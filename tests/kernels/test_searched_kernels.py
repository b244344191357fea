"""Searched graphs of several kernels, at random configs: right, and within their arrays."""

# Annotations are dims here, not types.

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
import stacked
from kernels.programs import TOLERANCE, assert_computes, random_arguments
from kernels.several import mu_of
from tune.fake_target import FakeTarget

import prism
from prism.errors import KernelError
from prism.ir import bind_sizes
from prism.search import SearchOptions, search
from prism.tune import build_space, instantiate
from prism_kernels.cpu import kernel as kernel_module
from prism_kernels.cpu import results as results_module
from prism_kernels.cpu.launch import address_of
from prism_kernels.lower import lower

SIZES = {"s": 15, "t": 13, "e": 11, "d": 7}
GUARD = 4096
PATTERN = 0xAB


def two_softmaxes(a: "s t", b: "t e"):
    return prism.softmax(a, axis=0) @ prism.softmax(b, axis=1)


def attention(q: "s d", k: "t d", v: "t e"):
    return prism.softmax((q @ k.T) * 0.125, axis=-1) @ v


def ffn(a: "s t", v: "t e", w: "e d"):
    return prism.silu(a @ v) @ w


def two_outputs(a: "s t", v: "t e"):
    return a @ v, prism.sum(prism.square(a @ v), axis=0)


@pytest.fixture
def guarded(monkeypatch):
    """Arrays of kernels get guard zones; `guarded()` says which were written."""
    zones = []

    def make(shape, dtype):
        size = math.prod(shape) * dtype.itemsize
        raw = np.full(size + 2 * GUARD + 64, PATTERN, np.uint8)
        start = GUARD + -(address_of(raw) + GUARD) % 64
        zones.extend(((shape, raw[:start]), (shape, raw[start + size :])))
        return np.ndarray(shape, dtype, raw, start)

    for module in (kernel_module, results_module):
        monkeypatch.setattr(module, "aligned_empty", make)
    return lambda: [shape for shape, zone in zones if (zone != PATTERN).any()]


@pytest.mark.parametrize("function", [two_softmaxes, attention, ffn, two_outputs])
def test_searched_graphs_of_two_kernels_are_right(cpu, compiled, rng, guarded, function):
    program = prism.trace(function)
    options = SearchOptions(max_kernels=2, max_graphs=200, budget_s=None)
    graphs = [g for g in search(program, options).graphs if len(g.graph.kernels) == 2]
    sizes = bind_sizes(program, {d: SIZES[d] for d in program.size_names})
    random = Random(function.__name__)
    drawn = random.sample(graphs, 12)
    count = 0
    for space in build_space(tuple((g.id, g.graph) for g in drawn), sizes, FakeTarget()).graphs:
        mu = instantiate(space, space.config(random.randrange(len(space))))
        if cpu.refusal(mu, "float64") is not None:
            continue
        kernel = compiled(mu, "float64")
        arguments = random_arguments(program, sizes, rng, "float64")
        assert_computes(kernel, program, arguments, TOLERANCE["float64"])
        assert not guarded()
        count += 1
        if count == 3:
            return
    pytest.fail(f"only {count} graphs can be run")


CUT_TWICE = """\
kernel 0
  grid x
  loop i
  map m[x,d,i]
  map m[w,d,x] m[w,d,i]
  map m[t0,s,x]
  x = load x[n, d]
  w = load w[d, h]
  %2 = sum[d](x)
  %3 = sum[d](w)
  %4 = accumulate[i] sum(%2)
  %5 = accumulate[i] sum(%3)
  save %4 as out0[n]
  save %5 as t0[s, h]
kernel 1
  t0 = load t0[s, h]
  %1 = sum[s](t0)
  save %1 as out1[h]
"""


def sums(x: "n d", w: "d h"):
    return prism.sum(x, axis=1), prism.sum(w, axis=0)


def test_a_loop_over_chunks_here_and_the_whole_there_is_refused():
    """It would run past the end of a chunk, or stop before that of the whole."""
    graph, sizes = stacked.graph(sums, CUT_TWICE), {"n": 3, "d": 13, "h": 4}
    with pytest.raises(KernelError, match="a loop has tiles of one size"):
        lower(mu_of(graph, sizes, {"x": 2, "i": 2}, {}))
    (space,) = build_space((("g0", graph),), sizes, FakeTarget()).graphs
    assert {dict(counts[0])["i"] for counts in space.counts} == {1}
