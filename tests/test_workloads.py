"""The shipped workloads: each is what its name says, in NumPy alone, at any size.

The formulas here share nothing with Prism: heads are loops, and products are `np.einsum`.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from prism.frontend import load_program
from prism.ir import bind_sizes, evaluate, format_program, parse_program
from prism.plugins import Group, installed
from prism_experiments.sizes import FULL_SIZE, PUBLISHED, SHAPE_NAMES, SHAPES, sizes_text

WORKLOADS = sorted(n for n, p in installed(Group.WORKLOAD).items() if p.source.startswith("prism-"))


def silu(x):
    return x / (1 + np.exp(-x))


def rms(x, eps):
    """Root of the mean square of a row."""
    return np.sqrt(np.einsum("...d,...d->...", x, x) / x.shape[-1] + eps)[..., None]


def rmsnorm(x, g, w):
    return np.einsum("nd,d,dh->nh", x / rms(x, 1e-5), g, w)


def rmsnorm_paper(x, w):
    return np.einsum("nd,dh->nh", x / rms(x, 0), w)


def rmsnorm_mlp_paper(x, w1, w2):
    normed = x / rms(x, 0)
    return np.einsum("nd,df->nf", normed, w1) * np.einsum("nd,df->nf", normed, w2)


def swiglu(x, w_gate, w_up):
    return silu(np.einsum("nd,df->nf", x, w_gate)) * np.einsum("nd,df->nf", x, w_up)


def ffn(x, w_gate, w_up, w_down):
    return np.einsum("nf,fh->nh", swiglu(x, w_gate, w_up), w_down)


def rmsnorm_swiglu(x, g, w_gate, w_up):
    return swiglu(x / rms(x, 1e-5) * g, w_gate, w_up)


def rmsnorm_mlp(x, g, w_gate, w_up, w_down):
    return ffn(x / rms(x, 1e-5) * g, w_gate, w_up, w_down)


def one_head(q, k, v):
    """Attention of one query over the positions of one head, position by position."""
    scores = np.array([sum(a * b for a, b in zip(q, key, strict=True)) for key in k])
    weights = np.exp(scores)
    return sum(weight * value for weight, value in zip(weights, v, strict=True)) / weights.sum()


def attention_paper(q, k, v):
    out = [[one_head(row, k[b], v[b]) for row in q[b]] for b in range(len(q))]
    return np.array(out)


def attention(q, k, v):
    out = np.empty(q.shape)
    for b, h, g in product(*map(range, q.shape[:3])):
        out[b, h, g] = one_head(q[b, h, g] / q.shape[-1] ** 0.5, k[b, h], v[b, h])
    return out


def qk_attention_paper(q, k, v):
    return attention_paper(q / rms(q, 0), k, v)


def qk_attention(q, k, v, q_weight, k_weight):
    return attention(q / rms(q, 1e-6) * q_weight, k / rms(k, 1e-6) * k_weight, v)


def linear_attention(q, k, v):
    return np.einsum("bhge,bhse,bhsf->bhgf", q, k, v)


def layernorm_linear(x, g, b, w):
    mean = x.mean(axis=1)[:, None]
    deviation = np.sqrt(((x - mean) ** 2).mean(axis=1) + 1e-5)[:, None]
    return np.einsum("nd,dh->nh", (x - mean) / deviation * g + b, w)


def residual_rmsnorm(x, y, g):
    return x + y, (x + y) / rms(x + y, 1e-5) * g


def softmax_matmul(x, w):
    weights = np.exp(x) / np.exp(x).sum(axis=1)[:, None]
    return np.einsum("nk,kh->nh", weights, w)


def lora(x, w, a, b):
    return np.einsum("nd,dh->nh", x, w + np.einsum("dr,rh->dh", a, b))


def matmul(x, w):
    return np.einsum("nd,dh->nh", x, w)


MEANINGS = {
    f.__name__: f
    for f in (
        attention,
        attention_paper,
        ffn,
        layernorm_linear,
        linear_attention,
        lora,
        matmul,
        qk_attention,
        qk_attention_paper,
        residual_rmsnorm,
        rmsnorm,
        rmsnorm_mlp,
        rmsnorm_mlp_paper,
        rmsnorm_paper,
        rmsnorm_swiglu,
        softmax_matmul,
        swiglu,
    )
} | {"swiglu_paper": swiglu}


def arrays_for(program, seed):
    """Random arrays of random sizes, no two dimensions alike."""
    rng = np.random.default_rng(seed)
    names = program.size_names
    chosen = rng.permutation(8)[: len(names)] + 1
    sizes = bind_sizes(program, dict(zip(names, chosen, strict=True)))
    return {
        a.name: rng.standard_normal([1 if d is None else sizes[d] for d in a.axes])
        for a in program.arguments
    }


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_computes_what_its_name_says(name):
    function, program = load_program(name)
    for seed in range(4):
        arrays = arrays_for(program, seed)
        wanted = MEANINGS[name](*arrays.values())
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        plain = function(*arrays.values())
        for results in (evaluate(program, arrays), plain if len(wanted) > 1 else (plain,)):
            for result, expected in zip(results, wanted, strict=True):
                np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_documented_and_prints_and_parses_back(name):
    function, program = load_program(name)
    assert function.__doc__
    assert parse_program(format_program(program)) == program


def test_no_workload_of_a_real_model_takes_an_exponential_that_can_overflow():
    """The paper's forms do, and Figure 1; the names without `_paper` are what models run."""
    for name in ("attention", "qk_attention"):
        function, program = load_program(name)
        arrays = {n: 1e3 * a for n, a in arrays_for(program, 5).items()}
        assert np.all(np.isfinite(evaluate(program, arrays)[0]))
        assert np.all(np.isfinite(function(*arrays.values())))


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_has_sizes_for_all_its_dimensions(name):
    _, program = load_program(name)
    assert set(SHAPE_NAMES) <= set(SHAPES[name])
    for shape, sizes in SHAPES[name].items():
        assert set(sizes) == set(program.size_names)
        given = dict(part.split("=") for part in sizes_text(name, shape).split(","))
        assert {dim: int(size) for dim, size in given.items()} == dict(sizes)


def test_ragged_sizes_divide_by_nothing():
    for shapes in SHAPES.values():
        long = [size for size in shapes["ragged"].values() if size > 10]
        assert long
        for size in long:
            assert all(size % small for small in range(2, 8))


def test_the_ten_published_configurations_are_there():
    assert len(set(PUBLISHED)) == 10
    for workload, shape in (*PUBLISHED, *FULL_SIZE):
        assert workload.endswith("_paper")
        assert shape in SHAPES[workload]
