"""Dims as annotations: as strings, postponed, mixed with defaults and keywords."""
# Annotations are dims here, not types.

from __future__ import annotations

import pytest

import prism.frontend as pr
from prism.errors import TraceError
from prism.frontend.dims import DimsError, parse_dims
from prism.frontend.site import definition_error, raised_error


def layer(x: "n d", g: "d", w: "d h") -> "n h":
    return (x * g) @ w


def with_defaults(x: "n d", scale: float = 2.0, *, bias: "d" = None, eps=1.0):
    return x * scale + bias + eps


def positional(x: "n", /, y: "n"):
    return x + y


def typed(x: float):
    return x


def unquoted(x: n):
    return x


def test_postponed_annotations_are_read_as_strings():
    program = pr.trace(layer)
    assert program.name == "layer"
    assert [(a.name, a.axes) for a in program.arguments] == [
        ("x", ("n", "d")),
        ("g", ("d",)),
        ("w", ("d", "h")),
    ]


def test_annotations_that_are_not_postponed_are_read_too():
    source = 'def f(x: "n d", s: "", c: "3 1"):\n    return x * s\n'
    namespace = {}
    exec(compile(source, "f.py", "exec", dont_inherit=True), namespace)
    program = pr.trace(namespace["f"])
    assert [a.axes for a in program.arguments] == [("n", "d"), (), ("c_0", None)]


def test_keywords_win_over_annotations():
    assert pr.trace(layer, x="a b", g="b").arguments[0].axes == ("a", "b")


def test_parameters_without_dims_keep_their_default():
    program = pr.trace(with_defaults)
    assert [a.name for a in program.arguments] == ["x", "bias"]
    assert [a.name for a in pr.trace(with_defaults, scale="").arguments] == ["x", "scale", "bias"]


def test_positional_parameters_are_passed_by_place():
    assert [a.name for a in pr.trace(positional).arguments] == ["x", "y"]


@pytest.mark.parametrize("fn", [typed, unquoted])
def test_an_annotation_that_is_no_string_is_refused(fn):
    line = fn.__code__.co_firstlineno
    with pytest.raises(TraceError) as caught:
        pr.trace(fn)
    assert str(caught.value).startswith(f"{__file__}:{line}: parameter 'x' of {fn.__name__}")
    assert 'is not a string; write its dims as a string, e.g. x: "n d"' in str(caught.value)


def test_the_words_of_an_annotation():
    assert parse_dims("n d_1  64 1") == ("n", "d_1", 64, 1)
    assert parse_dims("") == ()


@pytest.mark.parametrize("word", ["9" * 5000, "9" * 19, "0", "n-1", "\u0663", "x\0"])
def test_words_that_are_neither_names_nor_sizes_are_shown_in_short(word):
    with pytest.raises(DimsError, match="neither a dimension's name nor a positive") as caught:
        parse_dims(f"n {word}")
    assert len(str(caught.value)) < 400


def test_errors_at_the_users_line_are_one_line():
    def wraps_itself():
        pass

    wraps_itself.__wrapped__ = wraps_itself
    assert str(definition_error(wraps_itself, "a\n  b")).endswith(": a b")
    assert str(raised_error(ValueError(), "a\r\n\n b\n")) == "a b"
