"""`verify_programs`: is this program, or sGraph, equal to that one?"""

from __future__ import annotations

import re

import pytest
from verify.table import CASES, PROGRAMS

from prism import frontend as pr
from prism.egraph import load_axioms
from prism.verify import Verdict, verify_programs


def verify(reference, candidate):
    return verify_programs(pr.trace(reference), pr.trace(candidate), load_axioms())


def test_names_do_not_matter():
    def reference(x: "n d", w: "d h"):
        return (x / pr.sqrt(pr.mean(x**2, axis=-1, keepdims=True))) @ w

    def candidate(rows: "a b", weights: "b c"):
        return (rows @ weights) / pr.sqrt(pr.mean(rows * rows, axis=-1, keepdims=True))

    assert verify(reference, candidate).verdict is Verdict.PROVED
    assert verify(candidate, reference).verdict is Verdict.PROVED


EQUAL = [
    ("x + x", "2 * x"),
    ("(x + y) * z", "x * z + y * z"),
    ("x - (y - z)", "x - y + z"),
    ("x / (y / z)", "x * z / y"),
    ("x / y / z", "x / (y * z)"),
    ("pr.silu(x)", "x * pr.sigmoid(x)"),
    ("pr.sigmoid(x)", "1 / (1 + pr.exp(-x))"),
    ("pr.relu(x)", "pr.maximum(x, 0)"),
    ("pr.exp(x + y)", "pr.exp(x) * pr.exp(y)"),
    ("pr.sqrt(x**2)", "abs(x)"),
    ("pr.log(pr.softmax(x, axis=-1))", "pr.log_softmax(x, axis=-1)"),
    ("pr.softmax(x, axis=-1)", "pr.exp(x) / pr.sum(pr.exp(x), axis=-1, keepdims=True)"),
    ("(x + y) @ w", "x @ w + y @ w"),
    ("(x - y) @ w", "x @ w - y @ w"),
    ("(2 * x) @ w", "(x @ w) * 2"),
    ("pr.max(x + 1, axis=-1)", "pr.max(x, axis=-1) + 1"),
    ("x.T.T", "x"),
    ("x @ x.T", "(x @ x.T).T"),
    ("pr.mean(x, axis=-1)", "pr.sum(x, axis=-1) / x.shape[1]"),
]


def program(text):
    names = {"pr": pr}
    source = f'def fn(x: "n d", y: "n d", z: "n d", w: "d h"):\n    return {text}\n'
    exec(source, names)
    return pr.trace(names["fn"])


@pytest.mark.parametrize(("reference", "candidate"), EQUAL)
def test_equal_programs_are_proved_equal(reference, candidate):
    found = verify_programs(program(reference), program(candidate), load_axioms())
    assert found.verdict is Verdict.PROVED
    assert found.counterexample is None


DIFFERENT = [
    ("x + y", "x - y"),
    ("x / y", "y / x"),
    ("(x / y) @ w", "(x @ w) / pr.sum(y, axis=-1, keepdims=True)"),
    ("pr.sqrt(x**2)", "x"),
    ("pr.max(-x, axis=-1)", "-pr.max(x, axis=-1)"),
    ("pr.softmax(x, axis=-1)", "pr.softmax(x, axis=0)"),
    ("pr.mean(x, axis=-1)", "pr.sum(x, axis=-1)"),
    ("pr.exp(x * y)", "pr.exp(x) * pr.exp(y)"),
    ("pr.exp(x) / pr.sum(pr.exp(x), axis=-1, keepdims=True)", "pr.exp(x)"),
    ("pr.gelu(x)", "pr.silu(x)"),
]


@pytest.mark.parametrize(("reference", "candidate"), DIFFERENT)
def test_different_programs_get_a_counterexample(reference, candidate):
    found = verify_programs(program(reference), program(candidate), load_axioms())
    assert found.verdict is Verdict.NOT_PROVED
    assert found.counterexample is not None
    assert "out0[" in found.counterexample


def test_a_counterexample_has_sizes_an_entry_and_both_values():
    found = verify_programs(program("x"), program("-x"), load_axioms())
    text = re.fullmatch(
        r"at n=(\d), d=(\d), h=(\d), out0\[0, 0\] is (\S+) and the candidate gives (\S+)",
        found.counterexample or "",
    )
    assert text is not None
    assert float(text[4]) == -float(text[5])


def test_the_same_question_gets_the_same_answer():
    one, two = (
        verify_programs(program("x + y"), program("x - y"), load_axioms()) for _ in range(2)
    )
    assert one == two


def test_arguments_that_do_not_match_are_named():
    def one(x: "n d"):
        return x

    def two(x: "n d", y: "n d"):
        return x

    found = verify(one, two)
    assert found.verdict is Verdict.NOT_PROVED
    assert "one takes 1 arguments and two 2" in found.reason


def test_outputs_that_do_not_match_are_named():
    def one(x: "n d"):
        return x

    def two(x: "n d"):
        return x, x

    assert "one returns 1 arrays and two 2" in verify(one, two).reason


def test_a_transposed_result_is_another_function():
    def rows(x: "n d"):
        return x

    def columns(x: "n d"):
        return x.T

    found = verify(rows, columns)
    assert found.verdict is Verdict.NOT_PROVED
    assert "out0 has shape (3, 4), not (4, 3)" in (found.counterexample or "")


def test_a_candidate_for_fewer_sizes_is_not_equal():
    def general(x: "n d"):
        return pr.mean(x, axis=-1)

    def fixed(x: "n 3"):
        return pr.sum(x, axis=-1) / 3

    assert "fixed only takes d = 3" in verify(general, fixed).reason
    assert verify(fixed, general).verdict is Verdict.PROVED


def test_a_candidate_that_needs_equal_sizes_is_not_equal():
    def general(x: "a b"):
        return x @ x.T

    def square(x: "n n"):
        return x @ x

    assert "square needs sizes a and b of general to be equal" in verify(general, square).reason
    assert verify(square, general).verdict is Verdict.NOT_PROVED


@pytest.mark.parametrize("case", CASES[:6], ids=lambda c: c.name)
def test_a_candidate_may_be_a_graph(case):
    found = verify_programs(PROGRAMS[case.program], case.graph, load_axioms())
    assert (found.verdict is Verdict.PROVED) is case.is_right
    assert (found.counterexample is None) is case.is_right


def test_a_graph_of_a_program_with_other_names_may_be_the_candidate():
    def reference(rows: "a b", weights: "b c"):
        return (rows @ weights) / pr.sqrt(pr.mean(rows * rows, axis=-1, keepdims=True))

    found = verify_programs(pr.trace(reference), CASES[0].graph, load_axioms())
    assert found.verdict is Verdict.PROVED
