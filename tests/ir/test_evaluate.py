"""The meaning of programs: what NumPy computes, on every operator and any axes."""

from __future__ import annotations

import tracemalloc
from random import Random

import numpy as np
import pytest
from hypothesis import given
from strategies import programs, random_arrays, random_sizes, seeds

from prism.errors import GraphError, SizeError, UsageError
from prism.ir import (
    OPS,
    Apply,
    Argument,
    Const,
    DimInfo,
    Input,
    OpKind,
    Output,
    Program,
    SizeOf,
    bind_sizes,
    evaluate,
    sizes_of,
)
from prism.ir.evaluate import PIECE, Value, apply_op


def program(arguments, nodes, outputs, dims=("n", "d", "h")):
    infos = tuple(d if isinstance(d, DimInfo) else DimInfo(d, d) for d in dims)
    return Program("tested", infos, tuple(arguments), tuple(nodes), tuple(outputs))


MATMUL = program(
    [Argument("x", ("n", "d")), Argument("w", ("d", "h"))],
    [Input("x", "x", ("n", "d")), Input("w", "w", ("d", "h")), Apply("matmul", (0, 1), "d")],
    [Output(2, ("n", "h"))],
)


def test_a_product_is_numpys(rng):
    x, w = rng.standard_normal((3, 5)), rng.standard_normal((5, 4))
    (out,) = evaluate(MATMUL, {"x": x, "w": w})
    assert np.allclose(out, x @ w)


@pytest.mark.parametrize("op", [o for o in OPS if OPS[o].arity == 1])
def test_an_operator_on_one_tensor_is_its_row(op, rng):
    x = rng.uniform(0.5, 1.5, (3, 4))
    reduces = OPS[op].kind is OpKind.REDUCE
    tested = program(
        [Argument("x", ("n", "d"))],
        [Input("x", "x", ("n", "d")), Apply(op, (0,), "d" if reduces else None)],
        [Output(1, ("n",) if reduces else ("n", "d"))],
        ("n", "d"),
    )
    expected = OPS[op].numpy(x, axis=1) if reduces else OPS[op].numpy(x)
    assert np.allclose(evaluate(tested, {"x": x})[0], expected)


@pytest.mark.parametrize("op", [o for o in OPS if OPS[o].arity == 2 and o != "matmul"])
@pytest.mark.parametrize("second", [("n", "d"), ("d", "n"), ("d",), ("n",), (), ("h", "n")])
def test_operands_meet_by_name_not_by_place(op, second, rng):
    sizes = {"n": 3, "d": 4, "h": 5}
    axes = [d for d in sizes if d in {"n", "d", *second}]
    x = rng.uniform(0.5, 1.5, (3, 4))
    y = rng.uniform(0.5, 1.5, [sizes[d] for d in second])
    tested = program(
        [Argument("x", ("n", "d")), Argument("y", second)],
        [Input("x", "x", ("n", "d")), Input("y", "y", second), Apply(op, (0, 1))],
        [Output(2, tuple(axes))],
        axes,
    )
    x_there = x.reshape([sizes[d] if d in {"n", "d"} else 1 for d in axes])
    y_there = y.T if second in {("d", "n"), ("h", "n")} else y
    y_there = y_there.reshape([sizes[d] if d in second else 1 for d in axes])
    expected = OPS[op].numpy(x_there, y_there)
    assert np.allclose(evaluate(tested, {"x": x, "y": y})[0], expected)


def test_a_product_never_forms_the_outer_product(rng):
    """At 200 x 200 x 200 the broadcast product alone would take 64 MB."""
    arrays = {"x": rng.standard_normal((200, 200)), "w": rng.standard_normal((200, 200))}
    tracemalloc.start()
    evaluate(MATMUL, arrays)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4e6


def test_dimensions_beyond_einsums_52_letters_are_fine(rng):
    names = [f"a{i}" for i in range(60)]
    tested = program(
        [Argument("x", tuple(names)), Argument("y", ("a0",))],
        [
            Input("x", "x", tuple(names)),
            Input("y", "y", ("a0",)),
            Apply("matmul", (0, 1), "a0"),
        ],
        [Output(2, tuple(names[1:]))],
        names,
    )
    x, y = rng.standard_normal([3, *[1] * 59]), rng.standard_normal(3)
    assert np.allclose(evaluate(tested, {"x": x, "y": y})[0].item(), x.ravel() @ y)


def test_unit_axes_aliases_sizes_and_constants():
    """x x^T / n: one argument under two names, an argument with a unit axis, the size of n."""
    tested = program(
        [Argument("x", ("n", None, "d")), Argument("s", (None,))],
        [
            Input("x", "x", ("n", "d")),
            Input("x'", "x", ("n'", "d")),
            Input("s", "s", ()),
            Apply("matmul", (0, 1), "d"),
            SizeOf("n'"),
            Apply("div", (3, 4)),
            Const(0.5),
            Apply("add", (5, 6)),
            Apply("mul", (7, 2)),
        ],
        [Output(8, ("n'", None, "n")), Output(2, (None, "d"))],
        ("n", "d", DimInfo("n'", "n")),
    )
    x = np.arange(6.0).reshape(3, 1, 2)
    first, second = evaluate(tested, {"x": x, "s": np.array([2])})
    assert np.allclose(first, ((x[:, 0] @ x[:, 0].T / 3 + 0.5) * 2)[:, None, :])
    assert np.array_equal(second, [[2.0, 2.0]])  # repeated along a dimension it lacks


@given(programs(), seeds)
def test_a_value_does_not_depend_on_the_order_of_axes(tested, seed):
    """Every axis of every argument and output reversed: the same numbers, transposed."""
    sizes = random_sizes(tested, Random(seed))
    arrays = random_arrays(tested, sizes, seed)
    turned = Program(
        tested.name,
        tested.dims,
        tuple(Argument(a.name, a.axes[::-1]) for a in tested.arguments),
        tuple(
            Input(n.name, n.argument, n.dims[::-1]) if isinstance(n, Input) else n
            for n in tested.nodes
        ),
        tuple(Output(o.tensor, o.axes[::-1]) for o in tested.outputs),
    )
    straight = evaluate(tested, arrays)
    reversed_ = evaluate(turned, {name: array.T for name, array in arrays.items()})
    for one, other in zip(straight, reversed_, strict=True):
        assert np.isfinite(one).all()
        assert np.allclose(one, other.T, rtol=1e-12, atol=1e-12)


def test_float32_and_integers_are_computed_in_float64():
    out = evaluate(MATMUL, {"x": np.full((1, 1), 0.1, np.float32), "w": np.full((1, 1), 3)})[0]
    assert out.dtype == np.float64
    assert out[0, 0] == float(np.float32(0.1)) * 3


def test_the_mean_of_a_tile_divides_by_the_whole_dimension():
    tile = Value(("d",), np.array([1.0, 3.0]))
    assert apply_op("mean", "d", [tile], {"d": 8}).array == 0.5


def test_an_empty_tile_has_the_identity_of_its_reduction():
    empty = Value(("n", "d"), np.zeros((2, 0)))
    assert np.array_equal(apply_op("max", "d", [empty], {"d": 8}).array, [-np.inf, -np.inf])
    assert np.array_equal(apply_op("sum", "d", [empty], {"d": 8}).array, [0.0, 0.0])


def test_operands_of_different_extents_do_not_broadcast():
    values = [Value(("d",), np.zeros(n)) for n in (1, 4)]
    with pytest.raises(GraphError, match="add: its operands hold 1 and 4 elements of dimension d"):
        apply_op("add", None, values, {"d": 4})


def test_sizes_come_from_the_shapes():
    assert sizes_of(MATMUL, {"x": np.zeros((2, 3)), "w": np.zeros((3, 4))}) == {
        "n": 2,
        "d": 3,
        "h": 4,
    }


FIXED = program(
    [Argument("x", ("n", None)), Argument("y", ("n'",))],
    [Input("x", "x", ("n",)), Input("y", "y", ("n'",))],
    [Output(0, ("n",))],
    (DimInfo("n", "n", 3), DimInfo("n'", "n")),
)


@pytest.mark.parametrize(
    ("tested", "shapes", "message"),
    [
        (MATMUL, {"x": (2, 3), "w": (4, 5)}, "'w' of tested, axis 0: dimension d has size 4, must"),
        (MATMUL, {"x": (2, 3), "w": (4, 5)}, "size 4, must be 3 (by axis 1 of 'x')"),
        (MATMUL, {"x": (2, 3), "w": (3,)}, "argument 'w' of tested has axes [d, h], but the array"),
        (MATMUL, {"x": (0, 3), "w": (3, 4)}, "axis 0: dimension n has size 0, must be positive"),
        (FIXED, {"x": (3, 2), "y": (3,)}, "argument 'x' of tested, axis 1 must have size 1, not 2"),
        (FIXED, {"x": (4, 1), "y": (3,)}, "dimension n has size 4, must be 3 (by the program)"),
        (FIXED, {"x": (3, 1), "y": (5,)}, "axis 0: dimension n' has size 5, must be 3"),
    ],
)
def test_shapes_that_do_not_fit_are_named(tested, shapes, message):
    with pytest.raises(SizeError) as caught:
        evaluate(tested, {name: np.zeros(shape) for name, shape in shapes.items()})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 3))}, "no array given for argument 'w' of tested"),
        ({"x": 0, "v": 0}, "tested has no argument 'v'; its arguments are x, w"),
        (
            {"x": np.zeros((2, 3), complex), "w": np.zeros((3, 4))},
            "'x' of tested has dtype",
        ),
    ],
)
def test_arrays_that_are_none_are_named(arrays, message):
    with pytest.raises(UsageError, match=message):
        evaluate(MATMUL, arrays)


@pytest.mark.parametrize("size", [True, np.True_, 2.0, np.float64(2), "2", 0, -1, None])
def test_a_size_is_a_positive_integer(size):
    with pytest.raises(SizeError, match="'n' must be a positive integer"):
        bind_sizes(MATMUL, {"n": size, "d": 1, "h": 1})


def test_a_size_may_be_an_integer_of_numpy():
    assert bind_sizes(MATMUL, {"n": np.int64(3), "d": 1, "h": 1}) == {"n": 3, "d": 1, "h": 1}


@pytest.mark.parametrize("axes", [("d", "h"), ("h", "d")])
@pytest.mark.parametrize("is_left", [False, True])
def test_a_large_argument_of_a_product_is_read_in_pieces(axes, is_left, rng):
    tested = program(
        [Argument("x", ("n", "d")), Argument("w", axes)],
        [
            Input("x", "x", ("n", "d")),
            Input("w", "w", axes),
            Apply("matmul", (1, 0) if is_left else (0, 1), "d"),
        ],
        [Output(2, ("n", "h"))],
    )
    sizes = {"n": 2, "d": 1001, "h": 1501}
    assert sizes["d"] * sizes["h"] > 2 * PIECE
    x = rng.standard_normal((2, 1001))
    w = rng.standard_normal([sizes[a] for a in axes], np.float32)
    seen = []

    def doubled(name, array):
        seen.append((name, array.size))
        return array * 2

    (result,) = evaluate(tested, {"x": x, "w": w}, read=doubled)
    whole = w.astype(np.float64)
    np.testing.assert_allclose(result, 4 * x @ (whole if axes == ("d", "h") else whole.T))
    pieces = [size for name, size in seen if name == "w"]
    assert sum(pieces) == w.size
    assert max(pieces) <= PIECE


def test_an_argument_that_is_read_twice_is_read_as_a_whole():
    tested = program(
        [Argument("w", ("d", "h"))],
        [
            Input("w", "w", ("d", "h")),
            Apply("square", (0,)),
            Apply("sum", (1,), "h"),
            Apply("matmul", (2, 0), "d"),
        ],
        [Output(3, ("h",))],
        dims=("d", "h"),
    )
    w = np.full((800, 1000), 2.0, np.float32)
    sizes = []

    def read(name, array):
        sizes.append(array.size)
        return array

    (result,) = evaluate(tested, {"w": w}, read=read)
    assert sizes == [w.size]
    assert (result == 800 * 4000 * 2.0).all()


def test_a_result_never_shares_memory_with_an_argument():
    tested = program(
        [Argument("x", ("n",))], [Input("x", "x", ("n",))], [Output(0, ("n",))], dims=("n",)
    )
    x = np.ones(5)
    (result,) = evaluate(tested, {"x": x}, read=lambda _, array: array)
    assert not np.shares_memory(result, x)
