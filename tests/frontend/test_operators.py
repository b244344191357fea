"""What a traced function means: the program evaluates to what the function computes in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import prism.frontend as pr
from prism.ir import OPS, Apply, Const, evaluate

SIZES = {"n": 3, "d": 4, "h": 5, "b": 2}


def arrays_for(dims, rng):
    shapes = {p: [SIZES.get(w, w) for w in pr_words(text)] for p, text in dims.items()}
    return {p: rng.uniform(0.5, 1.5, shape) for p, shape in shapes.items()}


def pr_words(text):
    return [int(w) if w.isdigit() else w for w in text.split()]


def assert_means_the_same(fn, rng, **dims):
    """fn traced and evaluated equals fn run on NumPy arrays."""
    program = pr.trace(fn, **dims)
    arrays = arrays_for(dims, rng)
    expected = fn(**arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for ours, numpys in zip(evaluate(program, arrays), expected, strict=True):
        assert ours.shape == np.shape(numpys)
        assert np.allclose(ours, numpys, rtol=1e-12)
    return program


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: x / y,
        lambda x, y: 2 + x - 1.5 * y / 3,
        lambda x, y: 1 / x - (3 - y),
        lambda x, y: -x + abs(y) - (+x),
        lambda x, y: x**2 + y**0.5 + x**-0.5 + y**-1,
        lambda x, y: x**1 + x**3 + y**7 + x ** np.float32(2),
        lambda x, y: np.float32(0.5) * x + y * np.int64(3) + np.array(2.0) * y,
        lambda x, y: x.T.T + x.mT.mT + y,
        lambda x, y: x[:, :] + x[...] + x[:] + y[..., :],
        lambda x, y: (x[:, None, :] * y[None], x[..., None, None, :] * y[None, ..., None]),
        lambda x, y: x.sum() + y.sum(axis=0) - x.mean(axis=(0, 1)) * y.max(1, keepdims=True),
        lambda x, y: x.min(axis=-1, keepdims=True) + y.min() + x.mean((-1,), keepdims=True),
        lambda x, y: x.transpose() @ y,
        lambda x, y: x.transpose(1, 0) @ y.swapaxes(0, 1).transpose((1, 0)),
        lambda x, y: (x @ y.T) / x.shape[1] + x.shape[-1] ** -0.5 * y.size / x.ndim,
    ],
)
def test_operators_mean_what_numpy_means(fn, rng):
    assert_means_the_same(fn, rng, x="n d", y="n d")


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: pr.exp(x) + pr.log(x) + pr.sqrt(x) + pr.rsqrt(x) + pr.square(x),
        lambda x: pr.abs(-x) + pr.negative(x) + pr.reciprocal(x) + pr.relu(x - 1),
        lambda x: pr.silu(x) + pr.sigmoid(x) + pr.tanh(x),
        lambda x: pr.gelu(x) + pr.gelu(x, approximate="tanh"),
        lambda x: pr.maximum(x, 1.0) + pr.minimum(1, x),
        lambda x: pr.add(x, 1) + pr.subtract(2, x) + pr.multiply(x, x) + pr.divide(1, x),
        lambda x: pr.sum(x, axis=0) + pr.mean(x) + pr.max(x, 0) + pr.min(x, axis=(0, 1)),
        lambda x: pr.matmul(x, pr.swapaxes(x, 0, 1)) @ pr.power(x, 2),
        lambda x: pr.expand_dims(x, 1) + pr.expand_dims(x, (0, -2)),
        lambda x: pr.permute_dims(x, (1, 0)) + pr.transpose(x) + pr.transpose(x, (1, 0)),
        lambda x: pr.softmax(x) + pr.softmax(x, axis=0) + pr.log_softmax(x),
        lambda x: pr.logsumexp(x, axis=1, keepdims=True) + pr.logsumexp(x),
        lambda x: pr.var(x, axis=-1, keepdims=True) + pr.var(x),
        lambda x: pr.rms_norm(x) + pr.rms_norm(x, weight=2.0, eps=1e-6, axis=0),
        lambda x: pr.layer_norm(x) + pr.layer_norm(x, x, x, eps=0.1, axis=(0, 1)),
        lambda x: pr.sqrt(4.0) * x + pr.exp(0.0),
    ],
)
def test_functions_mean_the_same_traced_and_computed(fn, rng):
    assert_means_the_same(fn, rng, x="n d")


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: np.exp(x) + np.log(x) + np.sqrt(x) + np.square(x) + np.abs(x) + np.tanh(x),
        lambda x: np.add(x, 1) + np.subtract(1, x) + np.multiply(2, x) + np.divide(x, 3),
        lambda x: np.maximum(x, 1) + np.minimum(x, 1) + np.negative(x) + np.reciprocal(x),
        lambda x: np.sum(x, axis=1, keepdims=True) + np.mean(x, axis=0) + np.max(x) + np.amin(x),
        lambda x: np.var(x, axis=1, keepdims=True) * np.power(x, 2),
        lambda x: np.matmul(x, np.transpose(x)) + np.sum(x),
        lambda x: np.swapaxes(x, 0, 1) @ np.expand_dims(x, 0),
        lambda x: np.float64(2) * x + np.float32(1) / x - np.sqrt(x.shape[0]),
        lambda x: np.einsum("ij->ji", x),
    ],
)
def test_numpys_own_functions_work_on_tensors(fn, rng):
    assert_means_the_same(fn, rng, x="n d")


SHAPES = [
    ("n d", "d h"),
    ("d", "d"),
    ("d", "d h"),
    ("n d", "d"),
    ("b n d", "d h"),
    ("b n d", "b d h"),
    ("n d", "b d h"),
    ("b n d", "1 d h"),
    ("1 n d", "b d h"),
    ("d", "b d h"),
    ("b n d", "d"),
    ("1 d", "d 1"),
    ("n 1", "1 h"),
    ("1", "1"),
    ("h b n d", "h 1 d 7"),
    ("n 4", "4 h"),
    ("n d", "4 h"),
]


@pytest.mark.parametrize(("x", "y"), SHAPES)
def test_matmul_has_numpys_shapes(x, y, rng):
    assert_means_the_same(lambda x, y: x @ y, rng, x=x, y=y)
    assert_means_the_same(lambda x, y: pr.matmul(x, y) / 2, rng, x=x, y=y)


@st.composite
def broadcast_shapes(draw):
    """Two annotations that broadcast: the same dim or 1 at each place, ranks at will."""
    dims = draw(st.permutations(["n", "d", "h"]))[: draw(st.integers(0, 3))]
    pair = []
    for _ in range(2):
        own = [d if draw(st.booleans()) else "1" for d in dims]
        pair.append(" ".join(own[draw(st.integers(0, len(own))) :]))
    return pair


@given(broadcast_shapes(), st.sampled_from(["add", "sub", "div", "maximum"]))
def test_broadcasting_is_numpys_in_every_position(shapes, op):
    names = {"add": pr.add, "sub": pr.subtract, "div": pr.divide, "maximum": pr.maximum}
    fn = names[op]
    rng = np.random.default_rng(0)
    assert_means_the_same(fn, rng, x=shapes[0], y=shapes[1])


@given(st.data())
def test_reductions_are_numpys_over_any_axes(data):
    axes = st.lists(st.sampled_from([0, 1, 2, -1]), max_size=3, unique_by=lambda i: i % 3)
    axis = data.draw(st.none() | st.sampled_from([0, 1, 2, -1, -3]) | axes.map(tuple))
    name = data.draw(st.sampled_from(["sum", "mean", "max", "min"]))
    keepdims = data.draw(st.booleans())

    def fn(x):
        return getattr(x, name)(axis=axis, keepdims=keepdims)

    assert_means_the_same(fn, np.random.default_rng(0), x="n 1 d")


@pytest.mark.parametrize(
    ("spec", "dims"),
    [
        ("nd,dh->nh", ("n d", "d h")),
        ("nd,hd->hn", ("n d", "h d")),
        ("nd,nd->n", ("n d", "n d")),
        ("nd,nd->", ("n d", "n d")),
        ("bnd,bhd->bnh", ("b n d", "b h d")),
        ("nd,h->dh", ("n d", "h")),
        ("nd,dh->", ("n d", "d h")),
        ("n,n->n", ("n", "n")),
        ("bnd->db", ("b n d",)),
        ("nd -> ", ("n d",)),
        ("ij,jk->ik", ("1 d", "d 1")),
        ("ab,ac->bc", ("n n", "n n")),
    ],
)
def test_einsum_is_numpys(spec, dims, rng):
    named = dict(zip("xy", dims, strict=False))
    if len(named) == 1:
        assert_means_the_same(lambda x: pr.einsum(spec, x), rng, **named)
    else:
        assert_means_the_same(lambda x, y: pr.einsum(spec, x, y), rng, **named)


def test_einsum_contracts_without_an_outer_product():
    program = pr.trace(lambda x, w: pr.einsum("nd,dh->nh", x, w), x="n d", w="d h")
    assert [n.op for n in program.nodes if isinstance(n, Apply)] == ["matmul"]


def test_every_operator_of_the_table_can_be_written():
    def everything(x, y):
        parts = [pr.exp, pr.log, pr.sqrt, pr.rsqrt, pr.square, pr.abs, pr.relu, pr.silu, pr.gelu]
        parts += [pr.sigmoid, pr.tanh, pr.negative, pr.reciprocal, pr.sum, pr.mean, pr.max]
        total = pr.gelu(x, approximate="tanh")
        for part in parts:
            total = total + part(x)
        return pr.maximum(total, x) / pr.minimum(x, y) - (x @ y.T) @ (x * y)

    program = pr.trace(everything, x="n d", y="n d")
    assert {n.op for n in program.nodes if isinstance(n, Apply)} == set(OPS)


def test_several_outputs_and_an_input_unchanged(rng):
    program = assert_means_the_same(lambda x, y: (x + y, x, x.T), rng, x="n d", y="n d")
    assert [o.axes for o in program.outputs] == [("n", "d"), ("n", "d"), ("d", "n")]
    assert len(pr.trace(lambda x: [x, x * 2], x="n").outputs) == 2


def test_a_scalar_argument(rng):
    assert_means_the_same(lambda x, s: x * s + s, rng, x="n d", s="")


def test_an_unused_argument_stays_an_argument():
    program = pr.trace(lambda x, y: x * 2.0, x="n", y="d")
    assert [a.name for a in program.arguments] == ["x", "y"]
    assert [i.name for i in program.inputs] == ["x"]
    assert program.size_names == ("n", "d")
    assert np.array_equal(evaluate(program, {"x": np.ones(2), "y": np.ones(3)})[0], [2.0, 2.0])


def nodes_of(fn, **dims):
    return [n for n in pr.trace(fn, **dims).nodes if isinstance(n, Apply)]


def test_equal_nodes_are_one_node():
    assert len(nodes_of(lambda x: pr.exp(x) + pr.sqrt(pr.exp(x)), x="n")) == 3
    assert len(nodes_of(lambda x, y: (x + y) / pr.sqrt(y + x), x="n", y="n")) == 3
    # the second sum becomes equal to the first only when k and d turn out to be one dimension
    assert len(nodes_of(lambda x, y: (pr.exp(x) * y, pr.exp(x)), x="d", y="k")) == 2


def test_a_deep_program_with_much_sharing_is_traced_at_once():
    def fn(x):
        for _ in range(60):
            x = x + pr.tanh(x)
        return x

    assert len(nodes_of(fn, x="n d")) == 120


def test_small_laws_of_arithmetic():
    assert nodes_of(lambda x: x + 0 - 0.0, x="n") == []
    assert nodes_of(lambda x: 0 + 1 * x * 1 / 1, x="n") == []
    assert nodes_of(lambda x: x * x, x="n") == [Apply("square", (0,))]
    assert nodes_of(pr.rms_norm, x="n d")[1] == Apply("mean", (1,), "d")
    # over the reals x - x is 0, but a program keeps the user's shape: no law here
    assert len(nodes_of(lambda x: x - x, x="n")) == 1


def test_functions_of_numbers_are_numbers():
    program = pr.trace(lambda x: pr.sqrt(16.0) * x, x="n")
    assert [n.value for n in program.nodes if isinstance(n, Const)] == [4.0]


def test_dead_nodes_are_gone():
    def fn(x):
        pr.exp(x)
        return x + 1.0

    assert [n.op for n in nodes_of(fn, x="n")] == ["add"]


def test_powers_are_products():
    assert [n.op for n in nodes_of(lambda x: x**2, x="n")] == ["square"]
    assert [n.op for n in nodes_of(lambda x: x**5, x="n")] == ["square", "square", "mul"]
    assert [n.op for n in nodes_of(lambda x: x**-0.5, x="n")] == ["rsqrt"]


def test_sizes_are_symbolic_unless_the_annotation_fixes_them():
    seen = []

    def fn(x):
        seen.extend([x.shape[1], x.shape[2], x.ndim])
        return x / x.shape[0]

    program = pr.trace(fn, x="n 64 1")
    assert seen == [64, 1, 3]
    assert program.size_names == ("n",)
    x = np.ones((5, 64, 1))
    assert np.allclose(evaluate(program, {"x": x})[0], x / 5)
