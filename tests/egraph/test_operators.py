"""Users' operators in axioms: tables beside files, rules that follow, tests by their meaning."""

from __future__ import annotations

import os

import numpy as np
import pytest
from operator_tables import GELU_QUICK, LERP

from prism.egraph import TermBank, load_axioms
from prism.egraph.axioms import passages
from prism.egraph.checking import Fault, check_axioms
from prism.egraph.exact import is_precise, is_rational
from prism.egraph.proving import Proof, installed_provers
from prism.egraph.soundness import check_rule
from prism.errors import AxiomError, GraphError
from prism.ir import definitions, parse_program, parse_sgraph
from prism.operators import MAX_NESTING, load_operators, parse_table
from prism.search.explain import explain
from prism.verdict import Verdict
from prism.verify import verify_graphs, verify_programs


@pytest.fixture
def axioms():
    """The shipped set."""
    return load_axioms()


pytestmark = pytest.mark.usefixtures("operators")

TABLE = f"""{GELU_QUICK}
[turn]
constructor = "Turn"
operands = ["x", "s"]
dim = "k"
numpy = "x + s * roll(x, k, 1)"
{LERP}
[third]
constructor = "Third"
operands = ["x"]
numpy = "x * (1 / 3)"

[bell]
constructor = "Bell"
operands = ["x"]
numpy = "exp(-(x * x)) + 1"

[step]
constructor = "Step"
operands = ["x"]
numpy = "where(x > 0, 1, 0)"
"""
GOOD = """
; Quick GELU is the product it abbreviates.
(birewrite (GeluQuick x) (Mul x (Sigmoid (Mul x (Const "1.702"))))
  :ruleset algebra :name "quick-product")
; A third is a third.
(rewrite (Third x) (Div x (Const "3.0")) :ruleset algebra :name "third-div")
; A scale passes through turning.
(rewrite (Turn (Mul x a) s k) (Mul (Turn x s k) a) :when ((lacks a k))
  :ruleset algebra :name "turn-mul")
; Turning is linear.
(rewrite (Turn (Add x y) s k) (Add (Turn x s k) (Turn y s k))
  :ruleset algebra-verify :name "turn-add")
; Going from x to x goes nowhere.
(rewrite (Lerp x x t) x :when ((defined t)) :ruleset algebra :name "lerp-same")
; A bell is positive, so it may be cancelled.
(rewrite (Div (Bell x) (Bell x)) (Const "1.0") :when ((defined x))
  :ruleset algebra :name "bell-cancel")
; A step has two values.
(rewrite (Square (Step x)) (Step x) :ruleset algebra :name "step-square")
"""


@pytest.fixture
def mine(tmp_path):
    """Writes a table and axioms beside each other."""

    def write(egg=GOOD, table=TABLE, name="mine"):
        if table is not None:
            (tmp_path / f"{name}.toml").write_text(table)
        file = tmp_path / f"{name}.egg"
        file.write_text(egg)
        return str(file)

    return write


def failures(*specs):
    return {f.rule or f.place: f for f in check_axioms(specs, {}, ()).failures}


def test_a_file_brings_the_table_of_its_name(mine):
    found = load_axioms(("prism", mine()))
    assert [d.name for d in found.operators] == [
        "gelu_quick", "turn", "lerp", "third", "bell", "step",
    ]  # fmt: skip
    assert [f.name for f in found.files][-2:] == ["mine.toml", "mine.egg"]
    assert found.helpers == ()


def test_a_folder_brings_every_table_and_a_table_can_be_named_alone(mine, tmp_path):
    file = mine()
    assert load_axioms((str(tmp_path),)).operators == load_axioms((file,)).operators
    assert load_axioms((file.replace(".egg", ".toml"),)).axioms == ()


def test_a_fingerprint_is_of_the_meanings_too(mine):
    one = load_axioms((mine("; \n", TABLE, "a"),)).fingerprint
    other = load_axioms((mine("; \n", TABLE.replace("# ", ""), "b"),)).fingerprint
    assert one != other


def test_rules_are_tested_by_the_meaning_of_operators(mine):
    report = check_axioms((mine(),), {}, installed_provers())
    assert report.failures == ()
    found = {r.rule: r for r in report.rules}
    assert all(rule.cases for rule in report.rules)
    assert found["third-div"].exact_cases, "a third is exact, not the float nearest to it"
    for name in ("quick-product", "quick-product-back", "third-div", "step-square"):
        assert found[name].proof is Proof.ALL_SIZES, name
    assert found["turn-mul"].proof is Proof.NONE


WRONG = """
(rewrite (GeluQuick x) (Relu x) :ruleset algebra :name "quick-relu")
(rewrite (Third x) (Mul x (Const "0.3333333333333333")) :ruleset algebra :name "third-off")
(rewrite (Turn (Mul x a) s k) (Mul (Turn x s k) a) :ruleset algebra :name "turn-mul-any")
(rewrite (Turn (Repl x p) (Part s d p) k) (Part (Turn x s k) d p)
  :when ((!= d k)) :ruleset parallel :name "turn-repl-part")
(rewrite (Div (Step x) (Step x)) (Const "1.0") :when ((defined x))
  :ruleset algebra :name "step-cancel")
"""


def test_wrong_rules_about_them_are_refuted(mine):
    found = failures(mine(WRONG))
    assert {f.fault for f in found.values()} == {Fault.UNSOUND}
    assert found.keys() == {
        "quick-relu", "third-off", "turn-mul-any", "turn-repl-part", "step-cancel",
    }  # fmt: skip


CANCEL = """
; A factor that is not zero cancels.
(rewrite (Div (Mul a y) a) y :when ((nonzero a) (defined a)) :ruleset algebra :name "my-cancel")
"""


@pytest.mark.parametrize(
    ("op", "verdict"), [("bell", Verdict.PROVED), ("step", Verdict.NOT_PROVED)]
)
def test_a_sign_follows_from_the_meaning(mine, op, verdict):
    """Nothing is declared, so nothing can be declared falsely."""
    axioms = load_axioms((mine(CANCEL),))
    (line,) = (str(d) for d in axioms.operators if d.name == op)
    head = "  dims n\n  args x[n], y[n]\n  x = input x[n]\n  y = input y[n]\n"
    body = f"  %2 = {op}(x)\n  %3 = mul(%2, y)\n  %4 = div(%3, %2)\n  return %4[n]\n"
    cancelled = parse_program(f"{line}\nprogram one\n{head}{body}")
    plain = parse_program(f"program two\n{head}  return y[n]\n")
    assert verify_programs(plain, cancelled, axioms).verdict is verdict


@pytest.mark.parametrize("name", ["gelu_quick", "turn", "lerp"])
def test_they_pass_through_tiles_and_copies(mine, name):
    definition = {d.name: d for d in load_axioms((mine(),)).operators}[name]
    rules = passages(definition)
    count = 2 ** len(definition.operands)
    linear = {"gelu_quick": 0, "turn": 1, "lerp": 0}[name]
    assert len(rules) == count + linear
    for rule in rules:
        report = check_rule(rule, cases=25)
        assert report.counterexample is None, (rule.text, report.counterexample)
        assert report.cases


GRAPH = """\
sgraph
operator turn as Turn(x, s) along k = x + s * roll(x, k, 1)
program turned
  dims n, d
  args x[n, d], s[d]
  x = input x[n, d]
  s = input s[d]
  %2 = turn[d](x, s)  # [n, d]
  return %2[n, d]
kernel 0
  grid x
  map m[out0,n,x]
  map m[x,n,x]
  x = load x[n, d]
  s = load s[d]
  %2 = turn[d](x, s)
  save %2 as out0[n, d]
"""


def test_a_graph_that_leaves_the_dim_whole_is_proved(axioms):
    graph = parse_sgraph(GRAPH)
    assert verify_graphs(graph.program, [graph], axioms) == (Verdict.PROVED,)
    assert explain(graph) is None


def test_one_that_splits_it_is_refused_with_a_reason(axioms):
    maps = ("m[out0,d,x]", "m[x,d,x] m[s,d,x]")
    text = GRAPH.replace("m[out0,n,x]", maps[0]).replace("m[x,n,x]", maps[1])
    graph = parse_sgraph(text)
    assert verify_graphs(graph.program, [graph], axioms) == (Verdict.NOT_PROVED,)
    assert "turn acts along d and needs the whole of it" in explain(graph)
    bank = TermBank(("d",))
    par = bank.par_id(0, 0, "p")
    part = bank.make("Part", (bank.input("x", ("d",)),), (0, par))
    with pytest.raises(GraphError, match="Turn acts along d and needs the whole of it"):
        bank.make("Turn", (part, part), (0,))


def test_proofs_use_the_axioms_of_the_file_only(mine):
    file = mine()
    load_operators(file.replace(".egg", ".toml"))
    head = "  dims n\n  args x[n]\n  x = input x[n]\n"
    (line,) = (str(d) for d in definitions() if d.name == "gelu_quick")
    one = parse_program(f"{line}\nprogram one\n{head}  %1 = gelu_quick(x)\n  return %1[n]\n")
    body = "  %1 = 1.702\n  %2 = mul(x, %1)\n  %3 = sigmoid(%2)\n  %4 = mul(x, %3)\n"
    other = parse_program(f"program two\n{head}{body}  return %4[n]\n")
    assert verify_programs(one, other, load_axioms()).verdict is Verdict.NOT_PROVED
    assert verify_programs(one, other, load_axioms(("prism", file))).verdict is Verdict.PROVED


def test_numbers_are_exact_where_a_meaning_is(mine):
    load_axioms((mine(),))
    assert is_rational({"Third", "Lerp", "Turn", "Step"})
    assert not is_rational({"GeluQuick"})
    assert is_precise({"GeluQuick", "Bell"})


def test_a_table_may_be_declared_once_more_in_the_file(mine):
    assert load_axioms((mine("(constructor GeluQuick (E) E)", name="a"),)).helpers == ()
    for line in ("(constructor GeluQuick (E E) E)", "(constructor Turn (E E) E)"):
        with pytest.raises(
            AxiomError, match=r"b\.egg:1: the table beside this file says otherwise"
        ):
            load_axioms((mine(line, name="b"),))


def test_a_file_knows_only_the_operators_of_its_own_tables(mine):
    load_axioms((mine(),))
    alone = mine(GOOD, table=None, name="alone")
    with pytest.raises(AxiomError, match="is no term"):
        load_axioms((alone,))
    with pytest.raises(AxiomError, match="another file defines"):
        load_axioms((mine("(constructor Bell (E) E)", table=None, name="thief"),))


def test_a_helper_without_a_meaning_does_not_become_an_operator_later(mine, axioms):
    helper = load_axioms(("prism", mine("(constructor Turn (E E) E)", table=None)))
    graph = parse_sgraph(GRAPH)
    assert verify_graphs(graph.program, [graph], axioms) == (Verdict.PROVED,)
    with pytest.raises(AxiomError, match="without a meaning"):
        verify_graphs(graph.program, [graph], helper)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense", "not TOML"),
        ('[f]\nconstructor = "Fun"\nconstructor = "Fun"\n', "not TOML"),
        ('f = "Fun"', "a table is needed"),
        ('[[f]]\nconstructor = "Fun"', "a table is needed"),
        ('[f]\nconstructor = "Fun"\noperands = ["x"]', "numpy is missing"),
        ('[f]\noperands = ["x"]\nnumpy = "x"', "constructor is missing"),
        ('[f]\nconstructor = 3\noperands = ["x"]\nnumpy = "x"', "no text"),
        ('[f]\nconstructor = "Fun"\noperands = "x"\nnumpy = "x"', "list of names"),
        ('[f]\nconstructor = "Fun"\noperands = [1]\nnumpy = "x"', "list of names"),
        ('[f]\nconstructor = "Fun"\noperands = ["x"]\ndim = ["k"]\nnumpy = "x"', "one dim"),
        ('[f]\nconstructor = "Fun"\noperands = ["x"]\nnumpy = "x"\nknown = "positive"', "unknown"),
        ('[f]\nconstructor = "Fun"\noperands = ["x"]\nnumpy = "x.T"', "f: numpy: 'x.T'"),
        ('[f.g]\nconstructor = "Fun"', "unknown field 'g'"),
        ('[sum]\nconstructor = "Fun"\noperands = ["x"]\nnumpy = "x"', "own"),
        ('["a b"]\nconstructor = "Fun"\noperands = ["x"]\nnumpy = "x"', "snake_case"),
        (
            "".join(
                f'[{n}]\nconstructor = "Fun"\noperands = ["x"]\nnumpy = "x"\n' for n in ("f", "g")
            ),
            "two operators have",
        ),
        ("x = " + "[" * 5_000, "nested too deep|not TOML"),
        ("x = " + "[" * (MAX_NESTING * 30) + "]" * (MAX_NESTING * 30), "nested too deep"),
        ("a" + ".a" * 5_000 + " = 1", "table|TOML|snake_case|unknown"),
    ],
)
def test_what_is_no_table_is_refused(text, why):
    with pytest.raises(AxiomError, match=rf"^mine\.toml: .*({why})"):
        parse_table(text, "mine.toml")


def test_strange_files_are_refused(mine, tmp_path):
    mine("; \n", table=None)
    table = tmp_path / "mine.toml"
    table.write_bytes(b"\xff\xfe")
    with pytest.raises(AxiomError, match="cannot be read"):
        load_axioms((str(tmp_path / "mine.egg"),))
    table.unlink()
    os.mkfifo(table)
    with pytest.raises(AxiomError, match="not a regular file"):
        load_axioms((str(tmp_path / "mine.egg"),))
    table.unlink()
    table.symlink_to(tmp_path / "nowhere")
    with pytest.raises(AxiomError, match="cannot be read"):
        load_axioms((str(tmp_path / "mine.egg"),))


def test_a_bad_table_fails_the_check_by_name(mine):
    found = check_axioms((mine(table=TABLE.replace("1.702 * x", "x.y")),), {}, ()).failures
    assert found[0].place == "mine.toml"
    assert found[0].fault is Fault.MALFORMED
    assert "gelu_quick: numpy: 'x.y'" in found[0].why


def test_values_of_copies_and_whole_dims_agree_in_both_arithmetics(mine, rng):
    from prism.egraph.exact import ExactMeaning, exact  # noqa: PLC0415
    from prism.egraph.meaning import Meaning, Sizes  # noqa: PLC0415

    load_axioms((mine(),))
    bank = TermBank(("d", "n"))
    x, s = bank.input("x", ("d", "n")), bank.input("s", ("d",))
    term = bank.make("Turn", (bank.make("Third", (x,)), s), (0,))
    arrays = {"x": rng.normal(size=(3, 2)), "s": rng.normal(size=(3, 1))}
    sizes = Sizes({0: 3, 1: 2}, {})
    value = Meaning(bank, sizes, arrays).value(term)
    third = arrays["x"] / 3
    assert np.allclose(value, third + arrays["s"] * np.roll(third, 1, 0))
    precise = ExactMeaning(bank, sizes, {k: exact(v) for k, v in arrays.items()}).value(term)
    assert np.allclose(value, [[float(n.value) for n in row] for row in precise])
