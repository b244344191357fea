"""`prism.ops`: how a program calls the operators that users define."""

from __future__ import annotations

import numpy as np
import pytest
from operator_tables import GELU_QUICK, LERP

import prism
from prism.errors import AxiomError, TraceError, UsageError
from prism.ir import Apply, evaluate, format_program, parse_program

pytestmark = pytest.mark.usefixtures("operators")

TABLE = f"""{GELU_QUICK}{LERP}
[rope]
constructor = "Rope"
operands = ["x", "c", "s"]
dim = "k"
numpy = "x * c + where(index(k) < size(k) / 2, -1, 1) * roll(x, k, size(k) / 2) * s"
"""


@pytest.fixture(autouse=True)
def table(operators, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(TABLE)
    return file


@pytest.fixture
def loaded(table):
    assert prism.load_operators(table) == ("gelu_quick", "lerp", "rope")


def quick(x):
    return x / (1 + np.exp(-1.702 * x))


def roped(x, c, s, axis=-1):
    first, second = np.split(x, 2, axis)
    return x * c + np.concatenate([-second, first], axis) * s


def test_an_unknown_operator_says_which_file_to_name(table):
    with pytest.raises(AttributeError, match=r"gelu_quick.*--axioms FILE\.egg.*load_operators"):
        _ = prism.ops.gelu_quick
    with pytest.raises(UsageError, match="known: none"):
        prism.trace(lambda x: -prism.ops.gelu_quick(x), x="n")
    prism.load_operators(table)
    with pytest.raises(AttributeError, match="known: gelu_quick, lerp, rope"):
        _ = prism.ops.gelu_slow
    assert dir(prism.ops) == ["gelu_quick", "lerp", "rope"]
    assert not hasattr(prism.ops, "__wrapped__")


def test_one_of_a_saved_graph_is_not_called_by_name():
    parse_program(
        "operator loud as Loud(x) = 2 * x\nprogram p\n  dims n\n  args x[n]\n  x = input x[n]\n"
        "  %1 = loud(x)\n  return %1[n]\n"
    )
    with pytest.raises(AttributeError, match="no operator 'loud'"):
        _ = prism.ops.loud


def test_it_is_traced_as_one_operator(loaded, rng):
    program = prism.trace(lambda x, w: prism.ops.gelu_quick(x @ w), x="n d", w="d h")
    assert [n.op for n in program.nodes if isinstance(n, Apply)] == ["matmul", "gelu_quick"]
    assert parse_program(format_program(program)) == program
    x, w = rng.normal(size=(3, 4)), rng.normal(size=(4, 2))
    assert np.allclose(evaluate(program, {"x": x, "w": w})[0], quick(x @ w))


def test_on_arrays_it_computes_in_their_dtype(loaded):
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    assert prism.ops.gelu_quick(x).dtype == np.float32
    assert np.allclose(prism.ops.gelu_quick(x), quick(x), atol=1e-6)
    assert isinstance(prism.ops.gelu_quick(0.5), float)
    c, s = np.cos(x[0]), np.sin(x[0])
    assert np.allclose(prism.ops.rope(x, c, s), roped(x, c, s))
    assert prism.ops.rope(x, c, s).dtype == np.float32
    column = x[:2, :1]
    assert np.allclose(prism.ops.rope(x[:2], column, 1.0, axis=0), roped(x[:2], column, 1.0, 0))


@pytest.mark.parametrize("axes", [("n d", "d", ""), ("n d", "n d", "d"), ("n d", "1 d", "n 1")])
def test_three_operands_broadcast_as_numpy_does(loaded, axes, rng):
    program = prism.trace(prism.ops.lerp, **dict(zip("xyt", axes, strict=True)))
    size = {"n": 3, "d": 4, "1": 1}
    x, y, t = (rng.normal(size=[size[a] for a in dims.split()]) for dims in axes)
    assert np.allclose(evaluate(program, {"x": x, "y": y, "t": t})[0], x + t * (y - x))


def test_operands_that_share_a_dim_in_two_places_get_an_alias(loaded, rng):
    program = prism.trace(lambda x: prism.ops.lerp(x, x.T, x @ x.T), x="n n")
    x = rng.normal(size=(3, 3))
    assert np.allclose(evaluate(program, {"x": x})[0], x + (x @ x.T) * (x.T - x))


@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_along_an_axis(loaded, axis, rng):
    program = prism.trace(
        lambda x, c, s: prism.ops.rope(x, c, s, axis=axis).sum(axis=-1), x="n d", c="n d", s="d"
    )
    x, c, s = rng.normal(size=(4, 6)), rng.normal(size=(4, 6)), rng.normal(size=6)
    expected = roped(x, c, s, axis).sum(-1)
    assert np.allclose(evaluate(program, {"x": x, "c": c, "s": s})[0], expected)
    assert np.allclose(prism.ops.rope(x, c, s, axis=axis).sum(-1), expected)


def test_scores_of_turned_queries_and_keys(loaded, rng):
    def scores(q: "m d", k: "n d", c: "d", s: "d"):
        return prism.ops.rope(q, c, s) @ prism.ops.rope(k, c, s).T

    program = prism.trace(scores)
    arrays = {n: rng.normal(size=z) for n, z in {"q": (3, 4), "k": (5, 4), "c": 4, "s": 4}.items()}
    assert np.allclose(evaluate(program, arrays)[0], scores(*arrays.values()))


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: prism.ops.gelu_quick(x, x), r"gelu_quick takes 1 operand\(s\) \(x\), not 2"),
        (lambda x: prism.ops.rope(x, x), "rope takes 3"),
        (lambda x: prism.ops.rope(1.0, x, x), "first operand must be a tensor"),
        (lambda x: prism.ops.rope(x, x, x, axis=3), "no axis 3"),
        (lambda x: prism.ops.rope(x[:, None], x, x, axis=1), "size one"),
        (lambda x: prism.ops.gelu_quick("x"), "takes|cannot|'x'"),
    ],
)
def test_a_wrong_call_is_refused_at_its_line(loaded, function, why):
    with pytest.raises((TraceError, TypeError), match=why):
        prism.trace(function, x="n d")


def test_a_table_loads_again_but_not_another_one(loaded, table, tmp_path):
    prism.load_operators(table)
    other = tmp_path / "other.toml"
    other.write_text(TABLE.replace("1.702", "1.7"))
    with pytest.raises(AxiomError, match=r"mine\.toml.*other\.toml"):
        prism.load_operators(other)
    with pytest.raises(AxiomError, match="cannot be read"):
        prism.load_operators(tmp_path / "nowhere.toml")
