"""What cannot be traced: one clear message each, with the user's file and line."""
# The functions under test are wrong on purpose.
# ruff: noqa: PLR0124, PLW0108, RUF034

from __future__ import annotations

import math
from copy import deepcopy
from functools import partial

import numpy as np
import pytest

import prism.frontend as pr
from prism.errors import TraceError

HERE = __file__


def message_of(fn, **dims):
    with pytest.raises(TraceError) as caught:
        pr.trace(fn, **dims)
    return str(caught.value)


def branches(x):
    if x > 0:
        return x
    return -x


def loops(x):
    total = 0.0
    for row in x:
        total = total + row
    return total


def ranges(x):
    for _ in range(x.shape[0]):
        x = x * 2
    return x


def fails(x):
    y = x * 2
    return y.shape[7]


def two_lines(x, y):
    z = x * 2
    return z + y


@pytest.mark.parametrize(
    ("fn", "offset", "message"),
    [
        (branches, 1, "a traced tensor has no data, so Python cannot branch or loop on it"),
        (loops, 2, "a traced tensor has no data"),
        (ranges, 1, "a symbolic size is not an integer (one program serves all sizes)"),
        (fails, 2, "fails raised IndexError: tuple index out of range"),
    ],
)
def test_an_error_is_at_the_line_of_the_user(fn, offset, message):
    line = fn.__code__.co_firstlineno + offset
    text = message_of(fn, x="n d")
    assert text.startswith(f"{HERE}:{line}: ")
    assert message in text


def test_dims_that_cannot_agree_are_named_at_their_line():
    line = two_lines.__code__.co_firstlineno + 2
    text = message_of(two_lines, x="n 3", y="n 4")
    assert text == f"{HERE}:{line}: add: size 3 meets size 4; the axes must agree"
    text = message_of(lambda x, y, z: (x + y) * z, x="n", y="3", z="4")
    assert "mul: dimension n of size 3 meets size 4" in text


CASES = {
    # data and control flow
    "bool": (lambda x: x if x.sum() else x, "cannot branch or loop"),
    "comparison": (lambda x: x * (x > 0), "cannot branch or loop"),
    "equality": (lambda x: x if x == x else x, "cannot branch or loop"),
    "and": (lambda x: x and x, "cannot branch or loop"),
    "builtin max": (lambda x: max(x, x.T), "cannot branch or loop"),
    "len": (lambda x: x * len(x), "cannot branch or loop"),
    "in": (lambda x: x if 1 in x else x, "cannot branch or loop"),
    "unpack": (lambda x: [*x], "cannot branch or loop"),
    "item": (lambda x: x.item(), "cannot branch or loop"),
    "int": (lambda x: x * int(x.shape[0]), "a symbolic size is not an integer"),
    "index by size": (lambda x: [1, 2][x.shape[0]], "a symbolic size is not an integer"),
    "float": (lambda x: x * float(x.sum()), "use the functions of prism instead of math"),
    "math": (lambda x: x / math.sqrt(x.shape[1]), "use the functions of prism instead of math"),
    # operators and functions that do not exist
    "floor division": (lambda x: x // 2, "unknown operator: tensors have + - * / @ **"),
    "mod": (lambda x: 2 % x, "unknown operator"),
    "mask": (lambda x: x & x, "unknown operator"),
    "exponent": (lambda x: x**1.5, "x ** 1.5 is not supported; exponents are 0.5, -0.5, -1"),
    "big exponent": (lambda x: x**17, "the integers 1 to 16"),
    "zero exponent": (lambda x: x**0, "x ** 0 is not supported"),
    "tensor exponent": (lambda x: x**x, "is not supported; exponents are"),
    "base": (lambda x: 2**x, "2 ** x is not supported; write prism.exp(x * log(base))"),
    "numpy function": (lambda x: np.where(x, x, x), "unknown function np.where on a traced"),
    "numpy ufunc": (lambda x: np.arctan(x), "unknown function np.arctan on a traced tensor; supp"),
    "numpy argument": (lambda x: np.sum(x, dtype="f4"), "np.sum: got an unexpected keyword arg"),
    "numpy out": (lambda x: np.exp(x, out=np.ones(3)), "np.exp: got an unexpected keyword"),
    "ufunc method": (lambda x: np.add.reduce(x), "np.add.reduce is not supported"),
    "asarray": (lambda x: np.asarray(x) + 1, "cannot become a NumPy array"),
    "method": (lambda x: x.cumsum(), "a traced tensor has no .cumsum"),
    "reshape": (lambda x: x.reshape(3), ".reshape: axes carry names and cannot be merged"),
    "gelu": (lambda x: pr.gelu(x, approximate="fast"), 'approximate must be "none" or "tanh"'),
    # dtypes and constants
    "astype": (lambda x: x.astype("float32"), "a program has no dtype: it is chosen at tuning"),
    "dtype": (lambda x: x * x.dtype, "a program has no dtype"),
    "complex": (lambda x: x * 1j, "mul: complex 1j cannot be a constant; use a real number"),
    "numpy complex": (lambda x: x + np.complex64(1), "complex64"),
    "array": (lambda x: x + np.ones(4), "add: an array of shape (4,) cannot be a constant; make"),
    "left array": (lambda x: np.ones((2, 3)) @ x, "an array of shape (2, 3) cannot be a constant"),
    "string": (lambda x: x + "a", "add: str 'a' cannot be a constant"),
    "none": (lambda x: x + None, "add: NoneType None cannot be a constant"),
    "truth value": (lambda x: x * True, "True is a truth value"),
    "nan": (lambda x: x + math.nan, "the constant nan is not finite"),
    "infinity": (lambda x: pr.maximum(x, -math.inf), "the constant -inf is not finite"),
    # axes
    "axis": (lambda x: x.sum(axis=2), "sum: there is no axis 2 in [n, d]"),
    "axis twice": (lambda x: x.mean(axis=(0, -2)), "mean: axis (0, -2) names one axis twice"),
    "axis type": (lambda x: x.max(axis="d"), "max: axis must be an integer, not 'd'"),
    "permutation": (lambda x: pr.permute_dims(x, (0, 0)), "does not name each axis of [n, d] once"),
    "expand": (lambda x: pr.expand_dims(x, 4), "expand_dims: axis 4 is not possible in a result"),
    "integer index": (lambda x: x[0], "x[0]: an index can only be a whole axis `:`"),
    "slice": (lambda x: x[:, 1:], "x[slice(1, None, None)]: an index can only be"),
    "too many indices": (lambda x: x[:, :, :], "too many indices for the axes [n, d]"),
    "two ellipses": (lambda x: x[..., ...], "an index can have one `...` only"),
    "assignment": (lambda x: x.__setitem__(0, 1), "a tensor cannot be assigned to"),
    "scalar matmul": (lambda x: x @ 2, "matmul (@) needs an axis on either side"),
    "unit axis": (lambda x: x.sum(1, keepdims=True) @ x, "an axis of size 1 meets a dimension"),
    # einsum
    "einsum spec": (lambda x: pr.einsum("ij", x), "write one or two operands and the output"),
    "einsum count": (lambda x: pr.einsum("ij,jk->ik", x), "names 2 operands, but there are 1"),
    "einsum rank": (lambda x: pr.einsum("ijk->i", x), "'ijk' does not fit the axes [n, d]"),
    "einsum trace": (lambda x: pr.einsum("ii->i", x), "has a letter twice"),
    "einsum output": (lambda x: pr.einsum("ij->k", x), "no operand has k"),
    "einsum operand": (lambda x: pr.einsum("ij,j->i", x, 2.0), "every operand must be a tensor"),
    # results
    "nothing": (lambda x: None, "the result of <lambda> is NoneType, not a tensor"),
    "number": (lambda x: 2.0, "the result of <lambda> is float, not a tensor"),
    "empty": (lambda x: (), "returns no tensor"),
    "second result": (lambda x: (x, 1), "result 1 of <lambda> is int, not a tensor"),
    "dictionary": (lambda x: {"a": x}, "the result of <lambda> is dict, not a tensor"),
    "exception": (lambda x: x + {}["k"], "<lambda> raised KeyError: 'k'"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_program_cannot_do_is_said_at_its_line(case):
    fn, message = CASES[case]
    text = message_of(fn, x="n d")
    assert message in text
    assert text.startswith(f"{HERE}:{fn.__code__.co_firstlineno}: ")


def no_annotation(x):
    return x


def generator(x):
    yield x


def variadic(*tensors):
    return tensors[0]


def keywords(x, **rest):
    return x


async def coroutine(x):
    return x


def output_named(out0):
    return out0


@pytest.mark.parametrize(
    ("fn", "dims", "message"),
    [
        (no_annotation, {}, "parameter 'x' of no_annotation has no annotation; write its dims"),
        (no_annotation, {"y": "n"}, "dims given for y, but the parameters are x"),
        (no_annotation, {"x": 3}, "dims must be a string like 'n d', not 3"),
        (
            no_annotation,
            {"x": "n,d"},
            "'n,d' in the annotation 'n,d' is neither a dim",
        ),
        (no_annotation, {"x": "n 0"}, "'0' in the annotation 'n 0' is neither"),
        (no_annotation, {"x": "n -1"}, "'-1' in the annotation 'n -1' is neither"),
        (no_annotation, {"x": "n d'"}, '"d\'" in the annotation'),
        (generator, {"x": "n"}, "generator must be a plain function that returns"),
        (coroutine, {"x": "n"}, "coroutine must be a plain function that returns"),
        (variadic, {}, "parameter 'tensors' of variadic: a program has no *args or **kwargs"),
        (keywords, {"x": "n"}, "parameter 'rest' of keywords: a program has no *args or **kwargs"),
        (output_named, {"out0": "n"}, "'out0' names an output; call the parameter otherwise"),
    ],
)
def test_a_signature_that_says_no_dims_is_refused_at_the_function(fn, dims, message):
    text = message_of(fn, **dims)
    assert message in text
    assert text.startswith(f"{HERE}:{fn.__code__.co_firstlineno}: ")


def test_what_is_no_function_is_refused():
    with pytest.raises(TraceError, match="trace needs a function, not 3"):
        pr.trace(3)
    with pytest.raises(TraceError, match=r"has no signature|has no annotation"):
        pr.trace(np.add)


def test_other_callables_are_traced():
    class Scale:
        def __call__(self, x):
            return x * 2

    assert pr.trace(Scale(), x="n").name == "Scale"
    assert pr.trace(partial(two_lines, y=2.0), x="n").name == "two_lines"
    assert pr.trace(lambda x: x, x="n").name == "program"
    assert pr.trace(lambda x: x, name="other", x="n").name == "other"


def test_a_result_of_another_trace_is_refused():
    kept = {}

    def stale(x: "n d"):
        return kept.setdefault("r", pr.exp(x + 1))

    def copied(x: "n d"):
        return deepcopy(x * 2)

    def stale_second(x: "n d"):
        return x, kept["r"]

    def stale_einsum(x: "n d"):
        return pr.einsum("nd,nd->n", x, kept["r"])

    pr.trace(stale)
    assert "the result of stale is a tensor of another trace" in message_of(stale)
    assert "the result of copied is a tensor of another trace" in message_of(copied)
    assert "result 1 of stale_second is a tensor of another trace" in message_of(stale_second)
    assert "einsum: a tensor of another trace" in message_of(stale_einsum)


class Unreadable(BaseException):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [GeneratorExit(), Unreadable(), ValueError("two\nlines")])
def test_whatever_a_program_raises_is_a_trace_error_of_one_line(error):
    def fn(x: "n"):
        raise error

    with pytest.raises(TraceError) as caught:
        pr.trace(fn)
    assert type(error).__name__ in str(caught.value)
    assert "\n" not in str(caught.value)
