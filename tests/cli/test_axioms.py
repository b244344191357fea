"""`prism axioms check`."""

from __future__ import annotations

import pytest
from cli_checks import assert_refused

from prism.cli.answer import Status
from prism.errors import AxiomError
from prism.frontend import load_program
from prism.plugins import installed
from prism.search import SearchOptions
from prism.search_cache import search_key

GOOD = """
; An absolute value has no sign to drop.
(rewrite (Abs (Abs x)) (Abs x) :ruleset algebra :name "abs-abs")
"""
WRONG = '(rewrite (Sub a b) (Sub b a) :ruleset algebra :name "sub-comm")\n'


@pytest.fixture
def mine(tmp_path):
    def write(text, name="mine.egg"):
        file = tmp_path / name
        file.write_text(text)
        return file

    return write


def test_a_good_file_passes(prism, prism_json, mine):
    file = mine(GOOD)
    data = prism_json("axioms", "check", file)
    assert data["schema"] == "prism.cli.axioms-check/1"
    assert data["ok"]
    assert data["failures"] == []
    assert [r["rule"] for r in data["rules"]] == ["abs-abs"]
    assert data["proofs"]["proved for all sizes"] == 1
    assert {g["target"] for g in data["growth"]} >= {"rmsnorm", "attention"}
    assert all(g["complete"] for g in data["growth"])
    assert "all rules pass" in prism("axioms", "check", file).stdout


def test_a_wrong_rule_is_named_with_its_place_and_a_counterexample(prism, prism_json, mine):
    file = mine(f"{GOOD}\n{WRONG}")
    data = prism_json("axioms", "check", file, status=Status.NO)
    (failure,) = data["failures"]
    assert (failure["place"], failure["rule"]) == ("mine.egg:5", "sub-comm")
    assert failure["fault"] == "unsound"
    result = prism("axioms", "check", file)
    assert result.exit_code == Status.NO
    assert "mine.egg:5: rule 'sub-comm', unsound: the left side is" in result.stdout
    assert "1 rules fail" not in result.stdout


def test_a_search_proves_nothing_with_a_rule_that_a_test_refutes(prism, mine, tmp_path):
    file = mine('(rewrite (Add x (Const "1.0")) x :ruleset algebra :name "one-less")\n')
    program = tmp_path / "layer.py"
    program.write_text("def layer(x: 'n d'):\n    return x + 1\n")
    fault = ("mine.egg:1", "one-less", "unsound", "the left side is")
    layer = f"{program}:layer"
    assert_refused(prism("search", layer, "--axioms", file), *fault)
    assert_refused(prism("optimize", layer, "--sizes", "n=2,d=2", "--axioms", file), *fault)
    assert_refused(prism("verify", layer, layer, "--axioms", file), *fault)


def test_neither_what_no_instance_reaches_nor_what_a_helper_hides_is_used(prism, mine):
    far = '(rewrite (Add x (Const "1.0")) x :when ((> (dims x) 7)) :ruleset algebra :name "far")'
    hidden = (
        "(constructor Foo (E) E)\n"
        '(rewrite (Add x (Const "1.0")) (Foo x) :ruleset algebra :name "in")\n'
        '(rewrite (Foo x) x :ruleset algebra :name "out")\n'
    )
    ask = ("verify", "matmul", "matmul", "--axioms")
    assert_refused(prism(*ask, mine(far)), "far", "no well-typed instance")
    assert_refused(prism(*ask, mine(hidden)), "mine.egg:2", "unsound", "proves")


def test_a_search_in_the_cache_does_not_make_a_wrong_axiom_right(prism, mine, tmp_path):
    program = tmp_path / "layer.py"
    program.write_text("def layer(x: 'n d'):\n    return x + 1\n")
    options = SearchOptions(axioms=("prism", str(mine(WRONG))))
    with pytest.raises(AxiomError, match="sub-comm"):
        search_key(load_program(f"{program}:layer")[1], options)


def test_sides_that_differ_little_are_shown_to_differ(prism, mine):
    file = mine('(rewrite (Mul x (Const "1.0000001")) x :ruleset algebra :name "nearly")\n')
    stdout = prism("axioms", "check", file).stdout
    assert "unsound: the left side is 1.0000001" in stdout


def test_a_file_without_rules_does_not_pass_for_one(prism, mine):
    stdout = prism("axioms", "check", mine("; nothing yet\n")).stdout
    assert "there is no rule in these files" in stdout
    assert "pass" not in stdout


def test_a_file_of_too_many_rules_is_refused_at_once(prism, mine):
    rules = (f'(rewrite (Abs x) (Abs x) :ruleset algebra :name "r{i}")' for i in range(2001))
    file = mine("\n".join(rules))
    assert_refused(prism("verify", "matmul", "matmul", "--axioms", file), "mine.egg:2001", "2001")


def test_a_malformed_file_is_a_failure_and_a_missing_one_bad_input(prism, prism_json, mine):
    file = mine('(include "/etc/passwd")\n')
    (failure,) = prism_json("axioms", "check", file, status=Status.NO)["failures"]
    assert failure["fault"] == "malformed"
    assert failure["place"] == "mine.egg:1"
    assert_refused(prism("axioms", "check", "nowhere.egg"), "nowhere.egg")
    assert_refused(prism("axioms", "check", "euclid"), "'euclid'", "prism")


def test_several_files_are_checked_together(prism_json, mine):
    files = mine(GOOD, "a.egg"), mine(WRONG, "b.egg")
    data = prism_json("axioms", "check", *files, status=Status.NO)
    assert data["files"] == ["a.egg", "b.egg"]
    assert [f["place"] for f in data["failures"]] == ["b.egg:1"]


def test_without_a_prover_rules_are_tested_only(prism_json, mine, monkeypatch):
    monkeypatch.setattr(
        "prism.egraph.proving.installed",
        lambda group: {} if "PROVER" in group.name else installed(group),
    )
    data = prism_json("axioms", "check", mine(GOOD))
    assert data["proofs"] == {
        "proved for all sizes": 0,
        "proved at sizes up to 3": 0,
        "tested only": 1,
    }
