"""The text form: what is printed parses back to the same value, and bad text says where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import programs, sgraphs

from prism.errors import ParseError
from prism.ir import (
    Const,
    Output,
    Program,
    format_program,
    format_sgraph,
    parse_program,
    parse_sgraph,
)

SGRAPH = """\
sgraph
program row_norm
  dims n, d, k = 64
  args x[n, d], s[1, k]
  x = input x[n, d]
  %1 = square(x)  # [n, d]
  %2 = sum[d](%1)  # [n]
  %3 = size[d]
  %4 = div(%2, %3)  # [n]
  %5 = 1e-05
  %6 = add(%4, %5)  # [n]
  return %6[n, 1]
kernel 0
  grid x, y
  loop i
  map m[out0,n,x]
  map m[x,d,i] m[x,n,x]
  body:
    x = load x[n, d]  # tile [n/x, d/i]
    %1 = square(x)  # [n, d]
    %2 = sum[d](%1)  # [n]
  after:
    %3 = accumulate[i] sum(%2)  # [n]
  once:
    %4 = size[d]
  after:
    %5 = div(%3, %4)  # [n]
  once:
    %6 = 1e-05
  after:
    %7 = add(%5, %6)  # [n]
    save %7 as out0[n]  # tile [n/x]
"""


@given(programs())
def test_a_program_parses_back(program):
    assert parse_program(format_program(program)) == program


@given(sgraphs())
def test_an_sgraph_parses_back(graph):
    assert parse_sgraph(format_sgraph(graph)) == graph


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_constants_keep_every_bit(value):
    program = Program("constant", (), (), (Const(value),), (Output(0, ()),))
    parsed = parse_program(format_program(program)).nodes[0]
    assert isinstance(parsed, Const)
    assert parsed.value.hex() == float(value).hex()


def test_the_form_is_canonical():
    assert format_sgraph(parse_sgraph(SGRAPH)) == SGRAPH


def test_comments_spacing_and_sections_are_free():
    plain = "\n".join(
        line.split("#")[0].replace(" = ", "=").replace(", ", ",")
        for line in SGRAPH.splitlines()
        if line.strip() not in {"body:", "once:", "after:"}
    )
    assert parse_sgraph(f"# a note\n\n{plain}") == parse_sgraph(SGRAPH)


def test_words_of_the_form_can_be_names():
    text = """\
program save
  dims body
  args args[body], map[body]
  args = input args[body]
  map = input map[body]
  %sum = add(args, map)
  return %sum[body]
"""
    program = parse_program(text)
    assert [i.name for i in program.inputs] == ["args", "map"]
    assert parse_program(format_program(program)) == program


def with_line(number, text):
    """SGRAPH with one of its lines replaced."""
    lines = SGRAPH.splitlines()
    lines[number - 1] = text
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (1, "graph", "expected 'sgraph', found 'graph'"),
        (3, "dims n, d, k = x[", "expected the end of the line, found '['"),
        (3, "dims n, d, k = 6.5", "expected a size, found '6.5'"),
        (3, "dims n, d, k =", "expected a size, or the dimension whose size it has, found the end"),
        (4, "args x[n d], s[1, k]", "expected ']', found 'd'"),
        (5, "x = input y[n, d]", "reads 'y', which is no argument"),
        (5, "x = input x[d, n]", "does not fit the axes ['n', 'd'] of argument x"),
        (6, "%1 = squared(x)", "unknown operator 'squared'; known are add, sub"),
        (6, "%1 = square(y)", "expected a value defined above, found 'y'"),
        (6, "y = square(x)", "expected 'input', found 'square'"),
        (7, "%2 = sum(%1)", "sum needs the dimension"),
        (7, "%2 = sum[k](%1)", "sum goes over 'k', which an operand does not have"),
        (9, "%4 = div(%2)", "div takes 2 operand(s), not 1"),
        (9, "%1 = div(%2, %3)", "%1 is defined twice"),
        (10, "%5 = 1e999", "the constant inf is not a finite number"),
        (10, "%5 = nan", "unknown operator 'nan'"),
        (10, "%5 = $x", "unexpected character '$'"),
        (12, "return %7[n]", "expected a value defined above, found '%7'"),
        (13, "kernel 1", "kernels are numbered in order; this one is 0"),
        (16, "map m[out0,n]", "expected ',', found ']'"),
        (16, "map x", "expected 'm', found 'x'"),
        (19, "x = load y[n, d]", "a loaded value has the name of its tensor, y, or a number"),
        (19, "x = load x[d, n]", "loads x['d', 'n'], but it is ['n', 'd']"),
        (20, "y = square(x)", "expected 'load'"),
        (23, "%3 = accumulate[i] min(%2)", "expected one of sum, max, concat, found 'min'"),
        (23, "%3 = accumulate[x] sum(%2)", "accumulates over 'x', but the loops are i"),
        (25, "%3 = size[d]", "%3 is defined twice"),
        (32, "save %7 as out1[n]", "row_norm has no out1"),
    ],
)
def test_a_bad_line_is_refused_there(line, text, message):
    with pytest.raises(ParseError) as caught:
        parse_sgraph(with_line(line, text))
    assert str(caught.value).startswith(f"line {line}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "text", "reported", "message"),
    [
        (4, "args x[n, d], s[1, q]", 2, "argument s has the unknown dimension 'q'"),
        (12, "", 2, "program row_norm has no output"),
        (14, "grid x, x", 13, "parallel dim 'x' occurs twice"),
        (16, "map m[out0,n,i]", 13, "an output has no mapping along a loop"),
        (22, "", 23, "this node belongs under after:"),
        (24, "body:", 25, "this node belongs under once:"),
        (32, "", 13, "saves nothing"),
    ],
)
def test_a_fault_of_the_whole_is_reported_at_its_head(line, text, reported, message):
    with pytest.raises(ParseError) as caught:
        parse_sgraph(with_line(line, text))
    assert str(caught.value).startswith(f"line {reported}: ")
    assert message in str(caught.value)


def test_text_that_ends_early_says_what_was_expected():
    with pytest.raises(ParseError, match="line 2: expected 'program NAME', found the end"):
        parse_sgraph("sgraph\n")
    with pytest.raises(ParseError, match="line 1: expected 'program NAME', found the end"):
        parse_program("")


def refusal(parse, text):
    """The message with which a text is refused; empty when it parses."""
    try:
        parse(text)
    except ParseError as error:
        return str(error)
    return ""


@given(st.data())
def test_damaged_text_never_raises_anything_else(data):
    start = data.draw(st.integers(0, len(SGRAPH)))
    stop = data.draw(st.integers(start, min(len(SGRAPH), start + 12)))
    junk = data.draw(st.text(max_size=6))
    message = refusal(parse_sgraph, SGRAPH[:start] + junk + SGRAPH[stop:])
    assert not message or message.startswith("line ")


@given(st.text())
def test_any_text_is_refused_or_parsed(text):
    assert refusal(parse_program, text).startswith("line ")
