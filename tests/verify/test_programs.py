"""`verify_programs`: is this program, or sGraph, equal to that one?"""

from __future__ import annotations

import re

import pytest
from program_texts import traced
from verify.table import CASES, PROGRAMS

from prism import frontend as pr
from prism.egraph import AxiomFile, load_axioms, make_axiom_set
from prism.ir import parse_sgraph
from prism.verify import Verdict, VerifyLimits, verify_programs


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
    # dimensions of one name that do not meet: apart for the one, alike for the others
    ("(x @ y.T) @ z", "x @ (y.T @ z)"),
    ("pr.sum(x) + pr.sum(y)", "pr.sum(x + y)"),
    ("pr.sum(x) * pr.sum(y)", "pr.sum(x * pr.sum(y))"),
]


def program(text):
    return traced(text, 'x: "n d", y: "n d", z: "n d", w: "d h"')


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
    assert "out0[" in str(found.counterexample)


def test_a_counterexample_has_sizes_an_entry_and_both_values():
    found = verify_programs(program("x"), program("-x"), load_axioms())
    text = re.fullmatch(
        r"at n=(\d), d=(\d), h=(\d), out0\[0, 0\] is (\S+) and the candidate gives (\S+)",
        str(found.counterexample),
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
    assert "out0 has shape (2, 1), not (1, 2)" in str(found.counterexample)


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


def row_sums(dims, *, is_mean):
    """A graph that sums (or averages by the other size) rows, its program over `dims`."""
    mean = "\n  %2 = size[n]\n  %3 = div(%1, %2)" if is_mean else ""
    last = "%3" if is_mean else "%1"
    return parse_sgraph(
        f"sgraph\nprogram p\n  dims {dims}\n  args x[n, d]\n  x = input x[n, d]\n"
        f"  %1 = sum[d](x){mean}\n  return {last}[n]\nkernel 0\n  grid x\n"
        f"  map m[out0,n,x]\n  map m[x,n,x]\n  x = load x[n, d]\n"
        f"  %1 = sum[d](x){mean}\n  save {last} as out0[n]\n"
    )


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (row_sums("n, d = 1", is_mean=False), "p only takes d = 1"),
        (row_sums("n, d = n", is_mean=True), "p needs sizes n and d of general to be equal"),
    ],
)
def test_a_graph_for_fewer_sizes_is_not_equal(graph, reason):
    def general(x: "n d"):
        return pr.mean(x, axis=-1)

    found = verify_programs(pr.trace(general), graph, load_axioms())
    assert found.verdict is Verdict.NOT_PROVED
    assert reason in found.reason


def test_a_graph_and_a_reference_of_the_same_fixed_sizes_are_compared():
    def fixed(x: "n 1"):
        return pr.mean(x, axis=-1)

    def two(x: "n 2"):
        return pr.mean(x, axis=-1)

    def one(x: "n d"):
        return pr.sum(x, axis=-1)

    graph = row_sums("n, d", is_mean=False)
    assert verify_programs(pr.trace(one), graph, load_axioms()).verdict is Verdict.PROVED
    other = verify_programs(pr.trace(two), row_sums("n, d = 1", is_mean=False), load_axioms())
    assert other.verdict is Verdict.NOT_PROVED


SHIFTS = {
    "never defined": "pr.sqrt(-pr.square(pr.exp(y)))",
    "a logarithm": "pr.log(y)",
    "a reciprocal": "(1 / y)",
}


@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS.keys())
def test_a_shift_that_may_be_undefined_does_not_cancel(shift):
    names = {"pr": pr}
    exec(
        'def plain(x: "n d", y: "n"): return pr.softmax(x, axis=-1)\n'
        f'def shifted(x: "n d", y: "n"):\n    e = pr.exp(x - ({shift})[:, None])\n'
        "    return e / pr.sum(e, axis=-1, keepdims=True)\n"
        'def lse(x: "n d", y: "n"): return pr.log(pr.sum(pr.exp(x), axis=-1))\n'
        f'def shifted_lse(x: "n d", y: "n"):\n    m = {shift}\n'
        "    return m + pr.log(pr.sum(pr.exp(x - m[:, None]), axis=-1))\n",
        names,
    )
    for reference, candidate in (("plain", "shifted"), ("lse", "shifted_lse")):
        found = verify(names[reference], names[candidate])
        assert found.verdict is Verdict.NOT_PROVED
        assert found.counterexample is not None


def test_the_largest_value_cancels_in_a_softmax():
    def lse(x: "n d"):
        return pr.log(pr.sum(pr.exp(x), axis=-1))

    def stable(x: "n d"):
        return pr.logsumexp(x, axis=-1)

    assert verify(lse, stable).verdict is Verdict.PROVED
    assert verify(stable, lse).verdict is Verdict.PROVED


def test_a_proof_that_numbers_refute_is_none():
    text = '(rewrite (Exp a) (Square a) :ruleset algebra :name "wrong")'
    wrong = make_axiom_set((AxiomFile("wrong.egg", text),))
    found = verify_programs(program("pr.exp(x)"), program("pr.square(x)"), wrong)
    assert found.verdict is Verdict.NOT_PROVED
    assert found.counterexample is not None
    assert "an axiom may be unsound" in found.reason


def test_an_axiom_that_loses_where_a_value_is_defined_is_caught():
    text = '(rewrite (Mul (Log a) (Recip (Log a))) (Exp (Sub a a)) :ruleset algebra :name "wrong")'
    wrong = make_axiom_set((AxiomFile("wrong.egg", text),))
    candidate = program("pr.log(x) * (1 / pr.log(x))")
    found = verify_programs(program("pr.exp(x - x)"), candidate, wrong)
    assert found.verdict is Verdict.NOT_PROVED
    assert "gives nan" in str(found.counterexample)


def test_an_overflow_is_no_counterexample_to_a_proof():
    found = verify_programs(
        program("pr.exp(200 * (x + y))"),
        program("pr.exp(200 * x) * pr.exp(200 * y)"),
        load_axioms(),
    )
    assert found.counterexample is None


@pytest.mark.parametrize(("seconds", "limit"), [(0.0, "0 s"), (300.0, "100000 e-nodes")])
def test_an_answer_says_whether_the_clock_ended_it(seconds, limit):
    pair = program("pr.tanh(x)"), program("1 - 2 / (pr.exp(2 * x) + 1)")
    found = verify_programs(*pair, load_axioms(), VerifyLimits(seconds=seconds))
    assert found.verdict is Verdict.GAVE_UP
    assert found.reason.startswith(f"the limit of {limit} was reached before the axioms were")
