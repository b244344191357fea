"""Named dims: what unifies, what gets an alias, and that the meaning stays NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import prism.frontend as pr
from prism.errors import TraceError
from prism.ir import Apply, SizeOf, evaluate, format_program


def evaluated(program, fn, sizes, seed=0):
    """The program on random arrays beside the function on the same; every output must agree."""
    rng = np.random.default_rng(seed)
    root = {d.name: d.size for d in program.dims}
    fixed = {d.name: d.fixed for d in program.dims}
    arrays = {
        a.name: rng.uniform(
            0.5, 1.5, [1 if d is None else fixed[root[d]] or sizes[root[d]] for d in a.axes]
        )
        for a in program.arguments
    }
    expected = fn(*arrays.values())
    expected = expected if isinstance(expected, tuple) else (expected,)
    for ours, numpys in zip(evaluate(program, arrays), expected, strict=True):
        assert ours.shape == numpys.shape
        assert np.allclose(ours, numpys)


def inputs(program):
    return {i.name: i.dims for i in program.inputs}


def test_axes_that_meet_are_one_dimension_with_the_first_name():
    program = pr.trace(lambda x, y: x + y, x="n d", y="a b")
    assert [d.name for d in program.dims] == ["n", "d"]
    assert program.arguments[1].axes == ("n", "d")


def test_a_chain_of_unifications():
    def fn(x, y, z):
        return (x @ y) @ z + x.sum()

    program = pr.trace(fn, x="a b", y="c d", z="e f")
    assert program.size_names == ("a", "b", "d", "f")
    evaluated(program, fn, {"a": 2, "b": 3, "d": 4, "f": 5})


def test_a_gram_matrix_reads_its_argument_under_two_names():
    program = pr.trace(lambda x: x @ x.T, x="n d")
    assert inputs(program) == {"x": ("n", "d"), "x'": ("n'", "d")}
    assert program.size_names == ("n", "d")
    assert program.outputs[0].axes == ("n", "n'")
    evaluated(program, lambda x: x @ x.T, {"n": 3, "d": 4})


def test_a_residual_around_a_square_layer_keeps_the_layer():
    """The bare argument is read once more, rather than the layer computed twice."""

    def fn(x, w):
        y = pr.rms_norm(x) @ w
        return y, x + y

    program = pr.trace(fn, x="n d", w="d d")
    assert program.size_names == ("n", "d")
    assert inputs(program) == {"x": ("n", "d"), "w": ("d", "d'"), "x'": ("n", "d'")}
    assert sum(n == "matmul" for n in (getattr(n, "op", "") for n in program.nodes)) == 1
    evaluated(program, fn, {"n": 3, "d": 4})


def test_a_matrix_plus_its_transpose_is_square():
    program = pr.trace(lambda x: x + x.T, x="n d")
    assert program.size_names == ("n",)
    evaluated(program, lambda x: x + x.T, {"n": 4})


def test_an_outer_difference_of_a_vector():
    fn = lambda x: x[:, None] - x[None, :]  # noqa: E731
    program = pr.trace(fn, x="n")
    assert program.outputs[0].axes == ("n", "n'")
    evaluated(program, fn, {"n": 4})


def test_self_attention_shares_what_it_can():
    def fn(x, q, k, v):
        scores = (x @ q) @ (x @ k).T / x.shape[1] ** 0.5
        return pr.softmax(scores) @ (x @ v)

    program = pr.trace(fn, x="n d", q="d e", k="d e", v="d h")
    assert program.size_names == ("n", "d", "e", "h")
    assert len(inputs(program)) == 5  # x under n and under n'
    evaluated(program, fn, {"n": 3, "d": 4, "e": 5, "h": 2})


def test_a_dimension_reduced_inside_an_operand_is_not_captured():
    """The product is cheaper to re-trace: its d' becomes d, so the d summed inside must move."""

    def fn(x, w):
        return pr.exp(pr.tanh(pr.exp(x))) + x @ w

    program = pr.trace(fn, x="n d", w="d d")
    assert program.outputs[0].axes == ("n", "d")
    assert inputs(program) == {"x": ("n", "d"), "x'": ("n", "d''"), "w": ("d''", "d")}
    evaluated(program, fn, {"n": 3, "d": 4})


def test_a_reduced_dimension_is_named_apart_from_what_it_meets():
    """Head dims are all called e, but the inner one is not the e of the result."""

    def linear_attention(q: "n e", k: "m e", v: "m e"):
        return (q @ k.T) @ v

    program = pr.trace(linear_attention)
    assert [i.dims for i in program.inputs] == [("n", "e'"), ("m", "e'"), ("m", "e")]
    assert [a.axes for a in program.arguments] == [("n", "e"), ("m", "e"), ("m", "e")]
    assert program.outputs[0].axes == ("n", "e")
    assert program.size_names == ("n", "e", "m")
    evaluated(program, linear_attention, {"n": 3, "m": 4, "e": 5})


def test_dimensions_that_operators_bring_together_keep_one_name():
    def norm(x: "n d", w: "d h"):
        return (x / pr.sqrt(pr.mean(x * x, axis=-1, keepdims=True))) @ w

    def sums(x: "n d", y: "n d"):
        return x.sum(axis=1) + y.sum(axis=1)

    for function in (norm, sums):
        assert "'" not in format_program(pr.trace(function))


def test_each_of_several_inner_dimensions_is_named_apart():
    def nested(x: "n d", y: "m d", z: "m d", u: "n d"):
        return ((x @ y.T) @ z) * u + pr.sum(u, axis=-1, keepdims=True)

    program = pr.trace(nested)
    evaluated(program, nested, {"n": 3, "m": 4, "d": 5})
    reduced = [n.dim for n in program.nodes if isinstance(n, Apply) and n.dim is not None]
    assert len(set(reduced)) == 3
    assert program.outputs[0].axes == ("n", "d")


def test_what_the_caller_gets_keeps_its_name():
    def shifted(q: "n e", k: "m e", v: "m e"):
        inner = q - pr.max(q, axis=-1, keepdims=True)
        return inner, pr.sum((inner @ k.T) @ v, axis=-1)

    program = pr.trace(shifted)
    evaluated(program, shifted, {"n": 3, "m": 4, "e": 5})
    assert program.outputs[0].axes == ("n", "e")
    assert [i.dims for i in program.inputs] == [("n", "e"), ("m", "e"), ("m", "e'")]


def test_sizes_follow_the_renaming():
    def fn(x):
        y = x / x.shape[0]
        return y @ y.T

    program = pr.trace(fn, x="n d")
    assert {n.dim for n in program.nodes if isinstance(n, SizeOf)} == {"n", "n'"}
    evaluated(program, fn, {"n": 3, "d": 4})


def test_batched_products_of_one_argument():
    fn = lambda x: (x @ x.mT) @ x  # noqa: E731
    program = pr.trace(fn, x="b n d")
    assert inputs(program) == {"x": ("b", "n", "d"), "x'": ("b", "n'", "d")}
    evaluated(program, fn, {"b": 2, "n": 3, "d": 4})


def test_fixed_sizes_meet_names():
    fn = lambda x, w: x @ w  # noqa: E731
    program = pr.trace(fn, x="n 3", w="d h")
    assert program.size_names == ("n", "h")
    assert [d.fixed for d in program.dims if d.name == "d"] == [3]
    evaluated(program, fn, {"n": 2, "h": 5})
    assert pr.trace(fn, x="n 3", w="3 h").size_names == ("n", "h")


def test_fixed_sizes_of_a_square():
    program = pr.trace(lambda x: x + x.T, x="3 3")
    assert program.size_names == ()
    evaluated(program, lambda x: x + x.T, {})


def test_a_name_twice_in_an_annotation_is_one_size():
    fn = lambda w: w @ w  # noqa: E731
    program = pr.trace(fn, w="d d")
    assert program.arguments[0].axes == ("d", "d'")
    assert program.size_names == ("d",)
    evaluated(program, fn, {"d": 3})


def test_a_dimension_against_an_axis_of_one_broadcasts():
    program = pr.trace(lambda x, y: x * y, x="n d", y="n 1")
    assert program.arguments[1].axes == ("n", None)
    assert program.outputs[0].axes == ("n", "d")


STEPS = {
    "transpose": lambda x, w: (x.T, w),
    "gram": lambda x, w: (x @ x.T, w),
    "weigh": lambda x, w: (x @ w, w),
    "add": lambda x, w: (x + w, w),
    "add transposed": lambda x, w: (x + x.T, w),
    "swap": lambda x, w: (w, x),
    "normalize": lambda x, w: (x / (1.0 + x.sum(axis=1, keepdims=True)), w),
    "row": lambda x, w: (x, w * x.mean(axis=0)),
    "column": lambda x, w: (x - w.max(axis=1, keepdims=True), w),
    "size": lambda x, w: (x / x.shape[0], w),
    "outer": lambda x, w: (x.sum(axis=0)[:, None] * w.sum(axis=1)[None, :], w),
    "exp": lambda x, w: (pr.exp(-pr.abs(x)), w),
}


@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5), st.booleans())
def test_any_chain_on_square_matrices_keeps_its_meaning(steps, same):
    """Everything may meet everything: the hardest case for names, as all sizes are one."""

    def fn(x, w):
        for step in steps:
            x, w = STEPS[step](x, w)
        return x, w

    program = pr.trace(fn, x="n n", w="n n" if same else "a b")
    roots = program.size_names
    sizes = dict.fromkeys(roots, 3)
    evaluated(program, fn, sizes)
    # all names of a tensor differ, and every operator pairs dims by name
    for node, dims in zip(program.nodes, program.tensor_dims(), strict=True):
        if isinstance(node, Apply):
            assert len(dims) <= 2


def test_an_argument_has_its_own_name_in_its_first_use():
    program = pr.trace(lambda x: (x @ x.T).sum(axis=0), x="n d")
    assert next(iter(inputs(program))) == "x"


def test_tensors_of_two_traces_do_not_mix():
    kept = []
    pr.trace(lambda x: kept.append(x) or x, x="n")
    with pytest.raises(TraceError, match="add: a tensor of another trace"):
        pr.trace(lambda x: x + kept[0], x="n")
