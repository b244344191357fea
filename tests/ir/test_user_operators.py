"""Operators that users define: the language of meanings, the table, the text form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism.errors import AxiomError, GraphError, ParseError
from prism.ir import (
    OPS,
    Along,
    Linearity,
    MuGraph,
    adopt,
    as_lines,
    define,
    definitions,
    evaluate,
    evaluate_expression,
    evaluate_graph,
    format_program,
    format_sgraph,
    make_definition,
    parse_program,
    parse_sgraph,
    spelled,
)
from prism.ir.expression_reader import MAX_CHARACTERS, parse_expression
from prism.ir.operators import MAX_DEFINED, MAX_OPERANDS

pytestmark = pytest.mark.usefixtures("operators")

QUICK = ("gelu_quick", "GeluQuick", ("x",), None, "x * sigmoid(1.702 * x)")
ROPE = (
    "rope",
    "Rope",
    ("x", "c", "s"),
    "k",
    "x * c + where(index(k) < size(k) / 2, -1, 1) * roll(x, k, size(k) / 2) * s",
)
TEXT = """\
operator gelu_quick as GeluQuick(x) = x * sigmoid(1.702 * x)
program act
  dims n
  args x[n]
  x = input x[n]
  %1 = gelu_quick(x)  # [n]
  return %1[n]
"""
ROPE_GRAPH = """\
sgraph
operator turn as Turn(x) along k = roll(x, k, 1)
program turned
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = turn[d](x)  # [n, d]
  return %1[n, d]
kernel 0
  grid x
  map m[out0,n,x]
  map m[x,n,x]
  x = load x[n, d]  # tile [n/x, d]
  %1 = turn[d](x)  # [n, d]
  save %1 as out0[n, d]  # tile [n/x, d]
"""


def meaning(text, *operands, dim=None):
    """The value of an expression over x, y, z."""
    names = ("x", "y", "z")[: len(operands)]
    along = None if dim is None else Along(0, len(operands[0]))
    return evaluate_expression(parse_expression(text, names, dim), operands, along)


X, Y = np.array([-2.0, -0.5, 0.0, 3.0]), np.array([1.0, 2.0, -3.0, 3.0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x + y - 2 * x / (1 + y * y)", X + Y - 2 * X / (1 + Y * Y)),
        ("-x + +y", Y - X),
        ("x ** 5 * y", X**5 * Y),
        ("where(x < y, x, y)", np.minimum(X, Y)),
        ("where(x <= y, x, y)", np.minimum(X, Y)),
        ("where(x > y, x, y)", np.maximum(X, Y)),
        ("where(x >= y, 1, 0)", (Y <= X) * 1.0),
        ("maximum(abs(x), square(y))", np.maximum(abs(X), Y * Y)),
        ("exp(x) * 2 ** 3 / 4 + y * sqrt(4)", np.exp(X) * 2 + 2 * Y),
        ("pi * x + y", np.pi * X + Y),
    ],
)
def test_an_expression_means_what_numpy_makes_of_it(text, expected):
    assert np.allclose(meaning(text, X, Y), expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("roll(x, k, 1)", np.roll(X, 1)),
        ("roll(x, k, -1)", np.roll(X, -1)),
        ("roll(x, k, size(k) / 3)", np.roll(X, 1)),
        ("flip(x, k)", X[::-1]),
        ("x * index(k) / size(k)", X * np.arange(4) / 4),
    ],
)
def test_along_a_dim_places_are_mixed_and_counted(text, expected):
    assert np.allclose(meaning(text, X, dim="k"), expected)


@given(st.fractions(min_value=-9, max_value=9), st.fractions(min_value=1, max_value=9))
def test_arithmetic_of_numbers_is_exact(a, b):
    text = f"x * (({a.numerator}) / {a.denominator} / ({b.numerator} / {b.denominator}))"
    (number,) = (p for p in parse_expression(text, ("x",), None).operands if hasattr(p, "value"))
    assert number.value == a / b


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("__import__('os')", "character"),
        ("x.real", "not allowed"),
        ("x[0]", "character"),
        ("(lambda: x)()", "character"),
        ("x if x else x", "not allowed"),
        ("x @ x", "character"),
        ("x // 2", "not allowed"),
        ("x and x", "not allowed"),
        ("x is x", "not allowed"),
        ("True * x", "not allowed"),
        ("1j * x", "not allowed"),
        ("1if x else 2", "no expression"),
        ("x ** x", "not allowed"),
        ("x ** 99", "exponent"),
        ("x ** 0", "exponent"),
        ("((((x**15)**15)**15)**15)", "more than"),
        ("(" + ") * (".join(["x + x + x + x + x + x"] * 20) + ")", "more than"),
        ("-" * 300 + "x", "nested"),
        ("(" * 300 + "x" + ")" * 300, "nested"),
        ("(" + "-" * 150 + "x) if x else x", "nested|not allowed"),
        ("1e999 * x", "too large"),
        ("9" * 900 + " * x", "too large"),
        ("1e300 * 1e300 * x", "of the numbers"),
        ("1 / 0 * x", "of the numbers"),
        ("log(0) * x", "of the numbers"),
        ("sqrt(-1) * x", "of the numbers"),
        ("x" * (MAX_CHARACTERS + 1), "longer"),
        ("where(x, x, x)", "comparison"),
        ("where(x == x, x, x)", "compares"),
        ("where(0 < x < 1, x, x)", "comparison"),
        ("y", "unknown name"),
        ("exp", "unknown name"),
        ("open(x)", "unknown"),
        ("exp(x, x)", "argument"),
        ("exp(x=x)", "not allowed"),
        ("exp(*x)", "not allowed|argument"),
        ("roll(x, k, 1)", "dim"),
        ("2 * 3", "not used"),
        ("", "no expression"),
        ("x\x00", "character"),
        ("é", "character"),
        ("x; x", "character"),
        ("x # x", "character"),
    ],
)
def test_what_is_no_such_expression_is_refused(text, why):
    with pytest.raises(ParseError, match=why):
        parse_expression(text, ("x",), None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("roll(x, j, 1)", "along k"),
        ("roll(x, k, x)", "numbers and sizes"),
        ("roll(x, k, index(k))", "numbers and sizes"),
        ("roll(x, k)", "unknown"),
        ("index(x) * x", "along k"),
        ("k * x", "unknown name"),
    ],
)
def test_along_a_dim_too(text, why):
    with pytest.raises(ParseError, match=why):
        parse_expression(text, ("x",), "k")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"name": "exp"}, "own"),
        ({"name": "sum"}, "own"),
        ({"name": "size"}, "taken"),
        ({"name": "rms"}, "taken"),
        ({"name": "lambda"}, "taken"),
        ({"name": "Upper"}, "snake_case"),
        ({"name": "a" * 41}, "snake_case"),
        ({"constructor": "Exp"}, "taken"),
        ({"constructor": "Part"}, "taken"),
        ({"constructor": "E"}, "taken"),
        ({"constructor": "String"}, "taken"),
        ({"constructor": "lower"}, "CamelCase"),
        ({"constructor": "A) E) (run 9"}, "CamelCase"),
        ({"operands": ()}, "operands"),
        ({"operands": tuple("abcde")}, f"1 to {MAX_OPERANDS}"),
        ({"operands": ("x", "x")}, "different names"),
        ({"operands": ("exp",)}, "cannot name"),
        ({"operands": ("x y",)}, "cannot name"),
        ({"dim": "x"}, "different names"),
        ({"dim": "k"}, "elementwise"),
        ({"numpy": "y"}, "unknown name"),
    ],
)
def test_a_definition_is_vetted(changed, why):
    fields = dict(zip(("name", "constructor", "operands", "dim", "numpy"), QUICK, strict=True))
    with pytest.raises(ParseError, match=why):
        make_definition(**fields | changed)


def test_defining_again_is_nothing_and_another_one_an_error_that_names_both():
    first = define(make_definition(*QUICK, "one.toml"))
    spelt_otherwise = (*QUICK[:2], ("a",), None, "a*sigmoid( 1.702*a )")
    assert define(make_definition(*spelt_otherwise, "two.toml")) is first
    for other in (("gelu_quick", "Quick"), ("gelu_fast", "GeluQuick")):
        clash = make_definition(*other, ("x",), None, "x * sigmoid(1.7 * x)", "two.toml")
        with pytest.raises(AxiomError, match=r"one\.toml.*two\.toml"):
            define(clash)
    assert len(definitions()) == 1


def test_a_process_does_not_take_any_number_of_them():
    for i in range(MAX_DEFINED):
        define(make_definition(f"op{i}", f"Op{i}", ("x",), None, "x + 1"))
    with pytest.raises(AxiomError, match="more than"):
        define(make_definition("last", "Last", ("x",), None, "x"))


@pytest.mark.parametrize(
    ("text", "dim", "linear"),
    [
        ("x * y", None, (0, 1)),
        ("x / y", None, (0,)),
        ("x + y", None, ()),
        ("3 * x - x / 2 + 0 * y", None, (0,)),
        ("x * x + y", None, ()),
        ("where(y > 0, x, 0.1 * x)", None, (0,)),
        ("where(y > 0, x, 0)", None, (0,)),
        ("where(x > 0, x, y)", None, ()),
        ("where(y > 0, x, 1)", None, ()),
        ("x * exp(y)", None, (0,)),
        ("x * index(k) + flip(x, k) + roll(x * y, k, 1)", "k", (0,)),
    ],
)
def test_linearity_follows_from_the_meaning(text, dim, linear, rng):
    spec = define(make_definition("f", "Fun", ("x", "y"), dim, text))
    assert spec.linear_in == linear
    assert spec.linearity is (Linearity.EACH if linear else Linearity.NONE)
    at = {} if dim is None else {"axis": 0, "size": 5}
    values = list(rng.normal(size=(2, 5)))
    for place in linear:
        more = rng.normal(size=5)
        one, other, both = list(values), list(values), list(values)
        other[place], both[place] = more, values[place] + more
        assert np.allclose(
            spec.numpy(*both, **at), spec.numpy(*one, **at) + spec.numpy(*other, **at)
        )


def test_a_text_carries_the_definitions_it_needs():
    program = parse_program(TEXT)
    assert format_program(program) == TEXT
    x = np.linspace(-3, 3, 7)
    assert np.allclose(evaluate(program, {"x": x})[0], x / (1 + np.exp(-1.702 * x)))
    assert "gelu_quick" not in spelled(), "a text does not decide what names mean elsewhere"


def test_an_operator_along_a_dim_takes_it_whole_only(rng):
    graph = parse_sgraph(ROPE_GRAPH)
    assert format_sgraph(graph) == ROPE_GRAPH
    x = rng.normal(size=(4, 3))
    mu = MuGraph(graph, (("d", 3), ("n", 4)), ((("x", 2),),))
    assert np.allclose(evaluate_graph(mu, {"x": x})[0], np.roll(x, 1, 1))
    split = ROPE_GRAPH.replace("m[out0,n,x]", "m[out0,d,x]").replace("m[x,n,x]", "m[x,d,x]")
    mu = MuGraph(parse_sgraph(split), (("d", 4), ("n", 4)), ((("x", 2),),))
    with pytest.raises(GraphError, match="turn acts along d and needs the whole of it"):
        evaluate_graph(mu, {"x": rng.normal(size=(4, 4))})


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("1.702 * x)\n", "1.702 * x) * 0\n", None),
        ("x * sigmoid(1.702 * x)", "x.__class__", "not allowed"),
        ("GeluQuick(x)", "Exp(x)", "taken"),
        ("GeluQuick(x)", "GeluQuick(x, y)", "not used"),
        ("operator gelu_quick as", "operator exp as", "own"),
        ("%1 = gelu_quick", "%1 = exp", "defined but not used"),
        ("operator gelu_quick as", "operator gelu_quick", "expected 'operator NAME"),
        ("operator gelu_quick as GeluQuick(x) = x * sigmoid(1.702 * x)\n", "", "unknown operator"),
    ],
)
def test_a_forged_definition_is_refused_at_its_line(old, new, why):
    if why is None:
        parse_program(TEXT)
        why = "two operators under one name"
    with pytest.raises(ParseError, match=rf"line \d.*{why}"):
        parse_program(TEXT.replace(old, new))


def test_workers_adopt_them():
    define(make_definition(*QUICK, "mine.toml"))
    define(make_definition(*ROPE, "mine.toml"))
    lines = as_lines()
    adopt(lines)
    assert as_lines() == lines
    assert OPS["rope"].linear_in == (0,)
