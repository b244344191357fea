"""Programs for the tests of the search, and how to run what it finds."""

# Annotations are dims here, not types.

from __future__ import annotations

from random import Random

import numpy as np
from strategies import legal_counts

from prism import frontend as pr
from prism.ir import MuGraph, bind_sizes, chunk, evaluate, evaluate_graph


def rmsnorm_paper(x: "n d", w: "d h"):
    return (x / pr.sqrt(pr.mean(x**2, axis=-1, keepdims=True))) @ w


def rmsnorm(x: "n d", g: "d", w: "d h"):
    return ((x * g) / pr.sqrt(pr.mean(x**2, axis=-1, keepdims=True) + 1e-5)) @ w


def softmax_matmul(x: "n k", w: "k h"):
    e = pr.exp(x)
    return (e / pr.sum(e, axis=-1, keepdims=True)) @ w


def stable_softmax_matmul(x: "n k", w: "k h"):
    return pr.softmax(x, axis=-1) @ w


def matmul(x: "n d", w: "d h"):
    return x @ w


def swiglu(x: "n d", v: "d f", w: "d f"):
    return pr.silu(x @ v) * (x @ w)


def layernorm_linear(x: "n d", g: "d", b: "d", w: "d h"):
    return pr.layer_norm(x, g, b) @ w


def two_outputs(x: "n d", w: "d h"):
    return x @ w, pr.mean(x, axis=-1)


def residual(x: "n d", v: "d f", w: "f d"):
    return x + pr.relu(x @ v) @ w


def elementwise(x: "n d", y: "n d"):
    return pr.exp(x) * y + x


def row_max(x: "n d"):
    return pr.max(x, axis=-1)


def exp_sum(x: "n d"):
    return pr.sum(pr.exp(x), axis=-1)


def exp_matmul(x: "n d", w: "d h"):
    return pr.exp(x) @ w


def scaled(x: "n d", w: "d h", g: "h"):
    return (x @ w) * g


def softmax(x: "n k"):
    e = pr.exp(x)
    return e / pr.sum(e, axis=-1, keepdims=True)


def late_softmax_matmul(x: "n k", w: "k h"):
    e = pr.exp(x)
    return (e @ w) / pr.sum(e, axis=-1, keepdims=True)


def biased(x: "n d", w: "d h", b: "h"):
    return pr.relu(x @ w + b)


def matmul_and_max(x: "n d", w: "d h"):
    return x @ w, pr.max(x, axis=-1)


def relu_product(x: "n d", y: "n d"):
    return pr.relu(x * y)


def divided(x: "n d", y: "n d", w: "d h"):
    return (x / y) @ w


def multiplied(x: "n d", y: "n d", w: "d h"):
    return (x * y) @ w


def total(x: "n d"):
    return pr.sum(x)


def identity(x: "n d"):
    return x


def inverse(x: "n d"):
    return 1 / x


def gram(x: "n d"):
    return x @ x.T


def trace(function):
    return pr.trace(function)


def arrays_for(program, sizes, seed):
    rng = np.random.default_rng(seed)
    return {
        a.name: rng.uniform(0.5, 1.5, [1 if d is None else sizes[d] for d in a.axes])
        for a in program.arguments
    }


def random_mugraph(graph, sizes, random):
    """The graph with random legal numbers of chunks along every parallel dim."""
    (kernel,) = graph.kernels
    left, counts = {}, []
    for par in (*kernel.grid, *kernel.loops):
        split = [(v.tensor, v.dim) for v in kernel.mapping.true if v.par == par.name]
        legal = [set(legal_counts(left.get(place, sizes[place[1]]))) for place in split]
        count = random.choice(sorted(set.intersection(*legal)) if legal else [1, 2])
        counts.append((par.name, count))
        for place in split:
            left[place] = chunk(left.get(place, sizes[place[1]]), count)
    return MuGraph(graph, tuple(sizes.items()), (tuple(counts),))


def computes_its_program(graph, seed, *, largest=7):
    """Whether a graph, run block by block at random sizes, gives what the program gives."""
    random = Random(seed)
    program = graph.program
    sizes = bind_sizes(program, {n: random.randint(1, largest) for n in program.size_names})
    arrays = arrays_for(program, sizes, seed)
    wanted = evaluate(program, arrays)
    got = evaluate_graph(random_mugraph(graph, sizes, random), arrays)
    return all(np.allclose(a, b, rtol=1e-7, atol=1e-9) for a, b in zip(wanted, got, strict=True))


def is_independent_of_counts(graph, random):
    """Whether a graph gives the same with one chunk everywhere as with several."""
    program = graph.program
    sizes = bind_sizes(program, {n: random.randint(2, 6) for n in program.size_names})
    arrays = arrays_for(program, sizes, random.randrange(1000))
    (kernel,) = graph.kernels
    one = tuple((p.name, 1) for p in (*kernel.grid, *kernel.loops))
    whole = evaluate_graph(MuGraph(graph, tuple(sizes.items()), (one,)), arrays)
    parts = evaluate_graph(random_mugraph(graph, sizes, random), arrays)
    return all(np.allclose(a, b, rtol=1e-6) for a, b in zip(whole, parts, strict=True))
