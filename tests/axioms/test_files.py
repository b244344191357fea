"""Axiom files: ours are well kept, and what a stranger may not write is refused with its line."""

from __future__ import annotations

import os

import pytest

from prism.egraph import ALGEBRA, AxiomFile, Session, load_axioms, make_axiom_set
from prism.errors import AxiomError, PluginError

GOOD = '(rewrite (Mul a b) (Mul b a) :ruleset algebra :name "mul-comm")'


def axioms(text, name="mine.egg"):
    return make_axiom_set((AxiomFile(name, text),))


def test_every_axiom_of_ours_has_a_sentence():
    for axiom in load_axioms().axioms:
        assert axiom.sentence.endswith("."), axiom.name


def test_our_lines_are_short():
    for file in load_axioms().files:
        for number, line in enumerate(file.text.splitlines(), 1):
            assert len(line) <= 100, f"{file.name}:{number}"


def test_an_axiom_knows_where_it_stands():
    (axiom,) = axioms(f"; Products commute.\n{GOOD}").axioms
    assert (axiom.name, axiom.family, axiom.ruleset, axiom.line) == (
        "mul-comm",
        "mine",
        ALGEBRA,
        2,
    )
    assert axiom.sentence == "Products commute."


def test_a_blank_line_ends_a_comment():
    (axiom,) = axioms(f"; A heading.\n\n{GOOD}").axioms
    assert axiom.sentence == ""


def test_a_birewrite_is_two_rules():
    found = axioms('(birewrite (Square a) (Mul a a) :ruleset algebra :name "square-mul")')
    assert len(found.axioms) == 1
    assert [rule.name for rule in found.rules] == ["square-mul", "square-mul-back"]


def test_a_rule_that_adds_an_equation_is_a_rewrite():
    text = (
        "(rule ((= e (Sum a k)) (= 0 (& (dims a) (<< 1 k)))) ((union e (Mul (Size k) a)))"
        ' :ruleset algebra :name "sum-constant")'
    )
    (axiom,) = axioms(text).axioms
    assert str(axiom.left) == "(Sum a k)"
    assert [str(c) for c in axiom.conditions] == ["(= 0 (& (dims a) (<< 1 k)))"]


def test_a_file_may_declare_helpers_for_files_after_it():
    found = make_axiom_set(
        (
            AxiomFile("a.egg", "(constructor Gate (E E) E)"),
            AxiomFile(
                "b.egg",
                '(birewrite (Mul (Silu a) b) (Gate a b) :ruleset algebra-verify :name "gate")',
            ),
        )
    )
    assert [h.name for h in found.helpers] == ["Gate"]


REFUSED = {
    "a command that runs": ("(run 10)", "mine.egg:1: the command 'run' is not allowed"),
    "include": ('(include "/etc/passwd")', "the command 'include' is not allowed"),
    "input": ('(input Mul "f.csv")', "the command 'input' is not allowed"),
    "output": ('(output "f" (Neg a))', "the command 'output' is not allowed"),
    "push": ("(push)", "the command 'push' is not allowed"),
    "check": ("(check (= 1 1))", "the command 'check' is not allowed"),
    "extract": ("(extract a)", "the command 'extract' is not allowed"),
    "let": ("(let x 1)", "the command 'let' is not allowed"),
    "function": ("(function f (E) i64 :merge old)", "the command 'function' is not allowed"),
    "ruleset": ("(ruleset mine)", "the command 'ruleset' is not allowed"),
    "an action": ('(Input "x")', "the command 'Input' is not allowed"),
    "an empty form": ("()", "the command '' is not allowed"),
    "the line": ("; one\n\n(panic 1)", "mine.egg:3: the command 'panic' is not allowed"),
    "a rule that deletes": (
        '(rule ((= e (Neg a))) ((delete (Neg a))) :ruleset algebra :name "neg-gone")',
        "a rule must read",
    ),
    "a rule with two actions": (
        '(rule ((= e (Neg a))) ((union e a) (panic "x")) :ruleset algebra :name "neg-gone")',
        "a rule must read",
    ),
    "a rule about an unnamed root": (
        '(rule ((= e (Neg a))) ((union a e)) :ruleset algebra :name "neg-gone")',
        "a rule must read",
    ),
    "a root on the left": (
        '(rule ((= e (Mul e b))) ((union e (Mul b b))) :ruleset algebra :name "idem")',
        "'e' names the root of the rule",
    ),
    "a root on the right": (
        '(rule ((= e (Neg b))) ((union e (Neg e))) :ruleset algebra :name "idem")',
        "'e' names the root of the rule",
    ),
    "no name": ("(rewrite (Neg (Neg a)) a :ruleset algebra)", "every rule needs a :name"),
    "a name of another form": (
        '(rewrite (Neg (Neg a)) a :ruleset algebra :name "Neg_Neg")',
        "every rule needs a :name in kebab-case, such as \"mul-comm\"; found 'Neg_Neg'",
    ),
    "no ruleset": ('(rewrite (Neg (Neg a)) a :name "neg-neg")', "needs a :ruleset, one of"),
    "the ruleset of the analyses": (
        '(rewrite (Neg (Neg a)) a :ruleset analyses :name "neg-neg")',
        "found 'analyses'",
    ),
    "an option": (
        '(rewrite (Neg (Neg a)) a :subsume :ruleset algebra :name "neg-neg")',
        ":subsume is not allowed here",
    ),
    "an option given twice": (
        '(rewrite (Neg (Neg a)) a :ruleset algebra :ruleset algebra :name "neg-neg")',
        ":ruleset needs one value, once",
    ),
    "one side": ('(rewrite (Neg a) :ruleset algebra :name "neg")', "a left and a right side"),
    "a bare variable on the left": (
        '(rewrite a (Neg (Neg a)) :ruleset algebra :name "neg-neg")',
        "the left side of 'neg-neg' must be an operator applied",
    ),
    "a bare variable of a birewrite": (
        '(birewrite (Neg (Neg a)) a :ruleset algebra :name "neg-neg")',
        "the right side of 'neg-neg' must be an operator applied",
    ),
    "an unknown operator": (
        '(rewrite (Negate a) a :ruleset algebra :name "neg")',
        "(Negate a) is no term; operators are Abs,",
    ),
    "a wrong number of operands": (
        '(rewrite (Neg a b) a :ruleset algebra :name "neg")',
        "Neg takes 1 arguments, not 2",
    ),
    "a variable from nowhere": (
        '(rewrite (Neg a) (Neg b) :ruleset algebra :name "neg")',
        "rule 'neg': 'b' occurs only on the side that is produced",
    ),
    "a dimension used as a term": (
        '(rewrite (Sum a k) (Mul k a) :ruleset algebra :name "sum")',
        "rule 'sum': 'k' is a data dimension on one side and a term on the other",
    ),
    "a data dimension used as a parallel one": (
        '(rewrite (Part x d d) x :ruleset parallel :name "part")',
        "'d' is used as a data dimension and as a parallel dimension",
    ),
    "a variable in capitals": (
        '(rewrite (Neg Abs) Abs :ruleset algebra :name "neg")',
        "expected a variable in lower case for a term, found 'Abs'",
    ),
    "a number as a dimension": (
        '(rewrite (Sum a 3) a :ruleset algebra :name "sum")',
        "expected a variable in lower case for a data dimension, found '3'",
    ),
    "a parallel operator in the algebra": (
        '(rewrite (Red (Repl x p) p) x :ruleset algebra :name "red")',
        "Red may only occur in ruleset parallel",
    ),
    "a condition that computes something else": (
        '(rewrite (Neg (Neg a)) a :when ((vec-of a)) :ruleset algebra :name "neg")',
        "(vec-of a) is no condition",
    ),
    "a condition on something else": (
        '(rewrite (Neg (Neg a)) a :when ((= 0 (cost a))) :ruleset algebra :name "neg")',
        "(cost a) is no number here",
    ),
    "a condition on the dims of a dim": (
        '(rewrite (Sum a k) a :when ((= 0 (dims k))) :ruleset algebra :name "sum")',
        "(dims k) is no number here",
    ),
    "a condition without parentheses": (
        '(rewrite (Neg (Neg a)) a :when true :ruleset algebra :name "neg")',
        ":when takes a list of facts",
    ),
    "a name used twice": (
        f"{GOOD}\n{GOOD}",
        "mine.egg:2: the rule name 'mul-comm' is used before, in mine.egg:1",
    ),
    "a helper with dimensions": (
        "(constructor Tile (E i64) E)",
        "a constructor must read (constructor NAME (E ...) E)",
    ),
    "a helper named like an operator": ("(constructor Mul (E E) E)", "'Mul' is taken"),
    "an open parenthesis": ("\n(rewrite (Neg a", "mine.egg:2: the parenthesis opened here"),
    "a tower of parentheses": ("(" * 100_000, "mine.egg:1: more than 64 open lists"),
    "a closing parenthesis too many": ("(constructor G (E) E))", "mine.egg:1: ')' closes nothing"),
    "text outside": ("rewrite", "'rewrite' stands outside every parenthesis"),
    "an open string": ('(rewrite "abc', "cannot read '\"' here; an unterminated string?"),
    "a string that ends elsewhere for another reader": (
        '(rewrite (Mul (Const "1\\") (run 9)") a) a :ruleset algebra :name "mul-one")',
        "expected a plain string",
    ),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_allowed_is_refused(text, message):
    with pytest.raises(AxiomError) as caught:
        axioms(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("mine.egg:")


def test_what_only_egglog_refuses_names_the_line_too():
    found = axioms('\n(rewrite (Neg true) (Abs true) :ruleset algebra :name "neg-true")')
    with pytest.raises(AxiomError, match=r"mine\.egg:2: rule 'neg-true'"):
        Session(found, {ALGEBRA}, {"Neg", "Abs"})


def test_a_path_works_where_a_name_does(tmp_path):
    (tmp_path / "mine.egg").write_text(GOOD)
    assert [a.name for a in load_axioms((str(tmp_path / "mine.egg"),)).axioms] == ["mul-comm"]
    assert [a.family for a in load_axioms((str(tmp_path),)).axioms] == [f"{tmp_path.name}/mine"]


def test_a_file_adds_to_a_set_and_changes_its_fingerprint(tmp_path):
    path = tmp_path / "mine.egg"
    path.write_text('(rewrite (Neg (Neg a)) a :ruleset algebra :name "mine")')
    ours, both = load_axioms(), load_axioms(("prism", str(path)))
    assert len(both.axioms) == len(ours.axioms) + 1
    assert both.fingerprint != ours.fingerprint


def test_the_empty_set_of_axioms_is_a_set():
    assert load_axioms(()).axioms == ()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(AxiomError, match=r"no-such\.egg cannot be read"):
        load_axioms((str(tmp_path / "no-such.egg"),))


def test_a_folder_without_axioms_is_named(tmp_path):
    with pytest.raises(AxiomError, match=r"holds no \.egg file"):
        load_axioms((str(tmp_path),))


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(PluginError, match=r"known: .*prism"):
        load_axioms(("no-such-set",))


def test_a_file_of_another_encoding_is_refused(tmp_path):
    path = tmp_path / "mine.egg"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(AxiomError, match="cannot be read"):
        load_axioms((str(path),))


def test_a_pipe_is_no_axiom_file(tmp_path):
    os.mkfifo(tmp_path / "mine.egg")
    with pytest.raises(AxiomError, match="not a regular file"):
        load_axioms((str(tmp_path / "mine.egg"),))
